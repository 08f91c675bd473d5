// How much memory a model takes, and the context that fits.
#pragma once
#include <cstddef>
#include <optional>

#include "backend/backend.h"
#include "gguf/file.h"

namespace pllm {

struct MemoryPlan {
  size_t available = 0;  // bytes this process may still take
  size_t weight_bytes = 0;
  size_t kv_bytes_per_token = 0;
  size_t reserve = 0;  // left for activations, the interpreter and other programs
  int n_ctx_train = 0;
  int n_ctx = 0;
  size_t total() const { return weight_bytes + reserve + kv_bytes_per_token * size_t(n_ctx); }
};

// n_ctx absent: min(trained, what fits). An explicit n_ctx that cannot fit: Error out_of_memory with the numbers.
// weights_loaded: `available` was measured after loading, so only the KV cache is still to come.
MemoryPlan plan_memory(const gguf::File& file, const Backend& backend, size_t available, bool weights_loaded,
                       std::optional<int> n_ctx, KvTypes kv_types = {});

}  // namespace pllm
