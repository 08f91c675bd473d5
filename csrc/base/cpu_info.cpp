#include "base/cpu_info.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <thread>

#if defined(__linux__)
#include <sched.h>
#endif
#include <unistd.h>

namespace pllm {

namespace {

std::optional<std::string> first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  return line;
}

// "name value" or "name: value ..." lines, as in meminfo and memory.stat
std::optional<uint64_t> field(const std::string& path, const std::string& name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string key;
    uint64_t value;
    if (words >> key >> value && (key == name || key == name + ":")) return value;
  }
  return std::nullopt;
}

std::optional<int64_t> integer(const std::string& path) {
  const auto line = first_line(path);
  if (!line) return std::nullopt;
  std::istringstream words(*line);
  int64_t value;
  if (!(words >> value)) return std::nullopt;  // "max"
  return value;
}

// ---- cgroups: the directories from ours up to the mount's root, for one controller
struct Cgroup {
  bool v2;
  std::vector<std::string> dirs;
};

bool has_word(const std::string& list, const std::string& word) {
  std::istringstream words(list);
  for (std::string w; std::getline(words, w, ',');)
    if (w == word) return true;
  return false;
}

// Our path in the hierarchy of a v1 controller, or in v2's ("")
std::optional<std::string> cgroup_path(const std::string& root, const std::string& controller) {
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {  // id:controllers:path
    const size_t a = line.find(':'), b = line.find(':', a + 1);
    if (a == std::string::npos || b == std::string::npos) continue;
    const std::string controllers = line.substr(a + 1, b - a - 1);
    if (controller.empty() ? controllers.empty() : has_word(controllers, controller)) return line.substr(b + 1);
  }
  return std::nullopt;
}

std::vector<std::string> directories(const std::string& mount, const std::string& mount_root, std::string path) {
  // In a container the path may be the host's while the mount shows only our part of the tree.
  if (mount_root != "/") path = path.rfind(mount_root, 0) == 0 ? path.substr(mount_root.size()) : "";
  if (path.find("..") != std::string::npos) path = "";
  while (!path.empty() && path.back() == '/') path.pop_back();
  std::vector<std::string> dirs;
  for (; !path.empty(); path.erase(path.rfind('/'))) dirs.push_back(mount + path);
  dirs.push_back(mount);
  return dirs;
}

std::vector<Cgroup> cgroups(const std::string& root, const std::string& controller) {
  std::vector<Cgroup> found;
  std::ifstream file(root + "/proc/self/mountinfo");
  for (std::string line;
       std::getline(file, line);) {  // id parent dev root mount options [optional] - type source super
    const size_t dash = line.find(" - ");
    if (dash == std::string::npos) continue;
    std::istringstream before(line), after(line.substr(dash + 3));
    std::string skip, mount_root, mount, type, source, options;
    if (!(before >> skip >> skip >> skip >> mount_root >> mount) || !(after >> type >> source >> options)) continue;
    const bool v2 = type == "cgroup2";
    if (!v2 && !(type == "cgroup" && has_word(options, controller))) continue;
    const auto path = cgroup_path(root, v2 ? "" : controller);
    if (path) found.push_back({v2, directories(root + mount, mount_root, *path)});
  }
  return found;
}

std::string mib(uint64_t bytes) { return std::to_string(bytes >> 20) + " MiB"; }

}  // namespace

std::optional<double> cpu_quota(const std::string& root) {
  std::optional<double> least;
  for (const Cgroup& group : cgroups(root, "cpu")) {
    for (const std::string& dir : group.dirs) {
      std::optional<int64_t> quota, period;
      if (group.v2) {
        quota = integer(dir + "/cpu.max");  // "quota period", or "max period"
        if (const auto line = first_line(dir + "/cpu.max"); quota && line) {
          std::istringstream words(*line);
          int64_t q, p;
          if (words >> q >> p) period = p;
        }
      } else {
        quota = integer(dir + "/cpu.cfs_quota_us");
        period = integer(dir + "/cpu.cfs_period_us");
      }
      if (!quota || !period || *quota <= 0 || *period <= 0) continue;
      const double cpus = double(*quota) / double(*period);
      least = std::min(least.value_or(cpus), cpus);
    }
  }
  return least;
}

#if defined(__linux__)
std::vector<int> cpu_affinity() {
  std::vector<int> cpus;
  for (int n = 1024; n <= 1 << 16; n *= 2) {  // larger until the kernel's mask fits
    cpu_set_t* set = CPU_ALLOC(n);
    if (!set) break;
    const size_t bytes = CPU_ALLOC_SIZE(n);
    const bool ok = sched_getaffinity(0, bytes, set) == 0;
    for (int i = 0; ok && i < n; i++)
      if (CPU_ISSET_S(i, bytes, set)) cpus.push_back(i);
    CPU_FREE(set);
    if (ok) return cpus;
  }
  return {0};
}
#else
std::vector<int> cpu_affinity() {
  std::vector<int> cpus(std::max(1u, std::thread::hardware_concurrency()));
  for (size_t i = 0; i < cpus.size(); i++) cpus[i] = int(i);
  return cpus;
}
#endif

MemoryInfo memory_info(const std::string& root) {
  const auto total = field(root + "/proc/meminfo", "MemTotal"),
             available = field(root + "/proc/meminfo", "MemAvailable");
  MemoryInfo m{total.value_or(0) << 10, available.value_or(total.value_or(0)) << 10, ""};
  m.why = mib(m.available) + " of " + mib(m.total) + " are free or reclaimable";
  if (!total) {  // no Linux /proc
    m.total = m.available = uint64_t(sysconf(_SC_PHYS_PAGES)) * uint64_t(sysconf(_SC_PAGESIZE));
    m.why = "the machine's " + mib(m.total) + "; how much of it is free is not known here";
  }
  for (const Cgroup& group : cgroups(root, "memory")) {
    for (const std::string& dir : group.dirs) {
      const auto limit = integer(dir + (group.v2 ? "/memory.max" : "/memory.limit_in_bytes"));
      const auto usage = integer(dir + (group.v2 ? "/memory.current" : "/memory.usage_in_bytes"));
      if (!limit || !usage || uint64_t(*limit) >= m.total) continue;  // v1 says "no limit" with a huge number
      const auto files =
          int64_t(field(dir + "/memory.stat", group.v2 ? "inactive_file" : "total_inactive_file").value_or(0));
      const int64_t used = std::max<int64_t>(0, *usage - files);
      const uint64_t left = *limit > used ? uint64_t(*limit - used) : 0;
      m.total = uint64_t(*limit);
      if (left < m.available) {
        m.available = left;
        m.why = "cgroup limit of " + mib(uint64_t(*limit)) + ", " + mib(uint64_t(used)) + " of it in use";
      }
    }
  }
  return m;
}

uint64_t available_memory() { return memory_info("").available; }

}  // namespace pllm
