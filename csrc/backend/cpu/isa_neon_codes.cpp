// Attention over codes for every 64-bit ARM.
#if defined(__aarch64__)
#include "backend/cpu/simd/neon_float.h"
// after the words
#include "backend/cpu/attention_codes.inl.h"

namespace pllm::cpu {
extern const CodeKvKernels kNeonCodeKv = kCodeKv;
}  // namespace pllm::cpu
#endif
