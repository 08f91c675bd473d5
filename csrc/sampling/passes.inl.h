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

void weigh(const float* logits, size_t n, double max, double cold, double* weights, double* sums) {
  for (size_t begin = 0; begin < n; begin += kBlock, ++sums) {
    for (size_t i = begin; i < begin + kBlock; ++i) {
      weights[i] = exp_nonpositive((static_cast<double>(logits[i]) - max) * cold);
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

void assign(const float* logits, const double* weights, size_t n, double center, double scale, uint16_t* buckets) {
  constexpr double kLast = Passes::kBuckets - 1;
  for (size_t i = 0; i < n; ++i) {
    const double bucket = std::fabs(static_cast<double>(logits[i]) - center) * scale;
    const int clamped = static_cast<int>(bucket < kLast ? bucket : kLast);
    buckets[i] = static_cast<uint16_t>(weights[i] > 0 ? clamped : Passes::kNever);
  }
}

void keep_logits(const uint16_t* buckets, uint16_t last, const float* logits, size_t n, float* kept) {
  for (size_t i = 0; i < n; ++i) kept[i] = buckets[i] <= last ? logits[i] : -std::numeric_limits<float>::infinity();
}

void keep_weights(const uint16_t* buckets, uint16_t last, size_t n, double* weights, double* sums) {
  for (size_t begin = 0; begin < n; begin += kBlock, ++sums) {
    for (size_t i = begin; i < begin + kBlock; ++i) weights[i] = buckets[i] <= last ? weights[i] : 0.0;
    *sums = block_sum(weights + begin);
  }
}

}  // namespace

extern const Passes PLLM_PASSES = {weigh, moment, assign, keep_logits, keep_weights};

}  // namespace pllm
