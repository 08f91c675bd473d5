// A whole file mapped read-only.
//
// Reading the mapping beyond the end of a file that was cut short meanwhile ends the process (SIGBUS). check_size()
// before each use turns that into an error, unless the file is cut in the moment between check and read. A file that
// is replaced by rename stays as it was; one that is written over in place changes under our eyes.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace pllm {

class MappedFile {
 public:
  // Error io: no such file, a directory or another non-file, no permission. Error out_of_memory: mapping refused.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;

  void check_size() const;  // Error io if the file has become shorter than its mapping

  std::span<const uint8_t> bytes() const { return bytes_; }  // an empty file has none
  // These bytes will not be read soon: whole pages inside leave the process' resident memory (and come back if read).
  void release(const uint8_t* data, size_t n_bytes) const;

 private:
  std::string path_;
  int fd_ = -1;  // kept for check_size()
  std::span<const uint8_t> bytes_;
};

bool file_exists(const std::string& path);

}  // namespace pllm
