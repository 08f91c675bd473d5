// Random parameters in random orders, for the sanitizers: what is drawn is in the distribution, which sums to one.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <random>
#include <vector>

#include "check.h"
#include "sampling/sampler.h"

using namespace pllm;

namespace {

std::mt19937 generator(1);

double between(double low, double high) { return std::uniform_real_distribution<double>(low, high)(generator); }
int below(int n) { return static_cast<int>(generator() % static_cast<unsigned>(n)); }
bool coin() { return below(2) == 1; }

std::vector<float> random_logits(int n) {
  std::vector<float> logits(n);
  const double spread = below(4) == 0 ? 0 : between(0, 20);
  const bool ties = coin();
  for (float& x : logits) {
    const double value = spread * std::normal_distribution<double>(0, 1)(generator);
    x = below(10) == 0 ? -std::numeric_limits<float>::infinity() : static_cast<float>(ties ? std::round(value) : value);
  }
  logits[below(n)] = 1;
  return logits;
}

SamplingParams random_params(int n_vocab) {
  SamplingParams p;
  p.samplers = step_names();
  std::shuffle(p.samplers.begin(), p.samplers.end(), generator);
  p.samplers.resize(below(static_cast<int>(p.samplers.size()) + 1));
  if (coin()) p.top_k = below(50);
  if (coin()) p.top_p = static_cast<float>(between(0, 1));
  if (coin()) p.typical_p = static_cast<float>(between(0, 1));
  if (coin()) p.min_p = static_cast<float>(between(0, 1));
  if (coin()) p.top_n_sigma = static_cast<float>(between(0, 3));
  if (coin()) p.xtc_probability = 1;
  p.xtc_threshold = static_cast<float>(between(0, 0.5));
  if (coin()) p.dynatemp_range = static_cast<float>(between(0, 2));
  if (coin()) p.temperature = static_cast<float>(between(0, 3));
  if (coin()) p.dry_multiplier = static_cast<float>(between(0, 2));
  p.dry_breakers = {{{0, 0, -1}}, {{0, n_vocab - 1, 1}, {1, 0, -1}}};
  if (coin()) p.repeat_penalty = 1.2F;
  if (coin()) p.presence_penalty = 0.3F;
  p.mirostat_mode = below(3);
  p.seed = generator();
  return p;
}

void draws_are_from_the_distribution() {
  for (int round = 0; round < 800; ++round) {
    const int n_vocab = 1 + below(round % 10 == 0 ? 9000 : 700);
    Sampler sampler(random_params(n_vocab), n_vocab);
    std::vector<int32_t> history(below(80));
    for (int32_t& token : history) token = below(std::min(n_vocab, 5));
    for (uint64_t pos = 0; pos < 3; ++pos) {
      const std::vector<float> logits = random_logits(n_vocab);
      const Draw draw{{history, history.size() / 2}, pos, 0};
      const auto distribution = sampler.distribution(logits, draw);
      const Sampled sampled = sampler.sample(logits, draw, 3);
      bool among = false;
      double total = 0;
      for (const auto& [id, probability] : distribution) {
        among |= id == sampled.id;
        total += probability;
      }
      CHECK(among);
      CHECK(std::abs(total - 1) < 1e-9);
    }
  }
}

}  // namespace

int main() {
  draws_are_from_the_distribution();
  std::printf("%d failed\n", failures);
  return failures != 0;
}
