#include "quant/reference.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/half.h"
#include "quant/blocks.h"

namespace pllm {
namespace {

// Every quantized format is weight k = d * scale[k / 16] * code[k] - dmin * min[k / 16].
struct Block {
  int code[256];
  int scale[16], min[16];
  float d, dmin;
  bool has_min;  // else dmin and min are zero
};

float half(const Half& h) { return half_to_float(uint16_t(h[0] | h[1] << 8)); }

template <class T>
void one_scale(const T& b, Block& o) {
  o.d = half(b.d);
  o.scale[0] = o.scale[1] = 1;
}
template <class T>
void scale_and_min(const T& b, Block& o) {  // the file adds its min
  one_scale(b, o);
  o.dmin = -half(b.min);
  o.has_min = true;
  o.min[0] = o.min[1] = 1;
}
void nibbles(const uint8_t* codes, int* out) {
  for (int i = 0; i < 16; i++) out[i] = codes[i] & 15, out[i + 16] = codes[i] >> 4;
}
void fifth_bits(const uint8_t* fifth, int* out) {
  for (int k = 0; k < 32; k++) out[k] |= (fifth[k / 8] >> k % 8 & 1) << 4;
}

void unpack(const BlockQ4_0& b, Block& o) {
  one_scale(b, o);
  nibbles(b.codes, o.code);
  for (int k = 0; k < 32; k++) o.code[k] -= 8;
}
void unpack(const BlockQ4_1& b, Block& o) {
  scale_and_min(b, o);
  nibbles(b.codes, o.code);
}
void unpack(const BlockQ5_0& b, Block& o) {
  one_scale(b, o);
  nibbles(b.codes, o.code);
  fifth_bits(b.fifth, o.code);
  for (int k = 0; k < 32; k++) o.code[k] -= 16;
}
void unpack(const BlockQ5_1& b, Block& o) {
  scale_and_min(b, o);
  nibbles(b.codes, o.code);
  fifth_bits(b.fifth, o.code);
}
void unpack(const BlockQ8_0& b, Block& o) {
  one_scale(b, o);
  for (int k = 0; k < 32; k++) o.code[k] = b.codes[k];
}
void unpack(const BlockIQ4_NL& b, Block& o) {
  one_scale(b, o);
  nibbles(b.codes, o.code);
  for (int k = 0; k < 32; k++) o.code[k] = kIq4Values[o.code[k]];
}
void unpack(const BlockMXFP4& b, Block& o) {
  o.d = std::bit_cast<float>(b.e < 2 ? 0x00200000u << b.e : uint32_t(b.e - 1) << 23);
  o.scale[0] = o.scale[1] = 1;
  nibbles(b.codes, o.code);
  for (int k = 0; k < 32; k++) o.code[k] = kMxfp4Values[o.code[k]];
}

void two_bits(const uint8_t* codes, int* out) {
  for (int k = 0; k < 256; k++) out[k] = codes[k / 128 * 32 + k % 32] >> k / 32 % 4 * 2 & 3;
}
void unpack(const BlockQ2_K& b, Block& o) {
  o.d = half(b.d);
  o.dmin = half(b.dmin);
  o.has_min = true;
  two_bits(b.codes, o.code);
  for (int g = 0; g < 16; g++) o.scale[g] = b.scales[g] & 15, o.min[g] = b.scales[g] >> 4;
}
void unpack(const BlockQ3_K& b, Block& o) {
  o.d = half(b.d);
  two_bits(b.codes, o.code);
  for (int k = 0; k < 256; k++) o.code[k] -= b.third[k % 32] >> k / 32 & 1 ? 0 : 4;
  for (int g = 0; g < 16; g++) {
    const int low = b.scales[g % 8] >> g / 8 * 4 & 15, high = b.scales[8 + g % 4] >> g / 4 * 2 & 3;
    o.scale[g] = (low | high << 4) - 32;
  }
}
template <class T>
void scales_mins(const T& b, Block& o) {
  o.d = half(b.d);
  o.dmin = half(b.dmin);
  o.has_min = true;
  const uint8_t* s = b.scales;
  for (int g = 0; g < 16; g++) {
    const int j = g / 2;
    o.scale[g] = j < 4 ? s[j] & 63 : (s[j + 4] & 15) | s[j - 4] >> 6 << 4;
    o.min[g] = j < 4 ? s[j + 4] & 63 : s[j + 4] >> 4 | s[j] >> 6 << 4;
  }
  for (int k = 0; k < 256; k++) o.code[k] = b.codes[k / 64 * 32 + k % 32] >> k / 32 % 2 * 4 & 15;
}
void unpack(const BlockQ4_K& b, Block& o) { scales_mins(b, o); }
void unpack(const BlockQ5_K& b, Block& o) {
  scales_mins(b, o);
  for (int k = 0; k < 256; k++) o.code[k] |= (b.fifth[k % 32] >> k / 32 & 1) << 4;
}
void unpack(const BlockQ6_K& b, Block& o) {
  o.d = half(b.d);
  for (int g = 0; g < 16; g++) o.scale[g] = b.scales[g];
  for (int k = 0; k < 256; k++) {
    const int low = b.low[k / 128 * 64 + k % 64] >> k / 64 % 2 * 4 & 15;
    const int high = b.high[k / 128 * 32 + k % 32] >> k / 32 % 4 * 2 & 3;
    o.code[k] = (low | high << 4) - 32;
  }
}
void unpack(const BlockIQ4_XS& b, Block& o) {
  o.d = half(b.d);
  for (int g = 0; g < 16; g++) {
    const int j = g / 2, low = b.scales_low[j / 2] >> j % 2 * 4 & 15, high = b.scales_high[j / 4] >> j % 4 * 2 & 3;
    o.scale[g] = (low | high << 4) - 32;
  }
  for (int j = 0; j < 8; j++) nibbles(b.codes + 16 * j, o.code + 32 * j);
  for (int k = 0; k < 256; k++) o.code[k] = kIq4Values[o.code[k]];
}

// Float formats: the weight itself
float weight(Format f, const uint8_t* p, int64_t k) {
  if (f == Format::F32) {
    float v;
    std::memcpy(&v, p + 4 * k, 4);
    return v;
  }
  const uint16_t bits = uint16_t(p[2 * k] | p[2 * k + 1] << 8);
  return f == Format::F16 ? half_to_float(bits) : bf16_to_float(bits);
}

// Calls fn with every block of n weights, unpacked.
template <class T, class Fn>
void each(const uint8_t* blocks, int64_t n, int weights, Fn fn) {
  Block unpacked{};
  for (int64_t k = 0; k < n; k += weights, blocks += sizeof(T)) {
    T b;
    std::memcpy(&b, blocks, sizeof b);
    unpack(b, unpacked);
    fn(unpacked, k);
  }
}
template <class Fn>
void each_block(Format f, const uint8_t* blocks, int64_t n, Fn fn) {
  const int weights = info(f).block_weights;
  switch (f) {
    case Format::F32:
    case Format::F16:
    case Format::BF16: return;
    case Format::Q4_0: return each<BlockQ4_0>(blocks, n, weights, fn);
    case Format::Q4_1: return each<BlockQ4_1>(blocks, n, weights, fn);
    case Format::Q5_0: return each<BlockQ5_0>(blocks, n, weights, fn);
    case Format::Q5_1: return each<BlockQ5_1>(blocks, n, weights, fn);
    case Format::Q8_0: return each<BlockQ8_0>(blocks, n, weights, fn);
    case Format::Q2_K: return each<BlockQ2_K>(blocks, n, weights, fn);
    case Format::Q3_K: return each<BlockQ3_K>(blocks, n, weights, fn);
    case Format::Q4_K: return each<BlockQ4_K>(blocks, n, weights, fn);
    case Format::Q5_K: return each<BlockQ5_K>(blocks, n, weights, fn);
    case Format::Q6_K: return each<BlockQ6_K>(blocks, n, weights, fn);
    case Format::IQ4_NL: return each<BlockIQ4_NL>(blocks, n, weights, fn);
    case Format::IQ4_XS: return each<BlockIQ4_XS>(blocks, n, weights, fn);
    case Format::MXFP4: return each<BlockMXFP4>(blocks, n, weights, fn);
  }
}

// x as int8 codes with one scale, to nearest even: q[0..32), returns the scale.
float round_activations(const float* x, int* q) {
  constexpr int n = 32;
  float top = 0;
  bool finite = true;
  for (int i = 0; i < n; i++) top = std::max(top, std::fabs(x[i])), finite = finite && std::isfinite(x[i]);
  std::fill(q, q + n, 0);
  if (!finite) return std::numeric_limits<float>::quiet_NaN();
  const float inverse = 127.f / top;
  if (!(inverse <= 3.4e38f)) return 0;
  for (int i = 0; i < n; i++) q[i] = int(std::nearbyint(x[i] * inverse));
  return top / 127.f;
}

// The integers of 32 weights from k on times 32 activations x = d q
struct Product32 {
  int sum = 0, min = 0;  // with the weights' scales, with their mins
  float d, dsum;
};
Product32 product_32(const Block& b, int k, const float* x) {
  int q[32], total = 0;
  Product32 p;
  p.d = round_activations(x, q);
  for (int i = 0; i < 32; i++) {
    p.sum += b.scale[(k + i) / 16] * b.code[k + i] * q[i];
    if (b.has_min) p.min += b.min[(k + i) / 16] * q[i];
    total += q[i];
  }
  p.dsum = p.d * float(total);
  return p;
}

}  // namespace

void decode(Format format, const uint8_t* blocks, int64_t n, float* out) {
  if (info(format).activation == Activation::f32) {
    for (int64_t k = 0; k < n; k++) out[k] = weight(format, blocks, k);
    return;
  }
  const int weights = info(format).block_weights;
  each_block(format, blocks, n, [&](const Block& b, int64_t first) {
    for (int k = 0; k < weights; k++) {
      const float v = b.d * float(b.scale[k / 16]) * float(b.code[k]);
      out[first + k] = b.has_min ? v - b.dmin * float(b.min[k / 16]) : v;
    }
  });
}

float reference_dot(Format format, const uint8_t* blocks, int64_t n, const float* x) {
  if (info(format).activation == Activation::f32) {
    float chain[2] = {0, 0};
    for (int64_t k = 0; k < n; k++) chain[k % 2] = std::fma(weight(format, blocks, k), x[k], chain[k % 2]);
    return chain[0] + chain[1];
  }
  const int weights = info(format).block_weights;
  float acc = 0;
  each_block(format, blocks, n, [&](const Block& b, int64_t first) {
    float sum = 0, min = 0;  // of a 256-wide block
    for (int k = 0; k < weights; k += 32) {
      const Product32 p = product_32(b, k, x + first + k);
      if (weights == 32) {
        acc = std::fma(float(p.sum), b.d * p.d, acc);
        if (b.has_min) acc = std::fma(-b.dmin, p.d * float(p.min), acc);
      } else {
        sum = std::fma(float(p.sum), p.d, sum);
        min = format == Format::Q2_K ? std::fma(float(p.min), p.d, min) : std::fma(float(b.min[k / 16]), p.dsum, min);
      }
    }
    if (weights == 32) return;
    acc = std::fma(sum, b.d, acc);
    if (b.has_min) acc = std::fma(-min, b.dmin, acc);
  });
  return acc;
}

}  // namespace pllm
