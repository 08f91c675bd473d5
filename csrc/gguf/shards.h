// Names and metadata of split models: model-00001-of-00003.gguf and split.no / split.count / split.tensors.count.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "gguf/value.h"

namespace pllm::gguf {

struct ShardName {
  std::string prefix;  // everything before "-00001-of-00003.gguf", directories included
  int number;          // from 1
  int count;
};
std::optional<ShardName> parse_shard_name(const std::string& path);
std::string shard_path(const std::string& prefix, int number, int count);

struct SplitInfo {
  int64_t no = 0;  // from 0
  int64_t count = 1;
  int64_t n_tensors = -1;  // of the whole model; -1: not stated
  bool operator==(const SplitInfo&) const = default;
};
// What the metadata says; one shard of one if it says nothing. Error bad_file if it is absurd.
SplitInfo split_info(const Metadata& metadata);

}  // namespace pllm::gguf
