// DRY ("don't repeat yourself", p-e-w 2024): a token that would continue a repetition of L >= allowed_length tokens
// loses multiplier * base^(L - allowed_length). The repetition is of the end of the last dry_penalty_last_n tokens of
// prompt and answer; L is the longest. It does not reach across a breaker, and a token that is one by itself is never
// penalized. Linear in the history.
#include <algorithm>
#include <limits>
#include <unordered_map>
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

// A breaker that may be spread over tokens.
class Spread {
 public:
  explicit Spread(const DryBreaker& breaker) {
    for (const auto& [state, token, next] : breaker) {
      next_[key(state, token)] = next;
      n_states_ = std::max<size_t>(n_states_, state + size_t{1});
    }
  }

  // How many of the last `reach` tokens come after the breaker's last end.
  size_t since(std::span<const int32_t> tokens, size_t reach) const {
    const size_t n = tokens.size(),
                 seen = std::min(n, reach + n_states_);  // more cannot be part of one that ends there
    int32_t state = 0;
    for (size_t left = seen; left > 0; --left) {
      const int32_t next = after(state, tokens[n - left]);
      if (next < 0) reach = std::min(reach, left - 1);
      state = next < 0 ? -1 - next : next;
    }
    return reach;
  }

 private:
  static uint64_t key(int32_t state, int32_t token) { return uint64_t(state) << 32 | uint32_t(token); }
  int32_t after(int32_t state, int32_t token) const {
    auto found = next_.find(key(state, token));
    if (found == next_.end() && state != 0) found = next_.find(key(0, token));
    return found == next_.end() ? 0 : found->second;
  }

  std::unordered_map<uint64_t, int32_t> next_;  // by state and token
  size_t n_states_ = 1;
};

class Dry {
 public:
  Dry(const SamplingParams& p, int n_vocab) : p_(p), n_vocab_(n_vocab), breaks_(n_vocab), longest_(n_vocab) {
    for (const DryBreaker& breaker : p.dry_breakers) {
      bool spreads = false;
      for (const auto& [state, token, next] : breaker) {
        if (state == 0 && next < 0) breaks_[token] = true;
        spreads |= state != 0 || next > 0;
      }
      if (spreads) spread_.emplace_back(breaker);
    }
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
    for (const Spread& breaker : spread_) reach = breaker.since(tokens, reach);
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

  SamplingParams p_;
  int n_vocab_;
  std::vector<bool> breaks_;  // [n_vocab] tokens that are breakers by themselves
  std::vector<Spread> spread_;
  std::vector<size_t> longest_;  // [n_vocab] zero between calls
  std::vector<size_t> matches_;  // [tokens]
};

}  // namespace

Step make_dry(const SamplingParams& p, int n_vocab) {
  if (p.dry_multiplier == 0 || p.dry_penalty_last_n == 0) return {};
  return Dry(p, n_vocab);
}

}  // namespace pllm
