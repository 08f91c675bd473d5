// The densest integer product of a level, for limits.inl.h, over the words of an ISA header and dot.inl.h.
#pragma once

namespace pllm::cpu {
namespace {

// Keeps the compiler from knowing a value: it may neither fold products of it nor take them out of a loop.
template <class T>
SIMD_INLINE void opaque(T& v) {
#if defined(__x86_64__)
  asm volatile("" : "+v"(v));
#elif defined(__aarch64__)
  asm volatile("" : "+w"(v));
#else
  asm volatile("" : "+m"(v));
#endif
}

#if defined(__ARM_FEATURE_MATMUL_INT8)
constexpr int kDotMacs = 32;
SIMD_INLINE I dense_dot(I acc, I a, I b) { return vmmlaq_s32(acc, s8(a), s8(b)); }
#elif defined(__ARM_FEATURE_DOTPROD)
constexpr int kDotMacs = 16;
SIMD_INLINE I dense_dot(I acc, I a, I b) { return vdotq_s32(acc, s8(a), s8(b)); }
#elif defined(__ARM_NEON)
constexpr int kDotMacs = 16;
SIMD_INLINE I dense_dot(I acc, I a, I b) {
  const int16x8_t low = vmull_s8(vget_low_s8(s8(a)), vget_low_s8(s8(b)));
  return vpadalq_s16(acc, vmlal_high_s8(low, s8(a), s8(b)));
}
#elif defined(SIMD_DP)
constexpr int kDotMacs = 4 * kLanes;
SIMD_INLINE I dense_dot(I acc, I a, I b) { return dp(acc, a, b); }
#endif

}  // namespace
}  // namespace pllm::cpu
