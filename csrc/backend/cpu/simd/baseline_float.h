// Float words of baseline.h beyond plain arithmetic: choices, lanes, reductions in one fixed order.
#pragma once
#include "backend/cpu/simd/baseline.h"
#include "base/half.h"

namespace pllm::cpu {
namespace {

constexpr int kRegisters = 256 / SIMD_BYTES;  // 16 registers of 128 bits

using Mask = I;
SIMD_INLINE Mask less(F a, F b) { return a < b; }
SIMD_INLINE F select(Mask m, F a, F b) { return m ? a : b; }
SIMD_INLINE F iota() {
  F v;
  for (int i = 0; i < kLanes; i++) v[i] = float(i);
  return v;
}

// The fixed tree over 16 lanes, lane i in v[i / kLanes]: lane i + lane i + 8, then + 4, + 2, + 1.
SIMD_INLINE float sum16(const F (&v)[16 / kLanes]) {
  float w[16];
  std::memcpy(w, v, sizeof w);
  for (int half = 8; half > 0; half /= 2) {
    for (int i = 0; i < half; i++) w[i] += w[i + half];
  }
  return w[0];
}
SIMD_INLINE float max16(const F (&v)[16 / kLanes]) {
  float w[16];
  std::memcpy(w, v, sizeof w);
  for (int i = 1; i < 16; i++) w[0] = w[0] > w[i] ? w[0] : w[i];
  return w[0];
}

struct Pair {
  F a, b;
};
SIMD_INLINE Pair unzip(F a, F b) {  // {a0 a2 .. b0 b2 .., a1 a3 .. b1 b3 ..}
  float in[2 * kLanes], even[kLanes], odd[kLanes];
  storef(in, a);
  storef(in + kLanes, b);
  for (int i = 0; i < kLanes; i++) even[i] = in[2 * i], odd[i] = in[2 * i + 1];
  return {loadf(even), loadf(odd)};
}
SIMD_INLINE Pair zip(F even, F odd) {  // its inverse
  float out[2 * kLanes];
  for (int i = 0; i < kLanes; i++) out[2 * i] = even[i], out[2 * i + 1] = odd[i];
  return {loadf(out), loadf(out + kLanes)};
}
SIMD_INLINE void store_half(void* p, F v) {
  uint16_t h[kLanes];
  for (int i = 0; i < kLanes; i++) h[i] = float_to_half(v[i]);
  std::memcpy(p, h, sizeof h);
}

}  // namespace
}  // namespace pllm::cpu
