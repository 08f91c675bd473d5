#include "python/bindings.h"

namespace pllm::python {
void bind_kernels(pybind11::module_&) {}
}  // namespace pllm::python
