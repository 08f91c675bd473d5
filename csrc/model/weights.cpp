#include "model/weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <unordered_set>

#include "base/error.h"

namespace pllm {
namespace {

std::string shape_text(int64_t rows, int64_t cols) {
  return rows == 1 ? std::to_string(cols) : std::to_string(rows) + " x " + std::to_string(cols);
}

class Loader {
 public:
  Loader(const gguf::File& file, Backend& backend) : file_(file), backend_(backend) {}

  WeightPtr require(const std::string& name, int64_t rows, int64_t cols, WeightUse use) {
    need(name);
    return optional(name, rows, cols, use);
  }

  void need(const std::string& name) const {
    if (file_.tensor(name)) return;
    throw Error(ErrorKind::missing_tensor, "tensor " + name + " is missing from " + file_.path(),
                "The file itself is whole: it was made without this tensor. Get another copy or convert it again.");
  }

  WeightPtr optional(const std::string& name, int64_t rows, int64_t cols, WeightUse use) {
    const gguf::Tensor* t = file_.tensor(name);
    if (!t) return nullptr;
    file_.check_size();
    used_.insert(t->name);
    const bool fits = t->shape[0] == cols && t->shape[1] == rows && t->shape[2] == 1 && t->shape[3] == 1;
    if (!fits) {
      throw Error(ErrorKind::bad_shape,
                  "tensor " + name + ": expected " + shape_text(rows, cols) + " from the metadata, the file has " +
                      shape_text(t->shape[1], t->shape[0]),
                  "The file is corrupt or made by a broken converter.");
    }
    if (!t->format) {
      throw Error(
          ErrorKind::unsupported_model,
          "tensor " + name + " has format " + std::string(t->type_name) + ", which this engine cannot compute with",
          "Take the same model in another quantization, such as Q4_K_M or Q8_0.");
    }
    const TensorView view{t->name, *t->format, rows, cols, t->data};
    return backend_.upload(view, use, [&](const uint8_t* data, size_t bytes) { file_.release(*t, data, bytes); });
  }

  // llama3's rope scaling: (n) divisors of the frequencies.
  std::vector<float> rope_factors(int64_t n) {
    const gguf::Tensor* t = file_.tensor("rope_freqs.weight");
    if (!t) return {};
    file_.check_size();
    used_.insert(t->name);
    if (t->shape[0] != n || t->shape[1] != 1 || t->format != Format::F32) {
      throw Error(ErrorKind::bad_shape,
                  "tensor rope_freqs.weight: expected " + std::to_string(n) + " F32 values, the file has " +
                      std::to_string(t->shape[0]) + " of " + std::string(t->type_name),
                  "The file is corrupt or made by a broken converter.");
    }
    std::vector<float> factors(static_cast<size_t>(n));
    std::memcpy(factors.data(), t->data, factors.size() * sizeof(float));
    for (const float f : factors) {
      if (std::isnormal(f) && f > 0) continue;
      throw Error(ErrorKind::bad_file, "tensor rope_freqs.weight: " + std::to_string(f) + " is no divisor",
                  "The file is corrupt or made by a broken converter.");
    }
    return factors;
  }

  // A tensor that nothing reads belongs to a computation which this engine would leave out, or to a layer beyond the
  // metadata's count: the answers would be wrong.
  void refuse_unused(const Hparams& h) const {
    for (const gguf::Tensor& t : file_.tensors()) {
      if (used_.contains(t.name) || t.name.ends_with(".attn_rot_embd.weight")) continue;  // derived, in early files
      throw Error(ErrorKind::unsupported_model,
                  "tensor " + std::string(t.name) + " has no use in a model of architecture " + h.arch + " with " +
                      std::to_string(h.n_layer) + " layers",
                  "It is a variant that is not supported, or the file was made by a broken converter.");
    }
  }

  WeightPtr vector(const std::string& name, int64_t n, bool needed) {
    return needed ? require(name, 1, n, WeightUse::vector) : optional(name, 1, n, WeightUse::vector);
  }

