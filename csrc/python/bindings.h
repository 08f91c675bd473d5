// One bind_<topic>() a file; module.cpp calls them all.
#pragma once
#include <pybind11/pybind11.h>

namespace pllm::python {
void bind_gguf(pybind11::module_& m);       // GgufFile, spm_merges
void bind_kernels(pybind11::module_& m);    // formats, decode and products at a named level: for tests and doctor
void bind_sampling(pybind11::module_& m);   // Sampler
void bind_attention(pybind11::module_& m);  // elementwise operations and attention over KV pages: for tests
void bind_limits(pybind11::module_& m);     // what the machine can do at most
void bind_model(pybind11::module_& m);      // Model, Session
}  // namespace pllm::python
