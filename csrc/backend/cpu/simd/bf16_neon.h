// Products of bfloat16 over the words of neon.h.
#pragma once
#include "backend/cpu/simd/neon.h"

namespace pllm::cpu {
namespace {

constexpr int kBf16Macs = 16;
SIMD_INLINE F bf16_dot(F acc, I a, I b) {
  return vbfmmlaq_f32(acc, vreinterpretq_bf16_s32(a), vreinterpretq_bf16_s32(b));
}

}  // namespace
}  // namespace pllm::cpu
