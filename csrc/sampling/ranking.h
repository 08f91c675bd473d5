// The best of a vector of logits without sorting it: block maxima, made in one pass, bound what has to be looked at.
#pragma once
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace pllm {

struct Candidate {
  float logit;
  int32_t id;
};

// Descending logit, then ascending id: a total order, so no result depends on how a sort treats equals.
inline bool ranks_before(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

float at_least(double x);  // the smallest float that is not less, finite

void keep_best_of(std::vector<Candidate>& candidates, size_t k);  // in order of rank

class Ranking {
 public:
  static constexpr float kNoFloor = -std::numeric_limits<float>::infinity();

  // Looks at logits[n_vocab] once; the span must stay valid and unchanged while the ranking is asked.
  // NaN or +infinity is an Error(internal): the model is broken, no token would mean anything.
  void scan(std::span<const float> logits);

  std::span<const float> logits() const { return logits_; }
  float max() const { return max_; }  // -infinity if nothing is finite
  int32_t argmax() const;             // lowest id of the largest logit
  // In order of id: all finite logits that are at least `floor`; false, with a part of them, if they are more than
  // `limit`.
  bool collect(double floor, size_t limit, std::vector<Candidate>& out) const;
  // In order of rank: the best k (k >= 1) of the finite ones.
  void best(size_t k, std::vector<Candidate>& out);

 private:
  void append_equal(float logit, size_t n, std::vector<Candidate>& out) const;  // the first n, in order of id

  std::span<const float> logits_;
  std::vector<float> block_max_;  // the largest logit of each block
  std::vector<float> scratch_;    // same size
  float max_ = kNoFloor;
};

}  // namespace pllm
