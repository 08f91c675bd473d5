// Where each format's bits are in a panel (panel.h), told with the words of an ISA header: one struct a format.
//
// p is a block's first line, `head` the line part with its odd bytes; both already point at this register's rows.
// codes() gives 32 k as 8 words of 4 consecutive k, the form of simd/dot.inl.h.
#pragma once
#include "backend/cpu/activation.inl.h"
#include "backend/cpu/panel.h"
#include "quant/blocks.h"

namespace pllm::cpu {
namespace {

template <Format>
struct Weights;

SIMD_INLINE I line(const uint8_t* p, int i) { return load(p + i * kLineBytes); }

// Shared by all formats of 4-bit codes: low nibbles are the first half of the block, high nibbles the second.
template <bool HIGH>
SIMD_INLINE void nibbles(const uint8_t* p, int n, I* w) {
  for (int i = 0; i < n; i++) w[i] = HIGH ? high_nibbles(line(p, i)) : and_(line(p, i), set8(15));
}
SIMD_INLINE void nibbles_32(const uint8_t* p, I* w) {
  nibbles<false>(p, 4, w);
  nibbles<true>(p, 4, w + 4);
}
SIMD_INLINE void fifth_bits(I bits, I* w) {
  const I m = set8(16);
  w[0] = or_and(w[0], shr<-4>(bits), m);
  w[1] = or_and(w[1], shr<-3>(bits), m);
  w[2] = or_and(w[2], shr<-2>(bits), m);
  w[3] = or_and(w[3], shr<-1>(bits), m);
  w[4] = or_and(w[4], bits, m);
  w[5] = or_and(w[5], shr<1>(bits), m);
  w[6] = or_and(w[6], shr<2>(bits), m);
  w[7] = or_and(w[7], shr<3>(bits), m);
}

// Codes that index a table of 16 values, stored with an offset.
struct Table {
  int8_t value[16];
};
constexpr Table offset_table(const int8_t (&values)[16], int offset) {
  Table t{};
  for (int i = 0; i < 16; i++) t.value[i] = int8_t(values[i] + offset);
  return t;
}
constexpr Table kIq4 = offset_table(kIq4Values, kByteOffset);
constexpr Table kMxfp4 = offset_table(kMxfp4Values, 16);
SIMD_INLINE void through(const Table& t, I* w) {
  const I table = table16(t.value);
  for (int i = 0; i < 8; i++) w[i] = lookup(table, w[i]);
}

// ---- 32 weights a block: weight = scale (code - zero) + min
template <>
struct Weights<Format::Q4_0> {
  static constexpr int bits = 4, zero = 8;
  static constexpr bool has_min = false;
  SIMD_INLINE void codes(const uint8_t* p, I* w) { nibbles_32(p, w); }
  SIMD_INLINE F scale(const uint8_t*, const uint8_t* head) { return load_half(head); }
};
template <>
struct Weights<Format::Q4_1> {
  static constexpr int bits = 4, zero = 0;
  static constexpr bool has_min = true;
  SIMD_INLINE void codes(const uint8_t* p, I* w) { nibbles_32(p + kLineBytes, w); }
  SIMD_INLINE F scale(const uint8_t* p, const uint8_t*) { return low_half(line(p, 0)); }
  SIMD_INLINE F min(const uint8_t* p) { return low_half(shr<16>(line(p, 0))); }
};
template <>
struct Weights<Format::Q5_0> {
  static constexpr int bits = 5, zero = 16;
  static constexpr bool has_min = false;
  SIMD_INLINE void codes(const uint8_t* p, I* w) {
    nibbles_32(p + kLineBytes, w);
    fifth_bits(line(p, 0), w);
  }
  SIMD_INLINE F scale(const uint8_t*, const uint8_t* head) { return load_half(head); }
};
template <>
struct Weights<Format::Q5_1> {
  static constexpr int bits = 5, zero = 0;
  static constexpr bool has_min = true;
  SIMD_INLINE void codes(const uint8_t* p, I* w) {
    nibbles_32(p + 2 * kLineBytes, w);
    fifth_bits(line(p, 1), w);
  }
  SIMD_INLINE F scale(const uint8_t* p, const uint8_t*) { return low_half(line(p, 0)); }
  SIMD_INLINE F min(const uint8_t* p) { return low_half(shr<16>(line(p, 0))); }
};
template <>
struct Weights<Format::Q8_0> {
  static constexpr int bits = 8, zero = kByteOffset;
  static constexpr bool has_min = false;
  SIMD_INLINE void codes(const uint8_t* p, I* w) {
    for (int i = 0; i < 8; i++) w[i] = byte_form(line(p, i));
  }
  SIMD_INLINE F scale(const uint8_t*, const uint8_t* head) { return load_half(head); }
};
template <>
struct Weights<Format::IQ4_NL> {
  static constexpr int bits = 8, zero = kByteOffset;
  static constexpr bool has_min = false;
  SIMD_INLINE void codes(const uint8_t* p, I* w) {
    nibbles_32(p, w);
    through(kIq4, w);
  }
  SIMD_INLINE F scale(const uint8_t*, const uint8_t* head) { return load_half(head); }
};
template <>
struct Weights<Format::MXFP4> {
  static constexpr int bits = 5, zero = 16;
  static constexpr bool has_min = false;
  SIMD_INLINE void codes(const uint8_t* p, I* w) {
    nibbles_32(p, w);
    through(kMxfp4, w);
  }
  // 2^(e - 128) as a product of two powers, so that e = 0 and 1 come out as the denormals they are.
  SIMD_INLINE F scale(const uint8_t*, const uint8_t* head) {
    const I e = load_bytes(head), a = shr<1>(e), b = sub(e, a);
    return mul(as_float(shr<-23>(add(a, set32(63)))), as_float(shr<-23>(add(b, set32(63)))));
  }
};

// ---- 256 weights a block, in `chunks` loop rounds of `steps` times 32 consecutive k
struct BlockScales {
  I scale[16];  // of every 32 or 16 k, in k order
  I min[8];     // of every 32 k, in the form min_term() of the format reads
  F d, dmin;
};
struct NoHighBits {
  NoHighBits(const uint8_t*) {}
  void next() {}
};
template <int FIRST, int N>
struct HighBits {  // lines of single bits, all chunks' in one byte
  I bits[8];
  __attribute__((always_inline)) HighBits(const uint8_t* p) {
    for (int i = 0; i < 8; i++) bits[i] = line(p, FIRST + i);
  }
  __attribute__((always_inline)) void next() {
    for (auto& b : bits) b = shr<N>(b);
  }
};
// A scale for each byte of v, lowest first
SIMD_INLINE void byte_scales(I v, I* scale) {
  scale[0] = scale_form(and_(v, set32(255)));
  scale[1] = scale_form(and_(shr<8>(v), set32(255)));
  scale[2] = scale_form(and_(shr<16>(v), set32(255)));
  scale[3] = scale_form(shr<24>(v));
}
// Q4_K and Q5_K: a 6-bit scale and min for every 32 k. Lines: d | dmin, three of packed scales and mins.
struct ScalesMins {
  static constexpr int chunks = 4, steps = 2, zero = 0;
  static constexpr bool sub16 = false, has_min = true;
  SIMD_INLINE void scales(const uint8_t* p, const uint8_t*, BlockScales& s) {
    const I d = line(p, 0), a = line(p, 1), b = line(p, 2), c = line(p, 3), six = set8(63), four = set8(15),
            top = set8(0x30);
    s.d = low_half(d);
    s.dmin = low_half(shr<16>(d));
    byte_scales(and_(a, six), s.scale);
    byte_scales(or_and(and_(c, four), shr<2>(a), top), s.scale + 4);
    byte_mins(and_(b, six), s.min);
    byte_mins(or_and(and_(shr<4>(c), four), shr<2>(b), top), s.min + 4);
  }
  SIMD_INLINE F min_term(I min, const Act32& x, F acc) { return fma(as_float(min), setf(x.dsum), acc); }

