#include "sampling/softmax.h"

#include <algorithm>
#include <limits>

#include "base/clones.h"
#include "sampling/exp_log.h"

namespace pllm {
namespace {

constexpr size_t kBlock = Softmax::kBlock, kLanes = 8;

// Of terms[kBlock]: eight running sums, then their sum. The order is part of the result.
PLLM_INLINE double block_sum(const double* terms) {
  double lanes[kLanes] = {};
  for (size_t i = 0; i < kBlock; i += kLanes) {
    for (size_t j = 0; j < kLanes; ++j) lanes[j] += terms[i + j];
  }
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

// weights[n] and the sum of each block, n a multiple of kBlock. cold: 1 / temperature.
PLLM_INLINE void weigh(const float* logits, size_t n, double max, double cold, double* weights, double* sums) {
  for (size_t begin = 0; begin < n; begin += kBlock, ++sums) {
    for (size_t i = begin; i < begin + kBlock; ++i) {
      weights[i] = exp_nonpositive((static_cast<double>(logits[i]) - max) * cold);
    }
    *sums = block_sum(weights + begin);
  }
}
PLLM_CLONES(weigh_best, weigh, void, (const float* x, size_t n, double max, double t, double* w, double* sums),
            (x, n, max, t, w, sums))

// Sum of weight * (logit - max) * cold, n a multiple of kBlock.
PLLM_INLINE double moment(const float* logits, const double* weights, size_t n, double max, double cold) {
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
PLLM_CLONES(moment_best, moment, double, (const float* x, const double* w, size_t n, double max, double t),
            (x, w, n, max, t))

// The logits after the last whole block, filled up with ones of weight 0.
struct Tail {
  Tail(std::span<const float> logits) : begin(logits.size() / kBlock * kBlock), n(logits.size() - begin) {
    std::fill(std::copy_n(logits.data() + begin, n, values), values + kBlock, -std::numeric_limits<float>::infinity());
  }
  size_t begin, n;
  float values[kBlock];
};

}  // namespace

void Softmax::compute(std::span<const float> logits, float max, double temperature) {
  const double cold = 1 / temperature;  // a division for every logit would take a third of the time
  const Tail tail(logits);
  const size_t n_blocks = (logits.size() + kBlock - 1) / kBlock;
  n = logits.size();
  if (weights.size() < n_blocks * kBlock) weights.resize(n_blocks * kBlock);
  sums.resize(n_blocks);
  weigh_best(logits.data(), tail.begin, max, cold, weights.data(), sums.data());
  if (tail.n > 0) {
    weigh_best(tail.values, kBlock, max, cold, weights.data() + tail.begin, sums.data() + n_blocks - 1);
  }
  total = 0;
  for (const double sum : sums) total += sum;
}

double Softmax::entropy(std::span<const float> logits, float max, double temperature) const {
  const double cold = 1 / temperature;
  const Tail tail(logits);
  double sum = moment_best(logits.data(), weights.data(), tail.begin, max, cold);
  if (tail.n > 0) {
    double last[kBlock] = {};
    std::copy_n(weights.data() + tail.begin, tail.n, last);
    sum += moment_best(tail.values, last, kBlock, max, cold);
  }
  return std::max(0.0, natural_log(total) - sum / total);
}

size_t Softmax::pick(double share) const {
  const double target = share * total;  // < total, and the loop repeats the additions that made it: it always ends
  double sum = 0;
  size_t block = 0;
  while (sum + sums[block] <= target) sum += sums[block++];
  const size_t end = std::min((block + 1) * kBlock, n);
  size_t last = block * kBlock;
  for (size_t i = last; i < end; ++i) {
    if (weights[i] == 0) continue;
    last = i;
    sum += weights[i];
    if (sum > target) break;
  }
  return last;  // at the block's end too, where rounding left the sum short of the block's own
}

}  // namespace pllm
