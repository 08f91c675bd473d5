// One sequence: its KV pages and its position. Threads that call eval() and truncate(), of one session or of several of
// a model, are served in turn.
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "model/forward.h"
#include "model/kv_pages.h"

namespace pllm {

class Session {
 public:
  enum class Logits { none, last, all };

  Session(std::shared_ptr<const Model> model, int n_ctx);

  const Model& model() const { return *model_; }
  int n_ctx() const { return n_ctx_; }
  int n_tokens() const { return sequence_.n_tokens(); }
  size_t kv_bytes() const { return sequence_.bytes(); }

  // Runs the tokens at the next positions. logits: (n_logit_rows(which, n), n_vocab), written row by row.
  // Errors: bad_value (an id outside the vocabulary, no tokens), context_overflow; nothing is changed then.
  void eval(std::span<const int32_t> tokens, Logits which, float* logits);
  static int64_t n_logit_rows(Logits which, int64_t n) {
    return which == Logits::none ? 0 : which == Logits::last ? 1 : n;
  }

  void truncate(int n_tokens);  // keeps the first n_tokens

 private:
  void check(std::span<const int32_t> tokens) const;

  std::shared_ptr<const Model> model_;
  int n_ctx_;
  KvPool pool_;
  KvSequence sequence_;
  Buffers buffers_;
};

}  // namespace pllm
