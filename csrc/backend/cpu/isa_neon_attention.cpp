// The float kernels for every 64-bit ARM.
#if defined(__aarch64__)
#include "backend/cpu/simd/neon_float.h"
// after the words
#include "backend/cpu/attention.inl.h"
#include "backend/cpu/attention_floats.inl.h"
#include "backend/cpu/elementwise.inl.h"

namespace pllm::cpu {
extern const ElementwiseKernels kNeonElementwise = kElementwise;
extern const AttentionKernels kNeonAttention = kAttention;
extern const FloatKvKernels kNeonFloatKv = kFloatKv;
}  // namespace pllm::cpu
#endif
