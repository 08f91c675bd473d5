// The Python object GgufFile: a file and what of it has been turned into Python objects.
#pragma once
#include <pybind11/pybind11.h>

#include <memory>
#include <optional>

#include "gguf/file.h"

namespace pllm::python {

struct GgufFile {
  std::shared_ptr<const gguf::File> file;
  std::optional<pybind11::dict> metadata;  // built when first asked for
  std::optional<pybind11::list> tensors;
};

}  // namespace pllm::python
