// Attention over codes for AVX-512 VNNI.
#if defined(__x86_64__)
#include "backend/cpu/simd/avx512_float.h"
// after the words
#include "backend/cpu/attention_codes.inl.h"

namespace pllm::cpu {
extern const CodeKvKernels kAvx512VnniCodeKv = kCodeKv;
}  // namespace pllm::cpu
#endif
