#include "model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/exp_log.h"

namespace pllm {
namespace {

// The (fractional) dimension pair that turns `rotations` times over the original context.
double yarn_dimension(double rotations, int n_rot, double base, int n_ctx_orig) {
  return n_rot * natural_log(n_ctx_orig / (rotations * 2 * std::numbers::pi)) / (2 * natural_log(base));
}

void apply_yarn(RopeFrequencies& f, int n_rot, float base, const RopeScaling& s) {
  double low = yarn_dimension(s.beta_fast, n_rot, base, s.n_ctx_orig);
  double high = yarn_dimension(s.beta_slow, n_rot, base, s.n_ctx_orig);
  if (s.whole_pairs) low = std::floor(low), high = std::ceil(high);
  low = std::max(0.0, low), high = std::min(n_rot - 1.0, high);
  for (int i = 0; i < n_rot / 2; i++) {
    const double ramp = std::clamp((i - low) / std::max(0.001, high - low), 0.0, 1.0);  // 0: keep, 1: interpolate
    f.inv_freq[size_t(i)] = float(f.inv_freq[size_t(i)] * ((1 - ramp) + ramp / s.factor));
  }
  if (s.factor > 1) f.magnitude *= float(0.1 * natural_log(double(s.factor)) + 1);
}

}  // namespace

RopeFrequencies rope_frequencies(int n_rot, float base, const RopeScaling& scaling, std::span<const float> factors) {
  RopeFrequencies f;
  f.magnitude = scaling.attn_factor;
  for (int i = 0; i < n_rot / 2; i++) {
    float v = float(1.0 / power(double(base), 2.0 * i / n_rot));
    if (!factors.empty()) v /= factors[size_t(i)];
    if (scaling.kind == RopeScaling::Kind::linear) v /= scaling.factor;
    f.inv_freq.push_back(v);
  }
  if (scaling.kind == RopeScaling::Kind::yarn) apply_yarn(f, n_rot, base, scaling);
  return f;
}

void rope_table(const RopeFrequencies& f, std::span<const int32_t> positions, std::vector<float>& cos_sin) {
  cos_sin.resize(positions.size() * f.inv_freq.size() * 2);
  float* out = cos_sin.data();
  for (const int32_t pos : positions) {
    for (const float inv_freq : f.inv_freq) {
      const float angle = float(pos) * inv_freq;
      const SinCos turn = sin_cos(double(angle));
      *out++ = float(turn.cos) * f.magnitude;
      *out++ = float(turn.sin) * f.magnitude;
    }
  }
}

}  // namespace pllm
