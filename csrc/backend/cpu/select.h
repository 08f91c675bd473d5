// Which instruction-set level runs.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "backend/cpu/kernels.h"

namespace pllm::cpu {

// Levels that this CPU and OS support, slowest first; "baseline" always.
std::vector<std::string> supported_levels();

struct Level {
  std::string name;
  std::string why;  // one line for people
};
// The fastest supported level, or the one PYLLAMACPP_ISA asks for: read at each call, bad_value if it is not supported.
Level best_level();

// The kernels of a level. One that is unknown or not supported here: bad_value.
const KernelTable& kernels(std::string_view level);
const KernelTable& default_kernels();  // of best_level()

}  // namespace pllm::cpu
