// The fewest candidates nearest to a logit that hold a share of the probability, found without sorting: the candidates
// are counted into buckets of distance, and only the bucket in which the share is reached is looked into.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "sampling/softmax.h"

namespace pllm {

class Nearest {
 public:
  // Marks in order of |logit - center| (then index) the fewest whose weights reach share * total, at least one; never
  // one of weight 0. reach: a distance beyond which next to no weight is left; it sets the grain of the buckets only.
  void find(std::span<const float> logits, const Softmax& softmax, double center, double reach, double share);
  bool keeps(size_t i) const { return buckets_[i] <= last_; }

 private:
  struct Item {
    double distance, weight;
    uint32_t index;
  };
  void narrow(double target, double& sum);

  std::vector<uint16_t> buckets_;     // [candidates]
  std::vector<Item> items_, narrow_;  // of the bucket looked into, in order of index
  uint16_t last_ = 0;                 // the last bucket that is kept
};

}  // namespace pllm
