// A model's numbers, read from GGUF metadata with the same keys for every architecture.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "gguf/file.h"

namespace pllm {

struct RopeScaling {
  enum class Kind : uint8_t { none, linear, yarn, longrope } kind = Kind::none;  // longrope: by tensors, as llama3
  float factor = 1;                                                              // context is stretched by this
  int n_ctx_orig = 0;     // yarn: context the model was first trained with
  float attn_factor = 1;  // multiplies the magnitude of q and k; with yarn on top of 0.1 ln(factor) + 1
  float beta_fast = 32, beta_slow = 1;
  bool whole_pairs = true;  // yarn: the pairs between which its ramp runs are rounded outwards
};

struct Hparams {
  std::string arch;
  int n_layer = 0, n_embd = 0, n_head = 0, n_head_kv = 0, n_ff = 0;
  int n_expert = 0, n_expert_used = 0;   // 0: no layer has experts
  int n_ff_expert = 0, n_ff_shared = 0;  // of one expert, and of those that every token goes to
  bool normed_expert_weights = true;     // those of the experts used add up to one
  int head_dim_k = 0, head_dim_v = 0;
  int n_vocab = 0;  // rows of the token embedding
  int n_ctx_train = 0;
  int n_rot = 0;  // rotated dimensions of a head
  float norm_eps = 0;
  float rope_base = 10000;
  float rope_base_local = 0;  // in sliding-window layers; 0: the same
  RopeScaling rope_scaling;   // not in layers that have rope_base_local
  int window = 0;             // sliding window of local layers, 0: none
  int window_period = 0;      // every window_period-th layer is global; 0: all layers are local when there is a window
  int no_rope_period = 0;     // every no_rope_period-th layer is without positions; 0: none
  bool parallel_residual = false;  // both branches read the layer's input, each through its own norm
  std::vector<bool> local_layers;  // said layer by layer in the file; empty: by window_period
  float embed_scale = 0;           // of the embeddings; 0: none
  float residual_scale = 1;        // of each branch's output
  float logit_scale = 1;
  float attn_scale = 0;                       // of q k; 0: 1 / sqrt(head_dim_k)
  float attn_softcap = 0, logit_softcap = 0;  // 0: none

  bool is_local(int layer) const {
    if (window == 0) return false;
    if (!local_layers.empty()) return local_layers[size_t(layer)];
    return window_period == 0 || (layer + 1) % window_period != 0;
  }
  bool has_rope(int layer) const { return no_rope_period == 0 || (layer + 1) % no_rope_period != 0; }
};

// Reads and validates the metadata (not the tensors); the architecture's row decides nothing here but its derive hook.
Hparams read_hparams(const gguf::File& file);

}  // namespace pllm
