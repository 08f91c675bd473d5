// A GGUF model file, or the set of files one was split into: its header read and validated once, then immutable.
#pragma once
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/input_file.h"
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
  // Fills `out` with the tensor's bytes from the first-th on. Threads may call it at once. Error bad_file if the file
  // has become too short for that since it was opened.
  void read(const Tensor& tensor, uint64_t first, std::span<uint8_t> out) const;
  // From now on read() is an error: what another thread loads from the file ends soon, and fails.
  void stop_reading() const { stopped_.store(true, std::memory_order_relaxed); }
  void check_unchanged() const;  // Error bad_file if a shard has been written to since it was opened

 private:
  struct Shard {
    std::string path;
    InputFile file;
    std::vector<uint8_t> bytes;  // its beginning: what the header's views are of
    Header header;
  };
  static void read_up_to(Shard& shard, size_t n_bytes);
  static Shard open_shard(const std::string& path);
  // The siblings of `first` in order, `first` among them; checks that they belong together.
  static std::vector<Shard> open_set(Shard first);
  File(std::string path, std::vector<Shard> shards, std::vector<Override> overrides);

  std::string path_;
  const std::vector<Override> overrides_;  // the metadata's views of them
  std::vector<Shard> shards_;
  std::vector<Tensor> tensors_;
  std::unordered_map<std::string_view, size_t> index_;
  mutable std::atomic<bool> stopped_{false};
};

}  // namespace pllm::gguf