 private:
  SIMD_INLINE void byte_mins(I v, I* min) {
    min[0] = as_int(to_float(and_(v, set32(255))));
    min[1] = as_int(to_float(and_(shr<8>(v), set32(255))));
    min[2] = as_int(to_float(and_(shr<16>(v), set32(255))));
    min[3] = as_int(to_float(shr<24>(v)));
  }
};
template <>
struct Weights<Format::Q4_K> : ScalesMins {
  static constexpr int bits = 4, codes_at = 4, chunk_lines = 8;
  using High = NoHighBits;
  template <int S>
  SIMD_INLINE void codes(const uint8_t* p, const High&, I* w) {
    nibbles<S == 1>(p, 8, w);
  }
};
template <>
struct Weights<Format::Q5_K> : ScalesMins {
  static constexpr int bits = 5, codes_at = 12, chunk_lines = 8;
  using High = HighBits<4, 2>;
  template <int S>
  SIMD_INLINE void codes(const uint8_t* p, const High& high, I* w) {
    nibbles<S == 1>(p, 8, w);
    for (int i = 0; i < 8; i++) w[i] = or_and(w[i], shr<S - 4>(high.bits[i]), set8(16));
  }
};

// Formats with a scale for every 16 k: 128 k a chunk, whose four times 32 k share lines
struct Scales16 {
  static constexpr int chunks = 2, steps = 4;
  static constexpr bool sub16 = true;
};
// Lines: four of scales; a chunk: eight of upper bit pairs, eight of nibbles (k 0..31 and 64..95), eight more.
template <>
struct Weights<Format::Q6_K> : Scales16 {
  static constexpr int bits = 6, codes_at = 4, chunk_lines = 24;
  static constexpr bool has_min = false, zero32 = true;
  using High = NoHighBits;
  SIMD_INLINE void scales(const uint8_t* p, const uint8_t* head, BlockScales& s) {
    s.d = load_half(head);
    for (int i = 0; i < 4; i++) {
      const I v = line(p, i);
      s.scale[4 * i] = scale_form(sar<24>(shr<-24>(v)));
      s.scale[4 * i + 1] = scale_form(sar<24>(shr<-16>(v)));
      s.scale[4 * i + 2] = scale_form(sar<24>(shr<-8>(v)));
      s.scale[4 * i + 3] = scale_form(sar<24>(v));
    }
  }
  template <int S>
  SIMD_INLINE void codes(const uint8_t* p, const High&, I* w) {
    nibbles<(S >= 2)>(p + (8 + S % 2 * 8) * kLineBytes, 8, w);
    for (int i = 0; i < 8; i++) w[i] = or_and(w[i], shr<2 * S - 4>(line(p, i)), set8(0x30));
  }
};

// Q2_K and Q3_K: two bits of 4 x 32 k in a byte
template <>
struct Weights<Format::Q2_K> : Scales16 {  // lines: d | dmin, four of scales (low nibbles) and mins
  static constexpr int bits = 2, codes_at = 5, chunk_lines = 8;
  static constexpr bool has_min = true, zero32 = false;
  using High = NoHighBits;
  SIMD_INLINE void scales(const uint8_t* p, const uint8_t*, BlockScales& s) {
    const I d = line(p, 0);
    s.d = low_half(d);
    s.dmin = low_half(shr<16>(d));
    for (int i = 0; i < 4; i++) {
      const I v = line(p, 1 + i), m = and_(shr<4>(v), set8(15));
      byte_scales(and_(v, set8(15)), s.scale + 4 * i);
      s.min[2 * i] = byte_pair(m);
      s.min[2 * i + 1] = byte_pair(shr<16>(m));
    }
  }
  SIMD_INLINE F min_term(I min, const Act32& x, F acc) {
    int32_t sums;
    __builtin_memcpy(&sums, x.sum16, 4);
    return fma(to_float(madd16(set32(0), min, set32(sums))), setf(x.d), acc);
  }
  template <int S>
  SIMD_INLINE void codes(const uint8_t* p, const High&, I* w) {
    for (int i = 0; i < 8; i++) w[i] = and_(shr<2 * S>(line(p, i)), set8(3));
  }

