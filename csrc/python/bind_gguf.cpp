#include "python/bindings.h"

namespace pllm::python {
void bind_gguf(pybind11::module_&) {}
}  // namespace pllm::python
