// Backend over one KernelTable and a thread pool.
#pragma once
#include <memory>
#include <string_view>

#include "backend/backend.h"

namespace pllm::cpu {

// n_threads 0: usable_threads() of cpu_info.h. level empty: PYLLAMACPP_ISA, else the best this machine has.
// n_threads, chosen for this machine where it is 0. Error bad_value beyond what makes sense.
int thread_count(int n_threads);

std::unique_ptr<Backend> make_cpu_backend(int n_threads, std::string_view level);

}  // namespace pllm::cpu
