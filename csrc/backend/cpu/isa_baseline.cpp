#if !defined(__aarch64__)  // where NEON is what every CPU has
#define SIMD_BYTES 16      // what every CPU has: the integer products keep many registers busy
#include "backend/cpu/simd/baseline.h"
// after the words
#include "backend/cpu/levels.h"
#include "backend/cpu/table.inl.h"

namespace pllm::cpu {
extern constexpr KernelTable kBaselineTable =
    make_table("baseline", &kBaselineElementwise, &kBaselineAttention, &kBaselineFloatKv, &kBaselineCodeKv);
}  // namespace pllm::cpu
#endif
