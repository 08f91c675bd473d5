// One sequence: its KV pages and its position. Threads that use one session are served in turn, and so are sessions of
// one model: its backend computes one step at a time.
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "base/fork.h"
#include "model/forward.h"
#include "model/kv_pages.h"

namespace pllm {

class Session {
 public:
  enum class Logits { none, last, all };

  Session(std::shared_ptr<const Model> model, int n_ctx);

  const Model& model() const { return *model_; }
  int n_ctx() const { return n_ctx_; }
  int n_tokens() const;
  size_t kv_bytes() const;

  // Runs the tokens at the next positions. logits: (n_logit_rows(which, n), n_vocab), written row by row.
  // Errors: bad_value (an id outside the vocabulary, no tokens), context_overflow, out_of_memory, io
  // (the file was cut short), what tap throws; the sequence is as before then.
  void eval(std::span<const int32_t> tokens, Logits which, float* logits, const Tap* tap = nullptr);
  static int64_t n_logit_rows(Logits which, int64_t n) {
    return which == Logits::none ? 0 : which == Logits::last ? 1 : n;
  }

  void truncate(int n_tokens);  // keeps the first n_tokens

 private:
  void run(std::span<const int32_t> tokens, Logits which, float* logits, const Tap* tap);
  void check(std::span<const int32_t> tokens) const;

  mutable ForkMutex in_use_;
  std::shared_ptr<const Model> model_;
  int n_ctx_;
  KvPool pool_;
  KvSequence sequence_;
  Buffers buffers_;
};

}  // namespace pllm
