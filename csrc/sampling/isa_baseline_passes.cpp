#define PLLM_PASSES kBaselinePasses
#include "sampling/passes.inl.h"
