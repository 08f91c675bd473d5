// 4 x 4 words transposed in 128-bit registers, which every x86-64 and every 64-bit ARM has: for what is compiled once
// for all levels.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace pllm::cpu {
namespace {

// Word j of row i becomes word i of row j. Rows begin anywhere, `from_step` and `to_step` bytes apart.
inline __attribute__((always_inline)) void transpose_4x4(const uint8_t* from, size_t from_step, uint8_t* to,
                                                         size_t to_step) {
#if defined(__SSE2__)
  __m128i r[4];
  for (size_t i = 0; i < 4; i++) r[i] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i * from_step));
  const __m128i lo01 = _mm_unpacklo_epi32(r[0], r[1]), lo23 = _mm_unpacklo_epi32(r[2], r[3]);
  const __m128i hi01 = _mm_unpackhi_epi32(r[0], r[1]), hi23 = _mm_unpackhi_epi32(r[2], r[3]);
  const __m128i out[4] = {_mm_unpacklo_epi64(lo01, lo23), _mm_unpackhi_epi64(lo01, lo23),
                          _mm_unpacklo_epi64(hi01, hi23), _mm_unpackhi_epi64(hi01, hi23)};
  for (size_t j = 0; j < 4; j++) _mm_storeu_si128(reinterpret_cast<__m128i*>(to + j * to_step), out[j]);
#elif defined(__aarch64__)
  uint32x4_t r[4];
  for (size_t i = 0; i < 4; i++) r[i] = vreinterpretq_u32_u8(vld1q_u8(from + i * from_step));
  const uint32x4_t lo02 = vzip1q_u32(r[0], r[2]), lo13 = vzip1q_u32(r[1], r[3]);
  const uint32x4_t hi02 = vzip2q_u32(r[0], r[2]), hi13 = vzip2q_u32(r[1], r[3]);
  const uint32x4_t out[4] = {vzip1q_u32(lo02, lo13), vzip2q_u32(lo02, lo13), vzip1q_u32(hi02, hi13),
                             vzip2q_u32(hi02, hi13)};
  for (size_t j = 0; j < 4; j++) vst1q_u8(to + j * to_step, vreinterpretq_u8_u32(out[j]));
#else
  for (size_t i = 0; i < 4; i++)
    for (size_t j = 0; j < 4; j++) std::memcpy(to + j * to_step + 4 * i, from + i * from_step + 4 * j, 4);
#endif
}

}  // namespace
}  // namespace pllm::cpu
