// 256-bit words: AVX2 with FMA and F16C, and AVX-VNNI where the compiler may use it. Half a 16-row line a register.
#pragma once
#include <immintrin.h>

#include <cstdint>

#define SIMD_INLINE static inline __attribute__((always_inline))

namespace pllm::cpu {
namespace {  // one copy an instruction set: the linker must never merge two

using I = __m256i;  // bytes, int16 or int32
using F = __m256;   // 8 floats
constexpr int kLanes = 8;

// ---- float words
SIMD_INLINE F setf(float v) { return _mm256_set1_ps(v); }
SIMD_INLINE F loadf(const float* p) { return _mm256_loadu_ps(p); }
SIMD_INLINE void storef(float* p, F v) { _mm256_storeu_ps(p, v); }
SIMD_INLINE F add(F a, F b) { return _mm256_add_ps(a, b); }
SIMD_INLINE F sub(F a, F b) { return _mm256_sub_ps(a, b); }
SIMD_INLINE F mul(F a, F b) { return _mm256_mul_ps(a, b); }
SIMD_INLINE F div(F a, F b) { return _mm256_div_ps(a, b); }
SIMD_INLINE F max(F a, F b) { return _mm256_max_ps(a, b); }
SIMD_INLINE F min(F a, F b) { return _mm256_min_ps(a, b); }
SIMD_INLINE F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }    // a b + c
SIMD_INLINE F fnma(F a, F b, F c) { return _mm256_fnmadd_ps(a, b, c); }  // c - a b
SIMD_INLINE F to_float(I a) { return _mm256_cvtepi32_ps(a); }
SIMD_INLINE F load_half(const void* p) { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)p)); }
SIMD_INLINE void store_half(void* p, F v) {
  _mm_storeu_si128((__m128i*)p, _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}

// ---- integer words
constexpr int kTokens = 12;     // most tokens of one tile: more would spill
constexpr int kTileSums = 8;    // registers for sums while a panel is read once
constexpr int kSideBySide = 2;  // tokens whose sums are made at once
#if defined(__AVXVNNI__)
#define SIMD_DP 1
#define SIMD_FUSED_SUMS 1
SIMD_INLINE I dp(I acc, I u, I s) { return _mm256_dpbusd_avx_epi32(acc, u, s); }
// acc + a0 b0 + a1 b1. Not the intrinsic: GCC copies and spills arrays of its sums.
SIMD_INLINE I madd16(I acc, I a, I b) {
  asm("%{vex%} vpdpwssd %2, %1, %0" : "+x"(acc) : "x"(a), "x"(b));
  return acc;
}
#else
#define SIMD_MADD8 1
SIMD_INLINE I madd8(I u, I s) { return _mm256_maddubs_epi16(u, s); }  // u0 s0 + u1 s1 in int16, saturating
SIMD_INLINE I sign8(I a, I b) { return _mm256_sign_epi8(a, b); }      // a with the sign of b: -a where b < 0
SIMD_INLINE I abs8(I a) { return _mm256_abs_epi8(a); }
SIMD_INLINE I madd16(I acc, I a, I b) { return _mm256_add_epi32(acc, _mm256_madd_epi16(a, b)); }
#endif
SIMD_INLINE I load(const void* p) { return _mm256_loadu_si256((const I*)p); }
SIMD_INLINE void storei(void* p, I a) { _mm256_storeu_si256((I*)p, a); }
SIMD_INLINE I load_bytes(const void* p) { return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i*)p)); }
SIMD_INLINE void store_bytes(void* p, I a) {  // the low byte of each int32
  a = _mm256_shuffle_epi8(a, _mm256_set1_epi32(0x0c080400));
  _mm_storel_epi64((__m128i*)p,
                   _mm256_castsi256_si128(_mm256_permutevar8x32_epi32(a, _mm256_set1_epi64x(0x400000000))));
}
SIMD_INLINE I load_int8(const void* p) { return _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i*)p)); }
SIMD_INLINE void store_int16(void* p, I a) {  // the low half of each int32
  a = _mm256_shuffle_epi8(a, _mm256_broadcastsi128_si256(_mm_set_epi32(0, 0, 0x0d0c0908, 0x05040100)));
  _mm_storeu_si128((__m128i*)p, _mm256_castsi256_si128(_mm256_permute4x64_epi64(a, 0x08)));
}
SIMD_INLINE I set32(int32_t v) { return _mm256_set1_epi32(v); }
SIMD_INLINE I set16(int v) { return _mm256_set1_epi16((int16_t)v); }
SIMD_INLINE I set8(int v) { return _mm256_set1_epi8((char)v); }
SIMD_INLINE I table16(const void* p) { return _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i*)p)); }
SIMD_INLINE I lookup(I table, I codes) { return _mm256_shuffle_epi8(table, codes); }  // codes 0..15
SIMD_INLINE I and_(I a, I b) { return _mm256_and_si256(a, b); }
SIMD_INLINE I or_(I a, I b) { return _mm256_or_si256(a, b); }
SIMD_INLINE I xor_(I a, I b) { return _mm256_xor_si256(a, b); }
SIMD_INLINE I or_and(I a, I b, I m) { return or_(a, and_(b, m)); }  // a | (b & m); no bit of m is in a
SIMD_INLINE I add(I a, I b) { return _mm256_add_epi32(a, b); }
SIMD_INLINE I sub(I a, I b) { return _mm256_sub_epi32(a, b); }
SIMD_INLINE I mul(I a, I b) { return _mm256_mullo_epi32(a, b); }
SIMD_INLINE I max(I a, I b) { return _mm256_max_epi32(a, b); }
SIMD_INLINE int32_t largest(I a) {
  __m128i v = _mm_max_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
  v = _mm_max_epi32(v, _mm_shuffle_epi32(v, 0x4e));
  return _mm_cvtsi128_si32(_mm_max_epi32(v, _mm_shuffle_epi32(v, 0xb1)));
}
SIMD_INLINE I add16(I a, I b) { return _mm256_add_epi16(a, b); }
SIMD_INLINE I sub8(I a, I b) { return _mm256_sub_epi8(a, b); }
template <int N>
SIMD_INLINE I shr(I a) {  // int32, unsigned; N < 0 shifts left
  if constexpr (N > 0)
    return _mm256_srli_epi32(a, N);
  else if constexpr (N < 0)
    return _mm256_slli_epi32(a, -N);
  else
    return a;
}
template <int N>
SIMD_INLINE I sar(I a) {
  return _mm256_srai_epi32(a, N);
}
SIMD_INLINE I high_nibbles(I a) { return and_(shr<4>(a), set8(15)); }
SIMD_INLINE F as_float(I a) { return _mm256_castsi256_ps(a); }
SIMD_INLINE I as_int(F a) { return _mm256_castps_si256(a); }
SIMD_INLINE F low_half(I a) {  // the f16 in the low 16 bits of each int32
  a = _mm256_permute4x64_epi64(_mm256_packus_epi32(and_(a, set32(0xffff)), a), 0x08);
  return _mm256_cvtph_ps(_mm256_castsi256_si128(a));
}
SIMD_INLINE F load_bf16(const void* p) {
  return as_float(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i*)p)), 16));
}

}  // namespace
}  // namespace pllm::cpu
