// Reads a byte range front to back; nothing is read, and no size believed, beyond what remains.
//
// The range may be the beginning of a longer file: what the file could not hold is an Error, what has only not been
// read yet is Incomplete.
#pragma once
#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/checked.h"
#include "base/error.h"

namespace pllm::gguf {

static_assert(std::endian::native == std::endian::little, "GGUF values are read in place: little-endian hosts only");

struct Incomplete {
  uint64_t n_bytes;  // of the file that must be there to go on
};

class Cursor {
 public:
  explicit Cursor(std::span<const uint8_t> bytes) : Cursor(bytes, bytes.size()) {}
  Cursor(std::span<const uint8_t> bytes, uint64_t file_size) : bytes_(bytes), file_size_(file_size) {}

  size_t offset() const { return offset_; }
  uint64_t remaining() const { return file_size_ - offset_; }   // in the file
  void set_item(std::string item) { item_ = std::move(item); }  // what is being read, for messages
  const std::string& item() const { return item_; }

  std::span<const uint8_t> take(CheckedSize n_bytes) {
    require(n_bytes);
    const auto taken = bytes_.subspan(offset_, *n_bytes.value());
    offset_ += taken.size();
    return taken;
  }
  template <class T>
  T read() {
    T value;
    std::memcpy(&value, take(sizeof(T)).data(), sizeof(T));
    return value;
  }
  std::string_view read_string() {
    const auto chars = take(read<uint64_t>());
    return {reinterpret_cast<const char*>(chars.data()), chars.size()};
  }
  std::span<const uint8_t> since(size_t begin) const { return bytes_.subspan(begin, offset_ - begin); }
  // Throws unless that many bytes remain: called before anything is done `count` times.
  void require(CheckedSize n_bytes) const {
    require_in_file(n_bytes);
    if (!n_bytes.fits(bytes_.size() - offset_)) throw Incomplete{offset_ + *n_bytes.value()};
  }
  void require_in_file(CheckedSize n_bytes) const {  // the same, read yet or not
    if (!n_bytes.fits(remaining())) fail_short(n_bytes);
  }
  [[noreturn]] void fail(const std::string& problem) const {
    throw Error(ErrorKind::bad_file, item_ + " at byte " + std::to_string(offset_) + ": " + problem);
  }

 private:
  [[noreturn]] void fail_short(CheckedSize n_bytes) const {
    const auto n = n_bytes.value();
    fail("needs " + (n ? std::to_string(*n) : "more than 2^64") + " bytes, but " + std::to_string(remaining()) +
         " remain (the file has " + std::to_string(file_size_) + " bytes)");
  }

  std::span<const uint8_t> bytes_;
  uint64_t file_size_;
  size_t offset_ = 0;
  std::string item_ = "header";
};

}  // namespace pllm::gguf
