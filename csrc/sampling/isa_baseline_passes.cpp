#if !defined(__aarch64__)
#define PLLM_PASSES kBaselinePasses
#include "sampling/passes.inl.h"
#endif
