// Which candidates a cut keeps. The fewest nearest to a logit that hold a share of the probability are found without
// sorting: a histogram tells about how far away the share is reached, one pass adds up what is nearer, and only what
// lies around that distance is looked at one by one.
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
    for (size_t i = 0; i < n; ++i) marks_[i] = keep(i) ? Passes::kInside : Passes::kDropped;
  }
  // Keeps in order of |logit - center| (then index) the fewest whose weights (the first logits.size() of the softmax)
  // reach `target`, at least one; none below `least`, where no weight is needed for that.
  void nearest(std::span<const float> logits, const Softmax& softmax, double center, double least, double target);

  bool keeps(size_t i) const { return marks_[i] == Passes::kInside; }
  const uint8_t* data() const { return marks_.data(); }  // of whole blocks

 private:
  struct Item {
    double distance, weight;
    uint32_t index;
  };
  struct Band {  // of distances: the target is reached above `near`, and at `far` at the latest
    double near, far;
  };
  void reserve(size_t n);
  void mark_equal(size_t n, double weight, double target);
  Band locate(std::span<const float> logits, const Softmax& softmax, double center, double least, double target) const;
  void collect(std::span<const float> logits, const Softmax& softmax, double center);
  void narrow(double target, double sum);

  std::vector<uint8_t> marks_;        // [candidates], filled up to whole blocks
  std::vector<Item> items_, narrow_;  // those looked at, in order of index
};

}  // namespace pllm
