// Any parameters, in any order of steps, on any logits: an error, or a token of a distribution that sums to one.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/error.h"
#include "bytes.h"
#include "sampling/sampler.h"

using namespace pllm;

namespace {

// Of parameters: mostly plain, now and then any bits at all.
float number(Bytes& in) {
  switch (in.below(4)) {
    case 0: return in.take<float>();
    case 1: return float(in.take<int8_t>());
    default: return float(in.take<uint8_t>()) / 128;
  }
}

int32_t count(Bytes& in) { return in.flip() ? in.take<int32_t>() : in.take<int8_t>(); }

SamplingParams params_of(Bytes& in, int n_vocab) {
  SamplingParams p;
  for (const std::string& name : step_names())
    if (in.flip()) p.samplers.insert(p.samplers.begin() + ptrdiff_t(in.below(p.samplers.size() + 1)), name);
  const auto id = [&] { return in.below(20) ? int32_t(in.below(size_t(n_vocab))) : in.take<int32_t>(); };
  for (size_t n = in.below(4); n > 0; n--) p.logit_bias.emplace_back(id(), number(in));
  for (size_t n = in.below(3); n > 0; n--) p.eog_ids.push_back(id());
  for (size_t n = in.below(3); n > 0; n--) {
    p.dry_breakers.emplace_back();
    for (size_t m = in.below(4); m > 0; m--)
      p.dry_breakers.back().emplace_back(int32_t(in.below(3)), id(), int32_t(in.below(5)) - 2);
  }
  for (float* field : {&p.repeat_penalty, &p.frequency_penalty, &p.presence_penalty, &p.dry_multiplier, &p.dry_base,
                       &p.top_n_sigma, &p.typical_p, &p.top_p, &p.min_p, &p.xtc_probability, &p.xtc_threshold,
                       &p.temperature, &p.dynatemp_range, &p.dynatemp_exponent, &p.mirostat_tau, &p.mirostat_eta})
    if (in.below(3) == 0) *field = number(in);
  for (int* field : {&p.min_tokens, &p.penalty_last_n, &p.dry_allowed_length, &p.dry_penalty_last_n, &p.top_k})
    if (in.below(3) == 0) *field = count(in);
  if (in.below(3) == 0) p.mirostat_mode = int(in.below(4));
  p.seed = in.take<uint32_t>();
  return p;
}

std::vector<float> logits_of(Bytes& in, int n) {
  std::vector<float> logits(static_cast<size_t>(n));
  const bool any_bits = in.below(8) == 0;
  for (float& x : logits) x = any_bits ? in.take<float>() : float(in.take<int8_t>()) / 8;
  for (size_t k = in.below(4); k > 0; k--) logits[in.below(logits.size())] = -std::numeric_limits<float>::infinity();
  return logits;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Bytes in(data, size);
  const int n_vocab = 1 + int(in.below(in.flip() ? 300 : 12));
  try {
    Sampler sampler(params_of(in, n_vocab), n_vocab);
    std::vector<int32_t> history(in.below(40));
    for (int32_t& token : history) token = int32_t(in.below(size_t(std::min(n_vocab, 4))));
    for (uint64_t pos = 0; pos < 3; pos++) {
      const std::vector<float> logits = logits_of(in, n_vocab);
      const Draw draw{{history, history.size() / 2}, pos, 0};
      const auto distribution = sampler.distribution(logits, draw);
      const Sampled sampled = sampler.sample(logits, draw, 3);
      double total = 0;
      bool among = false;
      for (const auto& [id, probability] : distribution) {
        among |= id == sampled.id;
        total += probability;
        CHECK(id >= 0 && id < n_vocab && probability >= 0);
      }
      CHECK(among && std::abs(total - 1) < 1e-9);
      history.push_back(sampled.id);
    }
  } catch (const Error& error) {
    CHECK((error.kind() == ErrorKind::bad_value || error.kind() == ErrorKind::internal) && *error.what() != 0);
  }
  return finished();
}
