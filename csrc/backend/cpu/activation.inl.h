// Activations as the products read them, over the words of an ISA header: rounded to int8 with one scale for 32 or for
// 256 of them, or as floats. A token's place is (tile, block, token in the tile).
//
// The same bits on every instruction set: the largest magnitude, one division each way, one multiplication and
// rounding to nearest even are exact notions. Codes stay within +-127.
#pragma once
#include "backend/cpu/kernels.h"

namespace pllm::cpu {
namespace {

struct Act32 {
  int8_t q[32];
  int32_t minus8sum;  // -8 sum(q)
  float d, dsum;      // x = d q; d sum(q)
};
struct ActK {
  int8_t q[256];
  int32_t start16[16];  // start_form(sum(q)) of each 16 k
  int16_t sum16[16];    // sum(q) of each 16 k, every four in the order 0 2 1 3: the order of packed mins
  int16_t sum32[8];     // sum(q) of each 32 k, in the same order
  float d, unused[3];
};
static_assert(sizeof(Act32) == 44 && sizeof(ActK) == 384);

// ---- tiles: full ones of kMaxTile tokens, then the smallest size that holds the rest, filled up with zero tokens
constexpr int kTileSizes[] = {1, 2, 3, 4, 6, 8, 12, 16};
// Float products keep two sums a token, so half as many tokens fit in 256-bit registers, three quarters in 512.
template <Activation a>
constexpr int kMaxTile = kTokens;
template <>
constexpr int kMaxTile<Activation::f32> = kTokens == 16   ? 12
                                          : kTokens == 12 ? 6
                                                          : kTokens;
SIMD_INLINE int tile_index(int n) {  // of the smallest size that holds n tokens
  int i = 0;
  while (kTileSizes[i] < n) i++;
  return i;
}
SIMD_INLINE int tile_size(int n) { return kTileSizes[tile_index(n)]; }

template <Activation a>
constexpr int kActBlock = a == Activation::f32  ? 1
                          : a == Activation::q8 ? 32
                                                : 256;
template <Activation a>
constexpr size_t kActBytes = a == Activation::f32  ? sizeof(float)
                             : a == Activation::q8 ? sizeof(Act32)
                                                   : sizeof(ActK);
template <Activation a>
size_t act_bytes(int64_t cols, int n) {
  const int rest = n % kMaxTile<a>;
  return size_t(n - rest + (rest ? tile_size(rest) : 0)) * size_t(cols / kActBlock<a>) * kActBytes<a>;
}

// ---- rounding
constexpr float kRound = 12582912.f;  // 1.5 * 2^23: adding it leaves the nearest integer in the low bits, ties to even

SIMD_INLINE float bits_to_float(int32_t v) { return __builtin_bit_cast(float, v); }

// q[0..n) and the scale of n floats, n a multiple of 16. Not a number or infinite anywhere: codes 0, scale NaN.
template <int N>
SIMD_INLINE float round_block(const float* x, int8_t* q) {
  I top = set32(0);  // of the magnitudes' bits: ordered like the floats, NaN above all
  for (int i = 0; i < N; i += kLanes) top = max(top, and_(as_int(loadf(x + i)), set32(0x7fffffff)));
  int32_t lanes[kLanes], bits = 0;
  storei(lanes, top);
  for (int32_t v : lanes) bits = v > bits ? v : bits;
  const float m = bits_to_float(bits), inverse = 127.f / m;
  if (!(inverse <= 3.4e38f) || inverse == 0) {  // below 4e-37 counts as nothing
    __builtin_memset(q, 0, N);
    return bits < 0x7f800000 ? 0.f : __builtin_nanf("");
  }
  for (int i = 0; i < N; i += kLanes) store_bytes(q + i, as_int(add(mul(loadf(x + i), setf(inverse)), setf(kRound))));
  return m / 127.f;
}

// sums[i] = the sum of q[4i .. 4i+3], n a multiple of 64
SIMD_INLINE void sums_of_4(const int8_t* q, int n, int32_t* sums) {
  for (int i = 0; i < n; i += 4 * kLanes) {
#if SIMD_DP
    storei(sums + i / 4, dp(set32(0), set8(1), load(q + i)));
#else
    storei(sums + i / 4, madd16(set32(0), madd8(set8(1), load(q + i)), set16(1)));
#endif
  }
}

SIMD_INLINE void fill(const float* x, Act32& a) {
  int8_t q[64] = {};
  a.d = round_block<32>(x, q);
  int32_t sums[16], sum = 0;
  sums_of_4(q, 64, sums);
  for (int i = 0; i < 8; i++) sum += sums[i];
  __builtin_memcpy(a.q, q, 32);
  a.minus8sum = -8 * sum;
  a.dsum = a.d * float(sum);
}

SIMD_INLINE void fill(const float* x, ActK& a) {
  a.d = round_block<256>(x, a.q);
  int32_t sums[64];
  sums_of_4(a.q, 256, sums);
  constexpr int place[4] = {0, 2, 1, 3};
  for (int g = 0; g < 16; g++) {
    const int32_t s = sums[4 * g] + sums[4 * g + 1] + sums[4 * g + 2] + sums[4 * g + 3];
    a.start16[g] = start_form(s);
    a.sum16[g / 4 * 4 + place[g % 4]] = int16_t(s);
    sums[g] = s;
  }
  for (int g = 0; g < 8; g++) a.sum32[g / 4 * 4 + place[g % 4]] = int16_t(sums[2 * g] + sums[2 * g + 1]);
  for (float& v : a.unused) v = 0;
}

SIMD_INLINE void fill(const float* x, float& a) { a = *x; }

// ---- the table's functions
template <Activation a>
struct ActOf {
  using type = float;
};
template <>
struct ActOf<Activation::q8> {
  using type = Act32;
};
template <>
struct ActOf<Activation::q8k> {
  using type = ActK;
};

template <Activation a>
void prepare(const float* x, size_t ldx, int64_t cols, int n, int t0, int t1, uint8_t* act) {
  using Act = typename ActOf<a>::type;
  const int64_t blocks = cols / kActBlock<a>;
  for (int t = t0; t < t1; t++) {
    const int first = t - t % kMaxTile<a>, tokens = n - first < kMaxTile<a> ? n - first : kMaxTile<a>;
    const int size = tile_size(tokens);
    Act* tile = reinterpret_cast<Act*>(act) + int64_t(first) * blocks;
    for (int64_t b = 0; b < blocks; b++) fill(x + size_t(t) * ldx + b * kActBlock<a>, tile[b * size + t - first]);
    if (t + 1 == n)  // whoever has the last token also writes the zero tokens after it
      for (int64_t b = 0; b < blocks; b++)
        for (int pad = tokens; pad < size; pad++) tile[b * size + pad] = Act{};
  }
}

template <Activation a>
constexpr ActivationKernels activation_kernels() {
  return {&act_bytes<a>, &prepare<a>};
}

}  // namespace
}  // namespace pllm::cpu
