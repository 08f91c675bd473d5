#if defined(__aarch64__)
#define PLLM_PASSES kNeonPasses
#include "sampling/passes.inl.h"
#endif
