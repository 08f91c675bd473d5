// What this machine offers: instruction sets the OS lets us use, CPUs we may run on, memory free to take.
//
// Functions with a root directory read <root>/proc and <root>/sys (Linux), so tests can use a made-up machine.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace pllm {

// Instruction-set extensions of this CPU whose registers the OS saves, e.g. "avx2", "avx512f"; empty where unknown.
std::vector<std::string> cpu_features();

// CPUs this process may run on.
std::vector<int> cpu_affinity();
// The least CPU time per time that a cgroup above us leaves us, in CPUs; nullopt without a quota.
std::optional<double> cpu_quota(const std::string& root);

struct MemoryInfo {
  uint64_t total, available;  // bytes
  std::string why;            // one line for people
};
// `available` may be taken without swapping: MemAvailable, or less where a cgroup above us limits it (its reclaimable
// file pages count as free).
MemoryInfo memory_info(const std::string& root);
uint64_t available_memory();  // of this process

}  // namespace pllm
