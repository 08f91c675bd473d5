// The GGUF tensor formats this engine computes with, made from formats.def.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

namespace pllm {

enum class Format : uint8_t {
#define FORMAT(name, id, weights, bytes, act) name,
#include "quant/formats.def"
#undef FORMAT
};

enum class Activation : uint8_t { f32, q8 };
inline constexpr int kActivationCount = 2;

struct FormatInfo {
  std::string_view name;
  uint32_t gguf_id;
  int block_weights;  // weights in a block
  int block_bytes;
  Activation activation;
};

inline constexpr FormatInfo kFormats[] = {
#define FORMAT(name, id, weights, bytes, act) {#name, id, weights, bytes, Activation::act},
#include "quant/formats.def"
#undef FORMAT
};
inline constexpr int kFormatCount = int(sizeof(kFormats) / sizeof(kFormats[0]));

constexpr const FormatInfo& info(Format f) { return kFormats[int(f)]; }

constexpr std::optional<Format> format_from_gguf_id(uint32_t id) {
  for (int i = 0; i < kFormatCount; i++)
    if (kFormats[i].gguf_id == id) return Format(i);
  return std::nullopt;
}

}  // namespace pllm
