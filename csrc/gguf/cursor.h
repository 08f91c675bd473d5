// Reads a byte range front to back; nothing is read, and no size believed, beyond what remains.
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

class Cursor {
 public:
  explicit Cursor(std::span<const uint8_t> bytes) : bytes_(bytes) {}

  size_t offset() const { return offset_; }
  size_t remaining() const { return bytes_.size() - offset_; }
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
    if (!n_bytes.fits(remaining())) fail_short(n_bytes);
  }
  [[noreturn]] void fail(const std::string& problem) const {
    throw Error(ErrorKind::bad_file, item_ + " at byte " + std::to_string(offset_) + ": " + problem);
  }

 private:
  [[noreturn]] void fail_short(CheckedSize n_bytes) const {
    const auto n = n_bytes.value();
    fail("needs " + (n ? std::to_string(*n) : "more than 2^64") + " bytes, but " + std::to_string(remaining()) +
         " remain (the file has " + std::to_string(bytes_.size()) + " bytes)");
  }

  std::span<const uint8_t> bytes_;
  size_t offset_ = 0;
  std::string item_ = "header";
};

}  // namespace pllm::gguf
