#include "backend/cpu/bf16_peak.h"

#include <algorithm>
#include <string>
#include <vector>

#include "base/cpu_info.h"

namespace pllm::cpu {

Peak bf16_peak() {
#if defined(__x86_64__) || defined(__aarch64__)
  static const bool has = [] {
    const std::vector<std::string> features = cpu_features();
    return std::any_of(features.begin(), features.end(),
                       [](const std::string& name) { return name == "avx512bf16" || name == "bf16"; });
  }();
  if (has) return kBf16Peak;
#endif
  return {nullptr, 0};
}

}  // namespace pllm::cpu
