// Recognizes what people open by mistake, so that the error can say what the file is and what to do.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace pllm::gguf {

bool has_magic(std::span<const uint8_t> bytes);

struct Finding {
  std::string what;
  std::string hint;
};
// Says what a file without GGUF's magic is.
Finding identify(std::span<const uint8_t> bytes);

// How to join the pieces if the name is that of one piece of a file cut at arbitrary bytes (x.gguf.part1of2,
// x.gguf.part00, x.gguf-split-a, x.gguf.001); nothing otherwise.
std::optional<std::string> join_hint(const std::string& path);

}  // namespace pllm::gguf
