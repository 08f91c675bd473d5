// The steps that drop candidates. Each leaves at least one; a tie at the cut keeps the lower ids.
#include <algorithm>

#include "base/exp_log.h"
#include "sampling/random.h"
#include "sampling/step.h"

namespace pllm {
// Top-n-sigma (Tang et al. 2024): logits within n standard deviations (population) of the largest.
Step make_top_n_sigma(const SamplingParams& p) {
  if (p.top_n_sigma <= 0) return {};
  return [n = static_cast<double>(p.top_n_sigma)](Candidates& candidates, const Draw&) {
    candidates.keep_from(candidates.max() - n * candidates.standard_deviation());
  };
}

// The k largest logits.
Step make_top_k(const SamplingParams& p) {
  if (p.top_k <= 0) return {};
  return [k = static_cast<size_t>(p.top_k)](Candidates& candidates, const Draw&) { candidates.keep_best(k); };
}

// Locally typical (Meister et al. 2023): the fewest tokens that sum to at least typical_p, those first whose surprise
// -ln p is nearest to the entropy; the same order as that of logits around one.
Step make_typical_p(const SamplingParams& p) {
  if (p.typical_p >= 1) return {};
  return [share = static_cast<double>(p.typical_p)](Candidates& candidates, const Draw&) {
    const Softmax& softmax = candidates.softmax();
    const double below = (candidates.entropy() - natural_log(softmax.total)) * candidates.temperature();
    candidates.keep_nearest(softmax.max - below, share);
  };
}

// Nucleus (Holtzman et al. 2019): the fewest tokens of highest probability that sum to at least top_p.
Step make_top_p(const SamplingParams& p) {
  if (p.top_p >= 1) return {};
  return [share = static_cast<double>(p.top_p)](Candidates& candidates, const Draw&) {
    candidates.keep_nearest(candidates.max(), share);
  };
}

// Min-p (Nguyen et al. 2024): the tokens at least min_p times as probable as the best.
Step make_min_p(const SamplingParams& p) {
  if (p.min_p <= 0) return {};
  return [log_min_p = std::min(natural_log(p.min_p), 0.0)](Candidates& candidates, const Draw&) {
    candidates.keep_from(candidates.max() + candidates.temperature() * log_min_p);
  };
}

// XTC (p-e-w 2024): with xtc_probability, of the tokens with a probability of at least xtc_threshold all but the
// least probable are excluded.
Step make_xtc(const SamplingParams& p) {
  if (p.xtc_probability <= 0 || p.xtc_threshold > 0.5F) return {};
  const double probability = p.xtc_probability, threshold = p.xtc_threshold;
  return [=, seed = p.seed](Candidates& candidates, const Draw& draw) {
    if (uniform(seed, draw.choice, draw.pos, Purpose::xtc) >= probability) return;
    candidates.drop_above_last(threshold);
  };
}

}  // namespace pllm