 private:
  const gguf::File& file_;
  Backend& backend_;
  std::unordered_set<std::string_view> used_;
};

Layer load_layer(Loader& in, const Arch& arch, const Hparams& h, int il) {
  const std::string p = "blk." + std::to_string(il) + ".";
  const int64_t q = int64_t(h.n_head) * h.head_dim_k, k = int64_t(h.n_head_kv) * h.head_dim_k;
  const int64_t v = int64_t(h.n_head_kv) * h.head_dim_v, att = int64_t(h.n_head) * h.head_dim_v;
  const int64_t n_embd = h.n_embd, n_ff = h.n_ff;
  const auto matrix = [&](const char* name, int64_t rows, int64_t cols) {
    return in.require(p + name + ".weight", rows, cols, WeightUse::product);
  };
  const auto vec = [&](const char* name, int64_t n, bool needed = false) { return in.vector(p + name, n, needed); };

  for (const std::string_view name : arch.needs) in.need(p + std::string(name));
  Layer l;
  l.attn_norm = vec("attn_norm.weight", n_embd, true);
  l.attn_norm_bias = vec("attn_norm.bias", n_embd);
  l.wq = matrix("attn_q", q, n_embd);
  l.wk = matrix("attn_k", k, n_embd);
  l.wv = matrix("attn_v", v, n_embd);
  l.bq = vec("attn_q.bias", q);
  l.bk = vec("attn_k.bias", k);
  l.bv = vec("attn_v.bias", v);
  l.q_norm = vec("attn_q_norm.weight", h.head_dim_k);
  l.k_norm = vec("attn_k_norm.weight", h.head_dim_k);
  l.wo = matrix("attn_output", n_embd, att);
  l.bo = vec("attn_output.bias", n_embd);
  l.attn_post_norm = vec("post_attention_norm.weight", n_embd);
  l.ffn_norm = vec("ffn_norm.weight", n_embd, true);
  l.ffn_norm_bias = vec("ffn_norm.bias", n_embd);
  l.gate = in.optional(p + "ffn_gate.weight", n_ff, n_embd, WeightUse::product);  // null: a plain feed-forward
  l.up = matrix("ffn_up", n_ff, n_embd);
  l.b_gate = vec("ffn_gate.bias", n_ff);
  l.b_up = vec("ffn_up.bias", n_ff);
  l.down = matrix("ffn_down", n_embd, n_ff);
  l.b_down = vec("ffn_down.bias", n_embd);
  l.ffn_post_norm = vec("post_ffw_norm.weight", n_embd);
  return l;
}

size_t bytes_of(const WeightPtr& w) { return w ? w->bytes : 0; }

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
  if (const size_t n_tokens = file.array_size("tokenizer.ggml.tokens"); embd && n_tokens > size_t(h.n_vocab)) {
    throw Error(ErrorKind::bad_shape,
                "the vocabulary has " + std::to_string(n_tokens) + " tokens but token_embd.weight only " +
                    std::to_string(h.n_vocab) + " rows",
                "The file was made by a broken converter.");
  }
  // The largest tensors first: while one is repacked, part of it is in memory twice.
  const bool tied = !file.tensor("output.weight");
  w.token_embd = in.require("token_embd.weight", h.n_vocab, h.n_embd, tied ? WeightUse::product : WeightUse::lookup);
  if (!tied) w.output = in.require("output.weight", h.n_vocab, h.n_embd, WeightUse::product);
  w.output_norm = in.vector("output_norm.weight", h.n_embd, true);
  w.output_norm_bias = in.vector("output_norm.bias", h.n_embd, false);
  for (int il = 0; il < h.n_layer; il++) w.layers.push_back(load_layer(in, arch, h, il));
  w.rope_factors = in.rope_factors(h.n_rot / 2);
  in.refuse_unused(h);
  return w;
}

size_t Weights::bytes() const {
  size_t n = bytes_of(token_embd) + bytes_of(output) + bytes_of(output_norm) + bytes_of(output_norm_bias);
  for (const Layer& l : layers) {
    for (const WeightPtr* p : {&l.attn_norm,
                               &l.attn_norm_bias,
                               &l.wq,
                               &l.wk,
                               &l.wv,
                               &l.bq,
                               &l.bk,
                               &l.bv,
                               &l.q_norm,
                               &l.k_norm,
                               &l.wo,
                               &l.bo,
                               &l.attn_post_norm,
                               &l.ffn_norm,
                               &l.ffn_norm_bias,
                               &l.gate,
                               &l.up,
                               &l.b_gate,
                               &l.b_up,
                               &l.down,
                               &l.b_down,
                               &l.ffn_post_norm})
      n += bytes_of(*p);
  }
  return n;
}

size_t weight_bytes(const gguf::File& file) {
  size_t n = 0;
  for (const gguf::Tensor& t : file.tensors()) n += t.n_bytes;
  return n;
}

}  // namespace pllm
