// The passes over a whole vocabulary that are worth vectorizing, compiled for several instruction-set levels. They
// give the same bits on each: no fused multiply-add, and sums in lanes of a fixed number.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace pllm {

struct Passes {
  static constexpr size_t kBlock = 256;
  static constexpr int kBuckets = 1024;
  static constexpr uint16_t kNever = kBuckets;  // after all buckets

  // weights[n] = e^((logits - max) * cold) and the sum of each kBlock of them; n a multiple of kBlock.
  void (*weigh)(const float* logits, size_t n, double max, double cold, double* weights, double* sums);
  // Sum of weight * (logit - max) * cold; n a multiple of kBlock.
  double (*moment)(const float* logits, const double* weights, size_t n, double max, double cold);
  // buckets[n] = |logit - center| * scale, at most kBuckets - 1; kNever where the weight is 0.
  void (*assign)(const float* logits, const double* weights, size_t n, double center, double scale, uint16_t* buckets);
  // kept[n]: the logits; -infinity where the bucket is after `last`. May be in place.
  void (*keep_logits)(const uint16_t* buckets, uint16_t last, const float* logits, size_t n, float* kept);
  // The weights; 0 where the bucket is after `last`. Sums as weigh() has them; n a multiple of kBlock.
  void (*keep_weights)(const uint16_t* buckets, uint16_t last, size_t n, double* weights, double* sums);
};

extern const Passes kBaselinePasses, kAvx2Passes, kAvx512Passes, kNeonPasses;
// Of an instruction-set level (base/isa.h), the best one where it is empty. Error(bad_value) if it is not supported.
const Passes& passes(std::string_view level);

}  // namespace pllm
