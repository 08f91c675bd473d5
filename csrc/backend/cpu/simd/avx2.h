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
SIMD_INLINE F setf(float v) {
  return _mm256_set1_ps(v);
}
SIMD_INLINE F loadf(const float* p) {
  return _mm256_loadu_ps(p);
}
SIMD_INLINE void storef(float* p, F v) {
  _mm256_storeu_ps(p, v);
}
SIMD_INLINE F add(F a, F b) {
  return _mm256_add_ps(a, b);
}
SIMD_INLINE F sub(F a, F b) {
  return _mm256_sub_ps(a, b);
}
SIMD_INLINE F mul(F a, F b) {
  return _mm256_mul_ps(a, b);
}
SIMD_INLINE F div(F a, F b) {
  return _mm256_div_ps(a, b);
}
SIMD_INLINE F max(F a, F b) {
  return _mm256_max_ps(a, b);
}
SIMD_INLINE F min(F a, F b) {
  return _mm256_min_ps(a, b);
}
SIMD_INLINE F fma(F a, F b, F c) {
  return _mm256_fmadd_ps(a, b, c);
}  // a b + c
SIMD_INLINE F fnma(F a, F b, F c) {
  return _mm256_fnmadd_ps(a, b, c);
}  // c - a b
SIMD_INLINE F to_float(I a) {
  return _mm256_cvtepi32_ps(a);
}
SIMD_INLINE F load_half(const void* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)p));
}
SIMD_INLINE void store_half(void* p, F v) {
  _mm_storeu_si128((__m128i*)p, _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}

// ---- integer words
SIMD_INLINE I load(const void* p) {
  return _mm256_loadu_si256((const I*)p);
}
SIMD_INLINE I set32(int32_t v) {
  return _mm256_set1_epi32(v);
}
SIMD_INLINE I add(I a, I b) {
  return _mm256_add_epi32(a, b);
}
SIMD_INLINE I and_(I a, I b) {
  return _mm256_and_si256(a, b);
}

}  // namespace
}  // namespace pllm::cpu
