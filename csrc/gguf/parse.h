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

// bytes: the beginning of a file of `file_size` bytes, kept by the caller as long as the Header.
// Throws Incomplete if the header goes on behind them; Error bad_file (or unsupported_model for a tensor type nobody
// knows) without the file's name, which the caller knows.
Header parse(std::span<const uint8_t> bytes, uint64_t file_size);

}  // namespace pllm::gguf
