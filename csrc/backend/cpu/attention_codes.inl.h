// KV types that are multiplied as integers: i16 (int16 codes, a scale for every token) and q8_0 (int8 codes, a scale
// for every token and 32 dims, as GGML has it). Queries and p become int16 codes with a scale of their own.
//
// No sum can leave int32, whatever is stored and asked:
//   scores    i16: keys and queries are codes of Euclidean norm 46300 or less, and rounding adds at most sqrt(512) / 2
//             to it, so that |q . k| <= 46312^2 < 2^31 (Cauchy-Schwarz), partial sums too. q8_0: 32 * 128 * 32767.
//   p v       i16: values are codes within +-8190, those of p add up to 262000 and 64 / 2 of rounding at most, and
//             262032 * 8190 < 2^31. q8_0: 64 * 128 * 32767.
// Numbers below 2^-100 count as nothing: their inverses would not be finite.
#pragma once
#include "backend/cpu/attention_tile.inl.h"
#include "backend/cpu/lines.inl.h"

namespace pllm::cpu {
namespace {

constexpr float kNorm = 46300.f, kLargestCode = 32767.f;
constexpr float kLargestValueCode = 8190.f, kLargestSum = 262000.f;
constexpr float kNothing = 0x1p-100f, kLargest = 0x1p120f;
constexpr float kRound = 12582912.f;  // 1.5 * 2^23: adding it leaves the nearest integer in the low bits, ties to even

// x is about code * step.
struct Coding {
  float step, inverse;
};
SIMD_INLINE I code(F x, float inverse) { return as_int(add(mul(x, setf(inverse)), setf(kRound))); }
SIMD_INLINE Coding coding(float largest, float largest_code) {
  if (largest < kNothing) return {0.f, 0.f};
  return {largest / largest_code, largest_code / largest};
}

SIMD_INLINE float largest_magnitude(const float* x, int n) {  // infinite or NaN where some x is
  I top = set32(0);  // of the magnitudes' bits: ordered like the floats, NaN above all
  for (int i = 0; i < n; i += kLanes) top = max(top, and_(as_int(load_part(x + i, n - i)), set32(0x7fffffff)));
  int32_t lanes[kLanes], bits = 0;
  storei(lanes, top);
  for (int32_t v : lanes) bits = v > bits ? v : bits;
  return __builtin_bit_cast(float, bits);
}

// Of keys and queries: codes of norm kNorm, none above kLargestCode. x: n finite floats, the largest as given.
SIMD_INLINE Coding norm_coding(const float* x, int n, float largest) {
  if (largest < kNothing) return {0.f, 0.f};
  const F inverse = setf(1.f / largest);
  F squares[kParts];
  for (int j = 0; j < kParts; j++) squares[j] = setf(0.f);
  for (int i = 0; i < n; i += 16) {
    for (int j = 0; j < kParts; j++) {
      const int at = i + j * kLanes;
      const F y = mul(load_part(x + at, n - at), inverse);
      squares[j] = fma(y, y, squares[j]);
    }
  }
  const float by_norm = kNorm / __builtin_sqrtf(sum16(squares));
  return coding(largest, by_norm < kLargestCode ? by_norm : kLargestCode);
}

// ---- a query or p, as the products read it: int16 codes, then their scales
template <class T>
void prepare_query(float* q, int dim) {
  const float largest = largest_magnitude(q, dim);
  const bool finite = largest < __builtin_inff();
  const Coding c = !finite             ? Coding{__builtin_nanf(""), 0.f}
                   : T::kNormIsBounded ? norm_coding(q, dim, largest)
                                       : coding(largest, kLargestCode);
  int16_t codes[kMaxDim];
  for (int d = 0; d < dim; d += kLanes) {
    const F x = finite ? load_part(q + d, dim - d) : setf(0.f);
    store_int16(codes + d, code(x, c.inverse));
  }
  __builtin_memcpy(q, codes, size_t(dim) * sizeof(int16_t));
  q[dim / 2] = c.step;
}

// p of one row over a page, times the values' steps.
template <class T>
SIMD_INLINE float prepare_weights(const float* p, const uint8_t* steps, int16_t* codes) {
  constexpr int kVectors = kPageTokens / kLanes;
  F x[kVectors], top[kParts], sum[kParts];
  for (int j = 0; j < kParts; j++) top[j] = sum[j] = setf(0.f);
  SIMD_UNROLL for (int i = 0; i < kVectors; i++) {
    x[i] = mul(loadf(p + i * kLanes), T::load_steps(steps, i * kLanes));
    top[i % kParts] = max(x[i], top[i % kParts]);
    sum[i % kParts] = add(sum[i % kParts], x[i]);
  }
  float step = max16(top) * (1.f / kLargestCode);
  if constexpr (T::kSumsAreBounded) {
    const float by_sum = sum16(sum) * (1.f / kLargestSum);
    step = step < by_sum ? by_sum : step;
  }
  const float inverse = step > kNothing ? 1.f / step : 0.f;
  SIMD_UNROLL for (int i = 0; i < kVectors; i++) store_int16(codes + i * kLanes, code(x[i], inverse));
  return step > kNothing ? step : 0.f;
}

// ---- types: i16, q8_0
struct TokenCodes {
  using Code = int16_t;
  using Step = float;
  static constexpr int kGroup = kMaxDim;                                // dims that share a scale
  static constexpr bool kNormIsBounded = true, kSumsAreBounded = true;  // of queries; of p
  SIMD_INLINE F load_steps(const uint8_t* steps, int t) { return loadf((const float*)steps + t); }
};
struct BlockCodes {
  using Code = int8_t;
  using Step = Half;
  static constexpr int kGroup = 32;
  static constexpr bool kNormIsBounded = false, kSumsAreBounded = false;
  SIMD_INLINE F load_steps(const uint8_t* steps, int t) { return load_half((const Half*)steps + t); }
};

template <class T>
constexpr int n_groups(int dim) {
  return (dim + T::kGroup - 1) / T::kGroup;
}
template <class T>
SIMD_INLINE const uint8_t* steps_of(const uint8_t* page, int dim) {
  return page + size_t(dim) * kPageTokens * sizeof(typename T::Code);
}
template <class T>
SIMD_INLINE const uint8_t* group_steps(const uint8_t* steps, int d) {
  return steps + size_t(d / T::kGroup) * kPageTokens * sizeof(typename T::Step);
}

SIMD_INLINE I load_codes(const int16_t* p) { return load(p); }
SIMD_INLINE I load_codes(const int8_t* p) { return load_int8(p); }

// T's codes as Code: its own, or int8 widened before.
template <class T, class Code, bool fetch>
struct CodeProducts {
  using Number = Code;
  using In = int16_t;
  using Sum = I;
  static constexpr int kPack = 2, kGroup = T::kGroup;
  static constexpr bool kFetch = fetch;
  SIMD_INLINE I load(const Code* p) { return load_codes(p); }
  SIMD_INLINE I spread(const int16_t* p) {
    int32_t pair;
    __builtin_memcpy(&pair, p, sizeof pair);
    return set32(pair);
  }
  SIMD_INLINE I multiply(I x, I v, I sum) { return madd16(sum, v, x); }
  SIMD_INLINE I zero() { return set32(0); }
  SIMD_INLINE float step(const int16_t* after_codes) {
    float s;
    __builtin_memcpy(&s, after_codes, sizeof s);
    return s;
  }

