#include "model/arch.h"

#include <cmath>

#include "base/error.h"

namespace pllm {
namespace {

using namespace std::string_view_literals;

constexpr std::string_view kLlamaNeeds[] = {"ffn_gate.weight"sv};
constexpr std::string_view kQwen2Needs[] = {"ffn_gate.weight"sv, "attn_q.bias"sv, "attn_k.bias"sv, "attn_v.bias"sv};
constexpr std::string_view kQwen3Needs[] = {"ffn_gate.weight"sv, "attn_q_norm.weight"sv, "attn_k_norm.weight"sv};
constexpr std::string_view kGemma3Needs[] = {"ffn_gate.weight"sv, "attn_q_norm.weight"sv, "attn_k_norm.weight"sv,
                                             "post_attention_norm.weight"sv, "post_ffw_norm.weight"sv};

constexpr Arch kArchs[] = {
    // Llama 1-3, Mistral, SmolLM2, TinyLlama
    {.name = "llama", .rope = RopeStyle::interleaved, .needs = kLlamaNeeds},
    {.name = "qwen2", .needs = kQwen2Needs},
    {.name = "qwen3", .needs = kQwen3Needs},
    {.name = "gemma3",
     .activation = ActivationFn::gelu_tanh,
     .needs = kGemma3Needs,
     .sliding_window = true,
     .derive =
         [](Hparams& h) {
           if (!h.embed_scale) h.embed_scale = std::sqrt(float(h.n_embd));
           if (h.window && !h.window_period) h.window_period = 6;
           if (!h.rope_base_local) h.rope_base_local = 10000;
           if (!h.attn_scale && h.n_layer == 62)  // 27B: scaled by n_embd / n_head, which is not its head_dim
             h.attn_scale = 1 / std::sqrt(float(h.n_embd) / float(h.n_head));
         }},
};

// Files with general.architecture or general.type of another kind of thing, and what to say about them.
struct OtherKind {
  std::string_view name, what;
};
constexpr OtherKind kOtherArchs[] = {
    {"clip", "a multimodal projector (mmproj): it goes beside a language model and answers nothing by itself"},
    {"mmproj", "a multimodal projector (mmproj): it goes beside a language model and answers nothing by itself"},
    {"flux", "a diffusion (image) model"},
    {"sd1", "a diffusion (image) model"},
    {"sdxl", "a diffusion (image) model"},
    {"sd3", "a diffusion (image) model"},
    {"lumina2", "a diffusion (image) model"},
    {"qwen_image", "a diffusion (image) model"},
    {"wan", "a diffusion (video) model"},
    {"ltxv", "a diffusion (video) model"},
    {"hyvid", "a diffusion (video) model"},
    {"dream", "a diffusion language model, which this engine does not run"},
    {"llada", "a diffusion language model, which this engine does not run"},
    {"whisper", "a speech recognition model"},
    {"wavtokenizer-dec", "an audio decoder"},
    {"bert", "a text encoder for embeddings"},
    {"nomic-bert", "a text encoder for embeddings"},
    {"imatrix", "an importance matrix for quantizing, not a model"},
};
constexpr OtherKind kOtherTypes[] = {
    {"adapter", "a LoRA adapter: it changes a base model and answers nothing by itself"},
    {"mmproj", "a multimodal projector (mmproj): it goes beside a language model and answers nothing by itself"},
    {"vocab", "a vocabulary without weights"},
    {"imatrix", "an importance matrix for quantizing, not a model"},
};

std::string_view what_it_is(std::string_view name, std::string_view type) {
  for (const auto& k : kOtherTypes)
    if (k.name == type) return k.what;
  for (const auto& k : kOtherArchs)
    if (k.name == name) return k.what;
  return {};
}

}  // namespace

std::span<const Arch> architectures() { return kArchs; }

const Arch& find_arch(std::string_view name, std::string_view type) {
  const std::string_view what = what_it_is(name, type);
  if (!what.empty()) {
    throw Error(ErrorKind::unsupported_model, "this file is " + std::string(what),
                "Open the language model's own file instead.");
  }
  std::string known;
  for (const auto& arch : kArchs) {
    if (arch.name == name) return arch;
    known += (known.empty() ? "" : ", ") + std::string(arch.name);
  }
  throw Error(ErrorKind::unsupported_model,
              name.empty() ? std::string("the file names no architecture (general.architecture)")
                           : "architecture '" + std::string(name) + "' is not supported",
              "Supported architectures: " + known + ".");
}

}  // namespace pllm
