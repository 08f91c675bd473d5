// Attention over codes for any CPU.
#if !defined(__aarch64__)
#define SIMD_BYTES 16
#include "backend/cpu/simd/baseline_float.h"
// after the words
#include "backend/cpu/attention_codes.inl.h"

namespace pllm::cpu {
extern const CodeKvKernels kBaselineCodeKv = kCodeKv;
}  // namespace pllm::cpu
#endif
