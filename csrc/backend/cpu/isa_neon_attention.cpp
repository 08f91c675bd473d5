// The float kernels for every 64-bit ARM.
#if defined(__aarch64__)
#include "backend/cpu/simd/neon_float.h"
// after the words
#include "backend/cpu/attention.inl.h"
#include "backend/cpu/elementwise.inl.h"

namespace pllm::cpu {
extern const ElementwiseKernels kNeonElementwise = kElementwise;
extern const AttentionKernels kNeonAttention = kAttention;
}  // namespace pllm::cpu
#endif
