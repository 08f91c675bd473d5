// Which candidates a cut keeps. The fewest nearest to a logit that hold a share of the probability are found without
// sorting: the candidates are counted into buckets of distance, and only the bucket in which the share is reached is
// looked into.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "sampling/softmax.h"

namespace pllm {

class Marks {
 public:
  // Of n candidates those for whose index keep() is true.
  void where(size_t n, const auto& keep) {
    reserve(n);
    last_ = 0;
    for (size_t i = 0; i < n; ++i) buckets_[i] = keep(i) ? 0 : Passes::kNever;
  }
  // Keeps in order of |logit - center| (then index) the fewest whose weights (the first logits.size() of the softmax)
  // reach `target`, at least one; never one of weight 0. reach: a distance beyond which none is needed; it sets the
  // grain of the buckets only.
  void nearest(std::span<const float> logits, const Softmax& softmax, double center, double reach, double target);

  bool keeps(size_t i) const { return buckets_[i] <= last_; }
  const uint16_t* buckets() const { return buckets_.data(); }  // of whole blocks
  uint16_t last() const { return last_; }                      // bucket that is kept

 private:
  struct Item {
    double distance, weight;
    uint32_t index;
  };
  void reserve(size_t n);
  void narrow(double target, double& sum);

  std::vector<uint16_t> buckets_;     // [candidates], filled up to whole blocks
  std::vector<Item> items_, narrow_;  // of the bucket looked into, in order of index
  uint16_t last_ = 0;
};

}  // namespace pllm
