#include "sampling/passes.h"

#include <algorithm>
#include <initializer_list>
#include <string>

#include "base/cpu_info.h"

namespace pllm {

const Passes& passes() {
  static const Passes& best = []() -> const Passes& {
#if defined(__x86_64__)
    const std::vector<std::string> features = cpu_features();
    const auto has = [&](std::initializer_list<const char*> needs) {
      return std::all_of(needs.begin(), needs.end(), [&](const char* need) {
        return std::find(features.begin(), features.end(), need) != features.end();
      });
    };
    if (has({"avx2", "fma", "f16c", "bmi2", "avx512f", "avx512bw", "avx512dq", "avx512vl"})) return kAvx512Passes;
    if (has({"avx2", "fma", "f16c", "bmi2"})) return kAvx2Passes;
#endif
    return kBaselinePasses;
  }();
  return best;
}

}  // namespace pllm
