#include "gguf/shards.h"

#include <algorithm>
#include <cstdio>
#include <string_view>

#include "base/error.h"

namespace pllm::gguf {
namespace {

constexpr int kDigits = 5;
constexpr std::string_view kOf = "-of-", kEnd = ".gguf";
constexpr size_t kSuffix = 1 + kDigits + kOf.size() + kDigits + kEnd.size();  // "-00001-of-00003.gguf"

std::optional<int> digits(std::string_view text) {
  int value = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    value = value * 10 + (c - '0');
  }
  return value;
}

}  // namespace

std::optional<ShardName> parse_shard_name(const std::string& path) {
  if (path.size() < kSuffix) return std::nullopt;
  const std::string_view suffix = std::string_view(path).substr(path.size() - kSuffix);
  const auto number = digits(suffix.substr(1, kDigits));
  const auto count = digits(suffix.substr(1 + kDigits + kOf.size(), kDigits));
  if (suffix[0] != '-' || suffix.substr(1 + kDigits, kOf.size()) != kOf || !suffix.ends_with(kEnd) || !number || !count)
    return std::nullopt;
  return ShardName{path.substr(0, path.size() - kSuffix), *number, *count};
}

std::string shard_path(const std::string& prefix, int number, int count) {
  char suffix[48];
  std::snprintf(suffix, sizeof suffix, "-%05d-of-%05d.gguf", number, count);
  return prefix + suffix;
}

SplitInfo split_info(const Metadata& metadata) {
  constexpr int64_t kMaxShards = 65535;  // the counters are 16 bits wide
  SplitInfo split;
  split.count = metadata.integer("split.count").value_or(1);
  if (split.count == 0) split.count = 1;  // some tools write 0 for "not split"
  split.no = metadata.integer("split.no").value_or(0);
  split.n_tensors = metadata.integer("split.tensors.count").value_or(-1);
  if (split.count < 1 || split.count > kMaxShards || split.no < 0 || split.no >= split.count || split.n_tensors < -1)
    throw Error(ErrorKind::bad_file,
                "split.no is " + std::to_string(split.no) + ", split.count " + std::to_string(split.count) +
                    ", split.tensors.count " + std::to_string(split.n_tensors),
                "The file was split wrongly or is damaged: download the shards again.");
  return split;
}

}  // namespace pllm::gguf
