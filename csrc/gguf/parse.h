// One GGUF file's header: metadata and the tensor index, validated against the file's size.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "gguf/tensor.h"
#include "gguf/value.h"

namespace pllm::gguf {

struct Header {
  uint32_t version = 0;
  Metadata metadata;
  std::vector<Tensor> tensors;  // file order; shard = 0
};

// Error bad_file (or unsupported_model for a tensor type nobody knows) without the file's name, which the caller knows.
Header parse(std::span<const uint8_t> bytes);

}  // namespace pllm::gguf