  template <int M, int N>
  SIMD_INLINE void store_scores(const I (&sum)[M][N], const Operands<CodeProducts>& a, int d0, int t) {
    const uint8_t* steps = group_steps<T>(a.scales, d0);
    SIMD_UNROLL for (int j = 0; j < N; j++) {
      const F key_steps = T::load_steps(steps, t + j * kLanes);
      SIMD_UNROLL for (int m = 0; m < M; m++) {
        float* out = a.out + m * a.ld_out + t + j * kLanes;
        const F scale = mul(key_steps, setf(step(a.in + m * a.ld_in + a.dim)));
        storef(out, fma(to_float(sum[m][j]), scale, d0 == 0 ? setf(0.f) : loadf(out)));
      }
    }
  }
  template <int M, int N>
  SIMD_INLINE void start_values(I (&sum)[M][N], const float*, int) {
    SIMD_UNROLL for (int m = 0; m < M; m++) { SIMD_UNROLL for (int j = 0; j < N; j++) sum[m][j] = zero(); }
  }
  template <int M, int N>
  SIMD_INLINE void store_values(const I (&sum)[M][N], const Operands<CodeProducts>& a, int d, float* out) {
    const int16_t* steps = a.in + n_groups<T>(a.dim) * kPageTokens + 2 * (d / kGroup);
    SIMD_UNROLL for (int m = 0; m < M; m++) {
      const F s = setf(step(steps + m * a.ld_in));
      SIMD_UNROLL for (int j = 0; j < N; j++) {
        float* o = out + m * a.ld_out + j * kLanes;
        storef(o, fma(to_float(sum[m][j]), s, loadf(o)));
      }
    }
  }
};

// Rows against a page whose codes are at `numbers`, before or after they were widened.
template <class T, class D>
void code_scores(const PageRows& a, const typename D::Number* codes, const float* q, float* scores) {
  for_row_blocks(a.n_rows, [&](int r, int m) {
    kPageScores<D>[m - 1]({codes, steps_of<T>(a.page, a.dim), a.dim, (const int16_t*)(q + r * a.dim), 2 * a.dim,
                           scores + r * kChunkTokens, kChunkTokens, ahead_of(a, r)});
  });
}
template <class T, class D>
void code_values(const PageRows& a, const typename D::Number* codes, const float* p, float* acc) {
  constexpr int kRowInts = n_groups<T>(kMaxDim) * (kPageTokens + 2);
  alignas(64) int16_t weights[kMaxRows * kRowInts];
  const uint8_t* steps = steps_of<T>(a.page, a.dim);
  const int groups = n_groups<T>(a.dim), row_ints = groups * (kPageTokens + 2);
  for_row_blocks(a.n_rows, [&](int r, int m) {
    for (int i = 0; i < m; i++) {
      for (int g = 0; g < groups; g++) {
        int16_t* row = weights + i * row_ints;
        const float step =
            prepare_weights<T>(p + (r + i) * kChunkTokens, group_steps<T>(steps, g * T::kGroup), row + g * kPageTokens);
        __builtin_memcpy(row + groups * kPageTokens + 2 * g, &step, sizeof step);
      }
    }
    kPageValues<D>[m - 1]({codes, steps, a.dim, weights, row_ints, acc + r * a.dim, a.dim, ahead_of(a, r)});
  });
}

template <class T>
const int16_t* widened(const PageRows& a) {
  auto* wide = (int16_t*)a.scratch;
  for (int i = 0; i < a.dim * kPageTokens; i += 2 * kLanes)
    storei(wide + i, load_codes((const typename T::Code*)a.page + i));
  return wide;
}

// Fetches a page's scales, a small part beside its codes.
SIMD_INLINE void fetch(const uint8_t* p, size_t bytes) {
  for (size_t i = 0; i < bytes; i += 64) __builtin_prefetch(p + i, 0, 2);
}

template <class T, bool keys>
void code_rows(const PageRows& a, const float* in, float* out) {
  using Code = typename T::Code;
  using Direct = CodeProducts<T, Code, true>;
  using Widened = CodeProducts<T, int16_t, false>;
  constexpr auto rows = keys ? code_scores<T, Direct> : code_values<T, Direct>;
  constexpr auto wide_rows = keys ? code_scores<T, Widened> : code_values<T, Widened>;
  if (a.next) fetch(steps_of<T>(a.next, a.dim), size_t(n_groups<T>(a.dim)) * kPageTokens * sizeof(typename T::Step));
  if (sizeof(Code) < sizeof(int16_t) && many(a.n_rows)) return wide_rows(a, widened<T>(a), in, out);
  rows(a, (const Code*)a.page, in, out);
}

// ---- storing
SIMD_INLINE void store_codes(int16_t* codes, I x) { store_int16(codes, x); }
SIMD_INLINE void store_codes(int8_t* codes, I x) { store_bytes(codes, x); }

// The coding of one group, as its scale is stored; null x: no numbers, a scale of NaN and codes 0.
SIMD_INLINE Coding group_coding(TokenCodes, const float* x, int n, bool key) {
  const float largest = largest_magnitude(x, n);
  return key ? norm_coding(x, n, largest) : coding(largest, kLargestValueCode);
}
SIMD_INLINE Coding group_coding(BlockCodes, const float* x, int n, bool) {
  Half half[kLanes];
  float step[kLanes];
  store_half(half, setf(largest_magnitude(x, n) / 127.f));
  storef(step, load_half(half));
  return {step[0], step[0] > 0.f ? 1.f / step[0] : 0.f};
}
SIMD_INLINE void put_step(float* p, float step) { *p = step; }
SIMD_INLINE void put_step(Half* p, float step) {
  Half half[kLanes];
  store_half(half, setf(step));
  *p = half[0];
}
constexpr float largest_of(TokenCodes) { return kLargest; }
constexpr float largest_of(BlockCodes) { return 65504.f * 127; }
constexpr float largest_code(TokenCodes) { return kLargestCode; }
constexpr float largest_code(BlockCodes) { return 127.f; }  // a scale that was rounded down would ask for more

// x (n floats, zeros up to n_padded) as codes (n_padded) and the steps of token t.
template <class T>
SIMD_INLINE void encode(const float* x, int n, int n_padded, bool key, int t, typename T::Code* codes,
                        typename T::Step* steps) {
  alignas(64) float y[kMaxDim + kLanes] = {};
  const F limit = setf(largest_of(T{})), low = setf(-largest_of(T{}));
  for (int d = 0; d < n; d += kLanes) storef(y + d, min(limit, max(low, load_part(x + d, n - d))));
  for (int g = 0; g < n_groups<T>(n_padded); g++) {
    const int first = g * T::kGroup, end = smaller(first + T::kGroup, n_padded);
    const Coding c = group_coding(T{}, y + first, end - first, key);
    put_step(steps + g * kPageTokens + t, c.step);
    for (int d = first; d < end; d += kLanes) {
      const F scaled = mul(loadf(y + d), setf(c.inverse)), most = setf(largest_code(T{}));
      const F whole = min(most, max(setf(-largest_code(T{})), scaled));
      store_codes(codes + d, as_int(add(whole, setf(kRound))));
    }
  }
}

template <class T>
void store_code_key(uint8_t* keys, int t, int dim, const float* k) {
  auto* steps = (typename T::Step*)steps_of<T>(keys, dim);
  typename T::Code codes[kMaxDim + kLanes] = {};
  if (k) {
    encode<T>(k, dim, dim, true, t, codes, steps);
  } else {
    for (int g = 0; g < n_groups<T>(dim); g++) put_step(steps + g * kPageTokens + t, __builtin_nanf(""));
  }
  auto* column = (typename T::Code*)keys + 2 * t;
  for (int d = 0; d < dim; d++) column[d / 2 * 2 * kPageTokens + d % 2] = codes[d];
}

template <class T>
void store_code_value(uint8_t* values, int t, int head_dim_v, const float* v) {
  const int n_v = padded(head_dim_v);
  auto* steps = (typename T::Step*)steps_of<T>(values, n_v);
  typename T::Code codes[kMaxDim + kLanes] = {};
  const float zeros[kMaxDim] = {};
  encode<T>(v ? v : zeros, head_dim_v, n_v, false, t, codes, steps);
  for (int d = 0; d < n_v; d++) {
    const int block = d / 64 * 64, width = block_width(n_v, block);
    ((typename T::Code*)values)[block * kPageTokens + (t / 2 * width + d - block) * 2 + t % 2] = codes[d];
  }
}

template <class T>
constexpr KeyKernels kCodeKeys = {
    .store = store_code_key<T>, .prepare = prepare_query<T>, .scores = code_rows<T, true>};
template <class T>
constexpr ValueKernels kCodeValues = {.store = store_code_value<T>, .add = code_rows<T, false>};

constexpr CodeKvKernels kCodeKv = {.keys_i16 = kCodeKeys<TokenCodes>,
                                   .keys_q8_0 = kCodeKeys<BlockCodes>,
                                   .values_i16 = kCodeValues<TokenCodes>,
                                   .values_q8_0 = kCodeValues<BlockCodes>};

}  // namespace
}  // namespace pllm::cpu
