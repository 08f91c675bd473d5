// Integer dot products of neon.h: products of signed bytes, so signed weights stay as they are.
#pragma once

#define SIMD_DOTS 1  // has sums_of_bytes(), dot32() and dots16() of its own

namespace pllm::cpu {
namespace {

constexpr int kByteOffset = 0;
SIMD_INLINE I byte_form(I w) { return w; }
SIMD_INLINE I sums_of_bytes(I a) { return vpaddlq_s16(vpaddlq_s8(s8(a))); }  // of each four

#if defined(__ARM_FEATURE_DOTPROD)

// Two chains of four, side by side: an instruction's result is needed three cycles later.
template <int BITS>
SIMD_INLINE void dots16(I& a, I& b, const I* w, const int8_t* x) {
  const int8x16_t xa = vld1q_s8(x), xb = vld1q_s8(x + 16);
  a = vdotq_laneq_s32(a, s8(w[0]), xa, 0), b = vdotq_laneq_s32(b, s8(w[4]), xb, 0);
  a = vdotq_laneq_s32(a, s8(w[1]), xa, 1), b = vdotq_laneq_s32(b, s8(w[5]), xb, 1);
  a = vdotq_laneq_s32(a, s8(w[2]), xa, 2), b = vdotq_laneq_s32(b, s8(w[6]), xb, 2);
  a = vdotq_laneq_s32(a, s8(w[3]), xa, 3), b = vdotq_laneq_s32(b, s8(w[7]), xb, 3);
}
template <int BITS>
SIMD_INLINE I dot32(I start, const I* w, const int8_t* x) {
  I b = set32(0);
  dots16<BITS>(start, b, w, x);
  return add(start, b);
}

#else

// Products are int16 and are added up as such over as many words as fit: 31 * 127 * 8 = 31496, 63 * 127 * 4 = 32004,
// 128 * 127 * 2 = 32512.
template <int BITS>
constexpr int kInt16Words = BITS == 8   ? 2
                            : BITS == 6 ? 4
                                        : 8;

template <int BITS, int N>
SIMD_INLINE I products(const I* w, const int8_t* x) {  // of N words
  constexpr int kRun = kInt16Words<BITS> < N ? kInt16Words<BITS> : N;
  int32x4_t a = set32(0), b = set32(0);
  for (int first = 0; first < N; first += kRun) {
    int16x8_t low = vdupq_n_s16(0), high = low;
    for (int i = first; i < first + kRun; i++) {
      int32_t four;
      std::memcpy(&four, x + 4 * i, 4);
      const int8x16_t v = vreinterpretq_s8_s32(vdupq_n_s32(four));
      low = i == first ? vmull_s8(vget_low_s8(s8(w[i])), vget_low_s8(v))
                       : vmlal_s8(low, vget_low_s8(s8(w[i])), vget_low_s8(v));
      high = i == first ? vmull_high_s8(s8(w[i]), v) : vmlal_high_s8(high, s8(w[i]), v);
    }
    a = first == 0 ? vpaddlq_s16(low) : vpadalq_s16(a, low);
    b = first == 0 ? vpaddlq_s16(high) : vpadalq_s16(b, high);
  }
  return vpaddq_s32(a, b);
}
template <int BITS>
SIMD_INLINE void dots16(I& a, I& b, const I* w, const int8_t* x) {
  a = add(a, products<BITS, 4>(w, x));
  b = add(b, products<BITS, 4>(w + 4, x + 16));
}
template <int BITS>
SIMD_INLINE I dot32(I start, const I* w, const int8_t* x) {
  return add(start, products<BITS, 8>(w, x));
}

#endif

#if defined(__ARM_FEATURE_MATMUL_INT8)

// Two tokens at once: an instruction multiplies 2 rows x 8 k with 8 k x 2 tokens, twice the products of vdotq. Zipped,
// two lines of weights are such blocks as they are; codes of two tokens are stored that way (place_codes).
#define SIMD_PAIRS 1
class Blocks {
 public:
  __attribute__((always_inline)) explicit Blocks(const I* w) {
    for (int i = 0; i < 8; i += 2) {
      m_[i] = vzip1q_s32(w[i], w[i + 1]);
      m_[i + 1] = vzip2q_s32(w[i], w[i + 1]);
    }
  }
  // sums[t] = products of both tokens; x0, x1: their places. HALVES: of k 0..15 (1), of k 16..31 (2), of both (3)
  template <int HALVES>
  __attribute__((always_inline)) void dots(const int8_t* x0, const int8_t* x1, I (&sums)[2]) const {
    I a = set32(0), b = set32(0);
    if constexpr (HALVES & 1) add_half(m_, x0, x1, a, b);
    if constexpr (HALVES & 2) add_half(m_ + 4, x0 + 16, x1 + 16, a, b);
    sums[0] = vuzp1q_s32(a, b);
    sums[1] = vuzp2q_s32(a, b);
  }

 private:
  static __attribute__((always_inline)) void add_half(const I* m, const int8_t* x0, const int8_t* x1, I& a, I& b) {
    const int8x16_t v0 = vld1q_s8(x0), v1 = vld1q_s8(x1);
    a = vmmlaq_s32(a, s8(m[0]), v0), b = vmmlaq_s32(b, s8(m[1]), v0);
    a = vmmlaq_s32(a, s8(m[2]), v1), b = vmmlaq_s32(b, s8(m[3]), v1);
  }
  I m_[8];
};

#endif

}  // namespace
}  // namespace pllm::cpu
