// The float kernels for any CPU, by vector extensions.
#include "backend/cpu/simd/baseline_float.h"
// after the words
#include "backend/cpu/elementwise.inl.h"

namespace pllm::cpu {
extern const ElementwiseKernels kBaselineElementwise = kElementwise;
}  // namespace pllm::cpu
