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

struct Layer {
  WeightPtr attn_norm, attn_norm_bias;  // (n_embd)
  WeightPtr wq, wk, wv;                 // (n_head | n_head_kv * head_dim, n_embd)
  WeightPtr bq, bk, bv;                 // their rows
  WeightPtr q_norm, k_norm;             // (head_dim)
  WeightPtr wo, bo;                     // (n_embd, n_head * head_dim_v)
  WeightPtr attn_post_norm;             // (n_embd), gemma
  WeightPtr ffn_norm, ffn_norm_bias;    // (n_embd)
  WeightPtr gate, up, b_gate, b_up;     // (n_ff, n_embd)
  WeightPtr down, b_down;               // (n_embd, n_ff)
  WeightPtr ffn_post_norm;              // (n_embd), gemma
};

struct Weights {
  WeightPtr token_embd;  // (n_vocab, n_embd)
  std::vector<Layer> layers;
  WeightPtr output_norm, output_norm_bias;  // (n_embd)
  WeightPtr output;                         // (n_vocab, n_embd); null: tied to token_embd
  std::vector<float> rope_factors;          // (n_rot / 2) divisors of the frequencies (llama3), or empty

  const Weight& head() const { return output ? *output : *token_embd; }
  size_t bytes() const;  // memory taken beside the file's own pages
};

// Uploads all tensors and sets h.n_vocab. Errors: missing_tensor, bad_shape, unsupported_model (a tensor's format).
Weights load_weights(const gguf::File& file, const Arch& arch, Hparams& h, Backend& backend);

// Bytes the weights will take, from the tensor index alone.
size_t weight_bytes(const gguf::File& file);

}  // namespace pllm
