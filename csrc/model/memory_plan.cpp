#include "model/memory_plan.h"

#include <algorithm>
#include <cstdio>
#include <string>

#include "base/error.h"
#include "model/hparams.h"
#include "model/weights.h"

namespace pllm {
namespace {

constexpr size_t kReserve = size_t{192} << 20;
constexpr int kSmallestContext = 128;  // less is no use: say that the model does not fit

std::string mib(size_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.0f MiB", double(bytes) / (1 << 20));
  return text;
}

}  // namespace

MemoryPlan plan_memory(const gguf::File& file, const Backend& backend, size_t available, bool weights_loaded,
                       std::optional<int> n_ctx, KvTypes kv_types) {
  const Hparams h = read_hparams(file);
  MemoryPlan plan;
  plan.available = available;
  plan.weight_bytes = weight_bytes(file);
  plan.kv_bytes_per_token =
      backend.kv_page_bytes({h.n_layer, h.n_head_kv, h.head_dim_k, h.head_dim_v, kv_types}) / size_t(kPageTokens);
  plan.reserve = kReserve;
  plan.n_ctx_train = h.n_ctx_train;

  const size_t fixed = plan.reserve + (weights_loaded ? 0 : plan.weight_bytes);
  const size_t left = available > fixed ? available - fixed : 0;
  const auto fits = int(std::min<size_t>(left / plan.kv_bytes_per_token, size_t(1) << 30));
  if (n_ctx && *n_ctx < 1) throw Error(ErrorKind::bad_value, "n_ctx must be at least 1, not " + std::to_string(*n_ctx));
  plan.n_ctx = n_ctx ? *n_ctx : std::min(h.n_ctx_train, fits / kPageTokens * kPageTokens);
  const bool too_much = n_ctx ? *n_ctx > fits : plan.n_ctx < std::min(kSmallestContext, h.n_ctx_train);
  if (too_much) {
    const int wanted = n_ctx ? *n_ctx : std::min(kSmallestContext, h.n_ctx_train);
    const size_t kv = plan.kv_bytes_per_token * size_t(wanted);
    throw Error(ErrorKind::out_of_memory,
                "a context of " + std::to_string(wanted) + " tokens needs " + mib(kv) + " of KV cache" +
                    (weights_loaded ? "" : ", " + mib(plan.weight_bytes) + " of weights") + " and " +
                    mib(plan.reserve) + " of working memory; " + mib(available) + " are available",
                fits >= kSmallestContext ? "A context of " + std::to_string(fits) + " tokens would fit (n_ctx, -c)."
                                         : "Take a smaller model or quantization, or free memory.");
  }
  return plan;
}

}  // namespace pllm
