// Float words of avx512.h beyond plain arithmetic: choices, lanes, reductions in one fixed order.
#pragma once
#include "backend/cpu/simd/avx512.h"

namespace pllm::cpu {
namespace {

constexpr int kRegisters = 32;

using Mask = __mmask16;
SIMD_INLINE Mask less(F a, F b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
SIMD_INLINE F select(Mask m, F a, F b) { return _mm512_mask_blend_ps(m, b, a); }  // m ? a : b
SIMD_INLINE F iota() { return _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15); }

SIMD_INLINE float first(__m128 v) { return _mm_cvtss_f32(v); }
// The fixed tree over 16 lanes: lane i + lane i + 8, then + 4, + 2, + 1.
SIMD_INLINE float sum16(const F (&v)[1]) {
  const __m256 w = _mm256_add_ps(_mm512_castps512_ps256(v[0]), _mm512_extractf32x8_ps(v[0], 1));
  __m128 x = _mm_add_ps(_mm256_castps256_ps128(w), _mm256_extractf128_ps(w, 1));
  x = _mm_add_ps(x, _mm_movehl_ps(x, x));
  return first(_mm_add_ss(x, _mm_movehdup_ps(x)));
}
SIMD_INLINE float max16(const F (&v)[1]) {
  const __m256 w = _mm256_max_ps(_mm512_castps512_ps256(v[0]), _mm512_extractf32x8_ps(v[0], 1));
  __m128 x = _mm_max_ps(_mm256_castps256_ps128(w), _mm256_extractf128_ps(w, 1));
  x = _mm_max_ps(x, _mm_movehl_ps(x, x));
  return first(_mm_max_ss(x, _mm_movehdup_ps(x)));
}

struct Pair {
  F a, b;
};
SIMD_INLINE Pair unzip(F a, F b) {  // {a0 a2 .. b0 b2 .., a1 a3 .. b1 b3 ..}
  const I even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  return {_mm512_permutex2var_ps(a, even, b), _mm512_permutex2var_ps(a, add(even, set32(1)), b)};
}
SIMD_INLINE Pair zip(F even, F odd) {  // its inverse
  const I lo = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  return {_mm512_permutex2var_ps(even, lo, odd), _mm512_permutex2var_ps(even, add(lo, set32(8)), odd)};
}

}  // namespace
}  // namespace pllm::cpu
