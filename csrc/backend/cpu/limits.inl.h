// What a level can read and multiply at most, over its words: loops that do nothing else.
//
// All operands of the peaks are ones, so the sum of the accumulators is the number of products: what was computed is
// what is counted.
#pragma once
#include "backend/cpu/compiler.inl.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/simd/peak.inl.h"

namespace pllm::cpu {
namespace {

// The sum of all int32 of bytes / STREAMS each, read side by side; AHEAD: prefetched so many bytes before, 0: not.
template <int STREAMS, int AHEAD>
uint32_t read_all(const uint8_t* p, size_t bytes) {
  constexpr size_t kLine = 64, kLoads = kLine / sizeof(I);
  const size_t part = bytes / STREAMS;
  I sum[STREAMS][kLoads];
  for (auto& line : sum)
    for (I& v : line) v = set32(0);
  for (size_t at = 0; at < part; at += kLine) {
    SIMD_UNROLL for (int s = 0; s < STREAMS; s++) {
      const uint8_t* line = p + size_t(s) * part + at;
      if constexpr (AHEAD > 0) __builtin_prefetch(line + AHEAD, 0, 2);
      SIMD_UNROLL for (size_t i = 0; i < kLoads; i++) sum[s][i] = add(sum[s][i], load(line + i * sizeof(I)));
    }
  }
  uint32_t total = 0;
  for (const auto& line : sum) {
    for (const I& v : line) {
      int32_t lanes[kLanes];
      storei(lanes, v);
      for (const int32_t lane : lanes) total += uint32_t(lane);
    }
  }
  return total;
}

constexpr int kPeakRows = kTokens / 4, kPeakCols = 4;  // accumulators, as a tile has them: more would spill

template <class T>
uint64_t total_of(const T (&acc)[kPeakRows][kPeakCols]) {
  uint64_t total = 0;
  for (const auto& row : acc) {
    for (const T& v : row) {
      if constexpr (sizeof(v) == sizeof(F) && __is_same(T, F)) {
        float lanes[kLanes];
        storef(lanes, v);
        for (const float lane : lanes) total += uint64_t(lane);
      } else {
        int32_t lanes[kLanes];
        storei(lanes, v);
        for (const int32_t lane : lanes) total += uint64_t(lane);
      }
    }
  }
  return total;
}

template <class T, class Step>
uint64_t multiply_ones(int rounds, T zero, T one, Step step) {
  T acc[kPeakRows][kPeakCols], a[kPeakRows], b[kPeakCols];
  for (auto& row : acc)
    for (T& v : row) v = zero;
  for (T& v : a) v = one;
  for (T& v : b) v = one;
  for (T& v : b) opaque(v);
  SIMD_ROLLED for (int i = 0; i < rounds; i++) {
    SIMD_UNROLL for (int r = 0; r < kPeakRows; r++) {
      opaque(a[r]);
      SIMD_UNROLL for (int c = 0; c < kPeakCols; c++) step(acc[r][c], a[r], b[c]);
    }
  }
  return total_of(acc);
}

uint64_t multiply_floats(int rounds) {
  return multiply_ones(rounds, setf(0), setf(1), [](F& acc, F a, F b) SIMD_FN { acc = fma(a, b, acc); });
}

#if defined(SIMD_MADD8)

// As codes of 4 bits allow: int16 sums over 8 words, widened once.
uint64_t multiply_bytes(int rounds) {
  I acc[kPeakRows][kPeakCols], a[kPeakRows], b = set8(1);
  for (auto& row : acc)
    for (I& v : row) v = set32(0);
  for (I& v : a) v = set8(1);
  SIMD_ROLLED for (int i = 0; i < rounds; i++) {
    SIMD_UNROLL for (int c = 0; c < kPeakCols; c++) {
      I sum[kPeakRows];
      SIMD_UNROLL for (int word = 0; word < 8; word++) {
        opaque(b);
        SIMD_UNROLL for (int r = 0; r < kPeakRows; r++) sum[r] =
            word == 0 ? madd8(a[r], b) : add16(sum[r], madd8(a[r], b));
      }
      for (int r = 0; r < kPeakRows; r++) acc[r][c] = madd16(acc[r][c], sum[r], set16(1));
    }
  }
  return total_of(acc);
}
constexpr int kBytesMacs = 8 * 4 * kLanes;

#else

uint64_t multiply_bytes(int rounds) {
  return multiply_ones(rounds, set32(0), set8(1), [](I& acc, I a, I b) SIMD_FN { acc = dense_dot(acc, a, b); });
}
constexpr int kBytesMacs = kDotMacs;

#endif

constexpr LimitKernels limit_kernels() {
  return {{{"1 stream", &read_all<1, 0>},
           {"1 stream, prefetched", &read_all<1, 8192>},
           {"2 streams, prefetched", &read_all<2, 4096>},
           {"4 streams", &read_all<4, 0>},
           {"4 streams, prefetched", &read_all<4, 2048>}},
          {&multiply_bytes, kPeakRows * kPeakCols * kBytesMacs},
          {&multiply_floats, kPeakRows * kPeakCols * kLanes}};
}

}  // namespace
}  // namespace pllm::cpu
