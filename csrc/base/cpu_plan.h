// Which CPUs the threads are meant for: one per physical core, fast cores first.
//
// Threads are not pinned. The scheduler knows which CPUs are busy, hot or slow, and moves a thread away; a pinned one
// waits, and two programs that pin to the same CPUs halve each other. Memory all threads read is interleaved over the
// nodes instead (memory.h), so that none of them is at home on one node.
#pragma once
#include <optional>
#include <string>
#include <vector>

namespace pllm {

struct CpuPlan {
  int count;               // threads worth starting
  std::vector<int> cpus;   // a CPU for each
  std::vector<int> nodes;  // NUMA nodes of the CPUs that we may run on
  int physical_cores;      // that we may run on: SMT siblings count once
  int slow_cores;          // of them: efficiency cores
  std::string machine;     // one line for people: what was found
  std::string why;         // one line for people: what was chosen
};

// Reads <root>/proc and <root>/sys. The least of: the physical cores among `cpus`, without slow ones where there are
// enough fast ones, and the CPU quota of every cgroup above us (rounded down, at least 1). What is missing or garbled
// there is taken as not said.
CpuPlan plan_cpus(const std::string& root, const std::vector<int>& cpus);
CpuPlan plan_cpus();  // of this process

// NUMA nodes that `cpus` belong to; {0} where the system does not say.
std::vector<int> numa_nodes(const std::string& root, const std::vector<int>& cpus);

// "0-3,8,10-11", the kernel's way; nullopt if it is anything else.
std::optional<std::vector<int>> parse_cpu_list(const std::string& text);

}  // namespace pllm
