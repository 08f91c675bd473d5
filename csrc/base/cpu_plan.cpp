#include "base/cpu_plan.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <fstream>
#include <set>
#include <sstream>

#include "base/cpu_info.h"

namespace pllm {
namespace {

constexpr int kMaxCpu = 1 << 16;
constexpr double kSlow = 0.6;   // of the fastest: cores of one kind differ by less, dense and medium ones too
constexpr int kEnoughFast = 4;  // fewer fast cores than this need the slow ones' help

struct Core {
  int cpu;  // the first of its SMT siblings that we may run on
  bool slow;
};

std::string cpu_dir(const std::string& root) { return root + "/sys/devices/system/cpu/"; }

std::optional<std::string> line_of(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  return line;
}

std::optional<std::vector<int>> list_of(const std::string& path) {
  const auto line = line_of(path);
  return line ? parse_cpu_list(*line) : std::nullopt;
}

std::optional<double> speed_of(const std::string& path) {
  const auto line = line_of(path);
  if (!line) return std::nullopt;
  std::istringstream words(*line);
  double value;
  if (!(words >> value) || !(value > 0)) return std::nullopt;
  return value;
}

// An affinity taken before CPUs went offline may name them still.
std::vector<int> online(const std::string& root, const std::vector<int>& cpus) {
  std::vector<int> both;
  const auto list = list_of(cpu_dir(root) + "online");
  for (int cpu : std::set<int>(cpus.begin(), cpus.end()))
    if (!list || std::binary_search(list->begin(), list->end(), cpu)) both.push_back(cpu);
  return both.empty() ? cpus : both;
}

std::vector<Core> cores_of(const std::string& root, const std::vector<int>& cpus) {
  std::vector<Core> cores;
  std::set<int> seen;
  for (int cpu : cpus) {
    if (!seen.insert(cpu).second) continue;
    cores.push_back({cpu, false});
    const auto siblings = list_of(cpu_dir(root) + "cpu" + std::to_string(cpu) + "/topology/thread_siblings_list");
    if (siblings && std::binary_search(siblings->begin(), siblings->end(), cpu))
      seen.insert(siblings->begin(), siblings->end());
  }
  return cores;
}

// Intel names its kinds. Elsewhere the kernel's own capacity, which counts work per cycle too, or else the clock; a
// core whose speed is not said is not slow. acpi_cppc is not asked: its units are the vendor's, and it ranks preferred
// cores far apart that are equal.
void find_slow(const std::string& root, std::vector<Core>& cores) {
  const auto atoms = list_of(root + "/sys/devices/cpu_atom/cpus"), fast = list_of(root + "/sys/devices/cpu_core/cpus");
  if (atoms && fast) {
    for (Core& core : cores) core.slow = std::binary_search(atoms->begin(), atoms->end(), core.cpu);
    return;
  }
  for (const char* file : {"/cpu_capacity", "/cpufreq/cpuinfo_max_freq"}) {
    std::vector<double> speeds;
    for (const Core& core : cores) {
      const auto speed = speed_of(cpu_dir(root) + "cpu" + std::to_string(core.cpu) + file);
      if (!speed) break;
      speeds.push_back(*speed);
    }
    if (speeds.empty() || speeds.size() != cores.size()) continue;
    const double most = *std::max_element(speeds.begin(), speeds.end());
    for (size_t i = 0; i < cores.size(); i++) cores[i].slow = speeds[i] < kSlow * most;
    return;
  }
}

std::string counted(size_t n, const std::string& what) { return std::to_string(n) + " " + what + (n == 1 ? "" : "s"); }

}  // namespace

std::optional<std::vector<int>> parse_cpu_list(const std::string& text) {
  std::set<int> cpus;
  std::string trimmed = text;
  while (!trimmed.empty() && std::isspace(static_cast<unsigned char>(trimmed.back()))) trimmed.pop_back();
  const char *at = trimmed.data(), *const end = at + trimmed.size();
  while (at < end) {
    int first = 0;
    auto [next, error] = std::from_chars(at, end, first);
    int last = first;
    if (error == std::errc() && next < end && *next == '-') {
      const auto range = std::from_chars(next + 1, end, last);
      next = range.ptr;
      error = range.ec;
    }
    if (error != std::errc() || first < 0 || last < first || last >= kMaxCpu) return std::nullopt;
    for (int cpu = first; cpu <= last; cpu++) cpus.insert(cpu);
    if (next < end && (*next != ',' || next + 1 == end)) return std::nullopt;
    at = next < end ? next + 1 : end;
  }
  return std::vector<int>(cpus.begin(), cpus.end());
}

std::vector<int> numa_nodes(const std::string& root, const std::vector<int>& cpus) {
  std::vector<int> nodes;
  const std::string dir = root + "/sys/devices/system/node/";
  for (int node : list_of(dir + "online").value_or(std::vector<int>{})) {
    const auto members = list_of(dir + "node" + std::to_string(node) + "/cpulist");
    const auto ours = [&](int cpu) { return std::binary_search(members->begin(), members->end(), cpu); };
    if (members && std::any_of(cpus.begin(), cpus.end(), ours)) nodes.push_back(node);
  }
  return nodes.empty() ? std::vector<int>{0} : nodes;
}

CpuPlan plan_cpus(const std::string& root, const std::vector<int>& allowed) {
  const std::vector<int> cpus = online(root, allowed);
  std::vector<Core> cores = cores_of(root, cpus);
  find_slow(root, cores);
  std::stable_partition(cores.begin(), cores.end(), [](const Core& core) { return !core.slow; });
  const auto n_slow = size_t(std::count_if(cores.begin(), cores.end(), [](const Core& core) { return core.slow; }));
  const size_t n_fast = cores.size() - n_slow;

  const int n_cores = std::max(1, int(cores.size()));
  CpuPlan plan{n_cores, {}, numa_nodes(root, cpus), n_cores, int(n_slow), "", ""};
  plan.machine = counted(size_t(plan.physical_cores), "physical core");
  if (n_slow > 0)
    plan.machine += " (" + std::to_string(n_fast) + " performance, " + std::to_string(n_slow) + " efficiency)";
  plan.machine += " that we may run on";
  if (cpus.size() > cores.size()) plan.machine += ", " + std::to_string(cpus.size()) + " CPUs with SMT";
  if (plan.nodes.size() > 1) plan.machine += ", memory interleaved over " + counted(plan.nodes.size(), "NUMA node");

  plan.why = "one for each physical core";
  if (n_slow > 0 && n_fast >= kEnoughFast) {
    plan.count = int(n_fast);
    plan.why = "one for each performance core; efficiency cores would hold them up";
  } else if (n_slow > 0) {
    plan.why += ", efficiency cores too, since there are few others";
  }
  if (const auto quota = cpu_quota(root); quota && *quota < double(plan.count)) {
    plan.count = std::max(1, int(*quota));
    std::ostringstream s;
    s << "cgroup quota of " << std::round(*quota * 100) / 100 << " CPUs";
    plan.why = s.str();
  }
  for (const Core& core : cores)
    if (int(plan.cpus.size()) < plan.count) plan.cpus.push_back(core.cpu);
  return plan;
}

CpuPlan plan_cpus() { return plan_cpus("", cpu_affinity()); }

}  // namespace pllm
