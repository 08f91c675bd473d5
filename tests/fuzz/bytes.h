// A fuzzer's input, taken piece by piece; zeros once it is used up.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>

#include "../native/check.h"

class Bytes {
 public:
  Bytes(const uint8_t* data, size_t size) : left_(data, size) {}

  bool empty() const { return left_.empty(); }
  template <class T>
  T take() {
    T value{};
    const size_t n = std::min(sizeof(T), left_.size());
    if (n > 0) std::memcpy(&value, left_.data(), n);  // no data may be a null pointer
    left_ = left_.subspan(n);
    return value;
  }
  size_t below(size_t n) { return take<uint16_t>() % n; }
  bool flip() { return take<uint8_t>() & 1; }
  std::string text(size_t most) {
    const size_t n = std::min(below(most + 1), left_.size());
    std::string result(reinterpret_cast<const char*>(left_.data()), n);
    left_ = left_.subspan(n);
    return result;
  }

 private:
  std::span<const uint8_t> left_;
};

// At the end of a run: a failed CHECK is a finding as a crash is.
inline int finished() {
  if (failures != 0) std::abort();
  return 0;
}
