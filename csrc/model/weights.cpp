#include "model/weights.h"

#include <algorithm>
#include <string>

#include "base/error.h"
#include "model/loader.h"

namespace pllm {
namespace {

// q's or k's norm: of every head alike, with weights of its own for each head, or over all heads together.
WeightPtr load_head_norm(Loader& in, const std::string& name, int64_t n_head, int64_t dim) {
  const gguf::Tensor* t = in.unchecked(name);
  if (!t) return nullptr;
  if (t->shape[0] == dim && t->shape[1] == n_head)
    return in.part(in.require(name, {n_head, dim}), WeightUse::vector, 0, n_head, dim);
  return in.vector(name, t->shape[0] == n_head * dim ? n_head * dim : dim);
}

void load_attention(Loader& in, const Hparams& h, const std::string& p, Layer& l) {
  const int64_t q = int64_t(h.n_head) * h.head_dim_k, k = int64_t(h.n_head_kv) * h.head_dim_k;
  const int64_t v = int64_t(h.n_head_kv) * h.head_dim_v, att = int64_t(h.n_head) * h.head_dim_v;
  if (in.has(p + "attn_qkv.weight")) {
    in.stacked(p + "attn_qkv.weight", {{l.wq, q}, {l.wk, k}, {l.wv, v}}, h.n_embd);
  } else {
    l.wq = in.matrix(p + "attn_q.weight", q, h.n_embd);
    l.wk = in.matrix(p + "attn_k.weight", k, h.n_embd);
    l.wv = in.matrix(p + "attn_v.weight", v, h.n_embd);
  }
  if (in.has(p + "attn_qkv.bias")) {
    in.stacked(p + "attn_qkv.bias", {{l.bq, q}, {l.bk, k}, {l.bv, v}}, 0);
  } else {
    l.bq = in.vector(p + "attn_q.bias", q);
    l.bk = in.vector(p + "attn_k.bias", k);
    l.bv = in.vector(p + "attn_v.bias", v);
  }
  l.q_norm = load_head_norm(in, p + "attn_q_norm.weight", h.n_head, h.head_dim_k);
  l.k_norm = load_head_norm(in, p + "attn_k_norm.weight", h.n_head_kv, h.head_dim_k);
  l.sinks = in.vector(p + "attn_sinks.weight", h.n_head);
  l.wo = in.matrix(p + "attn_output.weight", h.n_embd, att);
  l.bo = in.vector(p + "attn_output.bias", h.n_embd);
}

void load_norms(Loader& in, const Arch& arch, const Hparams& h, const std::string& p, Layer& l) {
  const bool biases = in.has(p + "attn_norm.bias");  // all norms have one, or none has
  const auto norm = [&](const std::string& name, bool needed, WeightPtr& weight, WeightPtr& bias) {
    weight = in.vector(p + name + ".weight", h.n_embd, needed);
    if (weight) bias = in.vector(p + name + ".bias", h.n_embd, biases);
  };
  const bool none = arch.pre_norms == PreNorms::none, both = arch.pre_norms == PreNorms::both;
  if (in.has(p + "attn_norm_2.weight")) {  // falcon 40B: attn_norm is the feed-forward's
    norm("attn_norm_2", true, l.attn_norm, l.attn_norm_bias);
    norm("attn_norm", true, l.ffn_norm, l.ffn_norm_bias);
    l.parallel = true;
  } else if (!none) {
    norm("attn_norm", true, l.attn_norm, l.attn_norm_bias);
    // gpt-oss: post_attention_norm, where it is alone, is the norm before the feed-forward.
    const auto has = [&](const char* name) { return in.has(p + name + ".weight"); };
    const bool by_place = both && !has("ffn_norm") && has("post_attention_norm") && !has("post_ffw_norm");
    norm(by_place ? "post_attention_norm" : "ffn_norm", both, l.ffn_norm, l.ffn_norm_bias);
    l.parallel = h.parallel_residual || !l.ffn_norm;
    if (by_place) return;
  }
  l.attn_post_norm = in.vector(p + "post_attention_norm.weight", h.n_embd, none);
  l.ffn_post_norm = in.vector(p + "post_ffw_norm.weight", h.n_embd, none);
}

FeedForward load_feed_forward(Loader& in, const Arch& arch, int64_t n_embd, int64_t n_ff, const std::string& p,
                              const std::string& suffix) {
  FeedForward f;
  const std::string gate = p + "ffn_gate" + suffix, up = p + "ffn_up" + suffix, down = p + "ffn_down" + suffix;
  in.need(up + ".weight");
  if (in.unchecked(up + ".weight")->shape[1] == 2 * n_ff && !in.has(gate + ".weight")) {
    in.stacked(up + ".weight", {{f.gate, n_ff}, {f.up, n_ff}}, n_embd);
    if (in.has(up + ".bias")) in.stacked(up + ".bias", {{f.b_gate, n_ff}, {f.b_up, n_ff}}, 0);
  } else {
    const bool gated = arch.activation == ActivationFn::silu || arch.activation == ActivationFn::swiglu_oai;
    if (gated || in.has(gate + ".weight")) f.gate = in.matrix(gate + ".weight", n_ff, n_embd);
    f.up = in.matrix(up + ".weight", n_ff, n_embd);
    f.b_gate = in.vector(gate + ".bias", n_ff);
    f.b_up = in.vector(up + ".bias", n_ff);
  }
  f.down = in.matrix(down + ".weight", n_embd, n_ff);
  f.b_down = in.vector(down + ".bias", n_embd);
  return f;
}

// A matrix of every expert: stacked in one tensor, or each a tensor of its own as in files of 2023.
void load_each_expert(Loader& in, const std::string& name, std::vector<FeedForward>& experts,
                      WeightPtr FeedForward::* weight, WeightPtr FeedForward::* bias, int64_t rows, int64_t cols) {
  const auto n = int64_t(experts.size());
  if (in.has(name + ".0.weight")) {
    for (int64_t i = 0; i < n; i++)
      experts[size_t(i)].*weight = in.matrix(name + "." + std::to_string(i) + ".weight", rows, cols);
    return;
  }
  const gguf::Tensor& w = in.require(name + "_exps.weight", {rows, cols, n});
  const gguf::Tensor* b = in.find(name + "_exps.bias", {n, rows});
  for (int64_t i = 0; i < n; i++) {
    FeedForward& expert = experts[size_t(i)];
    expert.*weight = in.part(w, WeightUse::product, i * rows * cols, rows, cols);
    if (b) expert.*bias = in.part(*b, WeightUse::vector, i * rows, 1, rows);
  }
}

std::unique_ptr<Experts> load_experts(Loader& in, const Arch& arch, const Hparams& h, const std::string& p) {
  auto x = std::make_unique<Experts>();
  const int64_t n = h.n_expert, n_embd = h.n_embd, n_ff = h.n_ff_expert;
  x->router = in.matrix(p + "ffn_gate_inp.weight", n, n_embd);
  x->b_router = in.vector(p + "ffn_gate_inp.bias", n);
  x->by_id.resize(size_t(n));
  if (in.has(p + "ffn_gate_up_exps.weight")) {  // each expert's gate, then its up
    const gguf::Tensor& both = in.require(p + "ffn_gate_up_exps.weight", {2 * n_ff, n_embd, n});
    for (int64_t i = 0; i < n; i++) {
      FeedForward& expert = x->by_id[size_t(i)];
      expert.gate = in.part(both, WeightUse::product, 2 * i * n_ff * n_embd, n_ff, n_embd);
      expert.up = in.part(both, WeightUse::product, (2 * i + 1) * n_ff * n_embd, n_ff, n_embd);
    }
  } else {
    load_each_expert(in, p + "ffn_gate", x->by_id, &FeedForward::gate, &FeedForward::b_gate, n_ff, n_embd);
    load_each_expert(in, p + "ffn_up", x->by_id, &FeedForward::up, &FeedForward::b_up, n_ff, n_embd);
  }
  load_each_expert(in, p + "ffn_down", x->by_id, &FeedForward::down, &FeedForward::b_down, n_embd, n_ff);
  if (in.has(p + "ffn_up_shexp.weight")) x->shared = load_feed_forward(in, arch, n_embd, h.n_ff_shared, p, "_shexp");
  if (const gguf::Tensor* t = in.find(p + "ffn_gate_inp_shexp.weight", {1, n_embd}))
    x->shared_router = in.part(*t, WeightUse::product, 0, 1, n_embd);
  return x;
}

Layer load_layer(Loader& in, const Arch& arch, const Hparams& h, int il) {
  const std::string p = "blk." + std::to_string(il) + ".";
  for (const std::string_view name : arch.needs) in.need(p + std::string(name));
  Layer l;
  load_norms(in, arch, h, p, l);
  load_attention(in, h, p, l);
  if (h.n_expert && !in.has(p + "ffn_up.weight")) {
    l.experts = load_experts(in, arch, h, p);
  } else {
    l.ffn = load_feed_forward(in, arch, h.n_embd, h.n_ff, p, "");
  }
  return l;
}

void check_vocabulary(const gguf::File& file, const Hparams& h) {
  const size_t n_tokens = file.array_size("tokenizer.ggml.tokens");
  if (!h.n_vocab || n_tokens <= size_t(h.n_vocab)) return;
  throw Error(ErrorKind::bad_shape,
              "the vocabulary has " + std::to_string(n_tokens) + " tokens but token_embd.weight only " +
                  std::to_string(h.n_vocab) + " rows",
              "The file was made by a broken converter.");
}

void check_experts(const Hparams& h, const Weights& w) {
  const auto has_experts = [](const Layer& l) { return l.experts != nullptr; };
  if (h.n_expert == 0 || std::any_of(w.layers.begin(), w.layers.end(), has_experts)) return;
  throw Error(ErrorKind::missing_tensor,
              "the metadata speaks of " + std::to_string(h.n_expert) + " experts (expert_count), but no layer has any",
              "The file was made by a broken converter.");
}

}  // namespace

Weights load_weights(const gguf::File& file, const Arch& arch, Hparams& h, Backend& backend) {
  if (file.tensors().empty()) {
    throw Error(ErrorKind::unsupported_model, file.path() + " holds a vocabulary without weights",
                "Open it with vocab_only=True, or take the model's full file.");
  }
  Loader in(file, backend);
  Weights w;
  const gguf::Tensor* embd = file.tensor("token_embd.weight");
  constexpr int64_t kMaxVocab = 1 << 24;
  h.n_vocab = embd ? int(std::min(embd->shape[1], kMaxVocab)) : 0;  // beyond it the shape is refused
  check_vocabulary(file, h);
  // The largest tensors first: while one is repacked, part of it is in memory twice.
  const bool tied = !file.tensor("output.weight");
  w.token_embd = in.matrix("token_embd.weight", h.n_vocab, h.n_embd, tied ? WeightUse::product : WeightUse::lookup);
  if (arch.learned_positions)
    w.position_embd = in.matrix("position_embd.weight", h.n_ctx_train, h.n_embd, WeightUse::lookup);
  if (!tied) w.output = in.matrix("output.weight", h.n_vocab, h.n_embd);
  w.output_norm = in.vector("output_norm.weight", h.n_embd, true);
  w.output_norm_bias = in.vector("output_norm.bias", h.n_embd, in.has("blk.0.attn_norm.bias"));
  for (int il = 0; il < h.n_layer; il++) w.layers.push_back(load_layer(in, arch, h, il));
  check_experts(h, w);
  const bool longrope = h.rope_scaling.kind == RopeScaling::Kind::longrope || in.has("rope_factors_long.weight");
  w.rope_factors = in.divisors(longrope ? "rope_factors_short.weight" : "rope_freqs.weight", h.n_rot / 2, longrope);
  w.rope_factors_long = in.divisors("rope_factors_long.weight", h.n_rot / 2, longrope);
  in.refuse_unused(h);
  file.check_unchanged();  // while it was read
  w.bytes = in.bytes();
  return w;
}

size_t weight_bytes(const gguf::File& file) {
  size_t n = 0;
  for (const gguf::Tensor& t : file.tensors()) n += t.n_bytes;
  return n;
}

}  // namespace pllm
