// A GGUF model file, or the set of files one was split into: mapped, validated once, then immutable.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/mapped_file.h"
#include "gguf/parse.h"
#include "gguf/tensor.h"
#include "gguf/value.h"

namespace pllm::gguf {

// A metadata value that takes the place of the file's own.
struct Override {
  std::string key;
  ValueType type;  // a scalar or a string
  std::string bytes;
};

class File {
 public:
  // Opens a model by its path; any shard of a split model opens the whole set (its siblings are found by name).
  // Error io: the file or a shard cannot be opened. Error bad_file: not GGUF, truncated, corrupt, shards that do not
  // belong together. Error unsupported_model: a tensor type that is not known. Error bad_value: an override of another
  // kind than the file's value.
  static std::shared_ptr<const File> open(const std::string& path, std::vector<Override> overrides = {});

  const std::string& path() const { return path_; }  // as given to open()
  std::vector<std::string> shards() const;           // paths in order; one if the model is not split
  uint32_t version() const { return shards_[0].header.version; }
  const Metadata& metadata() const { return shards_[0].header.metadata; }  // the first shard's is the model's

  std::optional<int64_t> integer(std::string_view key) const { return metadata().integer(key); }
  std::optional<double> number(std::string_view key) const { return metadata().number(key); }
  std::optional<bool> boolean(std::string_view key) const { return metadata().boolean(key); }
  std::optional<std::string_view> string(std::string_view key) const { return metadata().string(key); }
  std::vector<double> numbers(std::string_view key) const { return metadata().numbers(key); }
  std::vector<std::string_view> strings(std::string_view key) const { return metadata().strings(key); }
  size_t array_size(std::string_view key) const { return metadata().array_size(key); }

  const Tensor* tensor(std::string_view name) const;  // nullptr if absent
  const std::vector<Tensor>& tensors() const { return tensors_; }
  void check_size() const;  // Error io if a shard has become shorter since it was opened: its tensors cannot be read
  // Part of the tensor will not be needed soon: its pages leave the resident memory. Threads may call it at once.
  void release(const Tensor& tensor, const uint8_t* data, size_t n_bytes) const;

 private:
  struct Shard {
    std::string path;
    MappedFile map;
    Header header;
  };
  static Shard open_shard(const std::string& path);
  // The siblings of `first` in order, `first` among them; checks that they belong together.
  static std::vector<Shard> open_set(Shard first);
  File(std::string path, std::vector<Shard> shards, std::vector<Override> overrides);

  std::string path_;
  const std::vector<Override> overrides_;  // the metadata's views of them
  std::vector<Shard> shards_;
  std::vector<Tensor> tensors_;
  std::unordered_map<std::string_view, size_t> index_;
};

}  // namespace pllm::gguf
