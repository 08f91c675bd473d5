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
  enum class Rows { none, last, all };

  Session(std::shared_ptr<const Model> model, int n_ctx, KvTypes kv_types = {});

  const Model& model() const { return *model_; }
  int n_ctx() const { return n_ctx_; }
  const KvTypes& kv_types() const { return kv_types_; }
  int n_tokens() const;
  size_t kv_bytes() const;

  // Runs the tokens at the next positions. result: (n_rows(which, n), n_vocab or n_embd), written row by row.
  // Errors: bad_value (an id outside the vocabulary, no tokens), context_overflow, out_of_memory, io
  // (the file was cut short), what tap throws; the sequence is as before then.
  void eval(std::span<const int32_t> tokens, Output output, Rows which, float* result, const Tap* tap = nullptr);
  static int64_t n_rows(Rows which, int64_t n) { return which == Rows::none ? 0 : which == Rows::last ? 1 : n; }

  void truncate(int n_tokens);  // keeps the first n_tokens

  // Copies the pages in use, kv_bytes() of them (bad_value where `pages` is of another size). Whole pages: what the
  // last one holds beyond the tokens held is no matter.
  void save(std::span<uint8_t> pages) const;
  // Whether restore() will take them. Errors: bad_value (another number of bytes, no numbers), context_overflow.
  void check_saved(int n_tokens, std::span<const uint8_t> pages) const;
  // Holds n_tokens again whose pages save() has copied. Errors: as check_saved, and out_of_memory; the sequence is as
  // before then.
  void restore(int n_tokens, std::span<const uint8_t> pages);

 private:
  void run(std::span<const int32_t> tokens, Output output, Rows which, float* result, const Tap* tap);
  void check(std::span<const int32_t> tokens) const;

  mutable ForkMutex in_use_;
  std::shared_ptr<const Model> model_;
  int n_ctx_;
  KvTypes kv_types_;
  KvPool pool_;
  KvSequence sequence_;
  Buffers buffers_;
};

}  // namespace pllm
