#include "sampling/mirostat.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/exp_log.h"

namespace pllm {

double Mirostat::mu(uint32_t choice, uint64_t pos) {
  auto& drawn = drawn_[choice];
  while (!drawn.empty() && drawn.back().first >= pos) drawn.pop_back();
  return drawn.empty() ? 2 * tau_ : drawn.back().second;
}

void Mirostat::cut(Candidates& candidates, uint32_t choice, uint64_t pos, int n_vocab) {
  const double limit = mu(choice, pos);
  const Softmax& softmax = candidates.softmax();
  log_total_ = natural_log(softmax.total);
  best_ = softmax.max;
  temperature_ = candidates.temperature();
  if (mode_ == 2) {
    candidates.keep_from(best_ + temperature_ * (log_total_ - limit * std::numbers::ln2));
  } else {
    cut_to_zipf(candidates, limit, n_vocab);
  }
}

// With s the exponent of Zipf's law and e = s - 1: k = (e 2^mu / (1 - N^-e))^(1/s), N the size of the vocabulary.
void Mirostat::cut_to_zipf(Candidates& candidates, double mu, int n_vocab) const {
  constexpr size_t kSample = 100;
  std::vector<float> best = candidates.best_logits(kSample);
  double ratios = 0, squares = 0;
  for (size_t i = 0; i + 1 < best.size(); ++i) {
    const double t = natural_log((i + 2.0) / (i + 1.0));
    ratios += t * (static_cast<double>(best[i]) - best[i + 1]) / temperature_;
    squares += t * t;
  }
  if (ratios <= 0) return;  // all equally likely, or only one: no power law to follow
  const double s = ratios / squares, e = s - 1, log_n = natural_log(n_vocab);
  const double scale = std::abs(e * log_n) < 1e-6 ? 1 / log_n : e / (1 - exponential(-e * log_n));
  const double k = exponential((natural_log(scale) + mu * std::numbers::ln2) / s);
  if (k < static_cast<double>(candidates.size())) candidates.keep_best(std::max<size_t>(1, std::llround(k)));
}

void Mirostat::learn(float logit, uint32_t choice, uint64_t pos) {
  const double before = mu(choice, pos);
  const double surprise = (log_total_ - (logit - best_) / temperature_) / std::numbers::ln2;
  drawn_[choice].emplace_back(pos, before - eta_ * (surprise - tau_));
}

}  // namespace pllm
