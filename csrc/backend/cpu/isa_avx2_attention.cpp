// The float kernels for AVX2, FMA and F16C.
#if defined(__x86_64__)
#include "backend/cpu/simd/avx2_float.h"
// after the words
#include "backend/cpu/attention.inl.h"
#include "backend/cpu/attention_floats.inl.h"
#include "backend/cpu/elementwise.inl.h"

namespace pllm::cpu {
extern const ElementwiseKernels kAvx2Elementwise = kElementwise;
extern const AttentionKernels kAvx2Attention = kAttention;
extern const FloatKvKernels kAvx2FloatKv = kFloatKv;
}  // namespace pllm::cpu
#endif
