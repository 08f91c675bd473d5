#include "sampling/passes.h"

#include "base/isa.h"

namespace pllm {

const Passes& passes(std::string_view level) {
#if defined(__aarch64__)
  isa_level(level);  // Error if there is none
  return kNeonPasses;
#else
  const std::string_view floats = isa_level(level).floats;
#if defined(__x86_64__)
  if (floats == "avx512") return kAvx512Passes;
  if (floats == "avx2") return kAvx2Passes;
#endif
  (void)floats;
  return kBaselinePasses;
#endif
}

}  // namespace pllm
