#include "backend/cpu/select.h"

#include <algorithm>
#include <cstdlib>

#include "backend/cpu/levels.h"
#include "base/cpu_info.h"
#include "base/error.h"

namespace pllm::cpu {
namespace {

struct Candidate {
  const KernelTable* table;
  std::vector<std::string> needs;  // cpu_features()
};

const std::vector<Candidate>& candidates() {  // slowest first
  static const std::vector<Candidate> all = {
      {&kBaselineTable, {}},
#if defined(__x86_64__)
      {&kAvx2Table, {"avx2", "fma", "f16c", "bmi2"}},
      {&kAvxVnniTable, {"avx2", "fma", "f16c", "bmi2", "avxvnni"}},
      {&kAvx512Table, {"avx2", "fma", "f16c", "bmi2", "avx512f", "avx512bw", "avx512dq", "avx512vl"}},
      {&kAvx512VnniTable, {"avx2", "fma", "f16c", "bmi2", "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512vnni"}},
#endif
  };
  return all;
}

const std::vector<const KernelTable*>& supported() {
  static const std::vector<const KernelTable*> tables = [] {
    const std::vector<std::string> features = cpu_features();
    std::vector<const KernelTable*> found;
    for (const Candidate& c : candidates()) {
      const bool all = std::all_of(c.needs.begin(), c.needs.end(), [&](const std::string& need) {
        return std::find(features.begin(), features.end(), need) != features.end();
      });
      if (all) found.push_back(c.table);
    }
    return found;
  }();
  return tables;
}

const KernelTable* find(std::string_view level) {
  for (const KernelTable* t : supported())
    if (t->level == level) return t;
  return nullptr;
}

[[noreturn]] void refuse(std::string_view level, const std::string& source) {
  std::string names;
  for (const std::string& name : supported_levels()) names += (names.empty() ? "" : ", ") + name;
  throw Error(ErrorKind::bad_value,
              source + "instruction-set level \"" + std::string(level) + "\" is not supported on this machine",
              "Supported here: " + names + ".");
}

}  // namespace

std::vector<std::string> supported_levels() {
  std::vector<std::string> names;
  for (const KernelTable* t : supported()) names.emplace_back(t->level);
  return names;
}

Level best_level() {
  const char* forced = std::getenv("PYLLAMACPP_ISA");
  if (forced && *forced) {
    if (!find(forced)) refuse(forced, "PYLLAMACPP_ISA: ");
    return {forced, "PYLLAMACPP_ISA asks for it"};
  }
  return {supported().back()->level, "the fastest that this CPU and operating system support"};
}

const KernelTable& kernels(std::string_view level) {
  const KernelTable* table = find(level);
  if (!table) refuse(level, "");
  return *table;
}

const KernelTable& default_kernels() { return kernels(best_level().name); }

}  // namespace pllm::cpu
