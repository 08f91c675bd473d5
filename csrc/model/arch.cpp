#include "model/arch.h"

#include <cmath>

#include "base/error.h"
#include "base/printable.h"

namespace pllm {
namespace {

using Needs = std::string_view;
constexpr Needs kQkvBiases[] = {"attn_q.bias", "attn_k.bias", "attn_v.bias"};
constexpr Needs kQwen2MoeNeeds[] = {"attn_q.bias", "attn_k.bias", "attn_v.bias", "ffn_up_shexp.weight",
                                    "ffn_gate_inp_shexp.weight"};
constexpr Needs kHeadNorms[] = {"attn_q_norm.weight", "attn_k_norm.weight"};
constexpr Needs kPostNorms[] = {"post_attention_norm.weight", "post_ffw_norm.weight"};
constexpr Needs kGemma2Needs[] = {"ffn_gate.weight", "post_attention_norm.weight", "post_ffw_norm.weight"};
constexpr Needs kGemma3Needs[] = {"ffn_gate.weight", "attn_q_norm.weight", "attn_k_norm.weight",
                                  "post_attention_norm.weight", "post_ffw_norm.weight"};
constexpr Needs kFusedQkv[] = {"attn_qkv.weight"};
constexpr Needs kGptOssNeeds[] = {
    "post_attention_norm.weight", "attn_q.bias",       "attn_k.bias",      "attn_v.bias",        "attn_output.bias",
    "attn_sinks.weight",          "ffn_gate_inp.bias", "ffn_up_exps.bias", "ffn_gate_exps.bias", "ffn_down_exps.bias"};
constexpr Needs kStarcoder2Needs[] = {"attn_norm.bias",   "attn_q.bias", "attn_k.bias",  "attn_v.bias",
                                      "attn_output.bias", "ffn_up.bias", "ffn_down.bias"};
constexpr Needs kNormBias[] = {"attn_norm.bias"};
constexpr Needs kFalconNeeds[] = {"attn_norm.bias", "attn_qkv.weight"};
constexpr Needs kGpt2Needs[] = {"attn_norm.bias",   "attn_qkv.weight", "attn_qkv.bias",
                                "attn_output.bias", "ffn_up.bias",     "ffn_down.bias"};

void derive_gemma(Hparams& h, int period, int n_layer_27b) {
  if (!h.embed_scale) h.embed_scale = std::sqrt(float(h.n_embd));
  if (h.window && !h.window_period) h.window_period = period;
  if (!h.attn_scale && h.n_layer == n_layer_27b)  // 27B: scaled by n_embd / n_head, which is not its head_dim
    h.attn_scale = 1 / std::sqrt(float(h.n_embd) / float(h.n_head));
}
void derive_gemma2(Hparams& h) { derive_gemma(h, 2, 46); }
void derive_gemma3(Hparams& h) {
  derive_gemma(h, 6, 62);
  if (!h.rope_base_local) h.rope_base_local = 10000;
}
void derive_smollm3(Hparams& h) { h.no_rope_period = 4; }
void derive_olmo2(Hparams& h) {  // Olmo 3: the scaling is of the global layers alone
  if (h.window && !h.rope_base_local) h.rope_base_local = h.rope_base;
}
void derive_granite(Hparams& h) { h.logit_scale = 1 / h.logit_scale; }  // the file's value divides
void derive_gpt_oss(Hparams& h) {
  if (!h.window_period) h.window_period = 2;
  h.rope_scaling.whole_pairs = false;
}
void derive_stablelm(Hparams& h) { h.parallel_residual = false; }  // converters wrote true for sequential files too

constexpr auto kInterleaved = RopeStyle::interleaved;
constexpr auto kLayerNorm = NormKind::layer;
constexpr auto kGeluTanh = ActivationFn::gelu_tanh, kGeluErf = ActivationFn::gelu_erf;
constexpr auto kSwigluOai = ActivationFn::swiglu_oai;
constexpr auto kShared = PreNorms::shared, kNone = PreNorms::none;

// clang-format off
constexpr Arch kArchs[] = {
    {.name = "llama", .models = "Llama 1–3, Mistral, Mixtral, SmolLM2, TinyLlama", .rope = kInterleaved},
    {.name = "qwen2", .models = "Qwen2, Qwen2.5", .needs = kQkvBiases},
    {.name = "qwen2moe", .models = "Qwen1.5-MoE, Qwen2-57B-A14B",
     .normed_expert_weights = false, .needs = kQwen2MoeNeeds},
    {.name = "qwen3", .models = "Qwen3 (dense)", .needs = kHeadNorms},
    {.name = "qwen3moe", .models = "Qwen3-30B-A3B, Qwen3-235B-A22B, Qwen3-Coder", .needs = kHeadNorms},
    {.name = "gemma2", .models = "Gemma 2",
     .activation = kGeluTanh, .needs = kGemma2Needs, .sliding_window = true, .derive = derive_gemma2},
    {.name = "gemma3", .models = "Gemma 3 (text)",
     .activation = kGeluTanh, .needs = kGemma3Needs, .sliding_window = true, .derive = derive_gemma3},
    {.name = "phi3", .models = "Phi-3, Phi-3.5, Phi-4 (mini and 14B)", .needs = kFusedQkv, .sliding_window = true},
    {.name = "smollm3", .models = "SmolLM3", .rope = kInterleaved, .derive = derive_smollm3},
    {.name = "olmo2", .models = "OLMo 2, Olmo 3",
     .pre_norms = kNone, .needs = kHeadNorms, .sliding_window = true, .derive = derive_olmo2},
    {.name = "granite", .models = "Granite 3 (dense)", .rope = kInterleaved, .derive = derive_granite},
    {.name = "granitemoe", .models = "Granite 3 (mixture of experts)", .rope = kInterleaved, .derive = derive_granite},
    {.name = "gpt-oss", .models = "gpt-oss 20B and 120B",
     .activation = kSwigluOai, .needs = kGptOssNeeds, .sliding_window = true, .derive = derive_gpt_oss},
    {.name = "starcoder2", .models = "StarCoder2",
     .norm = kLayerNorm, .activation = kGeluTanh, .needs = kStarcoder2Needs, .sliding_window = true},
    {.name = "command-r", .models = "Command R, Command R+, Aya 23",
     .rope = kInterleaved, .norm = kLayerNorm, .pre_norms = kShared},
    {.name = "glm4", .models = "GLM-4-0414, GLM-Z1", .rope = kInterleaved, .needs = kPostNorms},
    {.name = "stablelm", .models = "StableLM 2, StableLM 3B",
     .norm = kLayerNorm, .pre_norms = kShared, .needs = kNormBias, .derive = derive_stablelm},
    {.name = "falcon", .models = "Falcon 7B, 40B, 11B",
     .norm = kLayerNorm, .pre_norms = kShared, .activation = kGeluErf, .needs = kFalconNeeds},
    {.name = "gpt2", .models = "GPT-2, Cerebras-GPT",
     .norm = kLayerNorm, .activation = kGeluTanh, .learned_positions = true, .needs = kGpt2Needs},
    {.name = "gptneox", .models = "GPT-NeoX, Pythia",
     .norm = kLayerNorm, .activation = kGeluErf, .needs = kGpt2Needs},
};
// clang-format on

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
                           : "architecture '" + printable(name) + "' is not supported",
              "Supported architectures: " + known + ".");
}

}  // namespace pllm
