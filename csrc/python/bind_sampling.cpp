#include "python/bindings.h"

namespace pllm::python {
void bind_sampling(pybind11::module_&) {}
}  // namespace pllm::python
