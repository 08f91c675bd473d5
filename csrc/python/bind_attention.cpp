#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "backend/cpu/attention.h"
#include "backend/cpu/select.h"
#include "base/error.h"
#include "base/thread_pool.h"
#include "python/bindings.h"
#include "python/kv_types.h"

namespace py = pybind11;
namespace pllm::python {
namespace {

using Floats = py::array_t<float, py::array::c_style | py::array::forcecast>;

void check(bool ok, const char* what) {
  if (!ok) throw Error(ErrorKind::bad_value, what);
}

// One operation on every row of x (rows, n): a and b are its other operands, s its scalar.
Floats elementwise(const std::string& level, const std::string& op, const Floats& x, std::optional<Floats> a,
                   std::optional<Floats> b, float s, int n_rot) {
  const cpu::ElementwiseKernels& k = *cpu::kernels(level).elementwise;
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
      {"gelu_erf_gate", [&](float* y, const float* u, const float*) { k.gelu_erf_gate(y, u, n); }},
      {"swiglu_oai_gate", [&](float* y, const float* u, const float*) { k.swiglu_oai_gate(y, u, n); }},
      {"silu", [&](float* y, const float*, const float*) { k.silu(y, n); }},
      {"gelu_tanh", [&](float* y, const float*, const float*) { k.gelu_tanh(y, n); }},
      {"gelu_erf", [&](float* y, const float*, const float*) { k.gelu_erf(y, n); }},
      {"sigmoid", [&](float* y, const float*, const float*) { k.sigmoid(y, n); }},
      {"softmax", [&](float* y, const float*, const float*) { k.softmax(y, n); }},
      {"exp2", [&](float* y, const float*, const float*) { k.exp2(y, n); }},
      {"add", [&](float* y, const float* z, const float*) { k.add(y, z, n); }},
      {"add_scaled", [&](float* y, const float* z, const float*) { k.add_scaled(y, z, s, n); }},
      {"scale", [&](float* y, const float*, const float*) { k.scale(y, s, n); }},
      {"softcap", [&](float* y, const float*, const float*) { k.softcap(y, s, n); }},
  };
  const auto found = ops.find(op);
  check(found != ops.end(), "unknown elementwise operation");
  const bool rope = op.starts_with("rope"), binary = rope || op.ends_with("gate") || op == "add";
  check(!binary || a, "this operation needs a second operand");
  check(!rope || (n_rot >= 0 && n_rot % 2 == 0 && n_rot <= n), "n_rot must be even and at most n");
  check(!a || a->size() == (rope ? n_rot : n), "the second operand must have n elements (rope: n_rot)");
  check(!b || b->size() == n, "the third operand must have n elements");
  for (int64_t r = 0; r < rows; r++) {
    found->second(out.mutable_data() + r * n, a ? a->data() : nullptr, b ? b->data() : nullptr);
  }
  return out;
}

// A KV cache of n_layers equal layers whose pages lie in no particular order, and attention over it.
class KvAttention {
 public:
  KvAttention(const std::string& level, int n_head, int n_head_kv, int head_dim_k, int head_dim_v, int n_positions,
              int n_threads, int n_layers, const std::string& type_k, const std::string& type_v)
      : n_head_(n_head),
        head_{head_dim_k, head_dim_v, kv_types(type_k, type_v)},
        pool_(n_threads),
        attention_(cpu::kernels(level), pool_) {
    check(n_head_kv > 0 && n_positions > 0 && n_layers > 0, "sizes must be positive");
    const size_t layer_bytes = size_t(n_head_kv) * head_.page_bytes();
    const size_t page_bytes = layer_bytes * size_t(n_layers);
    for (int i = 0; i < n_layers; i++) layers_.push_back({n_head_kv, head_, size_t(i) * layer_bytes});
    const size_t n_pages = size_t(n_positions + cpu::kPageTokens - 1) / cpu::kPageTokens;
    n_bytes_ = n_pages * page_bytes;
    memory_ = std::make_unique<uint8_t[]>(n_bytes_ + 64);
    uint8_t* base = memory_.get() + (64 - reinterpret_cast<uintptr_t>(memory_.get()) % 64) % 64;
    for (size_t i = 0; i < n_pages; i++) pages_.push_back(base + i * page_bytes);
    std::shuffle(pages_.begin(), pages_.end(), std::minstd_rand(1));
  }

  void store(int pos0, const Floats& k, const Floats& v, int layer) {
    const cpu::KvLayout& kv = layers_.at(size_t(layer));
    check_rows(k, kv.n_head_kv, head_.head_dim_k, "k must have the shape (n, n_head_kv, head_dim_k)");
    check_rows(v, kv.n_head_kv, head_.head_dim_v, "v must have the shape (n, n_head_kv, head_dim_v)");
    check(k.shape(0) == v.shape(0), "k and v must have as many rows");
    check_positions(pos0, k.shape(0));
    attention_.store(kv, pages_.data(), pos0, int(k.shape(0)), k.data(), size_t(kv.n_head_kv * head_.head_dim_k),
                     v.data(), size_t(kv.n_head_kv * head_.head_dim_v));
  }

  Floats attention(const Floats& q, int pos0, float scale, float softcap, int window, int layer,
                   std::optional<Floats> sinks) {
    const cpu::KvLayout& kv = layers_.at(size_t(layer));
    check_rows(q, n_head_, head_.head_dim_k, "q must have the shape (n, n_head, head_dim_k)");
    check_positions(pos0, q.shape(0));
    Floats out({q.shape(0), ssize_t{n_head_}, ssize_t{head_.head_dim_v}});
    check(!sinks || sinks->size() == n_head_, "sinks must have n_head elements");
    run(kv, q, pos0, scale, softcap, window, sinks ? sinks->data() : nullptr, out.mutable_data());
    return out;
  }

