// Backend over one KernelTable and a thread pool.
#pragma once
#include <memory>
#include <string_view>

#include "backend/backend.h"

namespace pllm::cpu {

// 0: plan_cpus() of cpu_plan.h. Error bad_value for what is no number of threads.
int thread_count(int n_threads);

// n_threads: as thread_count() takes them. level empty: PYLLAMACPP_ISA, else the best this machine has.
std::unique_ptr<Backend> make_cpu_backend(int n_threads, std::string_view level);

}  // namespace pllm::cpu
