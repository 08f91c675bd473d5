// One step of the chain: a function that changes or narrows the candidates. make_<name>() is empty where the step is
// off. A new sampler is a file with its make function, a row in chain.cpp and its parameters in params.h.
#pragma once
#include <cstdint>
#include <functional>
#include <span>

#include "sampling/candidates.h"
#include "sampling/params.h"

namespace pllm {

// Prompt and answer so far.
struct History {
  std::span<const int32_t> tokens;
  size_t n_prompt;  // how many of them are prompt

  // The last n, -1 for all; Error(bad_value) if one is outside the vocabulary.
  std::span<const int32_t> last(int n, int n_vocab) const;
};

struct Draw {  // which token is drawn
  History history;
  uint64_t pos;
  uint32_t choice;
};

using Step = std::function<void(Candidates&, const Draw&)>;

Step make_logit_bias(const SamplingParams& p);
Step make_penalties(const SamplingParams& p, int n_vocab);
Step make_dry(const SamplingParams& p, int n_vocab);
Step make_top_n_sigma(const SamplingParams& p);
Step make_top_k(const SamplingParams& p);
Step make_typical_p(const SamplingParams& p);
Step make_top_p(const SamplingParams& p);
Step make_min_p(const SamplingParams& p);
Step make_xtc(const SamplingParams& p);
Step make_temperature(const SamplingParams& p);

}  // namespace pllm