  // Milliseconds for attention in all layers, a figure for each repetition.
  std::vector<double> time(const Floats& q, int pos0, float scale, int repeats) {
    std::vector<float> out(size_t(q.shape(0)) * size_t(n_head_) * size_t(head_.head_dim_v));
    check_rows(q, n_head_, head_.head_dim_k, "q must have the shape (n, n_head, head_dim_k)");
    check_positions(pos0, q.shape(0));
    return timed(repeats, [&] {
      for (const cpu::KvLayout& kv : layers_) run(kv, q, pos0, scale, 0, 0, nullptr, out.data());
    });
  }

  // Milliseconds for reading the first n_pages pages and computing nothing.
  std::vector<double> time_read(int n_pages, int repeats) {
    check(n_pages > 0 && size_t(n_pages) <= pages_.size(), "more pages than there are");
    const size_t words = n_bytes_ / pages_.size() / sizeof(uint64_t);
    std::atomic<uint64_t> seen{0};
    return timed(repeats, [&] {
      pool_.run(n_pages, [&](int, int i) {
        const uint64_t* p = reinterpret_cast<const uint64_t*>(pages_[size_t(i)]);
        uint64_t a = 0, b = 0, c = 0, d = 0;
        for (size_t j = 0; j + 16 <= words; j += 16) {
          __builtin_prefetch(p + j + 512, 0, 2);
          a += p[j] + p[j + 1] + p[j + 2] + p[j + 3];
          b += p[j + 4] + p[j + 5] + p[j + 6] + p[j + 7];
          c += p[j + 8] + p[j + 9] + p[j + 10] + p[j + 11];
          d += p[j + 12] + p[j + 13] + p[j + 14] + p[j + 15];
        }
        seen += a ^ b ^ c ^ d;
      });
    });
  }

  size_t page_bytes() const { return n_bytes_ / pages_.size(); }

 private:
  static void check_rows(const Floats& x, int heads, int dim, const char* what) {
    check(x.ndim() == 3 && x.shape(1) == heads && x.shape(2) == dim, what);
  }
  void check_positions(int pos0, ssize_t n) const {
    check(pos0 >= 0 && n >= 0 && size_t(pos0) + size_t(n) <= pages_.size() * cpu::kPageTokens,
          "positions past the last page");
  }
  void run(const cpu::KvLayout& kv, const Floats& q, int pos0, float scale, float softcap, int window,
           const float* sinks, float* out) {
    attention_.run({.q = q.data(),
                    .ldq = size_t(n_head_ * head_.head_dim_k),
                    .out = out,
                    .ldo = size_t(n_head_ * head_.head_dim_v),
                    .n_head = n_head_,
                    .kv = kv,
                    .pages = pages_.data(),
                    .pos0 = pos0,
                    .n = int(q.shape(0)),
                    .scale = scale,
                    .softcap = softcap,
                    .window = window,
                    .sinks = sinks});
  }
  template <class Fn>
  static std::vector<double> timed(int repeats, Fn&& fn) {
    std::vector<double> ms;
    for (int i = 0; i < repeats; i++) {
      const auto start = std::chrono::steady_clock::now();
      fn();
      ms.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
    }
    return ms;
  }

  int n_head_;
  cpu::KvHead head_;
  ThreadPool pool_;
  cpu::Attention attention_;
  std::vector<cpu::KvLayout> layers_;
  std::unique_ptr<uint8_t[]> memory_;
  size_t n_bytes_ = 0;
  std::vector<uint8_t*> pages_;
};

}  // namespace

void bind_attention(py::module_& m) {
  m.def("elementwise", &elementwise, py::arg("level"), py::arg("op"), py::arg("x"), py::arg("a") = py::none(),
        py::arg("b") = py::none(), py::arg("s") = 0.f, py::arg("n_rot") = 0,
        "One elementwise operation on every row of x (rows, n), at a named level: for tests.");
  py::class_<KvAttention>(m, "KvAttention", "Attention over KV pages at a named level: for tests and benchmarks.")
      .def(py::init<const std::string&, int, int, int, int, int, int, int, const std::string&, const std::string&>(),
           py::arg("level"), py::kw_only(), py::arg("n_head"), py::arg("n_head_kv"), py::arg("head_dim_k"),
           py::arg("head_dim_v"), py::arg("n_positions"), py::arg("n_threads") = 1, py::arg("n_layers") = 1,
           py::arg("type_k") = kDefaultKvType, py::arg("type_v") = kDefaultKvType)
      .def("store", &KvAttention::store, py::arg("pos0"), py::arg("k"), py::arg("v"), py::arg("layer") = 0,
           "Store k (n, n_head_kv, head_dim_k) and v (n, n_head_kv, head_dim_v) at positions pos0 and on.")
      .def("attention", &KvAttention::attention, py::arg("q"), py::arg("pos0"), py::kw_only(), py::arg("scale"),
           py::arg("softcap") = 0.f, py::arg("window") = 0, py::arg("layer") = 0, py::arg("sinks") = py::none(),
           "Queries (n, n_head, head_dim_k) at positions pos0 and on -> (n, n_head, head_dim_v).")
      .def("time", &KvAttention::time, py::arg("q"), py::arg("pos0"), py::kw_only(), py::arg("scale"),
           py::arg("repeats"), "Milliseconds of attention in all layers, one figure a repetition.")
      .def("time_read", &KvAttention::time_read, py::arg("n_pages"), py::kw_only(), py::arg("repeats"),
           "Milliseconds of reading the first n_pages pages (page_bytes each), one figure a repetition.")
      .def_property_readonly("page_bytes", &KvAttention::page_bytes);
}

}  // namespace pllm::python
