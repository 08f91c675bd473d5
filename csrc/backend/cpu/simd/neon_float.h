// Float words of neon.h beyond plain arithmetic: choices, lanes, reductions in one fixed order.
#pragma once
#include "backend/cpu/simd/neon.h"

namespace pllm::cpu {
namespace {

constexpr int kRegisters = 32;

using Mask = uint32x4_t;
SIMD_INLINE Mask less(F a, F b) { return vcltq_f32(a, b); }
SIMD_INLINE F select(Mask m, F a, F b) { return vbslq_f32(m, a, b); }  // m ? a : b
SIMD_INLINE F iota() { return F{0, 1, 2, 3}; }

// The fixed tree over 16 lanes, lane i in v[i / 4]: lane i + lane i + 8, then + 4, + 2, + 1.
SIMD_INLINE float sum16(const F (&v)[4]) {
  const F x = add(add(v[0], v[2]), add(v[1], v[3]));
  const float32x2_t y = vadd_f32(vget_low_f32(x), vget_high_f32(x));
  return vget_lane_f32(y, 0) + vget_lane_f32(y, 1);
}
SIMD_INLINE float max16(const F (&v)[4]) {
  const F x = max(max(v[0], v[2]), max(v[1], v[3])), y = max(x, vextq_f32(x, x, 2));
  return vgetq_lane_f32(max(y, vextq_f32(y, y, 1)), 0);
}

struct Pair {
  F a, b;
};
SIMD_INLINE Pair unzip(F a, F b) { return {vuzp1q_f32(a, b), vuzp2q_f32(a, b)}; }  // {a0 a2 b0 b2, a1 a3 b1 b3}
SIMD_INLINE Pair zip(F even, F odd) { return {vzip1q_f32(even, odd), vzip2q_f32(even, odd)}; }  // its inverse

}  // namespace
}  // namespace pllm::cpu
