// kBf16Peak over bf16_dot() of the header included before.
#pragma once
#include "backend/cpu/bf16_peak.h"
#include "backend/cpu/compiler.inl.h"
#include "backend/cpu/simd/peak.inl.h"

namespace pllm::cpu {
namespace {

constexpr int kChains = 16;

uint64_t multiply_bf16(int rounds) {
  F acc[kChains];
  I a[4], b[4];
  SIMD_UNROLL for (int c = 0; c < kChains; c++) acc[c] = setf(0);
  SIMD_UNROLL for (int i = 0; i < 4; i++) {
    a[i] = b[i] = set32(0x3f803f80);  // ones
    opaque(b[i]);
  }
  SIMD_ROLLED for (int i = 0; i < rounds; i++) {
    SIMD_UNROLL for (int c = 0; c < kChains; c++) {
      if (c % 4 == 0) opaque(a[c / 4]);
      acc[c] = bf16_dot(acc[c], a[c / 4], b[c % 4]);
    }
  }
  float lanes[kChains * kLanes];
  SIMD_UNROLL for (int c = 0; c < kChains; c++) storef(lanes + c * kLanes, acc[c]);
  uint64_t total = 0;
  for (const float lane : lanes) total += uint64_t(lane);
  return total;
}

}  // namespace

extern const Peak kBf16Peak = {&multiply_bf16, kChains * kBf16Macs};

}  // namespace pllm::cpu