 private:
  SIMD_INLINE I byte_pair(I v) { return or_(and_(v, set32(255)), and_(shr<-8>(v), set32(0xff0000))); }  // two int16
};
// Lines: three of scales, eight of third bits. Codes are taken times 8, which makes their zero point 4 the 32 of Q6_K.
template <>
struct Weights<Format::Q3_K> : Scales16 {
  static constexpr int bits = 6, codes_at = 11, chunk_lines = 8;
  static constexpr bool has_min = false, zero32 = true;
  using High = HighBits<3, 4>;
  template <int QUAD>
  SIMD_INLINE void four_scales(I low, I high, I* scale) {
    const I v = or_and(and_(low, set8(15)), shr<2 * QUAD - 4>(high), set8(0x30));
    scale[0] = scale_form(sub(and_(v, set32(255)), set32(32)));
    scale[1] = scale_form(sub(and_(shr<8>(v), set32(255)), set32(32)));
    scale[2] = scale_form(sub(and_(shr<16>(v), set32(255)), set32(32)));
    scale[3] = scale_form(sub(shr<24>(v), set32(32)));
  }
  SIMD_INLINE void scales(const uint8_t* p, const uint8_t* head, BlockScales& s) {
    s.d = mul(load_half(head), setf(0.125f));
    const I a = line(p, 0), b = line(p, 1), high = line(p, 2);
    four_scales<0>(a, high, s.scale);
    four_scales<1>(b, high, s.scale + 4);
    four_scales<2>(shr<4>(a), high, s.scale + 8);
    four_scales<3>(shr<4>(b), high, s.scale + 12);
  }
  template <int S>
  SIMD_INLINE void codes(const uint8_t* p, const High& high, I* w) {
    for (int i = 0; i < 8; i++)
      w[i] = or_and(and_(shr<2 * S - 3>(line(p, i)), set8(0x18)), shr<S - 5>(high.bits[i]), set8(0x20));
  }
};

// Lines: d | scales' upper bits, scales' nibbles. A step is the 32 k of one scale: 4 lines, low nibbles first.
template <>
struct Weights<Format::IQ4_XS> {
  static constexpr int bits = 8, codes_at = 2, chunk_lines = 8, chunks = 4, steps = 2, zero = kByteOffset;
  static constexpr bool sub16 = false, has_min = false;
  using High = NoHighBits;
  template <int G>
  SIMD_INLINE I scale_of(I high, I low) {
    const I v = or_and(and_(shr<4 * G>(low), set32(15)), shr<16 + 2 * G - 4>(high), set32(0x30));
    return scale_form(sub(v, set32(32)));
  }
  SIMD_INLINE void scales(const uint8_t* p, const uint8_t*, BlockScales& s) {
    const I h = line(p, 0), l = line(p, 1);
    s.d = low_half(h);
    s.scale[0] = scale_of<0>(h, l);
    s.scale[1] = scale_of<1>(h, l);
    s.scale[2] = scale_of<2>(h, l);
    s.scale[3] = scale_of<3>(h, l);
    s.scale[4] = scale_of<4>(h, l);
    s.scale[5] = scale_of<5>(h, l);
    s.scale[6] = scale_of<6>(h, l);
    s.scale[7] = scale_of<7>(h, l);
  }
  template <int S>
  SIMD_INLINE void codes(const uint8_t* p, const High&, I* w) {
    nibbles_32(p + 4 * S * kLineBytes, w);
    through(kIq4, w);
  }
};

// ---- floats: the weight of row r at k, as it is
template <>
struct Weights<Format::F32> {
  static constexpr int stride = 64;
  SIMD_INLINE F weight(const uint8_t* p) { return as_float(load(p)); }
};
template <>
struct Weights<Format::F16> {
  static constexpr int stride = 32;
  SIMD_INLINE F weight(const uint8_t* p) { return load_half(p); }
};
template <>
struct Weights<Format::BF16> {
  static constexpr int stride = 32;
  SIMD_INLINE F weight(const uint8_t* p) { return load_bf16(p); }
};

}  // namespace
}  // namespace pllm::cpu
