#include "base/isa.h"

#include <algorithm>
#include <cstdlib>

#include "base/cpu_info.h"
#include "base/error.h"

namespace pllm {
namespace {

// Of this architecture, slowest first; the first runs everywhere.
constexpr IsaLevel kLevels[] = {
#if defined(__aarch64__)
    {"neon", "neon"},
    {"dotprod", "neon", {"asimddp"}},
    {"i8mm", "neon", {"asimddp", "i8mm"}},
#else
    {"baseline", "baseline"},
#endif
#if defined(__x86_64__)
    {"avx2", "avx2", {"avx2", "fma", "f16c", "bmi2"}},
    {"avxvnni", "avx2", {"avx2", "fma", "f16c", "bmi2", "avxvnni"}},
    {"avx512", "avx512", {"avx2", "fma", "f16c", "bmi2", "avx512f", "avx512bw", "avx512dq", "avx512vl"}},
    {"avx512vnni",
     "avx512",
     {"avx2", "fma", "f16c", "bmi2", "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512vnni"}},
#endif
};

const std::vector<const IsaLevel*>& supported() {
  static const std::vector<const IsaLevel*> levels = [] {
    const std::vector<std::string> features = cpu_features();
    std::vector<const IsaLevel*> found;
    for (const IsaLevel& level : kLevels) {
      const bool all = std::all_of(level.needs.begin(), level.needs.end(), [&](std::string_view need) {
        return need.empty() || std::find(features.begin(), features.end(), need) != features.end();
      });
      if (all) found.push_back(&level);
    }
    return found;
  }();
  return levels;
}

const IsaLevel* find(std::string_view name) {
  for (const IsaLevel* level : supported())
    if (level->name == name) return level;
  return nullptr;
}

[[noreturn]] void refuse(std::string_view name, const std::string& source) {
  std::string names;
  for (const std::string& other : supported_levels()) names += (names.empty() ? "" : ", ") + other;
  throw Error(ErrorKind::bad_value,
              source + "instruction-set level \"" + std::string(name) + "\" is not supported on this machine",
              "Supported here: " + names + ".");
}

}  // namespace

std::vector<std::string> supported_levels() {
  std::vector<std::string> names;
  for (const IsaLevel* level : supported()) names.emplace_back(level->name);
  return names;
}

ChosenLevel best_level() {
  const char* forced = std::getenv("PYLLAMACPP_ISA");
  if (forced && *forced) {
    if (!find(forced)) refuse(forced, "PYLLAMACPP_ISA: ");
    return {forced, "PYLLAMACPP_ISA asks for it"};
  }
  return {std::string(supported().back()->name), "the fastest that this CPU and operating system support"};
}

const IsaLevel& isa_level(std::string_view name) {
  if (name.empty()) return *find(best_level().name);
  const IsaLevel* level = find(name);
  if (!level) refuse(name, "");
  return *level;
}

}  // namespace pllm
