#include "model/forward.h"

#include "model/feed_forward.h"

namespace pllm {
namespace {

struct Step {  // views of this step's activations, in the shapes of Buffers
  const Model& model;
  const Batch& batch;
  Buffers& buffers;
  Mat x, h, y, q, k, v, att;
  RopeTable rope_global, rope_local;

  void note(std::string_view name, int layer, Mat values) const {
    if (batch.tap) (*batch.tap)(name, layer, values);
  }
};

Step prepare(const Model& model, Buffers& b, const Batch& batch) {
  const Hparams& p = model.hparams();
  const auto n = int64_t(batch.tokens.size());
  rope_table(model.rope_global(batch.n_ctx), batch.positions, b.rope_global);
  const bool two_bases = p.rope_base_local != 0;
  if (two_bases) rope_table(model.rope_local(), batch.positions, b.rope_local);
  const RopeTable global{p.n_rot, b.rope_global.data()};
  return {model,
          batch,
          b,
          b.x.mat(n, p.n_embd),
          b.h.mat(n, p.n_embd),
          b.y.mat(n, p.n_embd),
          b.q.mat(n, int64_t(p.n_head) * p.head_dim_k),
          b.k.mat(n, int64_t(p.n_head_kv) * p.head_dim_k),
          b.v.mat(n, int64_t(p.n_head_kv) * p.head_dim_v),
          b.att.mat(n, int64_t(p.n_head) * p.head_dim_v),
          global,
          two_bases ? RopeTable{p.n_rot, b.rope_local.data()} : global};
}

void embed(const Step& s) {
  const Weights& w = s.model.weights();
  Backend& be = s.model.backend();
  be.get_rows(s.x, *w.token_embd, s.batch.tokens);
  if (const float scale = s.model.hparams().embed_scale) be.scale(s.x, scale);
  if (w.position_embd) {
    be.get_rows(s.y, *w.position_embd, s.batch.positions);
    be.add(s.x, s.y, 1);
  }
  s.note("embd", -1, s.x);
}

// out = attention over the pages of this layer, after adding this batch's keys and values to them.
void attention(const Step& s, const Layer& l, int il, Mat in, Mat out) {
  const Hparams& p = s.model.hparams();
  const Arch& arch = s.model.arch();
  Backend& be = s.model.backend();
  const bool local = p.is_local(il);
  const AttentionShape shape{.kv = s.model.kv_shape(s.batch.kv_types),
                             .layer = il,
                             .n_head = p.n_head,
                             .scale = p.attn_scale,
                             .softcap = p.attn_softcap,
                             .window = local ? p.window : 0,
                             .sinks = l.sinks.get()};

  const Product qkv[] = {{l.wq.get(), l.bq.get(), s.q}, {l.wk.get(), l.bk.get(), s.k}, {l.wv.get(), l.bv.get(), s.v}};
  be.matmul(in, qkv);
  s.note("q", il, s.q);
  s.note("k", il, s.k);
  s.note("v", il, s.v);
  if (l.q_norm) be.norm(s.q, s.q, arch.norm, l.q_norm.get(), nullptr, p.norm_eps);
  if (l.k_norm) be.norm(s.k, s.k, arch.norm, l.k_norm.get(), nullptr, p.norm_eps);
  if (p.has_rope(il) && !s.model.weights().position_embd) {
    const RopeTable& rope = local ? s.rope_local : s.rope_global;
    be.rope(s.q, p.head_dim_k, arch.rope, rope);
    be.rope(s.k, p.head_dim_k, arch.rope, rope);
  }
  s.note("q_rope", il, s.q);
  s.note("k_rope", il, s.k);
  be.store_kv(shape, s.k, s.v, s.batch.sequences);
  be.attention(s.att, s.q, shape, s.batch.sequences);
  s.note("attn", il, s.att);
  const Product o[] = {{l.wo.get(), l.bo.get(), out}};
  be.matmul(s.att, o);
  s.note("attn_out", il, out);
}

// Which experts each row went to, the best first, and their weights (the shared expert's last).
void note_experts(const Step& s, int il) {
  if (!s.batch.tap) return;
  ExpertBuffers& b = s.buffers.experts;
  const int64_t n = s.x.rows, n_used = s.model.hparams().n_expert_used;
  std::vector<float> ids(b.chosen.begin(), b.chosen.end());
  s.note("experts", il, {ids.data(), n, n_used, n_used});
  s.note("expert_weights", il, b.factors.mat(n, int64_t(b.slot.size()) / n));
}

// x += attention(norm(x)); x += feed_forward(norm(x)). Without a norm the first reads x itself, the second what the
// first read. Parallel: the second reads the x that the first read. Branch outputs may be normed and scaled.
void layer(const Step& s, const Layer& l, int il) {
  const Hparams& p = s.model.hparams();
  const NormKind kind = s.model.arch().norm;
  Backend& be = s.model.backend();
  const auto normed = [&](const WeightPtr& w, const WeightPtr& b) {
    be.norm(s.h, s.x, kind, w.get(), b.get(), p.norm_eps);
    return s.h;
  };
  const auto join = [&](const WeightPtr& post_norm) {
    if (post_norm) be.norm(s.y, s.y, kind, post_norm.get(), nullptr, p.norm_eps);
    be.add(s.x, s.y, p.residual_scale);
  };
  Mat in = l.attn_norm ? normed(l.attn_norm, l.attn_norm_bias) : s.x;
  s.note("attn_norm", il, in);
  attention(s, l, il, in, s.y);
  if (!l.parallel) join(l.attn_post_norm);
  if (l.ffn_norm) in = normed(l.ffn_norm, l.ffn_norm_bias);
  if (l.parallel) join(l.attn_post_norm);
  s.note("ffn_norm", il, in);
  if (l.experts) {
    expert_feed_forward(s.model, s.buffers, *l.experts, in, s.y);
    note_experts(s, il);
  } else {
    feed_forward(s.model, s.buffers, l.ffn, in, s.y);
  }
  s.note("ffn_out", il, s.y);
  join(l.ffn_post_norm);
  s.note("layer_out", il, s.x);
}

// out (output rows, n_embd)
void hidden(const Step& s, Mat out) {
  const Hparams& p = s.model.hparams();
  const Weights& w = s.model.weights();
  Backend& be = s.model.backend();
  be.copy_rows(out, s.x, s.batch.output_rows);
  be.norm(out, out, s.model.arch().norm, w.output_norm.get(), w.output_norm_bias.get(), p.norm_eps);
  s.note("output_norm", -1, out);
}

void project(const Step& s, Mat logits) {
  const Hparams& p = s.model.hparams();
  const Weights& w = s.model.weights();
  Backend& be = s.model.backend();
  const Mat out = s.buffers.out.mat(logits.rows, p.n_embd);
  hidden(s, out);
  be.matmul_fine(out, {&w.head(), nullptr, logits});
  if (p.logit_scale != 1) be.scale(logits, p.logit_scale);
  if (p.logit_softcap) be.softcap(logits, p.logit_softcap);
  s.note("logits", -1, logits);
}

}  // namespace

void forward(const Model& model, Buffers& buffers, const Batch& batch, Output output, Mat result) {
  const Step s = prepare(model, buffers, batch);
  embed(s);
  for (int il = 0; il < model.hparams().n_layer; il++) layer(s, model.weights().layers[size_t(il)], il);
  if (result.rows == 0) return;
  if (output == Output::hidden) {
    hidden(s, result);
  } else {
    project(s, result);
  }
}

}  // namespace pllm
