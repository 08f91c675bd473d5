// Products of panels and prepared activations, over the words of an ISA header and the formats of formats.inl.h.
//
// ORDER (promise 1). The sums of 32 k are integers. Each joins a row's float by one fma, in k order; a 256-wide block
// has floats of its own, which join the row's at its end (first the weights', then the mins'). Float formats add even
// and odd k in two chains, joined at the end. So a product depends on neither tile, thread, number of tokens nor vector
// width.
#pragma once
#include <utility>

#include "backend/cpu/activation.inl.h"
#include "backend/cpu/compiler.inl.h"
#include "backend/cpu/formats.inl.h"
#include "backend/cpu/kernels.h"

namespace pllm::cpu {
namespace {

constexpr int kHalves = kPanelRows / kLanes;  // registers of a 16-row line
constexpr int kHalfBytes = kLineBytes / kHalves;
constexpr size_t kPanelsInL2 = size_t{768} << 10;  // bytes that stay in L2 while all tokens pass

// Prefetch into L2 this far ahead, and every line: one left out halves the speed. One token too: where the hardware
// prefetcher is weak it doubles the speed, where it is strong it costs a quarter of what one core can read.
constexpr int kAhead = 8192;
SIMD_INLINE void prefetch_lines(const uint8_t* p, int n) {
  for (int i = 0; i < n; i++) __builtin_prefetch(p + kAhead + i * kLineBytes, 0, 2);
}

// Steps p over the group's line of odd bytes where block b is a group's first; returns block b's place in that line.
template <Format f>
SIMD_INLINE const uint8_t* head_of(int64_t b, const uint8_t*& p, const uint8_t* head) {
  static constexpr PanelLayout L = panel_layout(f);
  if constexpr (L.odd_bytes == 0) return head;
  if (b % L.group) return head + kPanelRows * L.odd_bytes;
  prefetch_lines(p, 1);
  p += kLineBytes;
  return p - kLineBytes;
}

// What the dot of 32 weights starts from, to take off their zero point.
template <int ZERO>
SIMD_INLINE I zero_start(const Act32& x) {
  if constexpr (ZERO == 0) return set32(kStart);
  static_assert(ZERO == 0 || ZERO == 8 || ZERO == 16 || ZERO == 128);
  return set32(x.start32[ZERO == 128 ? 2 : ZERO == 16 ? 1 : 0]);
}

#if defined(SIMD_FUSED_SUMS)

// N tokens side by side: chains that hide each other's latency, without additions to join them.
template <int ZERO, int N, class Use>
SIMD_INLINE void sums_of(const I* w, const Act32* x, int t, Use use) {
  I sum[N];
  SIMD_UNROLL for (int i = 0; i < N; i++) sum[i] = zero_start<ZERO>(x[t + i]);
  SIMD_UNROLL for (int k = 0; k < 8; k++) {
    SIMD_UNROLL for (int i = 0; i < N; i++) sum[i] = dp_word(sum[i], w[k], x[t + i].q, k);
  }
  SIMD_UNROLL for (int i = 0; i < N; i++) use(t + i, sum[i]);
}
template <int BITS, int ZERO, int T, class Use>
SIMD_INLINE void each_sum(const I* w, const Act32* x, Use use) {
  constexpr int kSide = kSideBySide, kFull = T / kSide * kSide;
  SIMD_TOKENS for (int t = 0; t < kFull; t += kSide) sums_of<ZERO, kSide>(w, x, t, use);
  if constexpr (T - kFull >= 2) sums_of<ZERO, 2>(w, x, kFull, use);
  if constexpr (T % 2) use(T - 1, dot32<BITS>(zero_start<ZERO>(x[T - 1]), w, x[T - 1].q));
}
// use(t, v) for each of T tokens: v = the integer product of 32 k, less the zero point's part.
template <int BITS, int ZERO, int T, class Use>
SIMD_INLINE void each_dot(const I* w, const Act32* x, Use use) {
  each_sum<BITS, ZERO, T>(w, x, [&](int t, I v) SIMD_FN { use(t, sub(as_float(v), setf(kSumOffset))); });
}

struct Scaled {  // of a sum that started at kStart
  F scale, offset;
  __attribute__((always_inline)) explicit Scaled(F c) : scale(c), offset(mul(c, setf(-kSumOffset))) {}
  __attribute__((always_inline)) F operator()(I sum) const { return fma(as_float(sum), scale, offset); }
};

// The same with the scales of format f in a block of 256: one for the 32 k (scale[0]), or one for each 16 k. Exact.
template <Format f, int T, class Use>
SIMD_INLINE void each_scaled_dot(const I* w, const Act32* x, const I* scale, Use use) {
  using W = Weights<f>;
  if constexpr (W::sub16) {
    const Scaled first(as_float(scale[0])), second(as_float(scale[1]));
    for (int t = 0; t < T; t++) {
      if constexpr (T > 4) __builtin_prefetch(x + T + t);  // the next 32 k: the hardware does not see this far
      I a = set32(W::zero32 ? x[t].start16[0] : kStart), b = set32(W::zero32 ? x[t].start16[1] : kStart);
      dots16<W::bits>(a, b, w, x[t].q);
      use(t, add(first(a), second(b)));
    }
  } else {
    const Scaled scaled(as_float(scale[0]));
    each_sum<W::bits, W::zero, T>(w, x, [&](int t, I v) SIMD_FN { use(t, scaled(v)); });
  }
}

#else

template <int BITS, int ZERO, int T, class Use>
SIMD_INLINE void each_sum(const I* w, const Act32* x, Use use) {
  int t = 0;
#if defined(SIMD_PAIRS)
  if constexpr (T > 1) {
    const Blocks blocks(w);
    SIMD_TOKENS for (; t + 1 < T; t += 2) {
      I v[2];
      blocks.template dots<3>(x[t].q, x[t + 1].q, v);
      for (int i = 0; i < 2; i++) use(t + i, add(v[i], zero_start<ZERO>(x[t + i])));
    }
  }
#endif
  SIMD_TOKENS for (; t < T; t++) use(t, dot32<BITS>(zero_start<ZERO>(x[t]), w, x[t].q));
}
// use(t, v) for each of T tokens: v = the integer product of 32 k, less the zero point's part.
template <int BITS, int ZERO, int T, class Use>
SIMD_INLINE void each_dot(const I* w, const Act32* x, Use use) {
  each_sum<BITS, ZERO, T>(w, x, [&](int t, I v) SIMD_FN { use(t, to_float(v)); });
}

// The same with the scales of format f in a block of 256: one for the 32 k (scale[0]), or one for each 16 k. Exact.
template <Format f, int T, class Use>
SIMD_INLINE void each_scaled_dot(const I* w, const Act32* x, const I* scale, Use use) {
  using W = Weights<f>;
  static constexpr int32_t no_start[2] = {0, 0};
  if constexpr (W::sub16) {
    int t = 0;
#if defined(SIMD_PAIRS)
    if constexpr (T > 1) {
      const Blocks blocks(w);
      SIMD_TOKENS for (; t + 1 < T; t += 2) {
        I a[2], b[2];
        blocks.template dots<1>(x[t].q, x[t + 1].q, a);
        blocks.template dots<2>(x[t].q, x[t + 1].q, b);
        for (int i = 0; i < 2; i++) {
          const int32_t* start = W::zero32 ? x[t + i].start16 : no_start;
          use(t + i,
              to_float(add(mul(add(a[i], set32(start[0])), scale[0]), mul(add(b[i], set32(start[1])), scale[1]))));
        }
      }
    }
#endif
    SIMD_TOKENS for (; t < T; t++) {
      const int32_t* start = W::zero32 ? x[t].start16 : no_start;
      use(t, to_float(scaled_dots<W::bits>(start, w, x[t].q, scale[0], scale[1])));
    }
  } else {
#if defined(SIMD_MADD8)
    for (int t = 0; t < T; t++) use(t, to_float(scaled_dot<W::bits>(zero_start<W::zero>(x[t]), w, x[t].q, scale[0])));
#else
    each_sum<W::bits, W::zero, T>(w, x, [&](int t, I v) SIMD_FN { use(t, to_float(mul(v, scale[0]))); });
#endif
  }
}

#endif

// Few tokens: one pass over the panel; many: one for each part of its rows whose sums fit the registers.
constexpr int at_once(int sums) {
  int n = kHalves;
  while (n > 1 && n * sums > kTileSums) n /= 2;
  return n;
}

// One panel times T tokens. act: the tile, block by block, T tokens each; y[t * ldy + row].
template <Format f, int T>
void tile_32(const uint8_t* panel, int64_t cols, const uint8_t* act, float* y, size_t ldy) {
  using W = Weights<f>;
  static constexpr PanelLayout L = panel_layout(f);
  constexpr int kAtOnce = at_once(T);
  for (int h0 = 0; h0 < kHalves; h0 += kAtOnce) {
    const uint8_t *head = nullptr, *p = panel;
    const Act32* x = reinterpret_cast<const Act32*>(act);
    F acc[kAtOnce][T];
    for (auto& half : acc)
      for (auto& v : half) v = setf(0);
    for (int64_t b = 0; b < cols / 32; b++, x += T, p += L.words * kLineBytes) {
      head = head_of<f>(b, p, head);
      if (h0 == 0) prefetch_lines(p, L.words);
      for (int h = 0; h < kAtOnce; h++) {
        const uint8_t* rows = p + (h0 + h) * kHalfBytes;
        I w[8];
        W::codes(rows, w);
        const F d = W::scale(rows, head + (h0 + h) * kLanes * L.odd_bytes);
        each_dot<W::bits, W::zero, T>(w, x,
                                      [&](int t, F v) SIMD_FN { acc[h][t] = fma(v, mul(d, setf(x[t].d)), acc[h][t]); });
        if constexpr (W::has_min) {
          const F m = W::min(rows);
          for (int t = 0; t < T; t++) acc[h][t] = fma(m, setf(x[t].dsum), acc[h][t]);
        }
      }
    }
    for (int h = 0; h < kAtOnce; h++)
      for (int t = 0; t < T; t++) storef(y + size_t(t) * ldy + (h0 + h) * kLanes, acc[h][t]);
  }
}

// 32 k of T tokens: sum[t] += d x (scaled integer product)
template <Format f, int T, int S>
SIMD_INLINE void step_256(F* sum, const uint8_t* p, int chunk, const typename Weights<f>::High& high,
                          const BlockScales& s, const Act32* x) {
  using W = Weights<f>;
  I w[8];
  W::template codes<S>(p, high, w);
  const int j = chunk * W::steps + S;
  x += j * T;
  each_scaled_dot<f, T>(w, x, s.scale + (W::sub16 ? 2 * j : j),
                        [&](int t, F v) SIMD_FN { sum[t] = fma(v, setf(x[t].d), sum[t]); });
}

template <Format f, int T>
void tile_256(const uint8_t* panel, int64_t cols, const uint8_t* act, float* y, size_t ldy) {
  using W = Weights<f>;
  static constexpr PanelLayout L = panel_layout(f);
  constexpr int kChunkLines = (L.words + W::chunks - 1) / W::chunks;  // prefetched with each chunk
  const uint8_t *head = nullptr, *p = panel;
  const Act32* x = reinterpret_cast<const Act32*>(act);
  F acc[kHalves][T];
  for (auto& half : acc)
    for (auto& v : half) v = setf(0);
  for (int64_t b = 0; b < cols / 256; b++, x += 8 * T, p += L.words * kLineBytes) {
    head = head_of<f>(b, p, head);
    for (int h = 0; h < kHalves; h++) {
      const uint8_t* rows = p + h * kHalfBytes;
      BlockScales s;
      W::scales(rows, head + h * kLanes * L.odd_bytes, s);
      F sum[T];
      for (auto& v : sum) v = setf(0);
      typename W::High high(rows);
      const uint8_t* pc = rows + W::codes_at * kLineBytes;
      SIMD_ROLLED
      for (int c = 0; c < W::chunks; c++, pc += W::chunk_lines * kLineBytes) {  // the prefetcher insists
        if (h == 0) prefetch_lines(p + c * kChunkLines * kLineBytes, kChunkLines);
        step_256<f, T, 0>(sum, pc, c, high, s, x);
        step_256<f, T, 1>(sum, pc, c, high, s, x);
        if constexpr (W::steps == 4) {
          step_256<f, T, 2>(sum, pc, c, high, s, x);
          step_256<f, T, 3>(sum, pc, c, high, s, x);
        }
        high.next();
      }
      for (int t = 0; t < T; t++) {
        acc[h][t] = fma(sum[t], s.d, acc[h][t]);
        if constexpr (W::has_min) {
          F m = setf(0);
          for (int j = 0; j < 8; j++) m = W::min_term(s.min[j], x[j * T + t], m);
          acc[h][t] = fnma(m, s.dmin, acc[h][t]);
        }
      }
    }
  }
  for (int h = 0; h < kHalves; h++)
    for (int t = 0; t < T; t++) storef(y + size_t(t) * ldy + h * kLanes, acc[h][t]);
}

template <Format f, int T>
void tile_float(const uint8_t* panel, int64_t cols, const uint8_t* act, float* y, size_t ldy) {
  using W = Weights<f>;
  constexpr int kAtOnce = at_once(2 * T);
  for (int h0 = 0; h0 < kHalves; h0 += kAtOnce) {
    const uint8_t* p = panel + h0 * W::stride / kHalves;
    const float* x = reinterpret_cast<const float*>(act);
    F even[kAtOnce][T], odd[kAtOnce][T];
    for (int h = 0; h < kAtOnce; h++)
      for (int t = 0; t < T; t++) even[h][t] = odd[h][t] = setf(0);
    int64_t k = 0;
    for (; k + 1 < cols; k += 2, x += 2 * T, p += 2 * W::stride) {
      if (h0 == 0) prefetch_lines(p, 2 * W::stride / kLineBytes);
      for (int h = 0; h < kAtOnce; h++) {
        const F w0 = W::weight(p + h * W::stride / kHalves), w1 = W::weight(p + W::stride + h * W::stride / kHalves);
        for (int t = 0; t < T; t++) {
          even[h][t] = fma(w0, setf(x[t]), even[h][t]);
          odd[h][t] = fma(w1, setf(x[T + t]), odd[h][t]);
        }
      }
    }
    if (k < cols)
      for (int h = 0; h < kAtOnce; h++)
        for (int t = 0; t < T; t++) even[h][t] = fma(W::weight(p + h * W::stride / kHalves), setf(x[t]), even[h][t]);
    for (int h = 0; h < kAtOnce; h++)
      for (int t = 0; t < T; t++) storef(y + size_t(t) * ldy + (h0 + h) * kLanes, add(even[h][t], odd[h][t]));
  }
}

using Tile = void (*)(const uint8_t* panel, int64_t cols, const uint8_t* act, float* y, size_t ldy);
template <Format f, int T>
constexpr Tile tile_of() {
  constexpr Activation kind = info(f).activation;
  if constexpr (kind == Activation::f32)
    return &tile_float<f, T>;
  else if constexpr (info(f).block_weights == 32)
    return &tile_32<f, T>;
  else
    return &tile_256<f, T>;
}

// One of each size: padding 9 tokens to 12 costs a fifth. T - 1 is the index.
template <int N>
struct Tiles {
  Tile of[N];
};
template <Format f, int... T>
constexpr Tiles<sizeof...(T)> tiles_of(std::integer_sequence<int, T...>) {
  return {{tile_of<f, T + 1>()...}};
}

// A tile that does not fill its panel goes through a buffer, so that nothing else is overwritten.
void irregular_tile(Tile tile, const uint8_t* panel, int64_t cols, const uint8_t* act, float* y, size_t ldy, int rows,
                    int n) {
  float all[kTokens * kPanelRows];
  tile(panel, cols, act, all, kPanelRows);
  for (int t = 0; t < n; t++) __builtin_memcpy(y + size_t(t) * ldy, all + t * kPanelRows, size_t(rows) * sizeof(float));
}

template <Format f>
void matmul(const uint8_t* panels, int64_t cols, int64_t n_rows, const uint8_t* act, int n, float* y, size_t ldy,
            int64_t panel0, int64_t panel1) {
  static constexpr PanelLayout L = panel_layout(f);
  constexpr int kMost = kMaxTile<info(f).activation>;
  static constexpr auto tiles = tiles_of<f>(std::make_integer_sequence<int, kMost>());
  const int64_t blocks = cols / L.block_weights;
  const size_t stride = size_t(blocks * L.words + (L.odd_bytes ? (blocks + L.group - 1) / L.group : 0)) * kLineBytes;
  const int64_t fit = stride && kPanelsInL2 > stride ? int64_t(kPanelsInL2 / stride) : 1;
  const int64_t run = n > kMost ? fit : panel1 - panel0;
  for (int64_t q0 = panel0; q0 < panel1; q0 += run) {
    const int64_t q1 = panel1 - q0 < run ? panel1 : q0 + run;
    for (int t0 = 0; t0 < n; t0 += kMost) {
      const int tokens = n - t0 < kMost ? n - t0 : kMost;
      const Tile tile = tiles.of[tokens - 1];
      const uint8_t* x = act + act_bytes<info(f).activation>(cols, t0);
      for (int64_t q = q0; q < q1; q++) {
        const int64_t rows = n_rows - q * kPanelRows;
        float* out = y + size_t(t0) * ldy + q * kPanelRows;
        if (rows >= kPanelRows)
          tile(panels + size_t(q) * stride, cols, x, out, ldy);
        else
          irregular_tile(tile, panels + size_t(q) * stride, cols, x, out, ldy, int(rows), tokens);
      }
    }
  }
}

}  // namespace
}  // namespace pllm::cpu
