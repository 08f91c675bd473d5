#include "model/hparams.h"

#include <cmath>
#include <optional>

#include "base/error.h"
#include "base/printable.h"
#include "model/arch.h"

namespace pllm {
namespace {

void require(bool ok, const std::string& message) {
  if (!ok) throw Error(ErrorKind::bad_file, message, "The file is corrupt or made by a broken converter.");
}

// Bounds between which all float arithmetic on a value stays finite.
constexpr double kTiny = 1e-6, kHuge = 1e6;

// Typed, range-checked access to "<arch>.<key>".
class Keys {
 public:
  Keys(const gguf::File& file, const std::string& arch) : file_(file), arch_(arch) {}

  std::string full(const char* key) const { return arch_ + "." + key; }

  bool has(const char* key) const { return file_.metadata().find(full(key)) != nullptr; }

  // One number, or one a layer if they are all the same: this engine's layers are alike.
  std::optional<int> integer(const char* key, int64_t low, int64_t high) const {
    const std::string name = full(key);
    if (!has(key)) return std::nullopt;
    const auto values = file_.numbers(name);
    require(!values.empty(), "metadata key " + name + " is an empty array");
    for (double v : values) {
      check_range(name, v, double(low), double(high));
      require(v == std::floor(v), "metadata key " + name + " is " + std::to_string(v) + ", not a whole number");
      if (v == values.front()) continue;
      throw Error(ErrorKind::unsupported_model, "metadata key " + name + " differs from layer to layer",
                  "Models whose layers differ in size are not supported yet.");
    }
    return int(values.front());
  }

  int required(const char* key, int64_t low, int64_t high) const {
    need(key);
    return *integer(key, low, high);
  }

  float number(const char* key, double fallback, double low, double high) const {
    const std::string name = full(key);
    const auto v = file_.number(name);
    if (!v) return float(fallback);
    check_range(name, *v, low, high);
    return float(*v);
  }
  float required_number(const char* key, double low, double high) const {
    need(key);
    return number(key, 0, low, high);
  }
  // The same where 0 is written for "none".
  float number_or_zero(const char* key, double low, double high) const {
    return file_.number(full(key)).value_or(0) == 0 ? 0 : number(key, 0, low, high);
  }

  std::vector<bool> flags(const char* key) const {
    std::vector<bool> out;
    for (double v : file_.numbers(full(key))) out.push_back(v != 0);
    return out;
  }

  bool flag(const char* key, bool fallback) const { return file_.boolean(full(key)).value_or(fallback); }
  std::string_view string(const char* key) const { return file_.string(full(key)).value_or(std::string_view{}); }

 private:
  void need(const char* key) const {
    if (has(key)) return;
    throw Error(ErrorKind::bad_file, "metadata key " + full(key) + " is missing",
                "The file is incomplete or made by a broken converter; get another copy or convert it again.");
  }

  static void check_range(const std::string& name, double v, double low, double high) {
    if (v >= low && v <= high) return;  // false for nan
    throw Error(ErrorKind::bad_file,
                "metadata key " + name + " is " + std::to_string(v) + ", outside " + std::to_string(low) + " … " +
                    std::to_string(high),
                "The file is corrupt or made by a broken converter.");
  }

