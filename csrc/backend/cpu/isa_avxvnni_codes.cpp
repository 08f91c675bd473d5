// Attention over codes for AVX-VNNI.
#if defined(__x86_64__)
#include "backend/cpu/simd/avx2_float.h"
// after the words
#include "backend/cpu/attention_codes.inl.h"

namespace pllm::cpu {
extern const CodeKvKernels kAvxVnniCodeKv = kCodeKv;
}  // namespace pllm::cpu
#endif
