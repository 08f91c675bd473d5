// What keys and values are kept as, made from kv_types.def.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace pllm {

enum class KvType : uint8_t {
#define KV_TYPE(name, ...) name,
#include "backend/kv_types.def"
#undef KV_TYPE
};

struct KvTypeInfo {
  std::string_view name;
  int ggml_id;  // -1: GGML has no such type
  int number_bytes, scale_bytes, scale_numbers;
};

inline constexpr KvTypeInfo kKvTypes[] = {
#define KV_TYPE(name, arithmetic, ...) {#name, __VA_ARGS__},
#include "backend/kv_types.def"
#undef KV_TYPE
};
inline constexpr int kKvTypeCount = int(sizeof(kKvTypes) / sizeof(kKvTypes[0]));

constexpr const KvTypeInfo& info(KvType t) { return kKvTypes[int(t)]; }

constexpr std::optional<KvType> kv_type(std::string_view name) {
  for (int i = 0; i < kKvTypeCount; i++)
    if (kKvTypes[i].name == name) return KvType(i);
  return std::nullopt;
}

struct KvTypes {
  KvType k{}, v{};  // the list's first
};

}  // namespace pllm
