// Float words of baseline.h beyond plain arithmetic: choices, lanes, reductions in one fixed order.
#pragma once
#include "backend/cpu/simd/baseline.h"
#include "base/half.h"

namespace pllm::cpu {
namespace {

constexpr int kRegisters = 4;  // 16 registers of 128 bits

using Mask = I;
SIMD_INLINE Mask less(F a, F b) { return a < b; }
SIMD_INLINE F select(Mask m, F a, F b) { return m ? a : b; }
SIMD_INLINE F iota() { return F{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}; }

// The fixed tree over 16 lanes: lane i + lane i + 8, then + 4, + 2, + 1.
SIMD_INLINE float sum16(const F (&v)[1]) {
  F w = v[0];
  for (int half = 8; half > 0; half /= 2) {
    for (int i = 0; i < half; i++) w[i] += w[i + half];
  }
  return w[0];
}
SIMD_INLINE float max16(const F (&v)[1]) {
  float m = v[0][0];
  for (int i = 1; i < kLanes; i++) m = m > v[0][i] ? m : v[0][i];
  return m;
}

struct Pair {
  F a, b;
};
SIMD_INLINE Pair unzip(F a, F b) {  // {a0 a2 .. b0 b2 .., a1 a3 .. b1 b3 ..}
  Pair out{};
  for (int i = 0; i < 8; i++) {
    out.a[i] = a[2 * i];
    out.a[i + 8] = b[2 * i];
    out.b[i] = a[2 * i + 1];
    out.b[i + 8] = b[2 * i + 1];
  }
  return out;
}
SIMD_INLINE Pair zip(F even, F odd) {  // its inverse
  Pair out{};
  for (int i = 0; i < 8; i++) {
    out.a[2 * i] = even[i];
    out.a[2 * i + 1] = odd[i];
    out.b[2 * i] = even[i + 8];
    out.b[2 * i + 1] = odd[i + 8];
  }
  return out;
}
SIMD_INLINE void store_half(void* p, F v) {
  uint16_t h[kLanes];
  for (int i = 0; i < kLanes; i++) h[i] = float_to_half(v[i]);
  std::memcpy(p, h, sizeof h);
}

}  // namespace
}  // namespace pllm::cpu
