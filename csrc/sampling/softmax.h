// Unnormalized softmax weights and their sums, in one fixed order of additions that vectorizes.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "sampling/passes.h"

namespace pllm {

struct Softmax {
  static constexpr size_t kBlock = Passes::kBlock;

  explicit Softmax(const Passes& of_level) : passes(of_level) {}

  // weights[i] = e^((logits[i] - max) / temperature); 0 where a logit is -infinity.
  void compute(std::span<const float> logits, float largest, double temperature);
  // Passes::mark() of as many logits as the weights are of. marks: of whole blocks.
  double mark(std::span<const float> logits, Interval inner, Interval outer, uint8_t* marks) const;
  void keep(const uint8_t* marks);  // those marked Passes::kInside; the other weights become 0
  Moments moments(std::span<const float> logits, double center) const;      // of any logits
  double entropy(std::span<const float> logits, double temperature) const;  // in nats
  size_t pick(double share) const;  // the first index whose cumulated weight exceeds share * total; share in [0, 1)

  const Passes& passes;
  size_t n = 0;
  float max = 0;                // the largest logit when they were computed
  std::vector<double> weights;  // the first n; never made smaller, as growing again would clear it
  std::vector<double> sums;     // of each kBlock weights
  double total = 0;             // of the sums

 private:
  void add_up();
};

}  // namespace pllm
