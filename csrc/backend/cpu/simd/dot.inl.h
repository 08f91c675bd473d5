// Integer dot products of weights and activations, over the words of an ISA header included before.
//
// Weights are unsigned bytes of BITS bits, 16 rows x 4 consecutive k a line (I: the whole line or a part of it);
// activations are signed bytes within +-127. BITS = 8 are signed weights, in the form byte_form() gives them. All sums
// are exact, so every instruction set gives the same integers. A header defines one of
//   SIMD_DOTS   it has dot32(), dots16(), sums_of_bytes(), byte_form() and kByteOffset of its own
//   SIMD_DP     dp(acc, u, s): four products of unsigned and signed bytes at once; SIMD_DP_WORD: and dp_word(), with
//               the four activations in memory
//   SIMD_MADD8  madd8(u, s): two of them, in int16; sign8(), abs8() and add16()
// and beside SIMD_DP, where fma() is fused, SIMD_FUSED_SUMS: sums start at kStart, the bits of kSumOffset = 1.5 * 2^23.
// Read as a float, a sum s below 2^22 is kSumOffset + s then, and one fma converts it and multiplies it with an
// integer: (kSumOffset + s) c - kSumOffset c, exactly s c.
#pragma once

namespace pllm::cpu {
namespace {

constexpr float kSumOffset = 12582912.f;
#if defined(SIMD_FUSED_SUMS)
constexpr int32_t kStart = 0x4b400000;
#else
constexpr int32_t kStart = 0;
#endif

#if !defined(SIMD_DOTS)
SIMD_INLINE I activations(const int8_t* x, int word) {  // four of them, broadcast
  int32_t v;
  __builtin_memcpy(&v, x + 4 * word, 4);
  return set32(v);
}
#endif

#if defined(SIMD_DP)

#if !defined(SIMD_DP_WORD)
SIMD_INLINE I dp_word(I acc, I u, const int8_t* x, int word) { return dp(acc, u, activations(x, word)); }
#endif

constexpr int kByteOffset = 128;  // what is added to signed weights
SIMD_INLINE I byte_form(I w) { return xor_(w, set8(0x80)); }
SIMD_INLINE I sums_of_bytes(I a) { return dp(set32(0), set8(1), a); }  // of each four

// a += product of the first 16 weights, b += product of the others: two chains, interleaved for their latency
template <int BITS>
SIMD_INLINE void dots16(I& a, I& b, const I* w, const int8_t* x) {
  for (int i = 0; i < 4; i++) {
    a = dp_word(a, w[i], x, i);
    b = dp_word(b, w[i + 4], x, i + 4);
  }
}
// start + the product of 32 weights
template <int BITS>
SIMD_INLINE I dot32(I start, const I* w, const int8_t* x) {
  I b = set32(0);
  dots16<BITS>(start, b, w, x);
  return add(start, b);
}

#endif

#if !defined(SIMD_MADD8)

// What a product starts from to take off a zero point of 32, given the sum of its 16 activations.
SIMD_INLINE int32_t start_form(int32_t sum16) { return kStart - 32 * sum16; }

#if defined(SIMD_FUSED_SUMS)
SIMD_INLINE I scale_form(I s) { return as_int(to_float(s)); }
#else
SIMD_INLINE I scale_form(I s) { return s; }

// scale a * (start a + product of the first 16 weights) + the same for the others
template <int BITS>
SIMD_INLINE I scaled_dots(const int32_t* start, const I* w, const int8_t* x, I scale_a, I scale_b) {
  I a = set32(start[0]), b = set32(start[1]);
  dots16<BITS>(a, b, w, x);
  return add(mul(a, scale_a), mul(b, scale_b));
}
#endif

#else

// madd8 makes int16 sums of two products. Codes of 4 bits can be added up over 8 words (15 * 127 * 16 = 30480), of 5
// over 4, of 6 over 2; then the scale enters as the factor of the madd16 that widens the sums.
constexpr int kByteOffset = 0;
SIMD_INLINE I byte_form(I w) { return w; }
SIMD_INLINE I sums_of_bytes(I a) { return madd16(set32(0), madd8(set8(1), a), set16(1)); }
SIMD_INLINE I scale_form(I s) { return or_(and_(s, set32(0xffff)), shr<-16>(s)); }
// -32 sum16 does not fit int16, twice half of it does.
SIMD_INLINE int32_t start_form(int32_t sum16) {
  const uint32_t half = uint32_t(-16 * sum16) & 0xffffu;
  return int32_t(half | half << 16);
}

template <int N>
SIMD_INLINE I sum(const I* w, const int8_t* x, int i) {
  if constexpr (N == 1)
    return madd8(w[i], activations(x, i));
  else
    return add16(sum<N / 2>(w, x, i), sum<N / 2>(w, x, i + N / 2));
}
template <int BITS>
SIMD_INLINE I scaled_dot(I acc, const I* w, const int8_t* x, I scale) {  // acc + scale * product: start 0 or scale 1
  if constexpr (BITS == 8) {  // |w| and x with w's sign: exact for -128 too, 2 * 128 * 127 fits
    for (int i = 0; i < 8; i++) acc = madd16(acc, madd8(abs8(w[i]), sign8(activations(x, i), w[i])), scale);
    return acc;
  } else if constexpr (BITS == 4) {
    return madd16(acc, sum<8>(w, x, 0), scale);
  } else {
    static_assert(BITS == 5);
    return madd16(madd16(acc, sum<4>(w, x, 0), scale), sum<4>(w, x, 4), scale);
  }
}
template <int BITS>
SIMD_INLINE I dot32(I start, const I* w, const int8_t* x) {
  return scaled_dot<BITS>(start, w, x, set16(1));
}
template <int BITS>
SIMD_INLINE I scaled_half(int32_t start, const I* w, const int8_t* x, I scale) {
  const I acc = madd16(set32(0), set32(start), scale);
  if constexpr (BITS == 2) return madd16(acc, sum<4>(w, x, 0), scale);
  static_assert(BITS == 2 || BITS == 6);
  return madd16(madd16(acc, sum<2>(w, x, 0), scale), sum<2>(w, x, 2), scale);
}
template <int BITS>
SIMD_INLINE I scaled_dots(const int32_t* start, const I* w, const int8_t* x, I scale_a, I scale_b) {
  return add(scaled_half<BITS>(start[0], w, x, scale_a), scaled_half<BITS>(start[1], w + 4, x + 16, scale_b));
}

#endif

}  // namespace
}  // namespace pllm::cpu
