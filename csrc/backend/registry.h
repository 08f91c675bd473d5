// Backends by name. Only the CPU today; the registry is the one place that knows which were built.
#pragma once
#include <memory>
#include <string>

#include "backend/backend.h"

namespace pllm {

struct BackendOptions {
  int n_threads = 0;  // 0: as many as this process may use well (cpu_info.h)
  std::string level;  // force an instruction-set level, e.g. "avx2"; empty: PYLLAMACPP_ISA, else the best
};

std::unique_ptr<Backend> make_backend(const BackendOptions& options);

}  // namespace pllm
