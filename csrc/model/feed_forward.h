// The second branch of a layer: dense, or spread over experts.
#pragma once
#include "model/forward.h"

namespace pllm {

// out (n, n_embd) = down(act(gate in) * up in), or down(act(up in)) without a gate. in and out may not overlap.
void feed_forward(const Model& model, Buffers& buffers, const FeedForward& f, Mat in, Mat out);

// The same over the experts that the router chooses for each row (moe.cpp).
void expert_feed_forward(const Model& model, Buffers& buffers, const Experts& experts, Mat in, Mat out);

}  // namespace pllm
