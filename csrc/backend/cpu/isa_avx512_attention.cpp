// The float kernels for AVX-512 F, BW, DQ and VL.
#if defined(__x86_64__)
#include "backend/cpu/simd/avx512_float.h"
// after the words
#include "backend/cpu/attention.inl.h"
#include "backend/cpu/attention_floats.inl.h"
#include "backend/cpu/elementwise.inl.h"

namespace pllm::cpu {
extern const ElementwiseKernels kAvx512Elementwise = kElementwise;
extern const AttentionKernels kAvx512Attention = kAttention;
extern const FloatKvKernels kAvx512FloatKv = kFloatKv;
}  // namespace pllm::cpu
#endif
