#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include "backend/cpu/limits.h"
#include "base/error.h"
#include "python/bindings.h"
#include "python/unlocked.h"

namespace py = pybind11;
namespace pllm::python {
namespace {

using Bytes = py::array_t<uint8_t, py::array::c_style>;

cpu::PeakKind kind_of(const std::string& name) {
  if (name == "int8") return cpu::PeakKind::int8;
  if (name == "f32") return cpu::PeakKind::f32;
  if (name == "bf16") return cpu::PeakKind::bf16;
  throw Error(ErrorKind::bad_value, "a peak is of int8, f32 or bf16, not of '" + name + "'");
}

py::tuple read(cpu::Limits& limits, size_t n_bytes, double seconds) {
  cpu::Limits::Read best;
  {
    const Unlocked unlocked;
    best = limits.read(n_bytes, seconds);
  }
  return py::make_tuple(best.rate, best.pattern);
}

double peak(cpu::Limits& limits, const std::string& kind, double seconds) {
  const cpu::PeakKind which = kind_of(kind);
  const Unlocked unlocked;
  return limits.peak(which, seconds);
}

uint32_t sum(cpu::Limits& limits, int pattern, const Bytes& data) {
  const std::span<const uint8_t> bytes(data.data(), size_t(data.size()));
  const Unlocked unlocked;
  return limits.sum(pattern, bytes);
}

uint64_t count(cpu::Limits& limits, const std::string& kind, int rounds) {
  const cpu::PeakKind which = kind_of(kind);
  const Unlocked unlocked;
  return limits.count(which, rounds);
}

}  // namespace

void bind_limits(py::module_& m) {
  py::class_<cpu::Limits>(m, "Limits")
      .def(py::init<const std::string&, int>(), py::arg("level"), py::arg("n_threads"))
      .def_property_readonly("patterns", &cpu::Limits::patterns)
      .def("read", &read, py::arg("n_bytes"), py::kw_only(), py::arg("seconds") = 0.5)
      .def("peak", &peak, py::arg("kind"), py::kw_only(), py::arg("seconds") = 0.1)
      .def("sum", &sum, py::arg("pattern"), py::arg("data"))
      .def("count", &count, py::arg("kind"), py::arg("rounds"));
}

}  // namespace pllm::python
