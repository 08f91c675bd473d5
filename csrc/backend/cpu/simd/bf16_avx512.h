// Products of bfloat16 over the words of avx512.h.
#pragma once
#include "backend/cpu/simd/avx512.h"

namespace pllm::cpu {
namespace {

constexpr int kBf16Macs = 2 * kLanes;
SIMD_INLINE F bf16_dot(F acc, I a, I b) { return _mm512_dpbf16_ps(acc, (__m512bh)a, (__m512bh)b); }

}  // namespace
}  // namespace pllm::cpu
