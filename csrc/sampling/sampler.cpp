#include "sampling/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "base/error.h"
#include "sampling/exp_log.h"
#include "sampling/random.h"

namespace pllm {
namespace {

[[noreturn]] void reject(const std::string& message, const std::string& hint = {}) {
  throw Error(ErrorKind::bad_value, message, hint);
}

void require(bool ok, const char* name, double value, const char* range) {
  if (!ok) reject(std::string(name) + " = " + std::to_string(value) + " is out of range", std::string("Give ") + range);
}

// To float, once, and never to an infinity that only rounding made.
float to_finite(double x) {
  constexpr double kLargest = std::numeric_limits<float>::max();
  return static_cast<float>(std::clamp(x, -kLargest, kLargest));
}

// Sum of e^(logit - max). In blocks and lanes, which fixes the order of the additions and lets both loops vectorize.
double mass(std::span<const float> logits, float max) {
  constexpr size_t kBlock = 256, kLanes = 8;
  double lanes[kLanes] = {}, block[kBlock];
  for (size_t begin = 0; begin < logits.size(); begin += kBlock) {
    const size_t n = std::min(kBlock, logits.size() - begin);
    for (size_t i = 0; i < n; ++i) block[i] = exp_nonpositive(static_cast<double>(logits[begin + i]) - max);
    std::fill(block + n, block + kBlock, 0.0);
    for (size_t i = 0; i < kBlock; i += kLanes) {
      for (size_t j = 0; j < kLanes; ++j) lanes[j] += block[i + j];
    }
  }
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

}  // namespace

Sampler::Sampler(SamplingParams params, int n_vocab) : params_(std::move(params)), n_vocab_(n_vocab) {
  const SamplingParams& p = params_;
  if (n_vocab < 1) reject("n_vocab = " + std::to_string(n_vocab) + ": a vocabulary has at least one token");
  require(std::isfinite(p.temperature), "temperature", p.temperature, "a finite number; 0 or less is greedy");
  require(p.top_p >= 0 && p.top_p <= 1, "top_p", p.top_p, "a number from 0 to 1; 1 turns it off");
  require(p.min_p >= 0 && p.min_p <= 1, "min_p", p.min_p, "a number from 0 to 1; 0 turns it off");
  require(p.repeat_penalty > 0 && std::isfinite(p.repeat_penalty), "repeat_penalty", p.repeat_penalty,
          "a positive number; 1 turns it off");
  require(std::isfinite(p.frequency_penalty), "frequency_penalty", p.frequency_penalty, "a finite number");
  require(std::isfinite(p.presence_penalty), "presence_penalty", p.presence_penalty, "a finite number");
  require(p.top_k >= -1, "top_k", p.top_k, "a positive number; 0 or -1 turns it off");
  require(p.penalty_last_n >= -1, "penalty_last_n", p.penalty_last_n, "0 or more tokens, or -1 for all");
  for (const auto& [id, bias] : p.logit_bias) {
    if (id < 0 || id >= n_vocab) {
      reject("logit_bias names token " + std::to_string(id) + ", but the vocabulary has " + std::to_string(n_vocab));
    }
    if (std::isnan(bias) || bias == std::numeric_limits<float>::infinity()) {
      reject("logit_bias of token " + std::to_string(id) + " is " + std::to_string(bias),
             "Give a finite number, or -infinity to ban the token.");
    }
  }
  log_min_p_ = p.min_p > 0 ? std::min(natural_log(p.min_p), 0.0) : Ranking::kNoFloor;
}

Sampled Sampler::sample(std::span<const float> logits, std::span<const int32_t> history, uint64_t pos, uint32_t choice,
                        int n_top_logprobs) {
  if (logits.size() != static_cast<size_t>(n_vocab_)) {
    reject("got " + std::to_string(logits.size()) + " logits for a vocabulary of " + std::to_string(n_vocab_));
  }
  if (n_top_logprobs < -1) reject("n_top_logprobs = " + std::to_string(n_top_logprobs), "Give -1 (none) or more.");
  raw_.scan(logits);
  if (raw_.max() == Ranking::kNoFloor) {
    throw Error(ErrorKind::internal, "the model gave every token a logit of -infinity",
                "The model file may be damaged; compare its SHA-256 with the publisher's.");
  }
  Ranking& ranking = adjust(history);
  Sampled result{ranking.argmax(), std::numeric_limits<float>::quiet_NaN(), {}};
  if (params_.temperature > 0) {
    keep_candidates(ranking);
    result.id = draw(ranking.max(), uniform(params_.seed, choice, pos));
  }
  if (n_top_logprobs >= 0) add_logprobs(result, n_top_logprobs);
  return result;
}

bool Sampler::penalizes() const {
  return params_.penalty_last_n != 0 &&
         (params_.repeat_penalty != 1 || params_.frequency_penalty != 0 || params_.presence_penalty != 0);
}

Ranking& Sampler::adjust(std::span<const int32_t> history) {
  if (params_.logit_bias.empty() && !penalizes()) return raw_;
  logits_.assign(raw_.logits().begin(), raw_.logits().end());
  add_bias();
  if (penalizes()) penalize(history);
  adjusted_.scan(logits_);
  if (adjusted_.max() == Ranking::kNoFloor) {
    reject("logit_bias bans every token the model could choose",
           "Leave at least one token without a bias of -infinity.");
  }
  return adjusted_;
}

void Sampler::add_bias() {
  for (const auto& [id, bias] : params_.logit_bias) {
    float& logit = logits_[id];
    if (logit == Ranking::kNoFloor || bias == Ranking::kNoFloor) {
      logit = Ranking::kNoFloor;
    } else {
      logit = to_finite(static_cast<double>(logit) + bias);
    }
  }
}

void Sampler::penalize(std::span<const int32_t> history) {
  const size_t n = params_.penalty_last_n < 0 ? history.size() : static_cast<size_t>(params_.penalty_last_n);
  const auto window = history.last(std::min(n, history.size()));
  for (const int32_t id : window) {
    if (id < 0 || id >= n_vocab_) {
      reject("the history holds token " + std::to_string(id) + ", but the vocabulary has " + std::to_string(n_vocab_));
    }
  }
  counts_.resize(n_vocab_);
  for (const int32_t id : window) ++counts_[id];
  for (const int32_t id : window) {
    const int32_t count = std::exchange(counts_[id], 0);  // 0: seen already
    float& logit = logits_[id];
    if (count == 0 || logit == Ranking::kNoFloor) continue;
    const double value = logit;
    const double repeated = value > 0 ? value / params_.repeat_penalty : value * params_.repeat_penalty;
    logit = to_finite(repeated - (static_cast<double>(count) * params_.frequency_penalty + params_.presence_penalty));
  }
}

void Sampler::keep_candidates(Ranking& ranking) {
  const auto n_vocab = static_cast<size_t>(n_vocab_);
  const size_t limit = params_.top_k > 0 ? std::min<size_t>(params_.top_k, n_vocab) : n_vocab;
  const double floor = ranking.max() + log_min_p_;  // the best candidate is never below
  if (params_.top_p < 1) {
    keep_nucleus(ranking, limit);
    while (candidates_.back().logit < floor) candidates_.pop_back();
  } else if (limit < n_vocab) {
    ranking.best(limit, floor, candidates_);
  } else {
    ranking.collect(floor, candidates_);
    return;
  }
  std::sort(candidates_.begin(), candidates_.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
}

// Candidates = the top_p part of the best `limit`. Without top_k it guesses how many that takes, and guesses on.
void Sampler::keep_nucleus(Ranking& ranking, size_t limit) {
  constexpr size_t kFirstGuess = 128, kGrowth = 8;
  const bool all = limit == static_cast<size_t>(n_vocab_);
  const auto weight = [&](const Candidate& c) { return exp_nonpositive(static_cast<double>(c.logit) - ranking.max()); };
  double total = all ? mass(ranking.logits(), ranking.max()) : 0;
  for (size_t k = all ? std::min(kFirstGuess, limit) : limit;; k = std::min(k * kGrowth, limit)) {
    ranking.best(k, Ranking::kNoFloor, candidates_);
    if (!all) {
      for (const Candidate& c : candidates_) total += weight(c);
    }
    double sum = 0;
    for (size_t i = 0; i < candidates_.size(); ++i) {
      sum += weight(candidates_[i]);
      if (sum >= params_.top_p * total) {
        candidates_.resize(i + 1);
        return;
      }
    }
    if (k == limit) return;
  }
}

int32_t Sampler::draw(float max, double uniform) {
  weights_.resize(candidates_.size());
  const double temperature = params_.temperature;
  for (size_t i = 0; i < candidates_.size(); ++i) {
    weights_[i] = exp_nonpositive((static_cast<double>(candidates_[i].logit) - max) / temperature);
  }
  double total = 0;
  for (const double w : weights_) total += w;
  const double target = uniform * total;  // < total, and the sum below repeats the one above: the loop always ends
  size_t i = 0;
  for (double sum = weights_[0]; sum <= target; sum += weights_[i]) ++i;
  return candidates_[i].id;
}

void Sampler::add_logprobs(Sampled& result, int n_top) {
  const double log_total = natural_log(mass(raw_.logits(), raw_.max()));
  const auto logprob = [&](float logit) {
    return static_cast<float>(static_cast<double>(logit) - raw_.max() - log_total);
  };
  result.logprob = logprob(raw_.logits()[result.id]);
  if (n_top == 0) return;
  raw_.best(static_cast<size_t>(n_top), Ranking::kNoFloor, candidates_);
  result.top.reserve(candidates_.size());
  for (const Candidate& c : candidates_) result.top.emplace_back(c.id, logprob(c.logit));
}

}  // namespace pllm
