// Attention of query rows over chunks of f16 KV pages, over the words of one instruction set.
//
// A page holds 64 tokens of one (layer, KV head): keys with the tokens in the lanes, [head_dim_k][64], then values with
// the dims in the lanes, blocks of 64 dims [64 tokens][64] and a last narrower block; head_dim_v is padded to 16. So
// scores and outputs fill whole registers and nothing is summed across lanes but the softmax.
//
// Fixed order, so that a row's bits depend on the row and its context alone: a score is a chain of fused multiply-adds
// over d ascending; the sum of p runs over 16 virtual lanes and one tree; p v is a chain over t ascending from 0 in
// each chunk; chunks are merged ascending. A masked key has p exactly 0, so a tile of rows may compute keys that some
// of its rows do not see. Rows in registers (M) and vectors in registers change only which chains run side by side.
#pragma once
#include "backend/cpu/kernels.h"
#include "backend/cpu/lines.inl.h"
#include "backend/cpu/math.inl.h"

namespace pllm::cpu {
namespace {

using Half = uint16_t;
constexpr float kLog2E = 1.44269504f;
constexpr int kMaxRows = kRegisters >= 16 ? 6 : 2;  // query rows handled together

SIMD_INLINE F load_element(const Half* p) { return load_half(p); }
SIMD_INLINE F load_element(const float* p) { return loadf(p); }
SIMD_INLINE float lane0(F v) {
  float buffer[kLanes];
  storef(buffer, v);
  return buffer[0];
}
constexpr int padded(int head_dim_v) { return (head_dim_v + 15) / 16 * 16; }
constexpr int block_width(int n, int first) { return n - first < 64 ? n - first : 64; }

// Vectors beside each other for m rows: m n sums, and either the row scalars or the loads, fit the registers.
constexpr int vectors(int m) {
  int n = kPageTokens / kLanes;
  while (n > 1 && m * n + (m < n ? m : n) + 1 > kRegisters) n /= 2;
  return n;
}

// Fetches into L2 what is read half a page later, in step with what is read now (L1 has too few miss buffers for it).
struct Ahead {
  const uint8_t* next;
  template <class E, int kBytes>
  __attribute__((always_inline)) void step() {
    if constexpr (sizeof(E) == 2) {  // floats are a copy in the cache
      for (int i = 0; i < kBytes; i += 64) __builtin_prefetch(next + i, 0, 2);
      next += kBytes;
    }
  }
};

// sum[m][j] += in[m * stride] row[j] for N vectors of row. The source order is the order of the instructions, and the
// smaller of the two operand sets is the one kept in registers.
template <int M, int N, class E>
SIMD_INLINE void rank_one(F (&sum)[M][N], const float* in, int stride, const E* row) {
  if constexpr (N <= M) {
    F v[N];
    SIMD_UNROLL for (int j = 0; j < N; j++) v[j] = load_element(row + j * kLanes);
    SIMD_UNROLL for (int m = 0; m < M; m++) {
      const F x = setf(in[m * stride]);
      SIMD_UNROLL for (int j = 0; j < N; j++) sum[m][j] = fma(x, v[j], sum[m][j]);
    }
  } else {
    F x[M];
    SIMD_UNROLL for (int m = 0; m < M; m++) x[m] = setf(in[m * stride]);
    SIMD_UNROLL for (int j = 0; j < N; j++) {
      const F v = load_element(row + j * kLanes);
      SIMD_UNROLL for (int m = 0; m < M; m++) sum[m][j] = fma(x[m], v, sum[m][j]);
    }
  }
}

// scores[m][t] = q[m] . key[t] for the 64 tokens of a page. Not inlined: its callers would spill its pointers.
template <int M, class E>
__attribute__((noinline)) void page_scores(const E* keys, int head_dim, const float* q, float* scores, Ahead ahead) {
  constexpr int N = vectors(M);
  for (int t = 0; t < kPageTokens; t += N * kLanes) {
    F acc[M][N];
    SIMD_UNROLL for (int m = 0; m < M; m++) { SIMD_UNROLL for (int j = 0; j < N; j++) acc[m][j] = setf(0.f); }
    const E* k = keys + t;
    for (int d = 0; d < head_dim; d++, k += kPageTokens) {
      ahead.template step<E, N * kLanes * sizeof(E)>();
      rank_one(acc, q + d, head_dim, k);
    }
    SIMD_UNROLL for (int m = 0; m < M; m++) {
      SIMD_UNROLL for (int j = 0; j < N; j++) storef(scores + m * kChunkTokens + t + j * kLanes, acc[m][j]);
    }
  }
}

// Columns [first, width) of one block of values [64][width]: acc[m] += sum over t of p[m][t] value[t].
template <int M, int N, class E>
SIMD_INLINE void block_values(const E* values, int width, int first, const float* p, float* acc, int ld_acc,
                              Ahead& ahead) {
  for (; first + N * kLanes <= width; first += N * kLanes) {
    F sum[M][N];
    SIMD_UNROLL for (int m = 0; m < M; m++) {
      SIMD_UNROLL for (int j = 0; j < N; j++) sum[m][j] = loadf(acc + m * ld_acc + first + j * kLanes);
    }
    const E* v = values + first;
    for (int t = 0; t < kPageTokens; t++, v += width) {
      ahead.template step<E, N * kLanes * sizeof(E)>();
      rank_one(sum, p + t, kChunkTokens, v);
    }
    SIMD_UNROLL for (int m = 0; m < M; m++) {
      SIMD_UNROLL for (int j = 0; j < N; j++) storef(acc + m * ld_acc + first + j * kLanes, sum[m][j]);
    }
  }
  if constexpr (N > 1) {
    if (first < width) block_values<M, N / 2>(values, width, first, p, acc, ld_acc, ahead);
  }
}

template <int M, class E>
__attribute__((noinline)) void page_values(const E* values, int n, const float* p, float* acc, Ahead ahead) {
  for (int c = 0; c < n; c += 64) {
    block_values<M, vectors(M)>(values + c * kPageTokens, block_width(n, c), 0, p, acc + c, n, ahead);
  }
}

constexpr int up_to(int m) { return m < kMaxRows ? m : kMaxRows; }
template <class E>
using PageFn = void (*)(const E*, int, const float*, float*, Ahead);
template <class E>
constexpr PageFn<E> kPageScores[] = {page_scores<up_to(1), E>, page_scores<up_to(2), E>, page_scores<up_to(3), E>,
                                     page_scores<up_to(4), E>, page_scores<up_to(5), E>, page_scores<up_to(6), E>};
template <class E>
constexpr PageFn<E> kPageValues[] = {page_values<up_to(1), E>, page_values<up_to(2), E>, page_values<up_to(3), E>,
                                     page_values<up_to(4), E>, page_values<up_to(5), E>, page_values<up_to(6), E>};

// All rows through kernels of at most kMaxRows, as evenly as possible. The first block fetches ahead.
template <class E>
void for_rows(const PageFn<E>* fns, int n_rows, const E* page, int dim, const float* in, int ld_in, float* out,
              int ld_out, const uint8_t* next) {
  const int n_blocks = (n_rows + kMaxRows - 1) / kMaxRows;
  for (int i = 0; i < n_blocks; i++) {
    const int r = i * n_rows / n_blocks, m = (i + 1) * n_rows / n_blocks - r;
    fns[m - 1](page, dim, in + r * ld_in, out + r * ld_out, {i == 0 && next ? next : (const uint8_t*)page});
  }
}

// Keys or values of one page against all rows. Many rows share one conversion to float: the same numbers, so the same
// bits. spare: room for it.
void page_rows(const PageFn<Half>* halves, const PageFn<float>* floats, const AttentionChunk& a, const Half* page,
               int dim, const float* in, int ld_in, float* out, int ld_out, const uint8_t* next) {
  if (a.n_rows <= 2 * kMaxRows) return for_rows(halves, a.n_rows, page, dim, in, ld_in, out, ld_out, next);
  for (int i = 0; i < dim * kPageTokens; i += kLanes) storef(a.page_floats + i, load_half(page + i));
  for_rows(floats, a.n_rows, (const float*)a.page_floats, dim, in, ld_in, out, ld_out, nullptr);
}

// scores [first, last) of one row -> p, where keys in [low, high) are seen. NaN scores of seen keys make the sum NaN.
void softmax(float* scores, int first, int last, int low, int high, float softcap, float* row_max, float* row_sum) {
  const F minus_inf = setf(-__builtin_inff());
  const bool edge = low > first || high < last;
  F top[kParts], sum[kParts];
  for (int j = 0; j < kParts; j++) top[j] = minus_inf, sum[j] = setf(0.f);
  for (int t = first; t < last; t += 16) {
    for (int j = 0; j < kParts; j++) {
      float* s = scores + t + j * kLanes;
      F x = loadf(s);
      if (softcap != 0.f) x = mul(tanh(x), setf(softcap * kLog2E));
      if (edge) {
        const F key = add(iota(), setf(float(t + j * kLanes)));
        x = select(less(key, setf(float(low))), minus_inf, x);
        x = select(less(key, setf(float(high))), x, minus_inf);
      }
      storef(s, x);
      top[j] = max(top[j], x);
    }
  }
  const float m = max16(top);
  const F shift = setf(m == -__builtin_inff() ? 0.f : m);
  for (int t = first; t < last; t += 16) {
    for (int j = 0; j < kParts; j++) {
      const F p = exp2(sub(loadf(scores + t + j * kLanes), shift));
      storef(scores + t + j * kLanes, p);
      sum[j] = add(sum[j], p);
    }
  }
  *row_max = m;
  *row_sum = sum16(sum);
}

void attend_chunk(const AttentionChunk& a) {
  const int start = a.chunk * kChunkTokens, n_v = padded(a.head_dim_v);
  const int low = a.pos[0] - a.window + 1 - start, high = a.pos[a.n_rows - 1] + 1 - start;  // what any row sees
  const int page0 = low > 0 ? low / kPageTokens : 0;
  const int page1 = high < kChunkTokens ? (high + kPageTokens - 1) / kPageTokens : kChunkTokens / kPageTokens;
  const auto keys = [&](int g) { return a.pages[a.chunk * (kChunkTokens / kPageTokens) + g] + a.head_offset; };
  const auto values = [&](int g) { return keys(g) + sizeof(Half) * size_t(a.head_dim_k) * kPageTokens; };

  for (int g = page0; g < page1; g++) {
    const uint8_t* next = g + 1 < page1 ? keys(g + 1) : values(page0);
    page_rows(kPageScores<Half>, kPageScores<float>, a, (const Half*)keys(g), a.head_dim_k, a.q, a.head_dim_k,
              a.scores + g * kPageTokens, kChunkTokens, next);
  }
  for (int r = 0; r < a.n_rows; r++) {
    softmax(a.scores + r * kChunkTokens, page0 * kPageTokens, page1 * kPageTokens, a.pos[r] - a.window + 1 - start,
            a.pos[r] + 1 - start, a.softcap, a.max + r, a.sum + r);
  }
  for (int i = 0; i < a.n_rows * n_v; i += kLanes) storef(a.acc + i, setf(0.f));
  for (int g = page0; g < page1; g++) {
    const uint8_t* next = g + 1 < page1 ? values(g + 1) : a.next;
    page_rows(kPageValues<Half>, kPageValues<float>, a, (const Half*)values(g), n_v, a.scores + g * kPageTokens,
              kChunkTokens, a.acc, n_v, next);
  }
}

void merge_chunk(int n_rows, int head_dim_v, const float* max, const float* sum, const float* acc, float* total_max,
                 float* total_sum, float* total_acc) {
  const int n_v = padded(head_dim_v);
  for (int r = 0; r < n_rows; r++, acc += n_v, total_acc += n_v) {
    if (sum[r] == 0.f) continue;  // no key of the chunk seen
    const float top = total_max[r] > max[r] ? total_max[r] : max[r];
    const F old_part = exp2(setf(total_max[r] - top)), new_part = exp2(setf(max[r] - top));
    total_max[r] = top;
    total_sum[r] = lane0(fma(setf(total_sum[r]), old_part, mul(setf(sum[r]), new_part)));
    for (int d = 0; d < n_v; d += kLanes) {
      storef(total_acc + d, fma(loadf(total_acc + d), old_part, mul(loadf(acc + d), new_part)));
    }
  }
}

void finish_row(int head_dim_v, float total_sum, const float* total_acc, float* out) {
  const F inv = setf(1.f / total_sum);
  for (int d = 0; d < head_dim_v; d += kLanes) store_part(out + d, head_dim_v - d, mul(loadf(total_acc + d), inv));
}

void store_token(uint8_t* page, int t, int head_dim_k, int head_dim_v, const float* k, const float* v) {
  Half *keys = (Half*)page + t, *values = (Half*)page + head_dim_k * kPageTokens;
  F zeros = setf(0.f);  // 0 x is NaN where x is not finite
  for (int d = 0; d < head_dim_k; d += kLanes) zeros = fma(load_part(k + d, head_dim_k - d), setf(0.f), zeros);
  for (int d = 0; d < head_dim_v; d += kLanes) zeros = fma(load_part(v + d, head_dim_v - d), setf(0.f), zeros);
  bool finite = true;
  float lanes[kLanes];
  storef(lanes, zeros);
  for (float z : lanes) finite = finite && z == 0.f;

  // 0 times a NaN is NaN, so only the key may carry one: a masked score is replaced, a masked value multiplied.
  const F limit = setf(65504.f), low = setf(-65504.f);
  for (int d = 0; d < head_dim_k; d += kLanes) {
    Half lanes16[kLanes];
    const F x = finite ? min(limit, max(low, load_part(k + d, head_dim_k - d))) : setf(__builtin_nanf(""));
    store_half(lanes16, x);
    for (int i = 0; i < kLanes && d + i < head_dim_k; i++) keys[(d + i) * kPageTokens] = lanes16[i];
  }
  const int n_v = padded(head_dim_v);
  for (int d = 0; d < n_v; d += kLanes) {
    const F x = finite ? min(limit, max(low, load_part(v + d, head_dim_v - d))) : setf(0.f);
    const int block = d / 64 * 64;
    store_half(values + block * kPageTokens + t * block_width(n_v, block) + d - block, x);
  }
}

constexpr AttentionKernels kAttention = {
    .store = store_token, .chunk = attend_chunk, .merge = merge_chunk, .finish = finish_row};

}  // namespace
}  // namespace pllm::cpu
