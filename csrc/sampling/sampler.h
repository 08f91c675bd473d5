// From one vector of logits to one token. The chain, always in this order:
//   1. logit_bias         added; -infinity bans the token
//   2. penalties          over the distinct tokens of the last penalty_last_n of `history` (prompt and answer so far):
//                         repeat (CTRL: logit > 0 is divided by it, else multiplied), then
//                         count * frequency + presence (OpenAI) is subtracted
//   3. top_k              the k largest logits
//   4. top_p              of those, the fewest of highest probability that sum to at least top_p; at least one
//   5. min_p              of those, the ones at least min_p times as probable as the best
//   6. temperature        divides the logits; <= 0 takes the largest logit after step 2 and skips the rest
//   7. draw               one uniform number, Philox4x32-10 keyed by (seed, choice, position), against the cumulative
//                         probabilities in order of id
// Equal logits rank by ascending id everywhere. Probabilities in 4 and 5 are a softmax at temperature 1 over what the
// step before left. Steps 1 and 2 round to float once each and stay in its range; the rest is double without libm, so
// the token is a function of (logits, history, parameters, choice, position) alone, on every machine.
// Log-probabilities are those of the model: log softmax of the logits as given, before step 1.
#pragma once
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "sampling/ranking.h"

namespace pllm {

struct SamplingParams {  // the defaults turn every step off: plain sampling at temperature 1
  float temperature = 1;
  float top_p = 1;  // [0, 1]; 1 = off
  float min_p = 0;  // [0, 1]; 0 = off
  float repeat_penalty = 1;
  float frequency_penalty = 0;
  float presence_penalty = 0;
  int top_k = 0;            // 0 or -1 = off
  int penalty_last_n = -1;  // -1 = all of the history, 0 = no penalties
  uint64_t seed = 0;
  std::vector<std::pair<int32_t, float>> logit_bias;  // finite or -infinity
};

struct Sampled {
  int32_t id;
  float logprob;                               // NaN unless asked for
  std::vector<std::pair<int32_t, float>> top;  // (id, logprob), best first, ties by id; no tokens of probability 0
};

// Not thread-safe: it owns the scratch memory that makes sample() free of allocation (but for Sampled::top).
class Sampler {
 public:
  Sampler(SamplingParams params, int n_vocab);  // Error(bad_value) for a parameter out of range

  // logits[n_vocab]: finite or -infinity. pos: the sequence position the new token will take. choice: which of several
  // answers to one request. n_top_logprobs: -1 computes no log-probability, n >= 0 the token's own and the n best.
  // Error(internal) if the model produced NaN, +infinity or only -infinity; Error(bad_value) if every token is banned,
  // the span has another size or the penalty window holds an id outside the vocabulary.
  Sampled sample(std::span<const float> logits, std::span<const int32_t> history, uint64_t pos, uint32_t choice,
                 int n_top_logprobs);

  const SamplingParams& params() const { return params_; }
  int n_vocab() const { return n_vocab_; }

 private:
  bool penalizes() const;
  void add_bias();
  void penalize(std::span<const int32_t> history);
  Ranking& adjust(std::span<const int32_t> history);
  void keep_candidates(Ranking& ranking);
  void keep_nucleus(Ranking& ranking, size_t limit);
  int32_t draw(float max, double uniform);
  void add_logprobs(Sampled& result, int n_top);

  SamplingParams params_;
  int n_vocab_;
  double log_min_p_;                   // -infinity where min_p is off
  Ranking raw_, adjusted_;             // of the logits as given, and after steps 1 and 2
  std::vector<float> logits_;          // [n_vocab] what adjusted_ ranks; empty until needed, as are the rest
  std::vector<int32_t> counts_;        // [n_vocab] occurrences in the window; zero between calls
  std::vector<Candidate> candidates_;  // after steps 3 to 5, in order of id
  std::vector<double> weights_;        // [candidates] unnormalized probabilities
};

}  // namespace pllm
