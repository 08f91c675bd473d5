#if defined(__x86_64__)
#include "backend/cpu/simd/avx512.h"
// after the words
#include "backend/cpu/levels.h"
#include "backend/cpu/table.inl.h"

namespace pllm::cpu {
extern constexpr KernelTable kAvx512Table =
    make_table("avx512", &kAvx512Elementwise, &kAvx512Attention, &kAvx512FloatKv, &kAvx512CodeKv);
}  // namespace pllm::cpu
#endif
