#if defined(__aarch64__)
#include "backend/cpu/simd/bf16_neon.h"
// after the words
#include "backend/cpu/bf16_peak.inl.h"
#endif
