// The forward pass: embed, layers, output, through Backend alone.
#pragma once
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "model/model.h"
#include "tensor/mat.h"

namespace pllm {

// Told of each named intermediate, in the order they are computed: (n, cols), valid during the call. layer -1: of none.
using Tap = std::function<void(std::string_view name, int layer, Mat values)>;

// One step's work: rows of one or several sequences, each at consecutive positions.
struct Batch {
  std::span<const int32_t> tokens;          // (n)
  std::span<const int32_t> positions;       // (n)
  std::span<const SequenceRows> sequences;  // cover the n rows
  std::span<const int32_t> output_rows;     // rows whose logits or hidden states are wanted, ascending
  int n_ctx;                                // what the sequences may grow to: decides longrope's frequencies
  KvTypes kv_types;                         // of the sequences' pages
  const Tap* tap = nullptr;
};

// Rows spread over experts. A slot is one (token, expert): n * n_expert_used of them, those of an expert side by side.
struct ExpertBuffers {
  MatBuffer logits;             // (n, n_expert)
  MatBuffer factors;            // (n, n_expert_used), and a column more for the shared expert
  MatBuffer x;                  // (slots, n_embd)
  MatBuffer g, u;               // (slots, n_ff_expert)
  MatBuffer y;                  // (slots, n_embd), and n rows more of the shared expert
  std::vector<int32_t> chosen;  // (n, n_expert_used): expert ids, the best first
  std::vector<int32_t> first;   // (n_expert + 1): an expert's slots
  std::vector<int32_t> token;   // (slots)
  std::vector<int32_t> slot;    // (n, factors.cols): the row of y
  std::vector<Product> products;
  std::vector<Group> groups;
};

// Activations of a step, kept from step to step. Shapes for n rows:
struct Buffers {
  MatBuffer x, h, y;                           // (n, n_embd): residual, normed, branch output
  MatBuffer q, k, v;                           // (n, n_head | n_head_kv * head_dim)
  MatBuffer att;                               // (n, n_head * head_dim_v)
  MatBuffer g, u;                              // (n, n_ff)
  MatBuffer out;                               // (output rows, n_embd)
  std::vector<float> rope_global, rope_local;  // (n, n_rot / 2, 2)
  ExpertBuffers experts;
};

// What a step gives back: logits, or the hidden states they would be made of, after the output norm.
enum class Output : uint8_t { logits, hidden };

// result (batch.output_rows.size(), n_vocab | n_embd). Keys and values of the batch are written to its pages.
void forward(const Model& model, Buffers& buffers, const Batch& batch, Output output, Mat result);

}  // namespace pllm
