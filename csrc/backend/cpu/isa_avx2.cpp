#if defined(__x86_64__)
#include "backend/cpu/simd/avx2.h"
// after the words
#include "backend/cpu/levels.h"
#include "backend/cpu/table.inl.h"

namespace pllm::cpu {
extern constexpr KernelTable kAvx2Table =
    make_table("avx2", &kAvx2Elementwise, &kAvx2Attention, &kAvx2FloatKv, &kAvx2CodeKv);
}  // namespace pllm::cpu
#endif
