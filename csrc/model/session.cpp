#include "model/session.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <numeric>
#include <string>
#include <utility>

#include "base/error.h"

namespace pllm {
namespace {

// Rows of one pass: enough for full speed, little enough that activations stay small. Never changes a result.
constexpr int64_t kMaxRows = 512;

void require_size(size_t bytes, size_t wanted, int n_tokens) {
  if (n_tokens >= 0 && bytes == wanted) return;
  throw Error(ErrorKind::bad_value, std::to_string(bytes) + " bytes are not the keys and values of " +
                                        std::to_string(n_tokens) + " tokens of this model");
}

}  // namespace

Session::Session(std::shared_ptr<const Model> model, int n_ctx, KvTypes kv_types)
    : model_(std::move(model)),
      n_ctx_(n_ctx),
      kv_types_(kv_types),
      pool_(model_->backend().kv_page_bytes(model_->kv_shape(kv_types))),
      sequence_(pool_) {
  if (n_ctx < 1) throw Error(ErrorKind::bad_value, "n_ctx must be at least 1, not " + std::to_string(n_ctx));
  const WeightPtr& positions = model_->weights().position_embd;
  if (positions && n_ctx > positions->rows) {
    throw Error(ErrorKind::context_overflow,
                "a context of " + std::to_string(n_ctx) + " tokens is longer than the " +
                    std::to_string(positions->rows) + " positions that this model has embeddings of",
                "Open the model with n_ctx (-c) " + std::to_string(positions->rows) + " or less.");
  }
}

int Session::n_tokens() const {
  const std::lock_guard own(in_use_);
  return sequence_.n_tokens();
}

size_t Session::kv_bytes() const {
  const std::lock_guard own(in_use_);
  return sequence_.bytes();
}

void Session::check(std::span<const int32_t> tokens) const {
  const int n_vocab = model_->hparams().n_vocab;
  if (tokens.empty()) throw Error(ErrorKind::bad_value, "no tokens to evaluate", "Give at least one token.");
  for (int32_t id : tokens) {
    if (id >= 0 && id < n_vocab) continue;
    throw Error(ErrorKind::bad_value, "token id " + std::to_string(id) + " is outside the vocabulary (0 … " +
                                          std::to_string(n_vocab - 1) + ")");
  }
  const int held = sequence_.n_tokens();
  if (tokens.size() > size_t(n_ctx_ - held)) {
    throw Error(
        ErrorKind::context_overflow,
        std::to_string(held + int64_t(tokens.size())) + " tokens do not fit the context of " + std::to_string(n_ctx_),
        "Shorten the prompt or open the model with a larger n_ctx (-c).");
  }
}

void Session::eval(std::span<const int32_t> tokens, Output output, Rows which, float* result, const Tap* tap) {
  const std::lock_guard own(in_use_);
  check(tokens);
  const int before = sequence_.n_tokens();
  try {
    run(tokens, output, which, result, tap);
  } catch (...) {
    sequence_.truncate(before);
    throw;
  }
}

void Session::run(std::span<const int32_t> tokens, Output output, Rows which, float* result, const Tap* tap) {
  const Hparams& p = model_->hparams();
  const int64_t width = output == Output::hidden ? p.n_embd : p.n_vocab;
  std::vector<int32_t> positions, output_rows;
  while (!tokens.empty()) {
    const int n = int(std::min<int64_t>(kMaxRows, int64_t(tokens.size())));
    const bool last = size_t(n) == tokens.size();
    const int pos0 = sequence_.n_tokens();
    sequence_.reserve(pos0 + n);
    positions.resize(size_t(n));
    std::iota(positions.begin(), positions.end(), pos0);
    output_rows.clear();
    if (which == Rows::all) {
      output_rows.resize(size_t(n));
      std::iota(output_rows.begin(), output_rows.end(), 0);
    } else if (which == Rows::last && last) {
      output_rows.push_back(n - 1);
    }
    const SequenceRows rows[] = {{sequence_.pages(), 0, n, pos0}};
    const auto n_rows = int64_t(output_rows.size());
    const std::lock_guard turn(model_->turn());
    forward(*model_, buffers_, {tokens.first(size_t(n)), positions, rows, output_rows, n_ctx_, kv_types_, tap}, output,
            {result, n_rows, width, width});
    if (model_->weights().in_file()) model_->file().check_unchanged();  // rows that were looked up are the model's
    sequence_.extend(n);
    result += n_rows * width;
    tokens = tokens.subspan(size_t(n));
  }
}

void Session::truncate(int n_tokens) {
  const std::lock_guard own(in_use_);
  if (n_tokens < 0 || n_tokens > sequence_.n_tokens()) {
    throw Error(ErrorKind::bad_value,
                "cannot keep " + std::to_string(n_tokens) + " tokens of " + std::to_string(sequence_.n_tokens()));
  }
  sequence_.truncate(n_tokens);
}

void Session::save(std::span<uint8_t> pages) const {
  const std::lock_guard own(in_use_);
  require_size(pages.size(), sequence_.bytes(), sequence_.n_tokens());
  const size_t page = pool_.page_bytes();
  for (size_t at = 0; at < pages.size(); at += page) std::memcpy(&pages[at], sequence_.pages()[at / page], page);
}

void Session::check_saved(int n_tokens, std::span<const uint8_t> pages) const {
  const size_t n_pages = size_t(std::max(0, n_tokens) + kPageTokens - 1) / kPageTokens;
  require_size(pages.size(), n_pages * pool_.page_bytes(), n_tokens);
  if (n_tokens > n_ctx_) {
    throw Error(ErrorKind::context_overflow,
                std::to_string(n_tokens) + " tokens do not fit the context of " + std::to_string(n_ctx_));
  }
  if (!model_->backend().kv_is_finite(model_->kv_shape(kv_types_),
                                      pages))  // masked values count zero times, and zero times NaN is NaN
    throw Error(ErrorKind::bad_value, "these keys and values are not all numbers");
}

void Session::restore(int n_tokens, std::span<const uint8_t> pages) {
  check_saved(n_tokens, pages);
  const std::lock_guard own(in_use_);
  const int before = sequence_.n_tokens();
  try {
    sequence_.reserve(n_tokens);
  } catch (...) {
    sequence_.truncate(before);
    throw;
  }
  const size_t page = pool_.page_bytes();
  for (size_t at = 0; at < pages.size(); at += page) std::memcpy(sequence_.pages()[at / page], &pages[at], page);
  sequence_.truncate(std::min(before, n_tokens));
  sequence_.extend(n_tokens - sequence_.n_tokens());
}

}  // namespace pllm
