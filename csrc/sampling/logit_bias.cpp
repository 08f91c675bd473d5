// Always first: min_tokens bans what ends an answer while it is shorter; logit_bias allows some tokens alone
// (+infinity), bans (-infinity) or is added. What is banned stays banned.
#include <cmath>

#include "sampling/step.h"

namespace pllm {

Step make_logit_bias(const SamplingParams& p) {
  if (p.logit_bias.empty() && p.min_tokens == 0) return {};
  std::vector<int32_t> allowed;
  for (const auto& [id, bias] : p.logit_bias) {
    if (std::isinf(bias) && bias > 0) allowed.push_back(id);
  }
  return [p, allowed = std::move(allowed)](Candidates& candidates, const Draw& draw) {
    if (!allowed.empty()) candidates.allow_only(allowed);
    for (const auto& [id, bias] : p.logit_bias) {
      if (std::isfinite(bias)) {
        candidates.change(id, [added = bias](double logit) { return logit + added; });
      } else if (bias < 0) {
        candidates.ban(id);
      }
    }
    const size_t n_answer = draw.history.tokens.size() - draw.history.n_prompt;
    if (n_answer >= static_cast<size_t>(p.min_tokens)) return;
    for (const int32_t id : p.eog_ids) candidates.ban(id);
  };
}

}  // namespace pllm
