#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "backend/cpu/kernels.h"
#include "base/error.h"
#include "python/bindings.h"

namespace py = pybind11;
namespace pllm::python {
namespace {

using Floats = py::array_t<float, py::array::c_style | py::array::forcecast>;

struct FloatLevel {
  const char* name;
  bool supported;
  const cpu::ElementwiseKernels* elementwise;
};

std::vector<FloatLevel> float_levels() {
  std::vector<FloatLevel> levels = {{"baseline", true, &cpu::kBaselineElementwise}};
#if defined(__x86_64__)
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq");
  levels.push_back({"avx2", avx2, &cpu::kAvx2Elementwise});
  levels.push_back({"avx512", avx512, &cpu::kAvx512Elementwise});
#endif
  return levels;
}

FloatLevel float_level(const std::string& name) {
  for (const FloatLevel& level : float_levels()) {
    if (level.supported && level.name == name) return level;
  }
  throw Error(ErrorKind::bad_value, "no float kernels of level \"" + name + "\" on this CPU");
}

void check(bool ok, const char* what) {
  if (!ok) throw Error(ErrorKind::bad_value, what);
}

// One operation on every row of x (rows, n): a and b are its other operands, s its scalar.
Floats elementwise(const std::string& level, const std::string& op, const Floats& x, std::optional<Floats> a,
                   std::optional<Floats> b, float s, int n_rot) {
  const cpu::ElementwiseKernels& k = *float_level(level).elementwise;
  check(x.ndim() == 2, "x must have two dimensions: (rows, n)");
  const int64_t rows = x.shape(0), n = x.shape(1);
  Floats out({rows, n});
  std::copy(x.data(), x.data() + rows * n, out.mutable_data());
  using Row = std::function<void(float*, const float*, const float*)>;
  const std::map<std::string, Row> ops = {
      {"rms_norm", [&](float* y, const float* w, const float*) { k.rms_norm(y, y, w, n, s); }},
      {"layer_norm", [&](float* y, const float* w, const float* bias) { k.layer_norm(y, y, w, bias, n, s); }},
      {"rope_norm", [&](float* y, const float* turn, const float*) { k.rope(y, turn, n_rot, true); }},
      {"rope_neox", [&](float* y, const float* turn, const float*) { k.rope(y, turn, n_rot, false); }},
      {"silu_gate", [&](float* y, const float* u, const float*) { k.silu_gate(y, u, n); }},
      {"gelu_tanh_gate", [&](float* y, const float* u, const float*) { k.gelu_tanh_gate(y, u, n); }},
      {"silu", [&](float* y, const float*, const float*) { k.silu(y, n); }},
      {"gelu_tanh", [&](float* y, const float*, const float*) { k.gelu_tanh(y, n); }},
      {"gelu_erf", [&](float* y, const float*, const float*) { k.gelu_erf(y, n); }},
      {"relu_squared", [&](float* y, const float*, const float*) { k.relu_squared(y, n); }},
      {"exp2", [&](float* y, const float*, const float*) { k.exp2(y, n); }},
      {"add", [&](float* y, const float* z, const float*) { k.add(y, z, n); }},
      {"add_scaled", [&](float* y, const float* z, const float*) { k.add_scaled(y, z, s, n); }},
      {"scale", [&](float* y, const float*, const float*) { k.scale(y, s, n); }},
      {"softcap", [&](float* y, const float*, const float*) { k.softcap(y, s, n); }},
  };
  const auto found = ops.find(op);
  check(found != ops.end(), "unknown elementwise operation");
  const bool rope = op.starts_with("rope"), binary = rope || op.ends_with("gate") || op.starts_with("add");
  check(!binary || a, "this operation needs a second operand");
  check(!rope || (n_rot >= 0 && n_rot % 2 == 0 && n_rot <= n), "n_rot must be even and at most n");
  check(!a || a->size() == (rope ? n_rot : n), "the second operand must have n elements (rope: n_rot)");
  check(!b || b->size() == n, "the third operand must have n elements");
  for (int64_t r = 0; r < rows; r++) {
    found->second(out.mutable_data() + r * n, a ? a->data() : nullptr, b ? b->data() : nullptr);
  }
  return out;
}

}  // namespace

void bind_attention(py::module_& m) {
  m.def(
      "float_levels",
      [] {
        std::vector<std::string> names;
        for (const FloatLevel& level : float_levels()) {
          if (level.supported) names.push_back(level.name);
        }
        return names;
      },
      "The levels of elementwise and attention kernels that this CPU can run.");
  m.def("elementwise", &elementwise, py::arg("level"), py::arg("op"), py::arg("x"), py::arg("a") = py::none(),
        py::arg("b") = py::none(), py::arg("s") = 0.f, py::arg("n_rot") = 0,
        "One elementwise operation on every row of x (rows, n), at a named level: for tests.");
}

}  // namespace pllm::python
