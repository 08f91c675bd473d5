// Keys and values of one KV page against query rows: the layout and the loops that all KV types share, over the words
// of one instruction set. attention_floats.inl.h and attention_codes.inl.h say how each type is stored and multiplied.
//
// A page's part holds 64 tokens of one (layer, KV head). Keys have the tokens in the lanes, [head_dim_k / P][64][P],
// where an instruction multiplies P numbers at once: 1 float or 2 int16. Values have the dims in the lanes, blocks of
// 64 dims [64 / P tokens][64][P] and a last narrower block; head_dim_v is padded to 16. So scores and outputs fill
// whole registers and nothing is summed across lanes. Scales follow: one a token, [64], or one a token for every 32
// dims, [ceil(dim / 32)][64].
//
// Fixed order, so that a row's bits depend on the row and its context alone: a score is a chain over d ascending, p v a
// chain over t ascending, floats by fused multiply-adds. Integer sums are exact; they become floats once a page and
// group of dims that share a scale. Rows in registers (M) and vectors in registers (N) change only which chains run
// side by side.
#pragma once
#include "backend/cpu/compiler.inl.h"
#include "backend/cpu/kernels.h"

namespace pllm::cpu {
namespace {

using Half = uint16_t;
constexpr int kMaxRows = kRegisters >= 16 ? 6 : 2;  // query rows handled together
constexpr int kMaxDim = 512;

constexpr int block_width(int n, int first) { return n - first < 64 ? n - first : 64; }
constexpr int smaller(int a, int b) { return a < b ? a : b; }

// Vectors beside each other for m rows: m n sums, and either the row scalars or the loads, fit the registers.
constexpr int vectors(int m) {
  int n = kPageTokens / kLanes;
  while (n > 1 && m * n + smaller(m, n) + 1 > kRegisters) n /= 2;
  return n;
}

// Fetches into L2 what is read half a page later, in step with what is read now (L1 has too few miss buffers for it).
struct Ahead {
  const uint8_t* next;
  template <int kBytes>
  __attribute__((always_inline)) void step() {
    for (int i = 0; i < kBytes; i += 64) __builtin_prefetch(next + i, 0, 2);
    next += kBytes;
  }
};
template <class D, int N>
constexpr int kStepBytes = D::kFetch ? N * kLanes * D::kPack * int(sizeof(typename D::Number)) : 0;

// sum[m][j] += in[m * stride] row[j] for N vectors of row. The source order is the order of the instructions, and the
// smaller of the two operand sets is the one kept in registers.
template <class D, int M, int N>
SIMD_INLINE void rank_one(typename D::Sum (&sum)[M][N], const typename D::In* in, int stride,
                          const typename D::Number* row) {
  using V = typename D::Sum;
  if constexpr (N <= M) {
    V v[N];
    SIMD_UNROLL for (int j = 0; j < N; j++) v[j] = D::load(row + j * kLanes * D::kPack);
    SIMD_UNROLL for (int m = 0; m < M; m++) {
      const V x = D::spread(in + m * stride);
      SIMD_UNROLL for (int j = 0; j < N; j++) sum[m][j] = D::multiply(x, v[j], sum[m][j]);
    }
  } else {
    V x[M];
    SIMD_UNROLL for (int m = 0; m < M; m++) x[m] = D::spread(in + m * stride);
    SIMD_UNROLL for (int j = 0; j < N; j++) {
      const V v = D::load(row + j * kLanes * D::kPack);
      SIMD_UNROLL for (int m = 0; m < M; m++) sum[m][j] = D::multiply(x[m], v, sum[m][j]);
    }
  }
}

// What a kernel for M rows reads and writes. in: rows of keys' queries or of p, as D::In; ld_in, ld_out: from row to
// row.
template <class D>
struct Operands {
  const typename D::Number* numbers;
  const uint8_t* scales;  // of the page, where the type has them
  int dim;
  const typename D::In* in;
  int ld_in;
  float* out;
  int ld_out;
  Ahead ahead;
};

// out[m][t] = in[m] . key[t] for the 64 tokens of a page. Not inlined: its callers would spill its pointers.
template <class D, int M>
__attribute__((noinline)) void page_scores(Operands<D> a) {
  constexpr int N = vectors(M);
  for (int t = 0; t < kPageTokens; t += N * kLanes) {
    for (int d0 = 0; d0 < a.dim; d0 += D::kGroup) {
      typename D::Sum sum[M][N];
      SIMD_UNROLL for (int m = 0; m < M; m++) { SIMD_UNROLL for (int j = 0; j < N; j++) sum[m][j] = D::zero(); }
      const typename D::Number* row = a.numbers + d0 * kPageTokens + t * D::kPack;
      const int d1 = smaller(a.dim, d0 + D::kGroup);
      for (int d = d0; d < d1; d += D::kPack, row += kPageTokens * D::kPack) {
        a.ahead.template step<kStepBytes<D, N>>();
        rank_one<D>(sum, a.in + d, a.ld_in, row);
      }
      D::template store_scores<M, N>(sum, a, d0, t);
    }
  }
}

// Columns [first, width) of the block of values that begins at dim c: out[m] += sum over t of in[m][t] value[t].
template <class D, int M, int N>
SIMD_INLINE void block_values(Operands<D>& a, int c, int width, int first) {
  for (; first + N * kLanes <= width; first += N * kLanes) {
    typename D::Sum sum[M][N];
    float* out = a.out + c + first;
    D::template start_values<M, N>(sum, out, a.ld_out);
    const typename D::Number* row = a.numbers + c * kPageTokens + first * D::kPack;
    const typename D::In* in = a.in + (c + first) / D::kGroup * kPageTokens;
    for (int t = 0; t < kPageTokens; t += D::kPack, row += width * D::kPack) {
      a.ahead.template step<kStepBytes<D, N>>();
      rank_one<D>(sum, in + t, a.ld_in, row);
    }
    D::template store_values<M, N>(sum, a, c + first, out);
  }
  if constexpr (N > 1) {
    if (first < width) block_values<D, M, N / 2>(a, c, width, first);
  }
}

template <class D, int M>
__attribute__((noinline)) void page_values(Operands<D> a) {
  constexpr int N = smaller(vectors(M), D::kGroup / kLanes);  // a vector's dims share their p
  for (int c = 0; c < a.dim; c += 64) block_values<D, M, N>(a, c, block_width(a.dim, c), 0);
}

constexpr int up_to(int m) { return smaller(m, kMaxRows); }
template <class D>
using PageFn = void (*)(Operands<D>);
template <class D>
constexpr PageFn<D> kPageScores[] = {page_scores<D, up_to(1)>, page_scores<D, up_to(2)>, page_scores<D, up_to(3)>,
                                     page_scores<D, up_to(4)>, page_scores<D, up_to(5)>, page_scores<D, up_to(6)>};
template <class D>
constexpr PageFn<D> kPageValues[] = {page_values<D, up_to(1)>, page_values<D, up_to(2)>, page_values<D, up_to(3)>,
                                     page_values<D, up_to(4)>, page_values<D, up_to(5)>, page_values<D, up_to(6)>};

// fn(first row, rows) for all rows, at most kMaxRows at once and as evenly as possible.
template <class Fn>
void for_row_blocks(int n_rows, Fn&& fn) {
  const int n_blocks = (n_rows + kMaxRows - 1) / kMaxRows;
  for (int i = 0; i < n_blocks; i++) {
    const int r = i * n_rows / n_blocks;
    fn(r, (i + 1) * n_rows / n_blocks - r);
  }
}
// So many that they share one conversion of a page: the same numbers, so the same bits.
constexpr bool many(int n_rows) { return n_rows > 2 * kMaxRows; }
// What the rows from r on fetch: the first block what is next, the others what is there already.
SIMD_INLINE Ahead ahead_of(const PageRows& a, int r) { return {r == 0 && a.next ? a.next : a.page}; }

}  // namespace
}  // namespace pllm::cpu
