// A backend that tells what its time goes into, class of operation by class.
#pragma once
#include <array>
#include <memory>
#include <string_view>

#include "backend/backend.h"

namespace pllm {

enum class OpClass : uint8_t { embd, norm, matmul, rope, attention, gate, head, other };
inline constexpr std::string_view kOpClassNames[] = {"embd",      "norm", "matmul", "rope",
                                                     "attention", "gate", "head",   "other"};
inline constexpr int kOpClassCount = int(std::size(kOpClassNames));

class ProfiledBackend : public Backend {
 public:
  // Seconds of each class since the last call. Call it between two steps.
  virtual std::array<double, size_t(kOpClassCount)> take_profile() = 0;
};

std::unique_ptr<ProfiledBackend> profiled(std::unique_ptr<Backend> backend);

}  // namespace pllm
