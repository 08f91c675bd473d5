// The instruction-set levels that kernels are compiled for, what each needs, and which one runs.
#pragma once
#include <array>
#include <string>
#include <string_view>
#include <vector>

namespace pllm {

struct IsaLevel {
  std::string_view name;
  std::string_view floats;                  // the level whose float code it has: some differ in products alone
  std::array<std::string_view, 9> needs{};  // of cpu_features(), then empty
};

// Names of the levels that this CPU and operating system support, slowest first.
std::vector<std::string> supported_levels();

struct ChosenLevel {
  std::string name;
  std::string why;  // one line for people
};
// The fastest supported level, or the one PYLLAMACPP_ISA asks for: read at each call, bad_value if it is not supported.
ChosenLevel best_level();

// The level of that name, best_level() where it is empty. One that is unknown or not supported here: bad_value.
const IsaLevel& isa_level(std::string_view name);

}  // namespace pllm
