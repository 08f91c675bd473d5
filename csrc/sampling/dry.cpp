// DRY ("don't repeat yourself", p-e-w 2024): a token that would continue a repetition of L >= allowed_length tokens
// loses multiplier * base^(L - allowed_length). The repetition is of the end of the last dry_penalty_last_n tokens of
// prompt and answer; L is the longest. It does not reach across a breaker, and a breaker of one token is never
// penalized. Linear in the history.
#include <algorithm>
#include <limits>
#include <utility>

#include "sampling/step.h"

namespace pllm {
namespace {

// base^n, at most the largest float.
double integer_power(double base, size_t n) {
  constexpr double kLargest = std::numeric_limits<float>::max();
  double result = 1;
  for (; n > 0 && result < kLargest; n /= 2) {
    if (n % 2 == 1) result *= base;
    base = std::min(base * base, kLargest);
  }
  return std::min(result, kLargest);
}

class Dry {
 public:
  Dry(const SamplingParams& p, int n_vocab) : p_(p), n_vocab_(n_vocab), breaks_(n_vocab), longest_(n_vocab) {
    for (const auto& breaker : p_.dry_breakers) {
      if (breaker.size() == 1) breaks_[breaker[0]] = true;
    }
    std::erase_if(p_.dry_breakers, [](const auto& breaker) { return breaker.size() == 1; });
  }

  void operator()(Candidates& candidates, const Draw& draw) {
    const auto tokens = draw.history.last(p_.dry_penalty_last_n, n_vocab_);
    const size_t n = tokens.size(), reach = since_breaker(tokens), allowed = p_.dry_allowed_length;
    if (reach < allowed) return;
    match_lengths(tokens);
    for (size_t i = 1; i < n; ++i) {  // where the end occurs i tokens earlier, tokens[n - i] followed it
      const int32_t next = tokens[n - i];
      if (!breaks_[next]) longest_[next] = std::max(longest_[next], std::min(matches_[i], reach));
    }
    const double unit = p_.dry_multiplier * candidates.temperature();  // as in the penalties
    for (const int32_t id : tokens) {
      const size_t length = std::exchange(longest_[id], 0);
      if (length < allowed) continue;
      const double penalty = unit * integer_power(p_.dry_base, length - allowed);
      candidates.change(id, [&](double logit) { return logit - penalty; });
    }
  }

 private:
  // How many tokens there are after the last breaker.
  size_t since_breaker(std::span<const int32_t> tokens) const {
    const auto last = std::find_if(tokens.rbegin(), tokens.rend(), [&](int32_t id) { return breaks_[id]; });
    size_t reach = last - tokens.rbegin();
    for (const auto& breaker : p_.dry_breakers) {
      const auto found = std::find_end(tokens.begin(), tokens.end(), breaker.begin(), breaker.end());
      if (found != tokens.end()) reach = std::min<size_t>(reach, tokens.end() - found - breaker.size());
    }
    return reach;
  }

  // matches_[i]: how many tokens, read backwards from the i-th before the last, equal those from the last. The Z
  // function of the reversed tokens.
  void match_lengths(std::span<const int32_t> tokens) {
    const size_t n = tokens.size();
    matches_.assign(n, 0);
    for (size_t i = 1, begin = 0, end = 0; i < n; ++i) {  // [begin, end) is the match that reaches farthest
      size_t length = i < end ? std::min(end - i, matches_[i - begin]) : 0;
      while (i + length < n && tokens[n - 1 - length] == tokens[n - 1 - i - length]) ++length;
      matches_[i] = length;
      if (i + length > end) {
        begin = i;
        end = i + length;
      }
    }
  }

  SamplingParams p_;  // its breakers are those of several tokens
  int n_vocab_;
  std::vector<bool> breaks_;     // [n_vocab] breakers of one token
  std::vector<size_t> longest_;  // [n_vocab] zero between calls
  std::vector<size_t> matches_;  // [tokens]
};

}  // namespace

Step make_dry(const SamplingParams& p, int n_vocab) {
  if (p.dry_multiplier == 0 || p.dry_penalty_last_n == 0) return {};
  return Dry(p, n_vocab);
}

}  // namespace pllm
