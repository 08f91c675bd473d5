// Included by one object for each level; PLLM_PASSES names its table.
#include <cmath>
#include <limits>

#include "base/exp_log.h"
#include "sampling/passes.h"

namespace pllm {
namespace {

constexpr size_t kBlock = Passes::kBlock, kLanes = 8;

// Of terms[kBlock]: eight running sums, then their sum. The order is part of the result.
double block_sum(const double* terms) {
  double lanes[kLanes] = {};
  for (size_t i = 0; i < kBlock; i += kLanes) {
    for (size_t j = 0; j < kLanes; ++j) lanes[j] += terms[i + j];
  }
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

// 2^x for x <= 0, within 2e-12; 0 below -1022.5. What lies between two whole x is a polynomial (minimax, 1 at 0).
[[gnu::always_inline]] inline double power_of_2(double x) {
  constexpr double kRound = 0x1.8p52;  // adding it leaves the nearest integer in the low mantissa bits
  const double clamped = x < -1023.0 ? -1023.0 : x;
  const double t = clamped + kRound, r = clamped - (t - kRound);
  double p = 0x1.61c4f0fdd4259p-20;
  p = p * r + 0x1.00d8533c176fep-16;
  p = p * r + 0x1.430aa882991bdp-13;
  p = p * r + 0x1.5d874d07087f2p-10;
  p = p * r + 0x1.3b2ab5ed6fdbfp-7;
  p = p * r + 0x1.c6b08dced34bap-5;
  p = p * r + 0x1.ebfbdff8ede84p-3;
  p = p * r + 0x1.62e42fef89d1ep-1;
  p = p * r + 1.0;
  return p * std::bit_cast<double>((std::bit_cast<uint64_t>(t) + 1023) << 52);
}

void weigh(const float* logits, size_t n, double max, double cold, double* weights, double* sums) {
  const double scale = cold * std::numbers::log2e;
  for (size_t begin = 0; begin < n; begin += kBlock, ++sums) {
    for (size_t i = begin; i < begin + kBlock; ++i) {
      weights[i] = power_of_2((static_cast<double>(logits[i]) - max) * scale);
    }
    *sums = block_sum(weights + begin);
  }
}

double moment(const float* logits, const double* weights, size_t n, double max, double cold) {
  constexpr double kFar = -1000;  // there the weight is 0, and infinity times 0 would be NaN
  double total = 0, terms[kBlock];
  for (size_t begin = 0; begin < n; begin += kBlock) {
    for (size_t i = 0; i < kBlock; ++i) {
      const double d = (static_cast<double>(logits[begin + i]) - max) * cold;
      terms[i] = weights[begin + i] * (d < kFar ? kFar : d);
    }
    total += block_sum(terms);
  }
  return total;
}

Moments moments(const float* logits, size_t n, double center) {
  constexpr float kImpossible = -std::numeric_limits<float>::infinity();
  Moments total;
  double sums[kBlock], squares[kBlock];
  for (size_t begin = 0; begin < n; begin += kBlock) {
    const float* x = logits + begin;
    int possible = 0;
    for (size_t i = 0; i < kBlock; ++i) possible += x[i] != kImpossible;
    for (size_t i = 0; i < kBlock; ++i) {
      sums[i] = x[i] == kImpossible ? 0.0 : x[i] - center;
      squares[i] = sums[i] * sums[i];
    }
    total.n += possible;
    total.sum += block_sum(sums);
    total.squares += block_sum(squares);
  }
  return total;
}

void assign(const float* logits, size_t n, double center, double scale, uint16_t* buckets) {
  constexpr double kLast = Passes::kBuckets - 1;
  for (size_t i = 0; i < n; ++i) {
    const double bucket = std::fabs(static_cast<double>(logits[i]) - center) * scale;
    buckets[i] = static_cast<uint16_t>(static_cast<int>(bucket < kLast ? bucket : kLast));
  }
}

double mark(const float* logits, const double* weights, size_t n, Interval inner, Interval outer, uint8_t* marks) {
  double total = 0, terms[kBlock];
  int32_t inside[kBlock];  // as wide as a logit, so that the loop vectorizes
  for (size_t begin = 0; begin < n; begin += kBlock) {
    const float* x = logits + begin;
    for (size_t i = 0; i < kBlock; ++i) inside[i] = int{x[i] >= inner.low} & int{x[i] <= inner.high};
    for (size_t i = 0; i < kBlock; ++i) terms[i] = inside[i] != 0 ? weights[begin + i] : 0.0;
    total += block_sum(terms);
    for (size_t i = 0; i < kBlock; ++i) {
      const int between = int{x[i] >= outer.low} & int{x[i] <= outer.high};
      marks[begin + i] = static_cast<uint8_t>(inside[i] != 0 ? Passes::kInside : between * Passes::kBetween);
    }
  }
  return total;
}

void keep_logits(const uint8_t* marks, const float* logits, size_t n, float* kept) {
  for (size_t i = 0; i < n; ++i) {
    kept[i] = marks[i] == Passes::kInside ? logits[i] : -std::numeric_limits<float>::infinity();
  }
}

void keep_weights(const uint8_t* marks, size_t n, double* weights, double* sums) {
  for (size_t begin = 0; begin < n; begin += kBlock, ++sums) {
    for (size_t i = begin; i < begin + kBlock; ++i) weights[i] = marks[i] == Passes::kInside ? weights[i] : 0.0;
    *sums = block_sum(weights + begin);
  }
}

}  // namespace

extern const Passes PLLM_PASSES = {weigh, moment, moments, assign, mark, keep_logits, keep_weights};

}  // namespace pllm
