// Rotary position embedding: frequencies once a model, cos and sin once a step.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "model/hparams.h"

namespace pllm {

// (n_rot / 2) inverse frequencies and the magnitude of the rotation. Su et al. 2021 (arXiv 2104.09864); linear scaling:
// Chen et al. 2023 (2306.15595); yarn: Peng et al. 2023 (2309.00071); llama3 and
// longrope (Ding et al. 2024, 2402.13753): `factors` from the file divide.
struct RopeFrequencies {
  std::vector<float> inv_freq;  // float32, as the models were trained
  float magnitude = 1;
};
RopeFrequencies rope_frequencies(int n_rot, float base, const RopeScaling& scaling, std::span<const float> factors);

// cos_sin (positions.size(), n_rot / 2, 2). The angle is the float32 product position * frequency, as in training.
void rope_table(const RopeFrequencies& f, std::span<const int32_t> positions, std::vector<float>& cos_sin);

}  // namespace pllm
