// Norms, rotary embedding, activations and their gates, over the words of one instruction set.
//
// Sums run over 16 virtual lanes (element i in lane i % 16, ascending) and one tree, so the bits do not depend on the
// width of a register. Everything else works element by element.
#pragma once
#include "backend/cpu/kernels.h"
#include "backend/cpu/lines.inl.h"
#include "backend/cpu/math.inl.h"

namespace pllm::cpu {
namespace {

// y[i] = fn(first element, how many) register by register; fn sees count == kLanes except at the end.
template <class Fn>
SIMD_INLINE void map(float* y, int64_t n, Fn fn) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) storef(y + i, fn(i, int64_t{kLanes}));
  if (i < n) store_part(y + i, n - i, fn(i, n - i));
}

// The sum over i of term(i): acc = fn(acc, first element, how many).
template <class Fn>
SIMD_INLINE float sum(int64_t n, Fn fn) {
  F acc[kParts];
  for (auto& a : acc) a = setf(0.f);
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    for (int j = 0; j < kParts; j++) acc[j] = fn(acc[j], i + j * kLanes, int64_t{kLanes});
  }
  for (int j = 0; j < kParts; j++) {
    if (i + j * kLanes < n) acc[j] = fn(acc[j], i + j * kLanes, n - i - j * kLanes);
  }
  return sum16(acc);
}

void rms_norm(float* y, const float* x, const float* w, int64_t n, float eps) {
  const float squares = sum(n, [=](F acc, int64_t i, int64_t count) SIMD_FN {
    const F v = load_part(x + i, count);
    return fma(v, v, acc);
  });
  const F inv = setf(1.f / __builtin_sqrtf(squares / float(n) + eps));
  if (w) {
    map(y, n, [=](int64_t i, int64_t count) SIMD_FN {
      return mul(mul(load_part(x + i, count), inv), load_part(w + i, count));
    });
  } else {
    map(y, n, [=](int64_t i, int64_t count) SIMD_FN { return mul(load_part(x + i, count), inv); });
  }
}

void layer_norm(float* y, const float* x, const float* w, const float* b, int64_t n, float eps) {
  const F mean = setf(
      sum(n, [=](F acc, int64_t i, int64_t count) SIMD_FN { return add(acc, load_part(x + i, count)); }) / float(n));
  const float squares = sum(n, [=](F acc, int64_t i, int64_t count) SIMD_FN {
    F v = sub(load_part(x + i, count), mean);
    if (count < kLanes) v = select(less(iota(), setf(float(count))), v, setf(0.f));
    return fma(v, v, acc);
  });
  const F inv = setf(1.f / __builtin_sqrtf(squares / float(n) + eps));
  map(y, n, [=](int64_t i, int64_t count) SIMD_FN {
    const F v = mul(sub(load_part(x + i, count), mean), inv);
    return fma(v, w ? load_part(w + i, count) : setf(1.f), b ? load_part(b + i, count) : setf(0.f));
  });
}

// Pairs (i, i + n_rot / 2), or (2 i, 2 i + 1) if interleaved; cos_sin: (n_rot / 2, 2).
void rope(float* x, const float* cos_sin, int n_rot, bool interleaved) {
  const int half = n_rot / 2;
  for (int i = 0; i < half; i += kLanes) {
    const int64_t pairs = half - i, low = 2 * pairs, high = 2 * pairs - kLanes;  // floats in two registers of pairs
    const Pair turn = unzip(load_part(cos_sin + 2 * i, low), load_part(cos_sin + 2 * i + kLanes, high));
    float *p = interleaved ? x + 2 * i : x + i, *q = interleaved ? p + kLanes : p + half;
    const int64_t n_p = interleaved ? low : pairs, n_q = interleaved ? high : pairs;
    const F v = load_part(p, n_p), w = load_part(q, n_q);
    const Pair in = interleaved ? unzip(v, w) : Pair{v, w};
    const Pair out = {fnma(in.b, turn.b, mul(in.a, turn.a)), fma(in.b, turn.a, mul(in.a, turn.b))};
    const Pair placed = interleaved ? zip(out.a, out.b) : out;
    store_part(p, n_p, placed.a);
    store_part(q, n_q, placed.b);
  }
}

template <F (*Act)(F)>
void activate(float* x, int64_t n) {
  map(x, n, [=](int64_t i, int64_t count) SIMD_FN { return Act(load_part(x + i, count)); });
}
template <F (*Act)(F)>
void gate(float* g, const float* u, int64_t n) {
  map(g, n,
      [=](int64_t i, int64_t count) SIMD_FN { return mul(Act(load_part(g + i, count)), load_part(u + i, count)); });
}
void swiglu_oai_gate(float* g, const float* u, int64_t n) {
  const F limit = setf(7.f), low = setf(-7.f);
  map(g, n, [=](int64_t i, int64_t count) SIMD_FN {
    const F x = min(limit, load_part(g + i, count)), y = max(low, min(limit, load_part(u + i, count)));
    return mul(mul(x, sigmoid(mul(x, setf(1.702f)))), add(y, setf(1.f)));
  });
}

void softmax_row(float* x, int64_t n) {
  F tops[kParts];
  for (auto& t : tops) t = setf(-__builtin_inff());
  for (int64_t i = 0; i < n; i += kLanes) {
    F v = load_part(x + i, n - i);
    if (n - i < kLanes) v = select(less(iota(), setf(float(n - i))), v, setf(-__builtin_inff()));
    tops[i / kLanes % kParts] = max(tops[i / kLanes % kParts], v);
  }
  const F top = setf(max16(tops));
  map(x, n, [=](int64_t i, int64_t count) SIMD_FN { return exp(sub(load_part(x + i, count), top)); });
  const float total =
      sum(n, [=](F acc, int64_t i, int64_t count) SIMD_FN { return add(acc, load_part(x + i, count)); });
  map(x, n, [=](int64_t i, int64_t count) SIMD_FN { return div(load_part(x + i, count), setf(total)); });
}

void add_row(float* x, const float* y, int64_t n) {
  map(x, n, [=](int64_t i, int64_t count) SIMD_FN { return add(load_part(x + i, count), load_part(y + i, count)); });
}
void add_scaled(float* x, const float* y, float s, int64_t n) {
  map(x, n,
      [=](int64_t i, int64_t count) SIMD_FN { return fma(load_part(y + i, count), setf(s), load_part(x + i, count)); });
}
void scale(float* x, float s, int64_t n) {
  map(x, n, [=](int64_t i, int64_t count) SIMD_FN { return mul(load_part(x + i, count), setf(s)); });
}
void softcap(float* x, float cap, int64_t n) {
  map(x, n,
      [=](int64_t i, int64_t count) SIMD_FN { return mul(setf(cap), tanh(div(load_part(x + i, count), setf(cap)))); });
}

constexpr ElementwiseKernels kElementwise = {
    .rms_norm = rms_norm,
    .layer_norm = layer_norm,
    .rope = rope,
    .silu_gate = gate<silu>,
    .gelu_tanh_gate = gate<gelu_tanh>,
    .gelu_erf_gate = gate<gelu_erf>,
    .swiglu_oai_gate = swiglu_oai_gate,
    .silu = activate<silu>,
    .gelu_tanh = activate<gelu_tanh>,
    .gelu_erf = activate<gelu_erf>,
    .sigmoid = activate<sigmoid>,
    .softmax = softmax_row,
    .exp2 = activate<exp2>,
    .add = add_row,
    .add_scaled = add_scaled,
    .scale = scale,
    .softcap = softcap,
};

}  // namespace
}  // namespace pllm::cpu
