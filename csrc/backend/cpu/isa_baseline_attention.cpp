// The float kernels for any CPU, by vector extensions.
#if !defined(__aarch64__)
#define SIMD_BYTES 16  // floats fill real registers; the compiler keeps few of the wider kind
#include "backend/cpu/simd/baseline_float.h"
// after the words
#include "backend/cpu/attention.inl.h"
#include "backend/cpu/attention_floats.inl.h"
#include "backend/cpu/elementwise.inl.h"

namespace pllm::cpu {
extern const ElementwiseKernels kBaselineElementwise = kElementwise;
extern const AttentionKernels kBaselineAttention = kAttention;
extern const FloatKvKernels kBaselineFloatKv = kFloatKv;
}  // namespace pllm::cpu
#endif
