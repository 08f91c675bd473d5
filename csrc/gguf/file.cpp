#include "gguf/file.h"

#include <algorithm>

#include "base/error.h"
#include "base/printable.h"
#include "gguf/shards.h"
#include "gguf/sniff.h"

namespace pllm::gguf {
namespace {

constexpr size_t kFirstRead = size_t{1} << 20;        // holds the header of a model with a small vocabulary
constexpr size_t kStep = size_t{4} << 20;             // more each time it does not, or half of what was read
constexpr size_t kLargestHeader = size_t{128} << 20;  // ten times those of the largest vocabularies

std::string quoted(const std::string& path) { return "'" + path + "'"; }

// Runs `body`; an Error that leaves it gets the file's name in front, and the way to join the pieces if it is one.
template <class Body>
auto naming_file(const std::string& path, Body body) {
  try {
    return body();
  } catch (const Error& error) {
    throw Error(error.kind(), quoted(path) + ": " + error.what(), join_hint(path).value_or(error.hint()));
  }
}

}  // namespace

void File::read_up_to(Shard& shard, size_t n_bytes) {
  const size_t have = shard.bytes.size();
  shard.bytes.resize(n_bytes);
  shard.file.read(have, std::span(shard.bytes).subspan(have));
}

File::Shard File::open_shard(const std::string& path) {
  Shard shard{path, InputFile(path), {}, {}};
  const size_t file_size = shard.file.size();
  read_up_to(shard, std::min(file_size, kFirstRead));
  naming_file(path, [&] {
    if (!has_magic(shard.bytes)) {
      const Finding finding = identify(shard.bytes);
      throw Error(ErrorKind::bad_file, finding.what, finding.hint);
    }
    while (true) {
      try {
        shard.header = parse(shard.bytes, file_size);
        return;
      } catch (const Incomplete& more) {
        if (more.n_bytes > kLargestHeader)
          throw Error(ErrorKind::bad_file,
                      "its metadata and tensor index take more than " + std::to_string(kLargestHeader >> 20) + " MiB",
                      "No model needs that: the file is damaged or made to do harm. Get another copy.");
        const size_t have = shard.bytes.size(), step = std::max(kStep, have / 2);
        read_up_to(shard, std::min({file_size, kLargestHeader, std::max(more.n_bytes, have + step)}));
      }
    }
  });
  shard.file.check_unchanged();
  return shard;
}

std::vector<File::Shard> File::open_set(Shard first) {
  const SplitInfo split = naming_file(first.path, [&] { return split_info(first.header.metadata); });
  std::vector<Shard> shards;
  if (split.count == 1) {
    shards.push_back(std::move(first));
    return shards;
  }
  const std::string ordinal = "shard " + std::to_string(split.no + 1) + " of " + std::to_string(split.count);
  const auto name = parse_shard_name(first.path);
  if (!name || name->count != split.count || name->number != split.no + 1)
    throw Error(ErrorKind::bad_file, quoted(first.path) + " is " + ordinal + " of a split model, but its name is not",
                "Name the shards as they were: " +
                    shard_path(name ? name->prefix : "NAME", int(split.no + 1), int(split.count)) + " and so on.");
  std::vector<std::string> paths;
  std::string missing;
  for (int i = 1; i <= name->count; i++) {
    paths.push_back(shard_path(name->prefix, i, name->count));
    if (!file_exists(paths.back())) missing += "\n  " + paths.back();
  }
  if (!missing.empty())
    throw Error(ErrorKind::io, quoted(first.path) + " is " + ordinal + "; these shards are missing:" + missing,
                "Put all shards of the model into one directory.");
  for (int i = 0; i < name->count; i++) {
    shards.push_back(i == split.no ? std::move(first) : open_shard(paths[size_t(i)]));
    const SplitInfo expected{i, split.count, split.n_tensors};
    if (!(naming_file(paths[size_t(i)], [&] { return split_info(shards.back().header.metadata); }) == expected))
      throw Error(ErrorKind::bad_file,
                  quoted(paths[size_t(i)]) + " does not belong to the set of " + quoted(paths[0]) +
                      ": its split.no, split.count or split.tensors.count differ",
                  "Download the shards again, all from the same place.");
  }
  return shards;
}

File::File(std::string path, std::vector<Shard> shards, std::vector<Override> overrides)
    : path_(std::move(path)), overrides_(std::move(overrides)), shards_(std::move(shards)) {
  for (const Override& one : overrides_) {
    const auto* bytes = reinterpret_cast<const uint8_t*>(one.bytes.data());
    shards_[0].header.metadata.override(one.key, {.type = one.type, .bytes = {bytes, one.bytes.size()}});
  }
  for (size_t s = 0; s < shards_.size(); s++) {
    for (Tensor& tensor : shards_[s].header.tensors) {
      tensor.shard = int(s);
      if (!index_.emplace(tensor.name, tensors_.size()).second)
        throw Error(ErrorKind::bad_file,
                    quoted(shards_[s].path) + ": tensor '" + printable(tensor.name) + "' is in another shard too",
                    "Download the shards again, all from the same place.");
      tensors_.push_back(tensor);
    }
    shards_[s].header.tensors = {};
  }
  const int64_t stated = split_info(metadata()).n_tensors;
  if (stated >= 0 && size_t(stated) != tensors_.size())
    throw Error(ErrorKind::bad_file,
                quoted(path_) + ": the shards hold " + std::to_string(tensors_.size()) +
                    " tensors, but split.tensors.count is " + std::to_string(stated),
                "Download the shards again, all from the same place.");
}

std::shared_ptr<const File> File::open(const std::string& path, std::vector<Override> overrides) {
  return std::shared_ptr<const File>(new File(path, open_set(open_shard(path)), std::move(overrides)));
}

std::vector<std::string> File::shards() const {
  std::vector<std::string> paths;
  for (const Shard& shard : shards_) paths.push_back(shard.path);
  return paths;
}

const Tensor* File::tensor(std::string_view name) const {
  const auto it = index_.find(name);
  return it == index_.end() ? nullptr : &tensors_[it->second];
}

void File::read(const Tensor& tensor, uint64_t first, std::span<uint8_t> out) const {
  if (stopped_.load(std::memory_order_relaxed)) throw Error(ErrorKind::io, "reading '" + path_ + "' was stopped");
  shards_[size_t(tensor.shard)].file.read(tensor.offset + first, out);
}

void File::check_unchanged() const {
  for (const Shard& shard : shards_) shard.file.check_unchanged();
}

}  // namespace pllm::gguf
