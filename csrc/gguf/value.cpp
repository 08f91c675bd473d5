#include "gguf/value.h"

#include "base/error.h"

namespace pllm::gguf {
namespace {

constexpr int kMaxArrayDepth = 4;  // the files in use have one level; the limit bounds the recursion

struct TypeInfo {
  std::string_view name;
  size_t size;
};
constexpr TypeInfo kTypes[] = {{"uint8", 1},  {"int8", 1},    {"uint16", 2}, {"int16", 2},  {"uint32", 4},
                               {"int32", 4},  {"float32", 4}, {"bool", 1},   {"string", 0}, {"array", 0},
                               {"uint64", 8}, {"int64", 8},   {"float64", 8}};

// The fewest bytes an item can take: a bound on counts before any loop over them.
uint64_t least_size(ValueType type) {
  if (type == ValueType::string) return sizeof(uint64_t);
  if (type == ValueType::array) return sizeof(uint32_t) + sizeof(uint64_t);
  return scalar_size(type);
}

Value read_array(Cursor& cursor, int depth) {
  if (depth >= kMaxArrayDepth) cursor.fail("arrays nested deeper than " + std::to_string(kMaxArrayDepth));
  Value array{.type = ValueType::array};
  array.element_type = read_value_type(cursor);
  array.count = cursor.read<uint64_t>();
  const CheckedSize least = CheckedSize(array.count) * least_size(array.element_type);
  cursor.require(least);
  if (scalar_size(array.element_type) != 0) {
    array.bytes = cursor.take(least);
    if (array.element_type == ValueType::boolean)
      for (const uint8_t b : array.bytes)
        if (b > 1) cursor.fail("a bool is " + std::to_string(b) + ", neither 0 nor 1");
    return array;
  }
  const size_t begin = cursor.offset();
  for (uint64_t i = 0; i < array.count; i++) read_value(cursor, array.element_type, depth + 1);
  array.bytes = cursor.since(begin);
  return array;
}

std::optional<double> to_double(const Value& value) {
  switch (value.type) {
    case ValueType::u8: return value.as<uint8_t>();
    case ValueType::i8: return value.as<int8_t>();
    case ValueType::u16: return value.as<uint16_t>();
    case ValueType::i16: return value.as<int16_t>();
    case ValueType::u32: return value.as<uint32_t>();
    case ValueType::i32: return value.as<int32_t>();
    case ValueType::u64: return double(value.as<uint64_t>());
    case ValueType::i64: return double(value.as<int64_t>());
    case ValueType::f32: return value.as<float>();
    case ValueType::f64: return value.as<double>();
    default: return std::nullopt;
  }
}

bool is_float(ValueType type) { return type == ValueType::f32 || type == ValueType::f64; }
bool is_integer(ValueType type) { return scalar_size(type) != 0 && type != ValueType::boolean && !is_float(type); }

std::string describe(const Value& value) {
  if (value.type != ValueType::array) return std::string(name_of(value.type));
  return "array of " + std::string(name_of(value.element_type));
}

[[noreturn]] void wrong_type(std::string_view key, const Value& value, const char* wanted) {
  throw Error(ErrorKind::bad_file,
              "metadata '" + std::string(key) + "' has type " + describe(value) + "; expected " + wanted,
              "The file was written with a wrong type; get it from another source or convert the model again.");
}

}  // namespace

std::string_view name_of(ValueType type) { return kTypes[uint32_t(type)].name; }
size_t scalar_size(ValueType type) { return kTypes[uint32_t(type)].size; }

ValueType read_value_type(Cursor& cursor) {
  const uint32_t id = cursor.read<uint32_t>();
  if (id >= std::size(kTypes)) cursor.fail("unknown value type " + std::to_string(id));
  return ValueType(id);
}

Value read_value(Cursor& cursor, ValueType type, int depth) {
  if (type == ValueType::array) return read_array(cursor, depth);
  Value value{.type = type};
  value.bytes = cursor.take(type == ValueType::string ? cursor.read<uint64_t>() : scalar_size(type));
  if (type == ValueType::boolean && value.bytes[0] > 1)
    cursor.fail("a bool is " + std::to_string(value.bytes[0]) + ", neither 0 nor 1");
  return value;
}

bool Metadata::add(std::string_view key, const Value& value) {
  if (!index_.emplace(key, entries_.size()).second) return false;
  entries_.push_back({key, value});
  return true;
}

const Value* Metadata::find(std::string_view key) const {
  const auto it = index_.find(key);
  if (it == index_.end()) return nullptr;
  const Entry& entry = entries_[it->second];
  if (entry.asked) *entry.asked = true;
  return &entry.value;
}

void Metadata::override(std::string_view key, const Value& value) {
  const auto it = index_.find(key);
  if (it == index_.end()) {
    add(key, value);
    entries_.back().asked = std::make_shared<std::atomic<bool>>(false);
    return;
  }
  Value& own = entries_[it->second].value;
  const bool integers = is_integer(own.type) && is_integer(value.type);
  const bool floats = is_float(own.type) && (is_float(value.type) || is_integer(value.type));
  if (!integers && !floats && own.type != value.type)
    throw Error(
        ErrorKind::bad_value,
        "metadata '" + std::string(key) + "' has type " + describe(own) + " in the file, not " + describe(value),
        "Override it with a value of the file's kind.");
  own = value;
}

std::vector<std::string_view> Metadata::unasked() const {
  std::vector<std::string_view> keys;
  for (const Entry& entry : entries_)
    if (entry.asked && !*entry.asked) keys.push_back(entry.key);
  return keys;
}

std::optional<int64_t> Metadata::integer(std::string_view key) const {
  const Value* value = find(key);
  if (!value) return std::nullopt;
  switch (value->type) {
    case ValueType::u8:
    case ValueType::boolean: return value->as<uint8_t>();
    case ValueType::i8: return value->as<int8_t>();
    case ValueType::u16: return value->as<uint16_t>();
    case ValueType::i16: return value->as<int16_t>();
    case ValueType::u32: return value->as<uint32_t>();
    case ValueType::i32: return value->as<int32_t>();
    case ValueType::i64: return value->as<int64_t>();
    case ValueType::u64:
      if (value->as<uint64_t>() > uint64_t(std::numeric_limits<int64_t>::max()))
        throw Error(ErrorKind::bad_file, "metadata '" + std::string(key) + "' is " +
                                             std::to_string(value->as<uint64_t>()) + ", beyond any sensible value");
      return int64_t(value->as<uint64_t>());
    default: wrong_type(key, *value, "an integer");
  }
}

std::optional<double> Metadata::number(std::string_view key) const {
  const Value* value = find(key);
  if (!value) return std::nullopt;
  const auto number = to_double(*value);
  if (!number) wrong_type(key, *value, "a number");
  return number;
}

std::optional<bool> Metadata::boolean(std::string_view key) const {
  const Value* value = find(key);
  if (!value) return std::nullopt;
  if (value->type != ValueType::boolean) wrong_type(key, *value, "a bool");
  return value->as<uint8_t>() != 0;
}

std::optional<std::string_view> Metadata::string(std::string_view key) const {
  const Value* value = find(key);
  if (!value) return std::nullopt;
  if (value->type != ValueType::string) wrong_type(key, *value, "a string");
  return value->string();
}

std::vector<double> Metadata::numbers(std::string_view key) const {
  const Value* value = find(key);
  if (!value) return {};
  const ValueType item = value->type == ValueType::array ? value->element_type : value->type;
  if (scalar_size(item) == 0) wrong_type(key, *value, "numbers");
  std::vector<double> numbers;
  const auto append = [&](const Value& v) {
    numbers.push_back(v.type == ValueType::boolean ? v.as<uint8_t>() : *to_double(v));
  };
  if (value->type == ValueType::array)
    for_each_item(*value, append);
  else
    append(*value);
  return numbers;
}

std::vector<std::string_view> Metadata::strings(std::string_view key) const {
  const Value* value = find(key);
  if (!value) return {};
  if (value->type != ValueType::array || value->element_type != ValueType::string)
    wrong_type(key, *value, "an array of strings");
  std::vector<std::string_view> strings;
  strings.reserve(value->count);
  for_each_item(*value, [&](const Value& v) { strings.push_back(v.string()); });
  return strings;
}

size_t Metadata::array_size(std::string_view key) const {
  const Value* value = find(key);
  if (!value) return 0;
  if (value->type != ValueType::array) wrong_type(key, *value, "an array");
  return value->count;
}

}  // namespace pllm::gguf