  const gguf::File& file_;
  const std::string& arch_;
};

RopeScaling read_rope_scaling(const Keys& keys, int n_ctx_train) {
  RopeScaling s;
  const std::string_view type = keys.string("rope.scaling.type");
  const char* factor_key = keys.has("rope.scaling.factor") ? "rope.scaling.factor" : "rope.scale_linear";
  s.factor = keys.number_or_zero(factor_key, kTiny, kHuge);
  if (s.factor == 0) s.factor = 1;
  s.n_ctx_orig = keys.integer("rope.scaling.original_context_length", 1, 1 << 30).value_or(n_ctx_train);
  s.attn_factor = keys.number("rope.scaling.attn_factor", 1, kTiny, kHuge);
  s.beta_fast = keys.number("rope.scaling.yarn_beta_fast", 32, kTiny, kHuge);
  s.beta_slow = keys.number("rope.scaling.yarn_beta_slow", 1, kTiny, kHuge);
  if (type == "yarn") {
    s.kind = RopeScaling::Kind::yarn;
  } else if (type == "linear" || (type.empty() && s.factor != 1)) {
    s.kind = RopeScaling::Kind::linear;
  } else if (type == "longrope") {
    s.kind = RopeScaling::Kind::longrope;
  } else if (!type.empty() && type != "none" && type != "llama3") {  // llama3's factors are a tensor (rope_freqs)
    throw Error(ErrorKind::unsupported_model, "rope scaling '" + printable(type) + "' is not supported",
                "Supported: none, linear, llama3, longrope, yarn.");
  }
  return s;
}

void read_windows(const Keys& keys, Hparams& h) {
  h.window = keys.integer("attention.sliding_window", 0, 1 << 30).value_or(0);
  h.local_layers = keys.flags("attention.sliding_window_pattern");
  if (h.local_layers.size() == 1) {  // a scalar: the period
    h.window_period = keys.integer("attention.sliding_window_pattern", 0, 1 << 20).value_or(0);
    h.local_layers.clear();
  }
  require(h.local_layers.empty() || h.local_layers.size() == size_t(h.n_layer),
          "metadata key " + keys.full("attention.sliding_window_pattern") + " has " +
              std::to_string(h.local_layers.size()) + " entries for " + std::to_string(h.n_layer) + " layers");
}

void read_attention(const Keys& keys, Hparams& h) {
  h.n_head = keys.required("attention.head_count", 1, 1 << 16);
  h.n_head_kv = keys.integer("attention.head_count_kv", 1, 1 << 16).value_or(h.n_head);
  h.head_dim_k = keys.integer("attention.key_length", 1, 1 << 16).value_or(h.n_embd / h.n_head);
  h.head_dim_v = keys.integer("attention.value_length", 1, 1 << 16).value_or(h.head_dim_k);
  h.n_rot = keys.integer("rope.dimension_count", 1, 1 << 16).value_or(h.head_dim_k);
  require(h.n_head % h.n_head_kv == 0, std::to_string(h.n_head) + " attention heads cannot share " +
                                           std::to_string(h.n_head_kv) + " key/value heads evenly");
  require(h.n_rot % 2 == 0 && h.n_rot <= h.head_dim_k,
          "rope.dimension_count " + std::to_string(h.n_rot) + " does not fit head_dim " + std::to_string(h.head_dim_k));
  for (int d : {h.head_dim_k, h.head_dim_v}) {
    if (d % 8 == 0 && d <= 512) continue;
    throw Error(ErrorKind::unsupported_model, "head_dim " + std::to_string(d) + " is not supported",
                "Supported: multiples of 8 up to 512.");
  }
}

void read_experts(const Keys& keys, const Arch& arch, Hparams& h) {
  h.n_expert = keys.integer("expert_count", 0, 1 << 16).value_or(0);
  if (h.n_expert == 0) return;
  h.n_expert_used = keys.required("expert_used_count", 1, h.n_expert);
  h.n_ff_expert = keys.integer("expert_feed_forward_length", 1, 1 << 24).value_or(h.n_ff);
  h.n_ff_shared = keys.integer("expert_shared_feed_forward_length", 1, 1 << 24).value_or(h.n_ff);
  // 1: softmax of all; 3: softmax of the chosen
  const int gating = keys.integer("expert_gating_func", 0, 1 << 16).value_or(0);
  h.normed_expert_weights = gating == 3 || keys.flag("expert_weights_norm", arch.normed_expert_weights);
  const bool plain = gating < 2 || gating == 3;
  if (!plain || keys.integer("expert_group_count", 0, 1 << 16).value_or(1) > 1 ||
      (keys.has("expert_weights_scale") && keys.number("expert_weights_scale", 1, 0, kHuge) != 1)) {
    throw Error(ErrorKind::unsupported_model, "this model chooses its experts in a way that is not supported",
                "Supported: the best of all experts by softmax, without groups (" + keys.full("expert_gating_func") +
                    ", expert_group_count, expert_weights_scale).");
  }
}

// What the same architecture name may also mean.
void refuse_variants(const Keys& keys) {
  if (!keys.flag("attention.causal", true)) {
    throw Error(ErrorKind::unsupported_model,
                "this model looks ahead (attention.causal is false): it is a text encoder",
                "Take a model that generates text.");
  }
}

}  // namespace

Hparams read_hparams(const gguf::File& file) {
  file.check_unchanged();
  Hparams h;
  h.arch = std::string(file.string("general.architecture").value_or(std::string_view{}));
  const Arch& arch = find_arch(h.arch, file.string("general.type").value_or(std::string_view{}));
  const Keys keys(file, h.arch);
  refuse_variants(keys);
  h.n_layer = keys.required("block_count", 1, 1 << 16);
  h.n_embd = keys.required("embedding_length", 1, 1 << 20);
  h.n_ff = keys.required("feed_forward_length", 1, 1 << 24);
  h.n_ctx_train = keys.required("context_length", 1, 1 << 30);
  read_attention(keys, h);
  const char* eps_key =
      arch.norm == NormKind::rms ? "attention.layer_norm_rms_epsilon" : "attention.layer_norm_epsilon";
  h.norm_eps = keys.required_number(eps_key, 1e-30, 1);
  constexpr double kLowestBase = 1.001, kHighestBase = 1e12;  // yarn divides by the logarithm
  h.rope_base = keys.number("rope.freq_base", 10000, kLowestBase, kHighestBase);
  h.rope_scaling = read_rope_scaling(keys, h.n_ctx_train);
  if (arch.sliding_window) {
    h.rope_base_local = keys.number_or_zero("rope.freq_base_swa", kLowestBase, kHighestBase);
    read_windows(keys, h);
  }
  read_experts(keys, arch, h);
  h.parallel_residual = keys.flag("use_parallel_residual", false);
  h.embed_scale = keys.number_or_zero("embedding_scale", kTiny, kHuge);
  h.residual_scale = keys.number("residual_scale", 1, kTiny, kHuge);
  h.logit_scale = keys.number("logit_scale", 1, kTiny, kHuge);
  h.attn_scale = keys.number_or_zero("attention.scale", kTiny, kHuge);
  h.attn_softcap = keys.number_or_zero("attn_logit_softcapping", kTiny, kHuge);
  h.logit_softcap = keys.number_or_zero("final_logit_softcapping", kTiny, kHuge);
  if (arch.derive) arch.derive(h);
  if (!h.attn_scale) h.attn_scale = 1 / std::sqrt(float(h.head_dim_k));
  return h;
}

}  // namespace pllm
