// What a request asks of the sampler. The chain is told in sampler.h, each family's meaning in the family's header.
#pragma once
#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace pllm {

// A text that no repetition reaches across, as an automaton over tokens: arrows (state, token, next). It begins in
// state 0; where a state has no arrow for a token that of state 0 is taken, and where there is none either state 0 is
// next. A next below 0 says that the token completes the text; state -1 - next follows.
using DryBreaker = std::vector<std::tuple<int32_t, int32_t, int32_t>>;

struct SamplingParams {  // the defaults turn every step off: plain sampling at temperature 1
  std::vector<std::pair<int32_t, float>> logit_bias;  // -infinity bans, +infinity allows these tokens alone
  int min_tokens = 0;                                 // an answer this long may end
  std::vector<int32_t> eog_ids;                       // what ends it

  float repeat_penalty = 1;
  float frequency_penalty = 0;
  float presence_penalty = 0;
  int penalty_last_n = -1;  // -1 = all of the history, 0 = no penalties

  float dry_multiplier = 0;  // 0 = off
  float dry_base = 1.75;
  int dry_allowed_length = 2;
  int dry_penalty_last_n = -1;  // -1 = all of the history, 0 = off
  std::vector<DryBreaker> dry_breakers;

  float top_n_sigma = -1;  // <= 0 = off
  int top_k = 0;           // 0 or -1 = off
  float typical_p = 1;     // [0, 1]; 1 = off
  float top_p = 1;         // [0, 1]; 1 = off
  float min_p = 0;         // [0, 1]; 0 = off
  float xtc_probability = 0;
  float xtc_threshold = 0.1;  // above 0.5 nothing can be excluded
  float temperature = 1;      // <= 0 = greedy
  float dynatemp_range = 0;   // 0 = off
  float dynatemp_exponent = 1;

  int mirostat_mode = 0;  // 0 = off, 1, 2
  float mirostat_tau = 5;
  float mirostat_eta = 0.1;

  std::vector<std::string> samplers;  // names of steps, in the order they are taken
  uint64_t seed = 0;
};

void check(const SamplingParams& params, int n_vocab);  // Error(bad_value) for a parameter out of range

}  // namespace pllm
