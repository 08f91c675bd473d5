#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <cstdlib>
#include <memory>
#include <new>

#include "backend/cpu/select.h"
#include "base/cpu_info.h"
#include "base/error.h"
#include "python/bindings.h"
#include "quant/reference.h"

namespace py = pybind11;
namespace pllm::python {
namespace {

using Bytes = py::array_t<uint8_t, py::array::c_style>;
using Floats = py::array_t<float, py::array::c_style>;

Format format_of(const std::string& name) {
  for (int i = 0; i < kFormatCount; i++)
    if (kFormats[i].name == name) return Format(i);
  throw Error(ErrorKind::bad_value, "unknown tensor format \"" + name + "\"");
}

[[noreturn]] void bad_shape(const std::string& what) { throw Error(ErrorKind::bad_value, what); }

// Columns of rows of row_bytes bytes
int64_t columns(Format f, int64_t row_bytes) {
  if (row_bytes % info(f).block_bytes)
    bad_shape(std::to_string(row_bytes) + " bytes are no whole number of " + std::string(info(f).name) + " blocks");
  return row_bytes / info(f).block_bytes * info(f).block_weights;
}

struct Free {
  void operator()(uint8_t* p) const { std::free(p); }
};
using Aligned = std::unique_ptr<uint8_t, Free>;
Aligned aligned(size_t n) {
  void* p = std::aligned_alloc(64, (n + 127) / 64 * 64);
  if (!p) throw std::bad_alloc();
  return Aligned(static_cast<uint8_t*>(p));
}

py::list formats() {
  py::list all;
  for (const FormatInfo& f : kFormats)
    all.append(py::make_tuple(std::string(f.name), f.gguf_id, f.block_weights, f.block_bytes));
  return all;
}

Floats decode_raw(const std::string& format, const Bytes& raw) {
  const Format f = format_of(format);
  const int64_t n = columns(f, raw.size());
  Floats out(n);
  decode(f, raw.data(), n, out.mutable_data());
  return out;
}

// A weight matrix in panels
struct Panels {
  const cpu::MatmulKernels& kernels;
  int64_t rows, cols;
  size_t stride;
  Aligned data;

  Panels(const cpu::KernelTable& table, Format f, const Bytes& raw) : kernels(table.matmul[int(f)]) {
    if (raw.ndim() != 2) bad_shape("raw must have the shape (rows, row bytes)");
    rows = raw.shape(0);
    cols = columns(f, raw.shape(1));
    stride = kernels.panel_bytes(cols);
    data = aligned(size_t(count()) * stride);
    for (int64_t p = 0; p < count(); p++) {
      const int n = int(std::min<int64_t>(cpu::kPanelRows, rows - p * cpu::kPanelRows));
      kernels.repack(raw.data() + p * cpu::kPanelRows * raw.shape(1), size_t(raw.shape(1)), n, cols,
                     data.get() + size_t(p) * stride);
    }
  }
  int64_t count() const { return (rows + cpu::kPanelRows - 1) / cpu::kPanelRows; }
};

void check_tokens(const Floats& x, int64_t cols) {
  if (x.ndim() != 2 || x.shape(1) != cols) bad_shape("x must have the shape (n, " + std::to_string(cols) + ")");
}

Floats matmul(const std::string& level, const std::string& format, const Bytes& raw, const Floats& x) {
  const Format f = format_of(format);
  const cpu::KernelTable& table = cpu::kernels(level);
  const Panels w(table, f, raw);
  check_tokens(x, w.cols);
  const int n = int(x.shape(0));
  const cpu::ActivationKernels& a = table.activation[int(info(f).activation)];
  const Aligned act = aligned(a.bytes(w.cols, n));
  a.prepare(x.data(), size_t(w.cols), w.cols, n, 0, n, act.get());
  Floats y({int64_t(n), w.rows});
  w.kernels.matmul(w.data.get(), w.cols, w.rows, act.get(), n, y.mutable_data(), size_t(w.rows), 0, w.count());
  return y;
}

Floats matmul_oracle(const std::string& format, const Bytes& raw, const Floats& x) {
  const Format f = format_of(format);
  if (raw.ndim() != 2) bad_shape("raw must have the shape (rows, row bytes)");
  const int64_t cols = columns(f, raw.shape(1)), rows = raw.shape(0), n = x.shape(0);
  check_tokens(x, cols);
  Floats y({n, rows});
  for (int64_t t = 0; t < n; t++)
    for (int64_t r = 0; r < rows; r++)
      y.mutable_data()[t * rows + r] = reference_dot(f, raw.data() + r * raw.shape(1), cols, x.data() + t * cols);
  return y;
}

Bytes repack_roundtrip(const std::string& level, const std::string& format, const Bytes& raw) {
  const Panels w(cpu::kernels(level), format_of(format), raw);
  Bytes out({raw.shape(0), raw.shape(1)});
  for (int64_t r = 0; r < w.rows; r++)
    w.kernels.unpack_row(w.data.get() + size_t(r / cpu::kPanelRows) * w.stride, int(r % cpu::kPanelRows), w.cols,
                         out.mutable_data() + r * raw.shape(1));
  return out;
}

py::dict machine(const std::string& root, const std::vector<int>& cpus) {
  const ThreadCount threads = threads_for(root, cpus);
  const MemoryInfo memory = memory_info(root);
  py::dict d;
  d["threads"] = threads.count;
  d["threads_why"] = threads.why;
  d["physical_cores"] = physical_cores(root, cpus);
  d["memory_total"] = memory.total;
  d["memory_available"] = memory.available;
  d["memory_why"] = memory.why;
  return d;
}

py::dict this_machine() {
  const cpu::Level level = cpu::best_level();
  py::dict d = machine("", cpu_affinity());
  d["level"] = level.name;
  d["why"] = level.why;
  d["levels"] = cpu::supported_levels();
  d["features"] = cpu_features();
  return d;
}

}  // namespace

void bind_kernels(py::module_& m) {
  m.def("formats", &formats, "(name, GGUF type id, weights in a block, bytes of a block) of every tensor format.");
  m.def("decode", &decode_raw, py::arg("format"), py::arg("raw"),
        "Blocks as in the file (uint8) -> float32 weights, 1-D.");
  m.def("levels", &cpu::supported_levels, "Instruction-set levels this machine supports, slowest first.");
  m.def("matmul", &matmul, py::arg("level"), py::arg("format"), py::arg("raw"), py::arg("x"),
        "raw (rows, row bytes) times x (n, cols) -> (n, rows), by the kernels of a level.");
  m.def("matmul_oracle", &matmul_oracle, py::arg("format"), py::arg("raw"), py::arg("x"),
        "The same by plain scalar code; every avx level must give the same bits.");
  m.def("repack_roundtrip", &repack_roundtrip, py::arg("level"), py::arg("format"), py::arg("raw"),
        "raw (rows, row bytes) to panels and back, row by row.");
  m.def("cpu_info", &this_machine, "Instruction-set level, threads and memory of this machine, each with its reason.");
  m.def("cpu_info_at", &machine, py::arg("root"), py::arg("cpus"),
        "Threads and memory as <root>/proc and <root>/sys tell them, for a process that may run on `cpus`.");
}

}  // namespace pllm::python
