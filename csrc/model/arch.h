// What a GGUF file does not say about itself, one row an architecture.
//
// Precedence: metadata > which tensors are present, and their shapes > the row > the row's derive hook. From presence:
// biases, q/k norms (of a head, each head's own, or of the whole row), post norms, a gated or plain feed-forward,
// experts, fused projections, learned positions, attention sinks, tied output; a row names those of them that its
// models cannot lack.
#pragma once
#include <span>
#include <string>
#include <string_view>

#include "backend/backend.h"
#include "model/hparams.h"

namespace pllm {

// The norms before a layer's two branches. Which of them are missing is no matter of chance: a file without one that
// its architecture has is broken.
enum class PreNorms : uint8_t {
  both,
  shared,  // ffn_norm may be missing: the feed-forward reads what attention reads (parallel residual)
  none,    // branches read the residual itself; their outputs are normed
};

struct Arch {
  std::string_view name;    // general.architecture
  std::string_view models;  // by the names people know
  RopeStyle rope = RopeStyle::half_split;
  NormKind norm = NormKind::rms;
  PreNorms pre_norms = PreNorms::both;
  ActivationFn activation = ActivationFn::silu;
  bool learned_positions = false;                // in place of rope
  bool normed_expert_weights = true;             // those of the experts used add up to one
  std::span<const std::string_view> needs = {};  // tensors of every layer beyond those that all models have
  // Whether attention.sliding_window is obeyed. Some converters write the key for models whose window is off or was
  // never used in practice (Mistral 7B v0.1, Qwen2); llama.cpp ignores it for those architectures, and so do we: the
  // same file gives the same tokens.
  bool sliding_window = false;
  void (*derive)(Hparams&) = nullptr;  // values computed from other values; fills only what the metadata left open
};

std::span<const Arch> architectures();

// The row of that name. Error unsupported_model otherwise: lists the rows, and for files that are no language model
// (projectors, adapters, vocabularies, diffusion …) says what the file is. `type` is general.type, may be empty.
const Arch& find_arch(std::string_view name, std::string_view type);

}  // namespace pllm
