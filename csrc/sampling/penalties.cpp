// Penalties for tokens that have occurred, over the distinct ones of the last penalty_last_n:
//   repeat     of prompt and answer: a logit above 0 is divided by it, else multiplied (CTRL, Keskar et al. 2019; the
//              prompt counts, as in transformers and vLLM)
//   frequency  subtracted for each time the token occurs in the answer
//   presence   subtracted once if it does (OpenAI: "how often that token was sampled", so not in the prompt)
#include <algorithm>
#include <string>
#include <utility>

#include "base/error.h"
#include "sampling/step.h"

namespace pllm {

std::span<const int32_t> History::last(int n, int n_vocab) const {
  const auto window = tokens.last(n < 0 ? tokens.size() : std::min<size_t>(n, tokens.size()));
  for (const int32_t id : window) {
    if (id >= 0 && id < n_vocab) continue;
    throw Error(ErrorKind::bad_value,
                "the history holds token " + std::to_string(id) + ", but the vocabulary has " + std::to_string(n_vocab),
                "Give ids of this model's vocabulary.");
  }
  return window;
}

Step make_penalties(const SamplingParams& p, int n_vocab) {
  const bool neutral = p.repeat_penalty == 1 && p.frequency_penalty == 0 && p.presence_penalty == 0;
  if (neutral || p.penalty_last_n == 0) return {};
  struct Count {
    int32_t all = 0, answer = 0;
  };
  std::vector<Count> counts(n_vocab);  // zero between calls
  const double repeat = p.repeat_penalty, frequency = p.frequency_penalty, presence = p.presence_penalty;
  return [=, last_n = p.penalty_last_n, counts = std::move(counts)](Candidates& candidates, const Draw& draw) mutable {
    const auto window = draw.history.last(last_n, n_vocab);
    const size_t first = draw.history.tokens.size() - window.size();
    for (size_t i = 0; i < window.size(); ++i) {
      ++counts[window[i]].all;
      counts[window[i]].answer += first + i >= draw.history.n_prompt;
    }
    const double unit = candidates.temperature();  // so that it weighs the same after the temperature as before
    for (const int32_t id : window) {
      const Count count = std::exchange(counts[id], {});
      if (count.all == 0) continue;  // done already
      const double subtracted = count.answer > 0 ? count.answer * frequency + presence : 0;
      candidates.change(
          id, [&](double logit) { return (logit > 0 ? logit / repeat : logit * repeat) - unit * subtracted; });
    }
  };
}

}  // namespace pllm
