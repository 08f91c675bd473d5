// The steps between logit_bias and the draw, by name.
#pragma once
#include <string>
#include <vector>

#include "sampling/step.h"

namespace pllm {

std::vector<std::string> step_names();  // in the default order

// The steps of p.samplers that are on, in that order; where the choice is greedy only those that change logits, and
// with mirostat none that cut. Error(bad_value) for a name that is unknown or given twice.
std::vector<Step> make_chain(const SamplingParams& p, int n_vocab);

}  // namespace pllm
