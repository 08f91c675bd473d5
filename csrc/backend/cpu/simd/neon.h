// 128-bit words: what every 64-bit ARM has, and the dot products (dotprod) where the compiler may use them. A quarter
// of a 16-row line a register.
//
// Equal to the x86 levels bit by bit: fused where they are, min and max that hand on their second operand (the
// instructions prefer NaN), conversions in the default mode of rounding, denormals kept.
#pragma once
#include <arm_neon.h>

#include <cstdint>
#include <cstring>

#define SIMD_INLINE static inline __attribute__((always_inline))

namespace pllm::cpu {
namespace {  // one copy an instruction set: the linker must never merge two

using I = int32x4_t;    // bytes, int16 or int32
using F = float32x4_t;  // 4 floats
constexpr int kLanes = 4;

// ---- float words
SIMD_INLINE F setf(float v) { return vdupq_n_f32(v); }
SIMD_INLINE F loadf(const float* p) { return vld1q_f32(p); }
SIMD_INLINE void storef(float* p, F v) { vst1q_f32(p, v); }
SIMD_INLINE F add(F a, F b) { return vaddq_f32(a, b); }
SIMD_INLINE F sub(F a, F b) { return vsubq_f32(a, b); }
SIMD_INLINE F mul(F a, F b) { return vmulq_f32(a, b); }
SIMD_INLINE F div(F a, F b) { return vdivq_f32(a, b); }
SIMD_INLINE F max(F a, F b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
SIMD_INLINE F min(F a, F b) { return vbslq_f32(vcltq_f32(a, b), a, b); }
SIMD_INLINE F fma(F a, F b, F c) { return vfmaq_f32(c, a, b); }   // a b + c
SIMD_INLINE F fnma(F a, F b, F c) { return vfmsq_f32(c, a, b); }  // c - a b
SIMD_INLINE F to_float(I a) { return vcvtq_f32_s32(a); }
SIMD_INLINE F from_halves(uint16x4_t h) { return vcvt_f32_f16(vreinterpret_f16_u16(h)); }
SIMD_INLINE F load_half(const void* p) { return from_halves(vreinterpret_u16_u8(vld1_u8((const uint8_t*)p))); }
SIMD_INLINE void store_half(void* p, F v) { vst1_u8((uint8_t*)p, vreinterpret_u8_f16(vcvt_f16_f32(v))); }

// ---- integer words
constexpr int kTokens = 16;    // most tokens of one tile
constexpr int kTileSums = 16;  // registers for sums while a panel is read once
SIMD_INLINE int8x16_t s8(I a) { return vreinterpretq_s8_s32(a); }
SIMD_INLINE int16x8_t s16(I a) { return vreinterpretq_s16_s32(a); }
SIMD_INLINE uint32x4_t u32(I a) { return vreinterpretq_u32_s32(a); }
SIMD_INLINE I load(const void* p) { return vreinterpretq_s32_u8(vld1q_u8((const uint8_t*)p)); }
SIMD_INLINE void storei(void* p, I a) { vst1q_u8((uint8_t*)p, vreinterpretq_u8_s32(a)); }
SIMD_INLINE I load_bytes(const void* p) {
  uint32_t four;
  std::memcpy(&four, p, 4);
  const uint16x8_t wide = vmovl_u8(vreinterpret_u8_u32(vdup_n_u32(four)));
  return vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(wide)));
}
SIMD_INLINE void store_bytes(void* p, I a) {  // the low byte of each int32
  const int8x16_t even = vuzp1q_s8(s8(a), s8(a));
  const int32_t four = vgetq_lane_s32(vreinterpretq_s32_s8(vuzp1q_s8(even, even)), 0);
  std::memcpy(p, &four, 4);
}
SIMD_INLINE I load_int8(const void* p) {  // as int16
  return vreinterpretq_s32_s16(vmovl_s8(vld1_s8((const int8_t*)p)));
}
SIMD_INLINE void store_int16(void* p, I a) {  // the low half of each int32
  vst1_u8((uint8_t*)p, vreinterpret_u8_s16(vmovn_s32(a)));
}
SIMD_INLINE I set32(int32_t v) { return vdupq_n_s32(v); }
SIMD_INLINE I set16(int v) { return vreinterpretq_s32_s16(vdupq_n_s16((int16_t)v)); }
SIMD_INLINE I set8(int v) { return vreinterpretq_s32_s8(vdupq_n_s8((int8_t)v)); }
SIMD_INLINE I table16(const void* p) { return load(p); }
SIMD_INLINE I lookup(I table, I codes) {  // codes 0..15
  return vreinterpretq_s32_s8(vqtbl1q_s8(s8(table), vreinterpretq_u8_s32(codes)));
}
SIMD_INLINE I and_(I a, I b) { return vandq_s32(a, b); }
SIMD_INLINE I or_(I a, I b) { return vorrq_s32(a, b); }
SIMD_INLINE I xor_(I a, I b) { return veorq_s32(a, b); }
SIMD_INLINE I or_and(I a, I b, I m) { return vbslq_s32(u32(m), b, a); }  // a | (b & m); no bit of m is in a
SIMD_INLINE I add(I a, I b) { return vaddq_s32(a, b); }
SIMD_INLINE I sub(I a, I b) { return vsubq_s32(a, b); }
SIMD_INLINE I mul(I a, I b) { return vmulq_s32(a, b); }
SIMD_INLINE I max(I a, I b) { return vmaxq_s32(a, b); }
SIMD_INLINE int32_t largest(I a) { return vmaxvq_s32(a); }
SIMD_INLINE I madd16(I acc, I a, I b) {  // acc + a0 b0 + a1 b1
  const int32x4_t low = vmull_s16(vget_low_s16(s16(a)), vget_low_s16(s16(b)));
  return vaddq_s32(acc, vpaddq_s32(low, vmull_high_s16(s16(a), s16(b))));
}
template <int N>
SIMD_INLINE I shr(I a) {  // int32, unsigned; N < 0 shifts left
  if constexpr (N > 0)
    return vreinterpretq_s32_u32(vshrq_n_u32(u32(a), N));
  else if constexpr (N < 0)
    return vshlq_n_s32(a, -N);
  else
    return a;
}
template <int N>
SIMD_INLINE I sar(I a) {
  return vshrq_n_s32(a, N);
}
SIMD_INLINE I high_nibbles(I a) { return vreinterpretq_s32_u8(vshrq_n_u8(vreinterpretq_u8_s32(a), 4)); }
SIMD_INLINE F as_float(I a) { return vreinterpretq_f32_s32(a); }
SIMD_INLINE I as_int(F a) { return vreinterpretq_s32_f32(a); }
SIMD_INLINE F low_half(I a) { return from_halves(vmovn_u32(u32(a))); }  // the f16 in the low 16 bits of each int32
SIMD_INLINE F load_bf16(const void* p) {
  return as_float(vreinterpretq_s32_u32(vshll_n_u16(vreinterpret_u16_u8(vld1_u8((const uint8_t*)p)), 16)));
}

}  // namespace
}  // namespace pllm::cpu

#include "backend/cpu/simd/neon_dot.h"
