// Activations as the products read them, over the words of an ISA header: rounded to int8 with one scale for every 32,
// or as floats. A token's place is (tile, 32 k, token in the tile).
//
// The same bits on every instruction set: the largest magnitude, one division each way, one multiplication and
// rounding to nearest even are exact notions. Codes stay within +-127.
#pragma once
#include <cstddef>

#include "backend/cpu/kernels.h"

namespace pllm::cpu {
namespace {

struct Act32 {  // x = d q
  int8_t q[32];
  float d, dsum;       // d sum(q)
  int32_t start32[3];  // kStart - zero sum(q) for weights whose zero point is 8, 16, 128
  int32_t start16[2];  // start_form(sum(q)) of each 16 k
  int16_t sum16[2];    // sum(q) of each 16 k
};
static_assert(sizeof(Act32) == 64);  // a cache line

constexpr int kZeros[] = {8, 16, 128};

// ---- tiles: of kMaxTile tokens; the last one of those that are left
// Float products keep two sums a token, so half as many tokens fit in 256-bit registers, three quarters in 512.
template <Activation a>
constexpr int kMaxTile = kTokens;
template <>
constexpr int kMaxTile<Activation::f32> = kTokens == 16   ? 12
                                          : kTokens == 12 ? 6
                                                          : kTokens;
template <Activation a>
constexpr int kActBlock = a == Activation::f32 ? 1 : 32;
template <Activation a>
constexpr size_t kActBytes = a == Activation::f32 ? sizeof(float) : sizeof(Act32);
template <Activation a>
size_t act_bytes(int64_t cols, int n) {
  return size_t(n) * size_t(cols / kActBlock<a>) * kActBytes<a>;
}

// ---- rounding
constexpr float kRound = 12582912.f;  // 1.5 * 2^23: adding it leaves the nearest integer in the low bits, ties to even

SIMD_INLINE float bits_to_float(int32_t v) { return __builtin_bit_cast(float, v); }

// q[0..32) and the scale of 32 floats. Not a number or infinite anywhere: codes 0, scale NaN.
SIMD_INLINE float round_block(const float* x, int8_t* q) {
  I top = set32(0);  // of the magnitudes' bits: ordered like the floats, NaN above all
  for (int i = 0; i < 32; i += kLanes) top = max(top, and_(as_int(loadf(x + i)), set32(0x7fffffff)));
  const int32_t bits = largest(top);
  const float m = bits_to_float(bits), inverse = 127.f / m;
  if (!(inverse <= 3.4e38f) || inverse == 0) {  // below 4e-37 counts as nothing
    __builtin_memset(q, 0, 32);
    return bits < 0x7f800000 ? 0.f : __builtin_nanf("");
  }
  for (int i = 0; i < 32; i += kLanes) store_bytes(q + i, as_int(add(mul(loadf(x + i), setf(inverse)), setf(kRound))));
  return m / 127.f;
}

// sums[i] = the sum of q[4i .. 4i+3] of 64 codes
SIMD_INLINE void sums_of_4(const int8_t* q, int32_t* sums) {
  for (int i = 0; i < 64; i += 4 * kLanes) storei(sums + i / 4, sums_of_bytes(load(q + i)));
}

// The codes of token i of the `size` tokens of a tile. Where products take two tokens at once, those of a pair lie in
// one another's places, 8 k of the one beside 8 k of the other: the first token holds k 0..7 and 16..23 of both.
SIMD_INLINE void place_codes(const int8_t* q, Act32* tokens, int i, int size) {
#if defined(SIMD_PAIRS)
  Act32* pair = tokens + i / 2 * 2;
  if (pair + 1 < tokens + size) {
    for (int c = 0; c < 4; c++) __builtin_memcpy(pair[c % 2].q + c / 2 * 16 + i % 2 * 8, q + 8 * c, 8);
    return;
  }
#endif
  (void)size;
  __builtin_memcpy(tokens[i].q, q, 32);
}

// Token i of a tile's tokens: 32 codes, their scale and the sums of each four. Written where it stays, field by field:
// a whole one copied there would wait for its fields to leave the store buffer.
SIMD_INLINE void place(const int8_t* q, float d, const int32_t* sums, Act32* tokens, int i, int size) {
  place_codes(q, tokens, i, size);
  Act32& a = tokens[i];
  const int32_t first = sums[0] + sums[1] + sums[2] + sums[3], second = sums[4] + sums[5] + sums[6] + sums[7];
  const int32_t sum = first + second;
  a.d = d;
  a.dsum = d * float(sum);
  for (int z = 0; z < 3; z++) a.start32[z] = kStart - kZeros[z] * sum;
  a.start16[0] = start_form(first);
  a.start16[1] = start_form(second);
  a.sum16[0] = int16_t(first);
  a.sum16[1] = int16_t(second);
}

// One token's blocks, `size` apart: x (32 n_blocks) -> token i of each tile.
SIMD_INLINE void place_row(const float* x, int64_t n_blocks, Act32* tile, int i, int size) {
  for (int64_t b = 0; b < n_blocks; b += 2) {
    int8_t q[64] = {};
    int32_t sums[16];
    float d[2];
    const int n = n_blocks - b < 2 ? 1 : 2;
    for (int j = 0; j < n; j++) d[j] = round_block(x + (b + j) * 32, q + 32 * j);
    sums_of_4(q, sums);
    for (int j = 0; j < n; j++) place(q + 32 * j, d[j], sums + 8 * j, tile + (b + j) * size, i, size);
  }
}
SIMD_INLINE void place_row(const float* x, int64_t n, float* tile, int i, int size) {
  for (int64_t k = 0; k < n; k++) tile[k * size + i] = x[k];
}

// ---- the table's functions
template <Activation a>
struct ActOf {
  using type = float;
};
template <>
struct ActOf<Activation::q8> {
  using type = Act32;
};

template <Activation a>
void prepare(const float* x, size_t ldx, int64_t cols, int n, int t0, int t1, uint8_t* act) {
  using Act = typename ActOf<a>::type;
  const int64_t blocks = cols / kActBlock<a>;
  for (int t = t0; t < t1; t++) {
    const int first = t - t % kMaxTile<a>, size = n - first < kMaxTile<a> ? n - first : kMaxTile<a>;
    place_row(x + size_t(t) * ldx, blocks, reinterpret_cast<Act*>(act) + int64_t(first) * blocks, t - first, size);
  }
}

void residual(const float* x, int64_t cols, float* r) {
  for (int64_t k = 0; k < cols; k += 32) {
    int8_t q[32];
    const float d = round_block(x + k, q);
    for (int i = 0; i < 32; i++) r[k + i] = __builtin_fmaf(-d, float(q[i]), x[k + i]);
  }
}

template <Activation a>
constexpr ActivationKernels activation_kernels() {
  return {&act_bytes<a>, &prepare<a>, a == Activation::f32 ? nullptr : &residual};
}

}  // namespace
}  // namespace pllm::cpu
