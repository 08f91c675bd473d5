#if defined(__x86_64__)
#define PLLM_PASSES kAvx2Passes
#include "sampling/passes.inl.h"
#endif
