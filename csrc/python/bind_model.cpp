#include "python/bindings.h"

namespace pllm::python {
void bind_model(pybind11::module_&) {}
}  // namespace pllm::python
