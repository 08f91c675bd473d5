#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <cstring>

#include "backend/cpu/select.h"
#include "base/cpu_info.h"
#include "base/cpu_plan.h"
#include "base/error.h"
#include "base/isa.h"
#include "base/memory.h"
#include "python/bindings.h"
#include "python/unlocked.h"
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

void check_rows(const Bytes& raw) {
  if (raw.ndim() != 2) bad_shape("raw must have the shape (rows, row bytes)");
}
void check_tokens(const Floats& x, int64_t cols) {
  if (x.ndim() != 2 || x.shape(1) != cols) bad_shape("x must have the shape (n, " + std::to_string(cols) + ")");
}

// A weight matrix in panels, and its products at one level
class Panels {
 public:
  Panels(const std::string& level, const std::string& format, const Bytes& raw)
      : table_(cpu::kernels(level)), format_(format_of(format)), kernels_(table_.matmul[int(format_)]) {
    check_rows(raw);
    rows_ = raw.shape(0);
    row_bytes_ = raw.shape(1);
    cols_ = columns(format_, row_bytes_);
    stride_ = kernels_.panel_bytes(cols_);
    data_ = Memory(n_bytes());
    for (int64_t p = 0; p < count(); p++) {
      const int n = int(std::min<int64_t>(cpu::kPanelRows, rows_ - p * cpu::kPanelRows));
      const uint8_t* from = raw.data() + p * cpu::kPanelRows * row_bytes_;
      kernels_.repack(from, size_t(row_bytes_), n, cols_, data_.data() + size_t(p) * stride_);
    }
  }

  size_t n_bytes() const { return size_t(count()) * stride_; }

  Floats matmul(const Floats& x) const {
    check_tokens(x, cols_);
    const int n = int(x.shape(0));
    Floats y({int64_t(n), rows_});
    const float* from = x.data();
    float* to = y.mutable_data();
    const Unlocked unlocked;
    const cpu::ActivationKernels& a = table_.activation[int(info(format_).activation)];
    const Memory act(a.bytes(cols_, n));
    const auto prepare = [&](int t0, int t1) { a.prepare(from, size_t(cols_), cols_, n, t0, t1, act.data()); };
    const auto product = [&](int64_t p0, int64_t p1) {
      kernels_.matmul(data_.data(), cols_, rows_, act.data(), n, to, size_t(rows_), p0, p1);
    };
    prepare(n / 2, n);  // in parts and out of order, as threads do
    prepare(0, n / 2);
    product(count() / 2, count());
    product(0, count() / 2);
    return y;
  }

  Floats residual(const Floats& x) const {
    check_tokens(x, cols_);
    const auto fn = table_.activation[int(info(format_).activation)].residual;
    Floats r({x.shape(0), cols_});
    std::fill_n(r.mutable_data(), r.size(), 0.f);
    for (int64_t t = 0; fn && t < x.shape(0); t++) fn(x.data() + t * cols_, cols_, r.mutable_data() + t * cols_);
    return r;
  }

  Bytes unpack() const {
    Bytes out({rows_, row_bytes_});
    for (int64_t r = 0; r < rows_; r++)
      kernels_.unpack_row(data_.data() + size_t(r / cpu::kPanelRows) * stride_, int(r % cpu::kPanelRows), cols_,
                          out.mutable_data() + r * row_bytes_);
    return out;
  }

  // Sums the memory up: what reading alone costs.
  uint64_t read() const {
    const Unlocked unlocked;
    uint64_t sum[8] = {};
    for (size_t i = 0; i + 64 <= n_bytes(); i += 64) {
      uint64_t line[8];
      __builtin_prefetch(data_.data() + i + 8192, 0, 2);  // as the products do
      std::memcpy(line, data_.data() + i, 64);
      for (int j = 0; j < 8; j++) sum[j] += line[j];
    }
    return sum[0] + sum[1] + sum[2] + sum[3] + sum[4] + sum[5] + sum[6] + sum[7];
  }

 private:
  int64_t count() const { return (rows_ + cpu::kPanelRows - 1) / cpu::kPanelRows; }

  const cpu::KernelTable& table_;
  Format format_;
  const cpu::MatmulKernels& kernels_;
  int64_t rows_ = 0, cols_ = 0, row_bytes_ = 0;
  size_t stride_ = 0;
  Memory data_;
};

Floats matmul_oracle(const std::string& format, const Bytes& raw, const Floats& x) {
  const Format f = format_of(format);
  check_rows(raw);
  const int64_t cols = columns(f, raw.shape(1)), rows = raw.shape(0), n = x.shape(0);
  check_tokens(x, cols);
  Floats y({n, rows});
  for (int64_t t = 0; t < n; t++)
    for (int64_t r = 0; r < rows; r++)
      y.mutable_data()[t * rows + r] = reference_dot(f, raw.data() + r * raw.shape(1), cols, x.data() + t * cols);
  return y;
}

py::dict machine(const std::string& root, const std::vector<int>& cpus) {
  const CpuPlan plan = plan_cpus(root, cpus);
  const MemoryInfo memory = memory_info(root);
  py::dict d;
  d["threads"] = plan.count;
  d["threads_why"] = plan.why;
  d["thread_cpus"] = plan.cpus;
  d["cores_found"] = plan.machine;
  d["physical_cores"] = plan.physical_cores;
  d["efficiency_cores"] = plan.slow_cores;
  d["numa_nodes"] = plan.nodes;
  d["memory_total"] = memory.total;
  d["memory_available"] = memory.available;
  d["memory_why"] = memory.why;
  return d;
}

py::dict this_machine() {
  const ChosenLevel level = best_level();
  py::dict d = machine("", cpu_affinity());
  d["level"] = level.name;
  d["why"] = level.why;
  d["levels"] = supported_levels();
  d["features"] = cpu_features();
  return d;
}

}  // namespace

void bind_kernels(py::module_& m) {
  m.def("formats", &formats, "(name, GGUF type id, weights in a block, bytes of a block) of every tensor format.");
  m.def("decode", &decode_raw, py::arg("format"), py::arg("raw"),
        "Blocks as in the file (uint8) -> float32 weights, 1-D.");
  m.def("levels", &supported_levels, "Instruction-set levels this machine supports, slowest first.");
  py::class_<Panels>(m, "Panels", "A weight matrix as the kernels of a level read it. raw: (rows, row bytes) uint8.")
      .def(py::init<const std::string&, const std::string&, const Bytes&>(), py::arg("level"), py::arg("format"),
           py::arg("raw"))
      .def("matmul", &Panels::matmul, py::arg("x"), "x (n, cols) -> (n, rows), float32.")
      .def("residual", &Panels::residual, py::arg("x"), "What rounding takes off the activations x (n, cols).")
      .def("unpack", &Panels::unpack, "The file's blocks again, row by row.")
      .def("read", &Panels::read, "Reads all of the memory and computes next to nothing: the limit to compare with.")
      .def_property_readonly("n_bytes", &Panels::n_bytes);
  m.def("matmul_oracle", &matmul_oracle, py::arg("format"), py::arg("raw"), py::arg("x"),
        "raw (rows, row bytes) times x (n, cols) by plain scalar code; every level but baseline gives the same bits.");
  m.def("cpu_info", &this_machine, "Instruction-set level, threads and memory of this machine, each with its reason.");
  m.def("cpu_info_at", &machine, py::arg("root"), py::arg("cpus"),
        "Threads and memory as <root>/proc and <root>/sys tell them, for a process that may run on `cpus`.");
}

}  // namespace pllm::python
