// The passes over a whole vocabulary that are worth vectorizing, compiled for several instruction-set levels. They
// give the same bits on each: no fused multiply-add, and sums in lanes of a fixed number.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace pllm {

struct Interval {  // of logits; empty where low > high
  float low, high;
};
struct Moments {
  double n = 0, sum = 0, squares = 0;
};

struct Passes {
  static constexpr size_t kBlock = 256;
  static constexpr int kBuckets = 1024;
  enum Mark : uint8_t { kDropped, kInside, kBetween };

  // weights[n] = e^((logits - max) * cold) and the sum of each kBlock of them; n a multiple of kBlock. Within 2e-12,
  // far less than what rounding to float leaves open of a logit; 0 below e^-709, exactly 1 where a logit is max.
  void (*weigh)(const float* logits, size_t n, double max, double cold, double* weights, double* sums);
  // Sum of weight * (logit - max) * cold; n a multiple of kBlock.
  double (*moment)(const float* logits, const double* weights, size_t n, double max, double cold);
  // Of the logits above -infinity, less `center`; n a multiple of kBlock.
  Moments (*moments)(const float* logits, size_t n, double center);
  // buckets[n] = |logit - center| * scale, at most kBuckets - 1.
  void (*assign)(const float* logits, size_t n, double center, double scale, uint16_t* buckets);
  // marks[n]: kInside where a logit is of `inner`, else kBetween where it is of `outer`, else kDropped, as where its
  // weight is 0. Returns the sum of the weights inside; n a multiple of kBlock.
  double (*mark)(const float* logits, const double* weights, size_t n, Interval inner, Interval outer, uint8_t* marks);
  // kept[n]: the logits; -infinity where they are not marked kInside. May be in place.
  void (*keep_logits)(const uint8_t* marks, const float* logits, size_t n, float* kept);
  // The weights; 0 where they are not marked kInside. Sums as weigh() has them; n a multiple of kBlock.
  void (*keep_weights)(const uint8_t* marks, size_t n, double* weights, double* sums);
};

extern const Passes kBaselinePasses, kAvx2Passes, kAvx512Passes, kNeonPasses;
// Of an instruction-set level (base/isa.h), the best one where it is empty. Error(bad_value) if it is not supported.
const Passes& passes(std::string_view level);

}  // namespace pllm
