#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "quant/formats.h"

namespace pllm::gguf {

// One tensor of a file. The name is valid as long as the File.
struct Tensor {
  std::string_view name;
  uint32_t type_id;
  std::string_view type_name;
  std::optional<Format> format;  // nullopt: a GGUF type without kernels here
  int n_dims;
  std::array<int64_t, 4> shape;  // shape[0] = columns (contiguous), shape[1] = rows, ...; missing dimensions are 1
  uint64_t offset;               // of its data in the file
  size_t n_bytes;
  int shard;
};

}  // namespace pllm::gguf
