// A file read by position.
//
// Not mapped: weights are copied into the backend's own layout anyway, and a mapping that is read beyond the end of a
// file which was cut short meanwhile ends the process (SIGBUS), where a read fails.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace pllm {

class InputFile {
 public:
  // Error io: no such file, a directory or another non-file, no permission.
  explicit InputFile(const std::string& path);
  ~InputFile();
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&&) = delete;

  size_t size() const { return state_.size; }  // when it was opened
  // Fills `out` from there on. Threads may call it at once. Error bad_file if the file ends before, io if the system
  // cannot read it.
  void read(uint64_t offset, std::span<uint8_t> out) const;
  // Error bad_file if the file has another size or time of modification than when it was opened. One that is replaced
  // by renaming another stays as it was. Called after reading: what was read before is of the file that was opened.
  void check_unchanged() const;

 private:
  struct State {
    size_t size;
    int64_t seconds, nanoseconds;  // of the last modification
    bool operator==(const State&) const = default;
  };
  State state() const;
  [[noreturn]] void fail_changed(bool shorter) const;

  std::string path_;
  int fd_ = -1;
  State state_{};
};

bool file_exists(const std::string& path);

}  // namespace pllm
