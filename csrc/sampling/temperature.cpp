// Temperature divides the logits. With dynatemp_range (as in llama.cpp) it lies between temperature - range (0 at the
// lowest) and temperature + range, at (entropy / largest entropy possible)^exponent of the way.
#include <algorithm>

#include "base/exp_log.h"
#include "sampling/step.h"

namespace pllm {

Step make_temperature(const SamplingParams& p) {
  const double temperature = p.temperature, range = p.dynatemp_range, exponent = p.dynatemp_exponent;
  if (range == 0) {
    if (temperature == 1) return {};
    return [=](Candidates& candidates, const Draw&) { candidates.heat(temperature); };
  }
  const double lowest = std::max(0.0, temperature - range), highest = temperature + range;
  return [=](Candidates& candidates, const Draw&) {
    const auto n = static_cast<double>(candidates.n_possible());
    const double relative = n > 1 ? std::min(candidates.entropy() / natural_log(n), 1.0) : 0.0;
    const double chosen = lowest + (highest - lowest) * power(relative, exponent);
    if (chosen > 0) {
      candidates.heat(chosen);
    } else {
      candidates.keep_best(1);
    }
  };
}

}  // namespace pllm
