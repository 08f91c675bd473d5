// A whole file mapped read-only.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace pllm {

class MappedFile {
 public:
  // Error io: no such file, a directory or another non-file, no permission, mapping refused.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;

  std::span<const uint8_t> bytes() const { return bytes_; }  // an empty file has none
  // These bytes will not be read soon: whole pages inside leave the process' resident memory (and come back if read).
  void release(const uint8_t* data, size_t n_bytes) const;

 private:
  std::span<const uint8_t> bytes_;
};

bool file_exists(const std::string& path);

}  // namespace pllm
