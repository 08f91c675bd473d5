// KV types that are multiplied as floats: f16 and bf16, converted as they are read, and f32.
#pragma once
#include "backend/cpu/attention_tile.inl.h"
#include "backend/cpu/lines.inl.h"

namespace pllm::cpu {
namespace {

// ---- numbers of a page
struct F16 {
  Half bits;
  static constexpr float kLargest = 65504.f;
  SIMD_INLINE F load(const F16* p) { return load_half(p); }
  SIMD_INLINE void store(F16* p, F x) { store_half(p, x); }
  SIMD_INLINE F16 nan() { return {0x7e00}; }
};
struct Bf16 {
  uint16_t bits;
  static constexpr float kLargest = 0x1.fep127f;
  SIMD_INLINE F load(const Bf16* p) { return load_bf16(p); }
  SIMD_INLINE void store(Bf16* p, F x) {  // to nearest, ties to even
    const I bits = as_int(x), odd = and_(shr<16>(bits), set32(1));
    store_int16(p, shr<16>(add(add(bits, set32(0x7fff)), odd)));
  }
  SIMD_INLINE Bf16 nan() { return {0x7fc0}; }
};
struct F32 {
  float value;
  static constexpr float kLargest = 0x1.fffffep127f;
  SIMD_INLINE F load(const F32* p) { return loadf(&p->value); }
  SIMD_INLINE void store(F32* p, F x) { storef(&p->value, x); }
  SIMD_INLINE F32 nan() { return {__builtin_nanf("")}; }
};

template <class E, bool fetch>
struct FloatProducts {
  using Number = E;
  using In = float;
  using Sum = F;
  static constexpr int kPack = 1, kGroup = kMaxDim;
  static constexpr bool kFetch = fetch;
  SIMD_INLINE F load(const E* p) { return E::load(p); }
  SIMD_INLINE F spread(const float* p) { return setf(*p); }
  SIMD_INLINE F multiply(F x, F v, F sum) { return fma(x, v, sum); }
  SIMD_INLINE F zero() { return setf(0.f); }

  template <int M, int N>
  SIMD_INLINE void store_scores(const F (&sum)[M][N], const Operands<FloatProducts>& a, int, int t) {
    SIMD_UNROLL for (int m = 0; m < M; m++) {
      SIMD_UNROLL for (int j = 0; j < N; j++) storef(a.out + m * a.ld_out + t + j * kLanes, sum[m][j]);
    }
  }
  template <int M, int N>
  SIMD_INLINE void start_values(F (&sum)[M][N], const float* out, int ld_out) {
    SIMD_UNROLL for (int m = 0; m < M; m++) {
      SIMD_UNROLL for (int j = 0; j < N; j++) sum[m][j] = loadf(out + m * ld_out + j * kLanes);
    }
  }
  template <int M, int N>
  SIMD_INLINE void store_values(const F (&sum)[M][N], const Operands<FloatProducts>& a, int, float* out) {
    SIMD_UNROLL for (int m = 0; m < M; m++) {
      SIMD_UNROLL for (int j = 0; j < N; j++) storef(out + m * a.ld_out + j * kLanes, sum[m][j]);
    }
  }
};

template <class D>
void float_rows(const PageFn<D>* fns, const PageRows& a, const void* numbers, const float* in, int ld_in, float* out,
                int ld_out) {
  for_row_blocks(a.n_rows, [&](int r, int m) {
    fns[m - 1]({(const typename D::Number*)numbers, nullptr, a.dim, in + r * ld_in, ld_in, out + r * ld_out, ld_out,
                ahead_of(a, r)});
  });
}

template <class E>
const F32* converted(const PageRows& a) {
  for (int i = 0; i < a.dim * kPageTokens; i += kLanes) storef(a.scratch + i, E::load((const E*)a.page + i));
  return (const F32*)a.scratch;
}

template <class E>
void float_scores(const PageRows& a, const float* q, float* scores) {
  using Direct = FloatProducts<E, true>;
  using Converted = FloatProducts<F32, false>;
  if (sizeof(E) < sizeof(float) && many(a.n_rows))
    return float_rows<Converted>(kPageScores<Converted>, a, converted<E>(a), q, a.dim, scores, kChunkTokens);
  float_rows<Direct>(kPageScores<Direct>, a, a.page, q, a.dim, scores, kChunkTokens);
}

template <class E>
void float_values(const PageRows& a, const float* p, float* acc) {
  using Direct = FloatProducts<E, true>;
  using Converted = FloatProducts<F32, false>;
  if (sizeof(E) < sizeof(float) && many(a.n_rows))
    return float_rows<Converted>(kPageValues<Converted>, a, converted<E>(a), p, kChunkTokens, acc, a.dim);
  float_rows<Direct>(kPageValues<Direct>, a, a.page, p, kChunkTokens, acc, a.dim);
}

SIMD_INLINE F clamped(F x, float limit) { return min(setf(limit), max(setf(-limit), x)); }

template <class E>
void store_float_key(uint8_t* keys, int t, int dim, const float* k) {
  E* column = (E*)keys + t;
  for (int d = 0; d < dim; d += kLanes) {
    E lanes[kLanes];
    if (k) E::store(lanes, clamped(load_part(k + d, dim - d), E::kLargest));
    for (int i = 0; i < kLanes && d + i < dim; i++) column[(d + i) * kPageTokens] = k ? lanes[i] : E::nan();
  }
}

template <class E>
void store_float_value(uint8_t* values, int t, int head_dim_v, const float* v) {
  const int n_v = padded(head_dim_v);
  for (int d = 0; d < n_v; d += kLanes) {
    const int block = d / 64 * 64;
    const F x = v ? clamped(load_part(v + d, head_dim_v - d), E::kLargest) : setf(0.f);
    E::store((E*)values + block * kPageTokens + t * block_width(n_v, block) + d - block, x);
  }
}

void keep_query(float*, int) {}

template <class E>
constexpr KeyKernels kFloatKeys = {.store = store_float_key<E>, .prepare = keep_query, .scores = float_scores<E>};
template <class E>
constexpr ValueKernels kFloatValues = {.store = store_float_value<E>, .add = float_values<E>};

constexpr FloatKvKernels kFloatKv = {.keys_f16 = kFloatKeys<F16>,
                                     .keys_bf16 = kFloatKeys<Bf16>,
                                     .keys_f32 = kFloatKeys<F32>,
                                     .values_f16 = kFloatValues<F16>,
                                     .values_bf16 = kFloatValues<Bf16>,
                                     .values_f32 = kFloatValues<F32>};

}  // namespace
}  // namespace pllm::cpu
