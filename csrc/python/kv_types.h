// KV types by the names that Python has for them.
#pragma once
#include <string>

#include "backend/kv_type.h"

namespace pllm::python {

inline const std::string kDefaultKvType(info(KvTypes{}.k).name);

KvTypes kv_types(const std::string& k, const std::string& v);  // Error: bad_value, naming those there are

}  // namespace pllm::python
