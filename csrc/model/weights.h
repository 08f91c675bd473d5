// A model's weights on one backend, by the names GGUF files use. Shapes are (rows, cols).
#pragma once
#include <memory>
#include <vector>

#include "backend/backend.h"
#include "gguf/file.h"
#include "model/arch.h"
#include "model/hparams.h"

namespace pllm {

using WeightPtr = std::unique_ptr<Weight>;  // null: this model has no such tensor

struct FeedForward {
  WeightPtr gate, up, b_gate, b_up;  // (n_ff, n_embd); gate null: a plain feed-forward
  WeightPtr down, b_down;            // (n_embd, n_ff)
};

struct Experts {
  WeightPtr router, b_router;  // (n_expert, n_embd)
  std::vector<FeedForward> by_id;
  FeedForward shared;       // every token goes there too; empty: none
  WeightPtr shared_router;  // (1, n_embd); null: its output counts in full
};

struct Layer {
  WeightPtr attn_norm, attn_norm_bias;  // (n_embd); null: attention reads the residual itself
  WeightPtr wq, wk, wv;                 // (n_head | n_head_kv * head_dim, n_embd)
  WeightPtr bq, bk, bv;                 // their rows
  WeightPtr q_norm, k_norm;             // (head_dim), (n_head | n_head_kv, head_dim) or (n_head | n_head_kv * head_dim)
  WeightPtr sinks;                      // (n_head)
  WeightPtr wo, bo;                     // (n_embd, n_head * head_dim_v)
  WeightPtr attn_post_norm;             // (n_embd)
  WeightPtr ffn_norm, ffn_norm_bias;    // (n_embd); null: the feed-forward reads what attention reads
  bool parallel = false;                // the feed-forward reads the layer's input, not attention's result
  FeedForward ffn;
  std::unique_ptr<Experts> experts;  // in place of ffn
  WeightPtr ffn_post_norm;           // (n_embd)
};

struct Weights {
  WeightPtr token_embd;     // (n_vocab, n_embd)
  WeightPtr position_embd;  // (positions, n_embd); null: positions are rotations
  std::vector<Layer> layers;
  WeightPtr output_norm, output_norm_bias;  // (n_embd)
  WeightPtr output;                         // (n_vocab, n_embd); null: tied to token_embd
  std::vector<float> rope_factors;          // (n_rot / 2) divisors of the frequencies (llama3, longrope), or empty
  std::vector<float> rope_factors_long;     // the same for a context longer than the first one trained (longrope)
  size_t bytes = 0;                         // memory taken

  bool in_file() const { return token_embd->in_file || (position_embd && position_embd->in_file); }

  const Weight& head() const { return output ? *output : *token_embd; }
};

// Uploads all tensors and sets h.n_vocab. Errors: missing_tensor, bad_shape, unsupported_model (a tensor's format),
// bad_file (it is written to meanwhile).
Weights load_weights(const gguf::File& file, const Arch& arch, Hparams& h, Backend& backend);

// Bytes the weights will take, from the tensor index alone.
size_t weight_bytes(const gguf::File& file);

}  // namespace pllm
