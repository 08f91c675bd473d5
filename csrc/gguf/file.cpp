#include "gguf/file.h"

#include "base/error.h"
#include "gguf/shards.h"
#include "gguf/sniff.h"

namespace pllm::gguf {
namespace {

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

File::Shard File::open_shard(const std::string& path) {
  Shard shard{path, MappedFile(path), {}};
  naming_file(path, [&] {
    const auto bytes = shard.map.bytes();
    if (!has_magic(bytes)) {
      const Finding finding = identify(bytes);
      throw Error(ErrorKind::bad_file, finding.what, finding.hint);
    }
    shard.header = parse(bytes);
  });
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
                    quoted(shards_[s].path) + ": tensor '" + std::string(tensor.name.substr(0, 200)) +
                        "' is in another shard too",
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

void File::check_size() const {
  for (const Shard& shard : shards_) shard.map.check_size();
}

void File::release(const Tensor& tensor, const uint8_t* data, size_t n_bytes) const {
  shards_[size_t(tensor.shard)].map.release(data, n_bytes);
}

}  // namespace pllm::gguf
