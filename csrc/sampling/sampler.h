// From one vector of logits to one token. The chain:
//   1. logit_bias   and min_tokens: bans (-infinity), "only these" (+infinity), additions   logit_bias.cpp
//   2. the steps of `samplers`, in the caller's order; by default that of the table         chain.cpp
//        penalties    repeat, frequency, presence                                           penalties.cpp
//        dry          against repeated sequences                                            dry.cpp
//        top_n_sigma, top_k, typical_p, top_p, min_p, xtc                                   cuts.cpp
//        temperature  divides the logits; dynatemp_*: by entropy                            temperature.cpp
//   3. mirostat     where it is on, instead of all the cuts of step 2                       mirostat.cpp
//   4. draw         one uniform number, Philox4x32-10 keyed by (seed, choice, position, purpose), against the
//                   cumulative probabilities in order of id
// temperature <= 0 is greedy: the largest logit after 1, penalties and dry, whatever else is on. Equal logits rank by
// ascending id everywhere. The probabilities a step sees are a softmax of logits / temperature so far, over what the
// steps before left. Bias and penalties round to float once each and stay in its range; the rest is double without
// libm, so the token is a function of (logits, history, parameters, choice, position) alone, on every machine; with
// mirostat also of the tokens this sampler drew for the answer's earlier positions.
// Log-probabilities are those of the model: log softmax of the logits as given, before step 1.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "sampling/chain.h"
#include "sampling/mirostat.h"
#include "sampling/params.h"

namespace pllm {

struct Sampled {
  int32_t id;
  float logprob;                               // NaN unless asked for
  std::vector<std::pair<int32_t, float>> top;  // (id, logprob), best first, ties by id; no tokens of probability 0
};

// Belongs to one request. Not thread-safe: it owns the scratch memory of its steps and mirostat's state.
class Sampler {
 public:
  // Error(bad_value) for a parameter out of range. isa: the instruction-set level of its loops, the best one where it
  // is empty; never changes a result.
  Sampler(SamplingParams params, int n_vocab, std::string_view isa = "");

  // logits[n_vocab]: finite or -infinity. draw.pos: the sequence position the new token will take. draw.choice: which
  // of several answers to one request. n_top_logprobs: -1 computes no log-probability, n >= 0 the token's own and the n
  // best. Error(internal) if the model produced NaN, +infinity or only -infinity; Error(bad_value) if every token is
  // banned, the span has another size or the history a step looks at holds an id outside the vocabulary.
  Sampled sample(std::span<const float> logits, const Draw& draw, int n_top_logprobs);

  // What sample() would draw from: (id, probability) in order of id. Changes no state.
  std::vector<std::pair<int32_t, double>> distribution(std::span<const float> logits, const Draw& draw);

  const SamplingParams& params() const { return params_; }
  int n_vocab() const { return n_vocab_; }

 private:
  void narrow(std::span<const float> logits, const Draw& draw);
  bool greedy() const { return params_.temperature <= 0; }
  void add_logprobs(Sampled& result, int n_top);

  SamplingParams params_;
  int n_vocab_;
  std::vector<Step> chain_;
  Mirostat mirostat_;
  Ranking raw_;  // of the logits as given
  Candidates candidates_;
  std::vector<Candidate> top_;  // scratch
};

}  // namespace pllm
