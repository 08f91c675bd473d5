// Arithmetic for sizes and offsets that come from a file: an overflow is remembered, never wrapped.
#pragma once
#include <cstdint>
#include <limits>
#include <optional>

namespace pllm {

// An unsigned 64-bit quantity. Once an operation overflows, the result and all that is made from it has no value.
class CheckedSize {
 public:
  constexpr CheckedSize(uint64_t value) : value_(value) {}  // implicit: plain numbers mix into expressions

  friend constexpr CheckedSize operator+(CheckedSize a, CheckedSize b) {
    return a.value_ && b.value_ && *a.value_ <= kMax - *b.value_ ? CheckedSize(*a.value_ + *b.value_) : CheckedSize();
  }
  friend constexpr CheckedSize operator*(CheckedSize a, CheckedSize b) {
    if (!a.value_ || !b.value_ || (*b.value_ != 0 && *a.value_ > kMax / *b.value_)) return CheckedSize();
    return *a.value_ * *b.value_;
  }
  // The next multiple of `alignment`, a power of two.
  constexpr CheckedSize align_up(uint64_t alignment) const {
    const CheckedSize bumped = *this + (alignment - 1);
    return bumped.value_ ? CheckedSize(*bumped.value_ & ~(alignment - 1)) : CheckedSize();
  }
  constexpr std::optional<uint64_t> value() const { return value_; }  // nullopt: it overflowed
  constexpr bool fits(uint64_t limit) const { return value_ && *value_ <= limit; }

 private:
  static constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();
  constexpr CheckedSize() = default;
  std::optional<uint64_t> value_;
};

}  // namespace pllm
