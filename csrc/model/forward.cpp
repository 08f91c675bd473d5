#include "model/forward.h"

#include <cstring>

namespace pllm {
namespace {

struct Step {  // views of this step's activations, in the shapes of Buffers
  const Model& model;
  const Batch& batch;
  Mat x, h, y, q, k, v, att, g, u;
  RopeTable rope_global, rope_local;
};

Step prepare(const Model& model, Buffers& b, const Batch& batch) {
  const Hparams& p = model.hparams();
  const auto n = int64_t(batch.tokens.size());
  rope_table(model.rope(false), batch.positions, b.rope_global);
  const bool two_bases = p.rope_base_local != 0;
  if (two_bases) rope_table(model.rope(true), batch.positions, b.rope_local);
  const RopeTable global{p.n_rot, b.rope_global.data()};
  return {model,
          batch,
          b.x.mat(n, p.n_embd),
          b.h.mat(n, p.n_embd),
          b.y.mat(n, p.n_embd),
          b.q.mat(n, int64_t(p.n_head) * p.head_dim_k),
          b.k.mat(n, int64_t(p.n_head_kv) * p.head_dim_k),
          b.v.mat(n, int64_t(p.n_head_kv) * p.head_dim_v),
          b.att.mat(n, int64_t(p.n_head) * p.head_dim_v),
          b.g.mat(n, p.n_ff),
          b.u.mat(n, p.n_ff),
          global,
          two_bases ? RopeTable{p.n_rot, b.rope_local.data()} : global};
}

// out = attention over the pages of this layer, after adding this batch's keys and values to them.
void attention(const Step& s, const Layer& l, int il, Mat in, Mat out) {
  const Hparams& p = s.model.hparams();
  Backend& be = s.model.backend();
  const bool local = p.is_local(il);
  const RopeTable& rope = local ? s.rope_local : s.rope_global;
  const AttentionShape shape{s.model.kv_shape(), il, p.n_head, p.attn_scale, p.attn_softcap, local ? p.window : 0};

  const Product qkv[] = {{l.wq.get(), l.bq.get(), s.q}, {l.wk.get(), l.bk.get(), s.k}, {l.wv.get(), l.bv.get(), s.v}};
  be.matmul(in, qkv);
  if (l.q_norm) be.norm(s.q, s.q, NormKind::rms, l.q_norm.get(), nullptr, p.norm_eps);
  if (l.k_norm) be.norm(s.k, s.k, NormKind::rms, l.k_norm.get(), nullptr, p.norm_eps);
  be.rope(s.q, p.head_dim_k, s.model.arch().rope, rope);
  be.rope(s.k, p.head_dim_k, s.model.arch().rope, rope);
  be.store_kv(shape, s.k, s.v, s.batch.sequences);
  be.attention(s.att, s.q, shape, s.batch.sequences);
  const Product o[] = {{l.wo.get(), l.bo.get(), out}};
  be.matmul(s.att, o);
}

void feed_forward(const Step& s, const Layer& l, Mat in, Mat out) {
  Backend& be = s.model.backend();
  const ActivationFn fn = s.model.arch().activation;
  if (l.gate) {
    const Product gate_up[] = {{l.gate.get(), l.b_gate.get(), s.g}, {l.up.get(), l.b_up.get(), s.u}};
    be.matmul(in, gate_up);
    be.gate(fn, s.g, s.u);
  } else {
    const Product up[] = {{l.up.get(), l.b_up.get(), s.g}};
    be.matmul(in, up);
    be.activate(fn, s.g);
  }
  const Product down[] = {{l.down.get(), l.b_down.get(), out}};
  be.matmul(s.g, down);
}

// x += attention(norm(x)); x += feed_forward(norm(x)); gemma norms each branch's output too.
void layer(const Step& s, const Layer& l, int il) {
  const float eps = s.model.hparams().norm_eps;
  const NormKind norm = s.model.arch().norm;
  Backend& be = s.model.backend();
  const auto join = [&](const WeightPtr& post_norm) {
    if (post_norm) be.norm(s.y, s.y, norm, post_norm.get(), nullptr, eps);
    be.add(s.x, s.y);
  };
  be.norm(s.h, s.x, norm, l.attn_norm.get(), l.attn_norm_bias.get(), eps);
  attention(s, l, il, s.h, s.y);
  join(l.attn_post_norm);
  be.norm(s.h, s.x, norm, l.ffn_norm.get(), l.ffn_norm_bias.get(), eps);
  feed_forward(s, l, s.h, s.y);
  join(l.ffn_post_norm);
}

// logits of the wanted rows only
void output(const Step& s, Buffers& b, Mat logits) {
  const Hparams& p = s.model.hparams();
  const Weights& w = s.model.weights();
  Backend& be = s.model.backend();
  const Mat out = b.out.mat(logits.rows, p.n_embd);
  for (int64_t i = 0; i < logits.rows; i++)
    std::memcpy(out.row(i), s.x.row(s.batch.logit_rows[size_t(i)]), size_t(p.n_embd) * sizeof(float));
  be.norm(out, out, s.model.arch().norm, w.output_norm.get(), w.output_norm_bias.get(), p.norm_eps);
  be.matmul_fine(out, {&w.head(), nullptr, logits});
  if (p.logit_softcap) be.softcap(logits, p.logit_softcap);
}

}  // namespace

void forward(const Model& model, Buffers& buffers, const Batch& batch, Mat logits) {
  const Hparams& p = model.hparams();
  const Step s = prepare(model, buffers, batch);
  model.backend().get_rows(s.x, *model.weights().token_embd, batch.tokens);
  if (p.embed_scale) model.backend().scale(s.x, p.embed_scale);
  for (int il = 0; il < p.n_layer; il++) layer(s, model.weights().layers[size_t(il)], il);
  if (logits.rows > 0) output(s, buffers, logits);
}

}  // namespace pllm
