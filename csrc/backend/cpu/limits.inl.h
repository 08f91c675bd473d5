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

// Sums in registers: enough to hide the latency, and no more than 16 or 32 registers hold beside the operands.
constexpr int kPeakRows = kTokens < 16 ? 2 : 4, kPeakCols = kTokens < 16 ? 5 : 4;

SIMD_INLINE void store_lanes(float* p, F v) { storef(p, v); }
SIMD_INLINE void store_lanes(int32_t* p, I v) { storei(p, v); }

// Every loop over accumulators is unrolled, or they would live in memory.
template <class Lane, class T>
SIMD_INLINE uint64_t total_of(const T (&acc)[kPeakRows][kPeakCols]) {
  Lane lanes[kPeakRows * kPeakCols * kLanes];
  SIMD_UNROLL for (int r = 0; r < kPeakRows; r++) SIMD_UNROLL for (int c = 0; c < kPeakCols; c++)
      store_lanes(lanes + (r * kPeakCols + c) * kLanes, acc[r][c]);
  uint64_t total = 0;
  for (const Lane lane : lanes) total += uint64_t(lane);
  return total;
}

template <class Lane, class T, class Step>
SIMD_INLINE uint64_t multiply_ones(int rounds, T zero, T one, Step step) {
  T acc[kPeakRows][kPeakCols], a[kPeakRows], b[kPeakCols];
  SIMD_UNROLL for (int r = 0; r < kPeakRows; r++) {
    a[r] = one;
    SIMD_UNROLL for (int c = 0; c < kPeakCols; c++) acc[r][c] = zero;
  }
  SIMD_UNROLL for (int c = 0; c < kPeakCols; c++) {
    b[c] = one;
    opaque(b[c]);
  }
  SIMD_ROLLED for (int i = 0; i < rounds; i++) {
    SIMD_UNROLL for (int r = 0; r < kPeakRows; r++) {
      opaque(a[r]);
      SIMD_UNROLL for (int c = 0; c < kPeakCols; c++) acc[r][c] = step(acc[r][c], a[r], b[c]);
    }
  }
  return total_of<Lane>(acc);
}

uint64_t multiply_floats(int rounds) {
  return multiply_ones<float>(rounds, setf(0), setf(1), [](F acc, F a, F b) SIMD_FN { return fma(a, b, acc); });
}

#if defined(SIMD_MADD8)

// As codes of 4 bits allow: int16 sums over 8 words, widened once.
uint64_t multiply_bytes(int rounds) {
  I acc[kPeakRows][kPeakCols], a[kPeakRows], b = set8(1);
  SIMD_UNROLL for (int r = 0; r < kPeakRows; r++) {
    a[r] = set8(1);
    opaque(a[r]);  // else equal rows are one
    SIMD_UNROLL for (int c = 0; c < kPeakCols; c++) acc[r][c] = set32(0);
  }
  SIMD_ROLLED for (int i = 0; i < rounds; i++) {
    SIMD_UNROLL for (int c = 0; c < kPeakCols; c++) {
      I sum[kPeakRows];
      SIMD_UNROLL for (int word = 0; word < 8; word++) {
        opaque(b);
        SIMD_UNROLL for (int r = 0; r < kPeakRows; r++) sum[r] =
            word == 0 ? madd8(a[r], b) : add16(sum[r], madd8(a[r], b));
      }
      SIMD_UNROLL for (int r = 0; r < kPeakRows; r++) acc[r][c] = madd16(acc[r][c], sum[r], set16(1));
    }
  }
  return total_of<int32_t>(acc);
}
constexpr int kBytesMacs = 8 * 4 * kLanes;

#else

uint64_t multiply_bytes(int rounds) {
  return multiply_ones<int32_t>(rounds, set32(0), set8(1),
                                [](I acc, I a, I b) SIMD_FN { return dense_dot(acc, a, b); });
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
