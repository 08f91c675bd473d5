// Every tensor type of GGUF: those of quant/formats.def and the others, so that any file can be measured and named.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

#include "quant/formats.h"

namespace pllm::gguf {

struct TensorType {
  std::string_view name;
  uint32_t id;
  int block_weights;  // weights in a block
  int block_bytes;
};

// Without kernels here. Sizes: gguf-py's GGML_QUANT_SIZES; ids 31-33 and 36-38 were withdrawn (repacked Q4_0 and
// IQ4_NL).
inline constexpr TensorType kOtherTypes[] = {
    {"Q8_1", 9, 32, 40},        {"Q8_K", 15, 256, 292},     {"IQ2_XXS", 16, 256, 66}, {"IQ2_XS", 17, 256, 74},
    {"IQ3_XXS", 18, 256, 98},   {"IQ1_S", 19, 256, 50},     {"IQ3_S", 21, 256, 110},  {"IQ2_S", 22, 256, 82},
    {"I8", 24, 1, 1},           {"I16", 25, 1, 2},          {"I32", 26, 1, 4},        {"I64", 27, 1, 8},
    {"F64", 28, 1, 8},          {"IQ1_M", 29, 256, 56},     {"Q4_0_4_4", 31, 32, 18}, {"Q4_0_4_8", 32, 32, 18},
    {"Q4_0_8_8", 33, 32, 18},   {"TQ1_0", 34, 256, 54},     {"TQ2_0", 35, 256, 66},   {"IQ4_NL_4_4", 36, 32, 18},
    {"IQ4_NL_4_8", 37, 32, 18}, {"IQ4_NL_8_8", 38, 32, 18}, {"NVFP4", 40, 64, 36},    {"Q1_0", 41, 128, 18},
};

constexpr std::optional<TensorType> find_tensor_type(uint32_t id) {
  if (const auto format = format_from_gguf_id(id)) {
    const FormatInfo& f = info(*format);
    return TensorType{f.name, id, f.block_weights, f.block_bytes};
  }
  for (const TensorType& type : kOtherTypes)
    if (type.id == id) return type;
  return std::nullopt;
}

}  // namespace pllm::gguf
