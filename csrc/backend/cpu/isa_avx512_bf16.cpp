#if defined(__x86_64__)
#include "backend/cpu/simd/bf16_avx512.h"
// after the words
#include "backend/cpu/bf16_peak.inl.h"
#endif
