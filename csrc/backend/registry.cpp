#include "backend/registry.h"

#include "backend/cpu/cpu_backend.h"

namespace pllm {

std::unique_ptr<Backend> make_backend(const BackendOptions& options) {
  return cpu::make_cpu_backend(options.n_threads, options.level);
}

}  // namespace pllm
