#include "model/work.h"

#include <algorithm>

namespace pllm {
namespace {

void add(Work& work, const WeightPtr& weight) {
  if (!weight) return;
  work.bytes += weight->bytes;
  if (weight->rows == 1) return;  // norms and biases: no products
  const int64_t macs = weight->rows * weight->cols;
  (info(weight->format).activation == Activation::q8 ? work.int8_macs : work.float_macs) += macs;
}

void add(Work& work, const FeedForward& f) {
  for (const WeightPtr* w : {&f.gate, &f.up, &f.b_gate, &f.b_up, &f.down, &f.b_down}) add(work, *w);
}

}  // namespace

Work layers_work(const Model& model) {
  Work work;
  for (const Layer& l : model.weights().layers) {
    for (const WeightPtr* w : {&l.attn_norm, &l.attn_norm_bias, &l.wq, &l.wk, &l.wv, &l.bq, &l.bk, &l.bv, &l.wo, &l.bo,
                               &l.attn_post_norm, &l.ffn_norm, &l.ffn_norm_bias, &l.ffn_post_norm})
      add(work, *w);
    for (const WeightPtr* w : {&l.q_norm, &l.k_norm, &l.sinks})
      if (*w) work.bytes += (*w)->bytes;  // with a row a head, and no products either
    add(work, l.ffn);
    if (!l.experts) continue;
    for (const WeightPtr* w : {&l.experts->router, &l.experts->b_router, &l.experts->shared_router}) add(work, *w);
    add(work, l.experts->shared);
    Work all;
    for (const FeedForward& expert : l.experts->by_id) add(all, expert);
    const auto used = [&](auto n) {
      return n * decltype(n)(model.hparams().n_expert_used) / decltype(n)(model.hparams().n_expert);
    };
    work.bytes += used(all.bytes);
    work.int8_macs += used(all.int8_macs);
    work.float_macs += used(all.float_macs);
  }
  return work;
}

Work head_work(const Model& model) {
  const Weights& w = model.weights();
  Work work;
  add(work, w.output_norm);
  add(work, w.output_norm_bias);
  add(work, w.output ? w.output : w.token_embd);
  return work;
}

size_t kv_bytes_read(const Model& model, KvTypes kv_types, int n_keys) {
  const Hparams& h = model.hparams();
  const size_t page = model.backend().kv_page_bytes(model.kv_shape(kv_types));
  size_t keys = 0;  // of all layers
  for (int il = 0; il < h.n_layer; il++) keys += size_t(h.is_local(il) ? std::min(n_keys, h.window) : n_keys);
  return page * keys / size_t(h.n_layer) / size_t(kPageTokens);
}

}  // namespace pllm
