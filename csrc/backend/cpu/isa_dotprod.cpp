#if defined(__aarch64__)
#include "backend/cpu/simd/neon.h"
// after the words
#include "backend/cpu/levels.h"
#include "backend/cpu/table.inl.h"

namespace pllm::cpu {
extern constexpr KernelTable kDotprodTable =
    make_table("dotprod", &kNeonElementwise, &kNeonAttention, &kNeonFloatKv, &kNeonCodeKv);
}  // namespace pllm::cpu
#endif
