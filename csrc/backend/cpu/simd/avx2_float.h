// Float words of avx2.h beyond plain arithmetic: choices, lanes, reductions in one fixed order.
#pragma once
#include "backend/cpu/simd/avx2.h"

namespace pllm::cpu {
namespace {

constexpr int kRegisters = 16;

using Mask = F;
SIMD_INLINE Mask less(F a, F b) { return _mm256_cmp_ps(a, b, _CMP_LT_OQ); }
SIMD_INLINE F select(Mask m, F a, F b) { return _mm256_blendv_ps(b, a, m); }  // m ? a : b
SIMD_INLINE F iota() { return _mm256_setr_ps(0, 1, 2, 3, 4, 5, 6, 7); }

SIMD_INLINE float first(__m128 v) { return _mm_cvtss_f32(v); }
// The fixed tree over 16 lanes, lane i in v[i / 8]: lane i + lane i + 8, then + 4, + 2, + 1.
SIMD_INLINE float sum16(const F (&v)[2]) {
  const F w = add(v[0], v[1]);
  __m128 x = _mm_add_ps(_mm256_castps256_ps128(w), _mm256_extractf128_ps(w, 1));
  x = _mm_add_ps(x, _mm_movehl_ps(x, x));
  return first(_mm_add_ss(x, _mm_movehdup_ps(x)));
}
SIMD_INLINE float max16(const F (&v)[2]) {
  const F w = max(v[0], v[1]);
  __m128 x = _mm_max_ps(_mm256_castps256_ps128(w), _mm256_extractf128_ps(w, 1));
  x = _mm_max_ps(x, _mm_movehl_ps(x, x));
  return first(_mm_max_ss(x, _mm_movehdup_ps(x)));
}

struct Pair {
  F a, b;
};
SIMD_INLINE Pair unzip(F a, F b) {  // {a0 a2 .. b0 b2 .., a1 a3 .. b1 b3 ..}
  const __m256d even = _mm256_castps_pd(_mm256_shuffle_ps(a, b, 0x88)),
                odd = _mm256_castps_pd(_mm256_shuffle_ps(a, b, 0xdd));
  return {_mm256_castpd_ps(_mm256_permute4x64_pd(even, 0xd8)), _mm256_castpd_ps(_mm256_permute4x64_pd(odd, 0xd8))};
}
SIMD_INLINE Pair zip(F even, F odd) {  // its inverse
  const F lo = _mm256_unpacklo_ps(even, odd), hi = _mm256_unpackhi_ps(even, odd);
  return {_mm256_permute2f128_ps(lo, hi, 0x20), _mm256_permute2f128_ps(lo, hi, 0x31)};
}

}  // namespace
}  // namespace pllm::cpu
