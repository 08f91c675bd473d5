#include "python/kv_types.h"

#include "base/error.h"

namespace pllm::python {
namespace {

KvType named(const std::string& name) {
  if (const auto type = kv_type(name)) return *type;
  std::string names;
  for (const KvTypeInfo& t : kKvTypes) names.append(names.empty() ? "" : ", ").append(t.name);
  throw Error(ErrorKind::bad_value, "keys and values cannot be kept as \"" + name + "\"", "Supported: " + names + ".");
}

}  // namespace

KvTypes kv_types(const std::string& k, const std::string& v) { return {named(k), named(v)}; }

}  // namespace pllm::python
