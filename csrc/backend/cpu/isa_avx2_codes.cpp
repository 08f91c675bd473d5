// Attention over codes for AVX2.
#if defined(__x86_64__)
#include "backend/cpu/simd/avx2_float.h"
// after the words
#include "backend/cpu/attention_codes.inl.h"

namespace pllm::cpu {
extern const CodeKvKernels kAvx2CodeKv = kCodeKv;
}  // namespace pllm::cpu
#endif
