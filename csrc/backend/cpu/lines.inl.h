// Rows whose length is no multiple of a register, and 16 virtual lanes whatever the register's width.
#pragma once
#include "backend/cpu/compiler.inl.h"

namespace pllm::cpu {
namespace {

constexpr int kParts = 16 / kLanes;  // registers that hold 16 virtual lanes
constexpr int padded(int n) { return (n + 15) / 16 * 16; }

// The first count elements (none if count < 1), zeros behind them.
SIMD_INLINE F load_part(const float* p, int64_t count) {
  if (count >= kLanes) return loadf(p);
  float buffer[kLanes];
  for (int i = 0; i < kLanes; i++) buffer[i] = i < count ? p[i] : 0.f;
  return loadf(buffer);
}
SIMD_INLINE void store_part(float* p, int64_t count, F v) {
  if (count >= kLanes) return storef(p, v);
  float buffer[kLanes];
  storef(buffer, v);
  for (int i = 0; i < count; i++) p[i] = buffer[i];
}

}  // namespace
}  // namespace pllm::cpu
