#include "sampling/params.h"

#include <cmath>
#include <limits>

#include "base/error.h"

namespace pllm {
namespace {

[[noreturn]] void reject(const std::string& message, const std::string& hint) {
  throw Error(ErrorKind::bad_value, message, hint);
}

void require(bool ok, const char* name, double value, const char* range) {
  if (!ok) reject(std::string(name) + " = " + std::to_string(value) + " is out of range", std::string("Give ") + range);
}

void check_share(float value, const char* name, const char* range) {
  require(value >= 0 && value <= 1, name, value, range);
}

void check_token(int32_t id, int n_vocab, const char* name) {
  if (id >= 0 && id < n_vocab) return;
  reject(
      std::string(name) + " names token " + std::to_string(id) + ", but the vocabulary has " + std::to_string(n_vocab),
      "Give ids of this model's vocabulary.");
}

void check_penalties(const SamplingParams& p) {
  require(p.repeat_penalty > 0 && std::isfinite(p.repeat_penalty), "repeat_penalty", p.repeat_penalty,
          "a positive number; 1 turns it off");
  require(std::isfinite(p.frequency_penalty), "frequency_penalty", p.frequency_penalty, "a finite number");
  require(std::isfinite(p.presence_penalty), "presence_penalty", p.presence_penalty, "a finite number");
  require(p.penalty_last_n >= -1, "penalty_last_n", p.penalty_last_n, "0 or more tokens, or -1 for all");
  require(p.dry_multiplier >= 0 && std::isfinite(p.dry_multiplier), "dry_multiplier", p.dry_multiplier,
          "a number of 0 or more; 0 turns it off");
  require(p.dry_base >= 1 && std::isfinite(p.dry_base), "dry_base", p.dry_base, "a number of 1 or more");
  require(p.dry_allowed_length >= 1, "dry_allowed_length", p.dry_allowed_length, "1 token or more");
  require(p.dry_penalty_last_n >= -1, "dry_penalty_last_n", p.dry_penalty_last_n, "0 or more tokens, or -1 for all");
}

void check_cuts(const SamplingParams& p) {
  require(!std::isnan(p.top_n_sigma), "top_n_sigma", p.top_n_sigma, "a number; 0 or less turns it off");
  require(p.top_k >= -1, "top_k", p.top_k, "a positive number; 0 or -1 turns it off");
  check_share(p.typical_p, "typical_p", "a number from 0 to 1; 1 turns it off");
  check_share(p.top_p, "top_p", "a number from 0 to 1; 1 turns it off");
  check_share(p.min_p, "min_p", "a number from 0 to 1; 0 turns it off");
  check_share(p.xtc_probability, "xtc_probability", "a number from 0 to 1; 0 turns it off");
  check_share(p.xtc_threshold, "xtc_threshold", "a number from 0 to 1; above 0.5 turns it off");
}

void check_heat(const SamplingParams& p) {
  require(std::isfinite(p.temperature), "temperature", p.temperature, "a finite number; 0 or less is greedy");
  require(p.dynatemp_range >= 0 && std::isfinite(p.dynatemp_range), "dynatemp_range", p.dynatemp_range,
          "a number of 0 or more; 0 turns it off");
  require(p.dynatemp_exponent >= 0 && std::isfinite(p.dynatemp_exponent), "dynatemp_exponent", p.dynatemp_exponent,
          "a number of 0 or more");
  require(p.mirostat_mode >= 0 && p.mirostat_mode <= 2, "mirostat_mode", p.mirostat_mode, "0 (off), 1 or 2");
  require(p.mirostat_tau >= 0 && std::isfinite(p.mirostat_tau), "mirostat_tau", p.mirostat_tau,
          "a number of 0 or more");
  require(p.mirostat_eta >= 0 && std::isfinite(p.mirostat_eta), "mirostat_eta", p.mirostat_eta,
          "a number of 0 or more");
}

}  // namespace

void check(const SamplingParams& p, int n_vocab) {
  if (n_vocab < 1) reject("n_vocab = " + std::to_string(n_vocab), "A vocabulary has at least one token.");
  check_penalties(p);
  check_cuts(p);
  check_heat(p);
  require(p.min_tokens >= 0, "min_tokens", p.min_tokens, "0 tokens or more");
  for (const int32_t id : p.eog_ids) check_token(id, n_vocab, "eog_ids");
  for (const auto& breaker : p.dry_breakers) {
    for (const auto& [state, id, next] : breaker) {
      check_token(id, n_vocab, "dry_breakers");
      if (state < 0) reject("dry_breakers has a state of " + std::to_string(state), "States are counted from 0.");
    }
  }
  for (const auto& [id, bias] : p.logit_bias) {
    check_token(id, n_vocab, "logit_bias");
    if (std::isnan(bias)) {
      reject("logit_bias of token " + std::to_string(id) + " is NaN",
             "Give a finite number, -infinity to ban the token or +infinity to allow no other.");
    }
  }
}

}  // namespace pllm
