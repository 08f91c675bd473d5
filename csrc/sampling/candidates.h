// The tokens still possible: what every step of the chain reads and narrows.
#pragma once
#include <concepts>
#include <cstdint>
#include <span>
#include <vector>

#include "sampling/marks.h"
#include "sampling/ranking.h"
#include "sampling/softmax.h"

namespace pllm {

// In order of id, always; among equal logits the lower id ranks first. At first they are the whole vocabulary, in which
// -infinity is the logit of what is impossible; keep_*() leave at least one, in a list of possible ones where they are
// few, else in the vocabulary with the others impossible. Memory is kept for the next token. Probabilities are the
// softmax of logit / temperature over what is left.
class Candidates {
 public:
  explicit Candidates(const Passes& passes) : softmax_(passes) {}

  void reset(Ranking& raw);  // which must stay valid and unchanged until the next reset

  size_t size() const { return logits_.size(); }
  int32_t id(size_t i) const { return whole_ ? static_cast<int32_t>(i) : ids_[i]; }
  std::span<const float> logits() const { return logits_; }  // [size()]
  double temperature() const { return temperature_; }
  void heat(double factor);  // > 0; multiplies the temperature
  float max();               // Error(bad_value) if no token is possible any more
  size_t n_possible();
  int32_t best();                            // lowest id of the largest logit
  const Softmax& softmax();                  // relative to its own max, which may be no candidate any more
  double entropy();                          // in nats
  double standard_deviation();               // of the possible logits
  double raw_total();                        // of the softmax of the raw logits at temperature 1; undoes all steps
  std::vector<float> best_logits(size_t k);  // descending; fewer if there are not as many

  // f(logit) -> the new logit, for one token if it is still possible; rounded to float, and never to an infinity.
  void change(int32_t id, const std::invocable<double> auto& f) {
    float* logit = writable(id);
    if (logit != nullptr && *logit != Ranking::kNoFloor) *logit = to_finite(f(static_cast<double>(*logit)));
  }
  void ban(int32_t id);
  void allow_only(std::span<const int32_t> ids);

  void keep_best(size_t k);            // k >= 1
  void keep_from(double floor);        // logits of at least floor, and the best one
  void drop_above_last(double share);  // of those with at least this probability all but the one that ranks last
  // The fewest of smallest |logit - center| (then id) whose probabilities reach `share`; at least one.
  void keep_nearest(double center, double share);

 private:
  static float to_finite(double x);
  float* writable(int32_t id);
  Ranking& ranking();     // of the whole vocabulary
  void select(size_t k);  // the best k into selection_, in order of rank
  void narrow_around(double center, double least, double target);
  void keep_marked();
  void keep_where(const auto& keep);
  void assign(const std::vector<Candidate>& kept);
  void reserve();              // own_ and ids_ of the size of the vocabulary
  void become_list(size_t n);  // of the first n of own_ and ids_
  void forget();               // what was computed from the logits

  Ranking* raw_ = nullptr;
  Ranking changed_;     // of own_ while whole, once a step has changed it
  bool whole_ = true;   // ids_ is not used: the index is the id
  bool is_raw_ = true;  // logits_ are the raw ones
  bool max_known_ = false, softmax_known_ = false;
  bool ranked_ = false;         // changed_ is of own_ as it is
  bool drops_weights_ = false;  // softmax_ is of the candidates once what marks_ drops is taken out
  double raw_total_ = 0;        // 0: not known
  float max_ = 0;
  double temperature_ = 1;
  std::span<const float> logits_;     // the raw ones, or the first of own_
  std::vector<float> own_;            // [n_vocab] once needed
  std::vector<int32_t> ids_;          // [n_vocab] once needed
  std::vector<Candidate> selection_;  // scratch
  Marks marks_;                       // scratch
  Softmax softmax_;
};

}  // namespace pllm
