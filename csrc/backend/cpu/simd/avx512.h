// 512-bit words: AVX-512 F, BW, DQ, VL, and VNNI where the compiler may use it. A 16-row line a register.
#pragma once
#include <immintrin.h>

#include <cstdint>

#define SIMD_INLINE static inline __attribute__((always_inline))

namespace pllm::cpu {
namespace {  // one copy an instruction set: the linker must never merge two

using I = __m512i;  // bytes, int16 or int32
using F = __m512;   // 16 floats
constexpr int kLanes = 16;

// ---- float words
SIMD_INLINE F setf(float v) { return _mm512_set1_ps(v); }
SIMD_INLINE F loadf(const float* p) { return _mm512_loadu_ps(p); }
SIMD_INLINE void storef(float* p, F v) { _mm512_storeu_ps(p, v); }
SIMD_INLINE F add(F a, F b) { return _mm512_add_ps(a, b); }
SIMD_INLINE F sub(F a, F b) { return _mm512_sub_ps(a, b); }
SIMD_INLINE F mul(F a, F b) { return _mm512_mul_ps(a, b); }
SIMD_INLINE F div(F a, F b) { return _mm512_div_ps(a, b); }
SIMD_INLINE F max(F a, F b) { return _mm512_max_ps(a, b); }
SIMD_INLINE F min(F a, F b) { return _mm512_min_ps(a, b); }
SIMD_INLINE F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }    // a b + c
SIMD_INLINE F fnma(F a, F b, F c) { return _mm512_fnmadd_ps(a, b, c); }  // c - a b
SIMD_INLINE F to_float(I a) { return _mm512_cvtepi32_ps(a); }
SIMD_INLINE F load_half(const void* p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)p)); }
SIMD_INLINE void store_half(void* p, F v) {
  _mm256_storeu_si256((__m256i*)p, _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}

// ---- integer words
constexpr int kTokens = 16;     // most tokens of one tile: more would spill
constexpr int kTileSums = 16;   // registers for sums while a panel is read once
constexpr int kSideBySide = 4;  // tokens whose sums are made at once
#if defined(__AVX512VNNI__)
#define SIMD_DP 1
#define SIMD_FUSED_SUMS 1
SIMD_INLINE I dp(I acc, I u, I s) { return _mm512_dpbusd_epi32(acc, u, s); }
// acc + a0 b0 + a1 b1. Not the intrinsic: GCC copies and spills arrays of its sums.
SIMD_INLINE I madd16(I acc, I a, I b) {
  asm("vpdpwssd %2, %1, %0" : "+v"(acc) : "v"(a), "v"(b));
  return acc;
}
#if !defined(__clang__)  // GCC broadcasts into a register first: a fifth slower
#define SIMD_DP_WORD 1
SIMD_INLINE I dp_word(I acc, I u, const int8_t* x, int word) {
  asm("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(acc) : "v"(u), "m"(*(const int32_t*)(x + 4 * word)));
  return acc;
}
#endif
#else
#define SIMD_MADD8 1
SIMD_INLINE I madd8(I u, I s) { return _mm512_maddubs_epi16(u, s); }  // u0 s0 + u1 s1 in int16, saturating
SIMD_INLINE I sign8(I a, I b) { return _mm512_mask_sub_epi8(a, _mm512_movepi8_mask(b), _mm512_setzero_si512(), a); }
SIMD_INLINE I abs8(I a) { return _mm512_abs_epi8(a); }
SIMD_INLINE I madd16(I acc, I a, I b) { return _mm512_add_epi32(acc, _mm512_madd_epi16(a, b)); }
#endif
SIMD_INLINE I load(const void* p) { return _mm512_loadu_si512(p); }
SIMD_INLINE void storei(void* p, I a) { _mm512_storeu_si512(p, a); }
SIMD_INLINE I load_bytes(const void* p) { return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i*)p)); }
SIMD_INLINE void store_bytes(void* p, I a) { _mm_storeu_si128((__m128i*)p, _mm512_cvtepi32_epi8(a)); }  // low bytes
SIMD_INLINE I load_int8(const void* p) { return _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i*)p)); }
SIMD_INLINE void store_int16(void* p, I a) {
  _mm256_storeu_si256((__m256i*)p, _mm512_cvtepi32_epi16(a));
}  // low halves
SIMD_INLINE I set32(int32_t v) { return _mm512_set1_epi32(v); }
SIMD_INLINE I set16(int v) { return _mm512_set1_epi16((int16_t)v); }
SIMD_INLINE I set8(int v) { return _mm512_set1_epi8((char)v); }
SIMD_INLINE I table16(const void* p) { return _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i*)p)); }
SIMD_INLINE I lookup(I table, I codes) { return _mm512_shuffle_epi8(table, codes); }  // codes 0..15
SIMD_INLINE I and_(I a, I b) { return _mm512_and_si512(a, b); }
SIMD_INLINE I or_(I a, I b) { return _mm512_or_si512(a, b); }
SIMD_INLINE I xor_(I a, I b) { return _mm512_xor_si512(a, b); }
SIMD_INLINE I or_and(I a, I b, I m) {
  return _mm512_ternarylogic_epi32(a, b, m, 0xf8);
}  // a | (b & m); no bit of m is in a
SIMD_INLINE I add(I a, I b) { return _mm512_add_epi32(a, b); }
SIMD_INLINE I sub(I a, I b) { return _mm512_sub_epi32(a, b); }
SIMD_INLINE I mul(I a, I b) { return _mm512_mullo_epi32(a, b); }
SIMD_INLINE I max(I a, I b) { return _mm512_max_epi32(a, b); }
SIMD_INLINE int32_t largest(I a) { return _mm512_reduce_max_epi32(a); }
SIMD_INLINE I add16(I a, I b) { return _mm512_add_epi16(a, b); }
SIMD_INLINE I sub8(I a, I b) { return _mm512_sub_epi8(a, b); }
template <int N>
SIMD_INLINE I shr(I a) {  // int32, unsigned; N < 0 shifts left
  if constexpr (N > 0)
    return _mm512_srli_epi32(a, N);
  else if constexpr (N < 0)
    return _mm512_slli_epi32(a, -N);
  else
    return a;
}
template <int N>
SIMD_INLINE I sar(I a) {
  return _mm512_srai_epi32(a, N);
}
SIMD_INLINE I high_nibbles(I a) { return and_(shr<4>(a), set8(15)); }
SIMD_INLINE F as_float(I a) { return _mm512_castsi512_ps(a); }
SIMD_INLINE I as_int(F a) { return _mm512_castps_si512(a); }
SIMD_INLINE F low_half(I a) { return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(a)); }  // f16 in the low bits of each int32
SIMD_INLINE F load_bf16(const void* p) {
  return as_float(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i*)p)), 16));
}

}  // namespace
}  // namespace pllm::cpu
