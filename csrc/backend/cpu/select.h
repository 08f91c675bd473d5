// The kernels of an instruction-set level.
#pragma once
#include <string_view>

#include "backend/cpu/kernels.h"

namespace pllm::cpu {

// "": those of best_level(). A level that is unknown or not supported here: bad_value.
const KernelTable& kernels(std::string_view level);

}  // namespace pllm::cpu
