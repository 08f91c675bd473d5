// What this machine offers: instruction sets the OS lets us use, threads worth starting, memory free to take.
//
// The functions of a root directory read <root>/proc and <root>/sys, so tests can use a made-up machine.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace pllm {

// Instruction-set extensions of this CPU whose registers the OS saves, e.g. "avx2", "avx512f"; empty where unknown.
std::vector<std::string> cpu_features();

struct CpuCount {
  int count;
  std::string why;  // one line for people
};
struct MemoryInfo {
  uint64_t total, available;  // bytes; 0 where unknown
  std::string why;
};

// CPUs this process may run on.
std::vector<int> cpu_affinity();
// Physical cores among `cpus`: SMT siblings count once.
int physical_cores(const std::string& root, const std::vector<int>& cpus);
// min(affinity, cgroup quota rounded down but at least 1, physical cores)
CpuCount recommended_threads(const std::string& root, const std::vector<int>& cpus);
// What may be taken without swapping: MemAvailable, or less where a cgroup on the path limits it.
MemoryInfo memory_info(const std::string& root);

}  // namespace pllm
