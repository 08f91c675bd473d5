// Metadata values: views into the header, checked when the file was opened and decoded when asked for.
#pragma once
#include <atomic>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "gguf/cursor.h"

namespace pllm::gguf {

// The ids of the GGUF specification.
enum class ValueType : uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, string, array, u64, i64, f64 };

std::string_view name_of(ValueType type);
// Bytes of one scalar; 0 for strings and arrays.
size_t scalar_size(ValueType type);

struct Value {
  ValueType type = ValueType::u8;
  ValueType element_type = ValueType::u8;  // of an array
  uint64_t count = 1;                      // items of an array
  std::span<const uint8_t> bytes = {};  // a string's characters; a scalar or an array's items as they are in the file

  std::string_view string() const { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }
  template <class T>
  T as() const {
    T value;
    std::memcpy(&value, bytes.data(), sizeof value);
    return value;
  }
};

ValueType read_value_type(Cursor& cursor);
// Reads and validates one value; `depth` counts the arrays around it.
Value read_value(Cursor& cursor, ValueType type, int depth = 0);

// Calls `visit(value)` for each item of an array.
template <class Visit>
void for_each_item(const Value& array, Visit visit) {
  Cursor cursor(array.bytes);
  for (uint64_t i = 0; i < array.count; i++) visit(read_value(cursor, array.element_type));
}

// The key-value pairs of a file, in file order. Getters: nothing if the key is absent, Error bad_file naming the key
// and its type if the type is another.
class Metadata {
 public:
  struct Entry {
    std::string_view key;
    Value value;
    std::shared_ptr<std::atomic<bool>> asked = {};  // of a value that the file does not have
  };
  bool add(std::string_view key, const Value& value);  // false if the key is there already
  // In place of the file's value, or beside them. Error bad_value if the file's is of another kind.
  void override(std::string_view key, const Value& value);
  std::vector<std::string_view> unasked() const;  // keys that only override() knows and that nobody looked for
  const std::vector<Entry>& entries() const { return entries_; }
  const Value* find(std::string_view key) const;

  std::optional<int64_t> integer(std::string_view key) const;  // any integer type, or bool
  std::optional<double> number(std::string_view key) const;    // any integer or floating type
  std::optional<bool> boolean(std::string_view key) const;
  std::optional<std::string_view> string(std::string_view key) const;
  std::vector<double> numbers(std::string_view key) const;  // array of numbers or bools; a scalar is one item
  std::vector<std::string_view> strings(std::string_view key) const;
  size_t array_size(std::string_view key) const;

 private:
  std::vector<Entry> entries_;
  std::unordered_map<std::string_view, size_t> index_;
};

}  // namespace pllm::gguf
