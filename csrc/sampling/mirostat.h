// Mirostat 1 and 2 (Basu et al. 2021): cuts so that the surprise of an answer's tokens stays near tau. The last step.
#pragma once
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "sampling/candidates.h"
#include "sampling/params.h"

namespace pllm {

// Surprise is -log2 of a token's probability before the cut. After each token mu loses eta * (its surprise - tau);
// it starts at 2 tau. Mode 1 keeps the k best, with k from mu and Zipf's exponent estimated on the 100 best; mode 2
// keeps the tokens of surprise at most mu.
class Mirostat {
 public:
  explicit Mirostat(const SamplingParams& p) : mode_(p.mirostat_mode), tau_(p.mirostat_tau), eta_(p.mirostat_eta) {}
  bool on() const { return mode_ != 0; }

  // Cuts for the token at `pos` of answer `choice`; learn() then takes note of the one drawn.
  void cut(Candidates& candidates, uint32_t choice, uint64_t pos, int n_vocab);
  void learn(float logit, uint32_t choice, uint64_t pos);

 private:
  double mu(uint32_t choice, uint64_t pos);  // after the tokens drawn before `pos`; later ones are forgotten
  void cut_to_zipf(Candidates& candidates, double mu, int n_vocab) const;

  int mode_;
  double tau_, eta_;
  // By answer, in order of position: where a token was drawn, and mu after it. So mu is a function of the tokens before
  // a position: a position drawn again (after a rewind) starts from the same state.
  std::map<uint32_t, std::vector<std::pair<uint64_t, double>>> drawn_;
  double best_ = 0, log_total_ = 0, temperature_ = 1;  // of the distribution before the cut
};

}  // namespace pllm
