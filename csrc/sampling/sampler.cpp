#include "sampling/sampler.h"

#include <algorithm>
#include <limits>
#include <string>

#include "base/error.h"
#include "base/exp_log.h"
#include "sampling/random.h"

namespace pllm {

Sampler::Sampler(SamplingParams params, int n_vocab, std::string_view isa)
    : params_((check(params, n_vocab), std::move(params))),
      n_vocab_(n_vocab),
      chain_(make_chain(params_, n_vocab)),
      mirostat_(params_),
      candidates_(passes(isa)) {}

void Sampler::narrow(std::span<const float> logits, const Draw& draw) {
  if (logits.size() != static_cast<size_t>(n_vocab_)) {
    throw Error(ErrorKind::bad_value,
                "got " + std::to_string(logits.size()) + " logits for a vocabulary of " + std::to_string(n_vocab_));
  }
  if (draw.history.n_prompt > draw.history.tokens.size()) {
    throw Error(ErrorKind::bad_value, "n_prompt = " + std::to_string(draw.history.n_prompt) + ", but the history has " +
                                          std::to_string(draw.history.tokens.size()) + " tokens");
  }
  raw_.scan(logits);
  if (raw_.max() == Ranking::kNoFloor) {
    throw Error(ErrorKind::internal, "the model gave every token a logit of -infinity",
                "The model file may be damaged; compare its SHA-256 with the publisher's.");
  }
  candidates_.reset(raw_);
  for (const Step& step : chain_) step(candidates_, draw);
  if (mirostat_.on() && !greedy()) mirostat_.cut(candidates_, draw.choice, draw.pos, n_vocab_);
}

Sampled Sampler::sample(std::span<const float> logits, const Draw& draw, int n_top_logprobs) {
  if (n_top_logprobs < -1) {
    throw Error(ErrorKind::bad_value, "n_top_logprobs = " + std::to_string(n_top_logprobs), "Give -1 (none) or more.");
  }
  narrow(logits, draw);
  Sampled result{-1, std::numeric_limits<float>::quiet_NaN(), {}};
  if (greedy()) {
    result.id = candidates_.best();
  } else {
    const size_t i = candidates_.softmax().pick(uniform(params_.seed, draw.choice, draw.pos, Purpose::token));
    result.id = candidates_.id(i);
    if (mirostat_.on()) mirostat_.learn(candidates_.logits()[i], draw.choice, draw.pos);
  }
  if (n_top_logprobs >= 0) add_logprobs(result, n_top_logprobs);
  return result;
}

std::vector<std::pair<int32_t, double>> Sampler::distribution(std::span<const float> logits, const Draw& draw) {
  narrow(logits, draw);
  if (greedy()) return {{candidates_.best(), 1.0}};
  const Softmax& softmax = candidates_.softmax();
  std::vector<std::pair<int32_t, double>> result;
  for (size_t i = 0; i < candidates_.size(); ++i) {
    if (softmax.weights[i] > 0) result.emplace_back(candidates_.id(i), softmax.weights[i] / softmax.total);
  }
  return result;
}

void Sampler::add_logprobs(Sampled& result, int n_top) {
  const double log_total = natural_log(candidates_.raw_total());
  const auto logprob = [&](float logit) {
    return static_cast<float>(static_cast<double>(logit) - raw_.max() - log_total);
  };
  result.logprob = logprob(raw_.logits()[result.id]);
  if (n_top == 0) return;
  raw_.best(static_cast<size_t>(n_top), top_);
  result.top.reserve(top_.size());
  for (const Candidate& c : top_) result.top.emplace_back(c.id, logprob(c.logit));
}

}  // namespace pllm
