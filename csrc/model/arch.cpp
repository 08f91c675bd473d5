#include "model/arch.h"

#include <cmath>

#include "base/error.h"

namespace pllm {
namespace {

using namespace std::string_view_literals;

constexpr std::string_view kQwen2Needs[] = {"attn_q.bias"sv, "attn_k.bias"sv, "attn_v.bias"sv};
constexpr std::string_view kQwen3Needs[] = {"attn_q_norm.weight"sv, "attn_k_norm.weight"sv};
constexpr std::string_view kGemma2Needs[] = {"ffn_gate.weight"sv, "post_attention_norm.weight"sv,
                                             "post_ffw_norm.weight"sv};
constexpr std::string_view kGemma3Needs[] = {"ffn_gate.weight"sv, "attn_q_norm.weight"sv, "attn_k_norm.weight"sv,
                                             "post_attention_norm.weight"sv, "post_ffw_norm.weight"sv};

void derive_gemma(Hparams& h, int period, int n_layer_27b) {
  if (!h.embed_scale) h.embed_scale = std::sqrt(float(h.n_embd));
  if (h.window && !h.window_period) h.window_period = period;
  if (!h.attn_scale && h.n_layer == n_layer_27b)  // 27B: scaled by n_embd / n_head, which is not its head_dim
    h.attn_scale = 1 / std::sqrt(float(h.n_embd) / float(h.n_head));
}

constexpr auto kInterleaved = RopeStyle::interleaved;
constexpr auto kLayerNorm = NormKind::layer;

constexpr Arch kArchs[] = {
    {.name = "llama", .models = "Llama 1–3, Mistral, Mixtral, SmolLM2, TinyLlama", .rope = kInterleaved},
    {.name = "qwen2", .models = "Qwen2, Qwen2.5", .needs = kQwen2Needs},
    {.name = "qwen2moe", .models = "Qwen1.5-MoE, Qwen2-57B-A14B", .normed_expert_weights = false, .needs = kQwen2Needs},
    {.name = "qwen3", .models = "Qwen3 (dense)", .needs = kQwen3Needs},
    {.name = "qwen3moe", .models = "Qwen3-30B-A3B, Qwen3-235B-A22B, Qwen3-Coder", .needs = kQwen3Needs},
    {.name = "gemma2",
     .models = "Gemma 2",
     .activation = ActivationFn::gelu_tanh,
     .needs = kGemma2Needs,
     .sliding_window = true,
     .derive = [](Hparams& h) { derive_gemma(h, 2, 46); }},
    {.name = "gemma3",
     .models = "Gemma 3 (text)",
     .activation = ActivationFn::gelu_tanh,
     .needs = kGemma3Needs,
     .sliding_window = true,
     .derive =
         [](Hparams& h) {
           derive_gemma(h, 6, 62);
           if (!h.rope_base_local) h.rope_base_local = 10000;
         }},
    {.name = "phi3", .models = "Phi-3, Phi-3.5, Phi-4 (mini and 14B)", .sliding_window = true},
    {.name = "smollm3", .models = "SmolLM3", .rope = kInterleaved, .derive = [](Hparams& h) { h.no_rope_period = 4; }},
    {.name = "olmo2",
     .models = "OLMo 2, Olmo 3",
     .pre_norms = PreNorms::none,
     .sliding_window = true,
     .derive =  // Olmo 3: the scaling is of the global layers alone
     [](Hparams& h) {
       if (h.window && !h.rope_base_local) h.rope_base_local = h.rope_base;
     }},
    {.name = "granite",
     .models = "Granite 3 (dense)",
     .rope = kInterleaved,
     .derive = [](Hparams& h) { h.logit_scale = 1 / h.logit_scale; }},  // the file's value divides
    {.name = "granitemoe",
     .models = "Granite 3 (mixture of experts)",
     .rope = kInterleaved,
     .derive = [](Hparams& h) { h.logit_scale = 1 / h.logit_scale; }},
    {.name = "gpt-oss",
     .models = "gpt-oss 20B and 120B",
     .activation = ActivationFn::swiglu_oai,
     .sliding_window = true,
     .derive =
         [](Hparams& h) {
           if (!h.window_period) h.window_period = 2;
           h.rope_scaling.whole_pairs = false;
         }},
    {.name = "starcoder2",
     .models = "StarCoder2",
     .norm = kLayerNorm,
     .activation = ActivationFn::gelu_tanh,
     .sliding_window = true},
    {.name = "command-r",
     .models = "Command R, Command R+, Aya 23",
     .rope = kInterleaved,
     .norm = kLayerNorm,
     .pre_norms = PreNorms::shared},
    {.name = "glm4", .models = "GLM-4-0414, GLM-Z1", .rope = kInterleaved},
    {.name = "stablelm",
     .models = "StableLM 2, StableLM 3B",
     .norm = kLayerNorm,
     .pre_norms = PreNorms::shared,
     .derive = [](Hparams& h) { h.parallel_residual = false; }},  // converters wrote true for sequential files too
    {.name = "falcon",
     .models = "Falcon 7B, 40B, 11B",
     .norm = kLayerNorm,
     .pre_norms = PreNorms::shared,
     .activation = ActivationFn::gelu_erf},
    {.name = "gpt2", .models = "GPT-2, Cerebras-GPT", .norm = kLayerNorm, .activation = ActivationFn::gelu_tanh},
    {.name = "gptneox", .models = "GPT-NeoX, Pythia", .norm = kLayerNorm, .activation = ActivationFn::gelu_erf},
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
