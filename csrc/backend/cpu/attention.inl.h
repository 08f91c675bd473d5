// Attention of query rows over chunks of KV pages, over the words of one instruction set: what all KV types share.
// Scores and p v are the types' own (attention_tile.inl.h).
//
// Fixed order, so that a row's bits depend on the row and its context alone: the sum of p runs over 16 virtual lanes
// and one tree; p v starts from 0 in each chunk and adds pages ascending; chunks are merged ascending. A masked key has
// p exactly 0, so a tile of rows may compute keys that some of its rows do not see.
#pragma once
#include "backend/cpu/kernels.h"
#include "backend/cpu/lines.inl.h"
#include "backend/cpu/math.inl.h"

namespace pllm::cpu {
namespace {

constexpr float kLog2E = 1.44269504f;

SIMD_INLINE float lane0(F v) {
  float buffer[kLanes];
  storef(buffer, v);
  return buffer[0];
}

bool all_finite(const float* x, int n) {
  F zeros = setf(0.f);  // 0 x is NaN where x is not finite
  for (int i = 0; i < n; i += kLanes) zeros = fma(load_part(x + i, n - i), setf(0.f), zeros);
  bool finite = true;
  float lanes[kLanes];
  storef(lanes, zeros);
  for (float z : lanes) finite = finite && z == 0.f;
  return finite;
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
      if (softcap != 0.f || edge) storef(s, x);
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
  const uint8_t* const* pages = a.pages + a.chunk * (kChunkTokens / kPageTokens);

  for (int g = page0; g < page1; g++) {
    const uint8_t* next = g + 1 < page1 ? pages[g + 1] + a.keys_at : pages[page0] + a.values_at;
    a.keys.scores({pages[g] + a.keys_at, a.head_dim_k, a.n_rows, next, a.page}, a.q, a.scores + g * kPageTokens);
  }
  for (int r = 0; r < a.n_rows; r++) {
    softmax(a.scores + r * kChunkTokens, page0 * kPageTokens, page1 * kPageTokens, a.pos[r] - a.window + 1 - start,
            a.pos[r] + 1 - start, a.softcap, a.max + r, a.sum + r);
  }
  for (int i = 0; i < a.n_rows * n_v; i += kLanes) storef(a.acc + i, setf(0.f));
  for (int g = page0; g < page1; g++) {
    const uint8_t* next = g + 1 < page1 ? pages[g + 1] + a.values_at : a.next;
    a.values.add({pages[g] + a.values_at, n_v, a.n_rows, next, a.page}, a.scores + g * kPageTokens, a.acc);
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

constexpr AttentionKernels kAttention = {
    .all_finite = all_finite, .chunk = attend_chunk, .merge = merge_chunk, .finish = finish_row};

}  // namespace
}  // namespace pllm::cpu
