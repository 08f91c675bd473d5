#include "sampling/softmax.h"

#include <algorithm>
#include <limits>

#include "base/exp_log.h"
#include "sampling/passes.h"

namespace pllm {
namespace {

constexpr size_t kBlock = Softmax::kBlock;

// The logits after the last whole block, filled up with ones of weight 0.
struct Tail {
  Tail(std::span<const float> logits) : begin(logits.size() / kBlock * kBlock), n(logits.size() - begin) {
    std::fill(std::copy_n(logits.data() + begin, n, values), values + kBlock, -std::numeric_limits<float>::infinity());
  }
  size_t begin, n;
  float values[kBlock];
};

}  // namespace

void Softmax::compute(std::span<const float> logits, float largest, double temperature) {
  const double cold = 1 / temperature;  // a division for every logit would take a third of the time
  const Tail tail(logits);
  const size_t n_blocks = (logits.size() + kBlock - 1) / kBlock;
  n = logits.size();
  max = largest;
  if (weights.size() < n_blocks * kBlock) weights.resize(n_blocks * kBlock);
  sums.resize(n_blocks);
  passes.weigh(logits.data(), tail.begin, max, cold, weights.data(), sums.data());
  if (tail.n > 0) {
    passes.weigh(tail.values, kBlock, max, cold, weights.data() + tail.begin, sums.data() + n_blocks - 1);
  }
  add_up();
}

void Softmax::add_up() {
  total = 0;
  for (const double sum : sums) total += sum;
}

double Softmax::mark(std::span<const float> logits, Interval inner, Interval outer, uint8_t* marks) const {
  const Tail tail(logits);
  double sum = passes.mark(logits.data(), weights.data(), tail.begin, inner, outer, marks);
  if (tail.n > 0) {
    sum += passes.mark(tail.values, weights.data() + tail.begin, kBlock, inner, outer, marks + tail.begin);
  }
  return sum;
}

Moments Softmax::moments(std::span<const float> logits, double center) const {
  const Tail tail(logits);
  Moments result = passes.moments(logits.data(), tail.begin, center);
  if (tail.n > 0) {
    const Moments last = passes.moments(tail.values, kBlock, center);
    result.n += last.n;
    result.sum += last.sum;
    result.squares += last.squares;
  }
  return result;
}

void Softmax::keep(const uint8_t* marks) {
  passes.keep_weights(marks, sums.size() * kBlock, weights.data(), sums.data());
  add_up();
}

double Softmax::entropy(std::span<const float> logits, double temperature) const {
  const double cold = 1 / temperature;
  const Tail tail(logits);
  double sum = passes.moment(logits.data(), weights.data(), tail.begin, max, cold);
  if (tail.n > 0) {
    double last[kBlock] = {};
    std::copy_n(weights.data() + tail.begin, tail.n, last);
    sum += passes.moment(tail.values, last, kBlock, max, cold);
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
