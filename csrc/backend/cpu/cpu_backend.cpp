#include "backend/cpu/cpu_backend.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "backend/cpu/attention.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/select.h"
#include "backend/cpu/weight_store.h"
#include "base/cpu_plan.h"
#include "base/error.h"
#include "base/thread_pool.h"

namespace pllm::cpu {
namespace {

const CpuWeight& cpu(const Weight& w) { return static_cast<const CpuWeight&>(w); }

class CpuBackend final : public Backend {
 public:
  CpuBackend(int n_threads, const KernelTable& kernels)
      : kernels_(kernels), pool_(n_threads), attention_(kernels, pool_) {
    scratch_.resize(size_t(pool_.size()));
  }

  std::string_view level() const override { return kernels_.level; }
  int n_threads() const override { return pool_.size(); }

  std::unique_ptr<Weight> upload(const TensorSource& t, WeightUse use) override {
    return store_.upload(kernels_, pool_, t, use);
  }
  size_t kv_page_bytes(const KvShape& kv) const override {
    return size_t(kv.n_layer) * size_t(kv.n_head_kv) * head(kv).page_bytes();
  }
  bool kv_is_finite(const KvShape& kv, std::span<const uint8_t> pages) const override {
    const KvHead h = head(kv);
    bool finite = true;
    for (size_t at = 0; at < pages.size(); at += h.page_bytes()) finite &= h.is_finite(&pages[at]);
    return finite;
  }

  void get_rows(Mat y, const Weight& table, std::span<const int32_t> ids) override {
    for (auto& scratch : scratch_) scratch.resize(cpu(table).row_bytes);
    for_rows(y, [&](int thread, int64_t i) {
      read_row(kernels_, cpu(table), ids[size_t(i)], y.row(i), scratch_[size_t(thread)].data());
    });
  }

  void norm(Mat y, Mat x, NormKind kind, const Weight* w, const Weight* b, float eps) override {
    const ElementwiseKernels& k = *kernels_.elementwise;
    const float* weight = w ? cpu(*w).floats() : nullptr;
    const float* bias = b ? cpu(*b).floats() : nullptr;
    const int64_t group = w ? w->cols : x.cols, period = w ? w->rows * w->cols : x.cols;
    for_rows(x, [&](int, int64_t i) {
      for (int64_t c = 0; c < x.cols; c += group) {
        const int64_t at = c % period;
        if (kind == NormKind::rms) {
          k.rms_norm(y.row(i) + c, x.row(i) + c, weight ? weight + at : nullptr, group, eps);
        } else {
          k.layer_norm(y.row(i) + c, x.row(i) + c, weight ? weight + at : nullptr, bias ? bias + at : nullptr, group,
                       eps);
        }
      }
    });
  }

  void matmul(std::span<const Group> groups) override {
    int64_t total = 0;
    for (const Group& g : groups)
      for (const Product& p : g.products) total += cpu(*p.w).n_panels();
    const int64_t grain = std::max<int64_t>(1, total / (int64_t(pool_.size()) * kItemsPerThread));
    inputs_.clear();
    items_.clear();
    size_t end = 0;  // of the prepared activations
    for (const Group& g : groups) {
      std::optional<size_t> at[kActivationCount];
      for (const Product& p : g.products) {
        const auto kind = size_t(info(p.w->format).activation);
        if (!at[kind]) {
          at[kind] = end;
          inputs_.push_back({g.x, kernels_.activation[kind], end});
          end += (kernels_.activation[kind].bytes(g.x.cols, int(g.x.rows)) + 63) / 64 * 64;
        }
        for (int64_t p0 = 0; p0 < cpu(*p.w).n_panels(); p0 += grain)
          items_.push_back({&p, int(g.x.rows), *at[kind], p0, std::min(cpu(*p.w).n_panels(), p0 + grain)});
      }
    }
    if (act_.size() < end) act_ = Memory(end);
    for (const Input& in : inputs_) prepare(in);
    pool_.run(int(items_.size()), [&](int, int i) { run_item(items_[size_t(i)]); });
  }

  // The rounding error of x is rounded in turn and multiplied as a token of its own: a tile reads the weights once.
  void matmul_fine(Mat x, const Product& product) override {
    const ActivationKernels& k = kernels_.activation[int(info(product.w->format).activation)];
    if (!k.residual) return Backend::matmul(x, {&product, 1});
    const int64_t panels = cpu(*product.w).n_panels(), n_items = (panels + kFinePanels - 1) / kFinePanels;
    for (int64_t i0 = 0; i0 < x.rows; i0 += kFineRows) {
      const int64_t n = std::min(kFineRows, x.rows - i0);
      const Mat pairs = fine_x_.mat(2 * n, x.cols);
      for_rows(x.rows_from(i0, n), [&](int, int64_t i) {
        std::memcpy(pairs.row(2 * i), x.row(i0 + i), size_t(x.cols) * sizeof(float));
        k.residual(x.row(i0 + i), x.cols, pairs.row(2 * i + 1));
      });
      const size_t bytes = k.bytes(x.cols, int(2 * n));
      if (act_.size() < bytes) act_ = Memory(bytes);
      prepare({pairs, k, 0});
      const Product rows{product.w, product.bias, product.y.rows_from(i0, n)};
      pool_.run(int(n_items),
                [&](int, int i) { run_fine_item(rows, i * kFinePanels, std::min(panels, (i + 1) * kFinePanels)); });
    }
  }

  void rope(Mat x, int head_dim, RopeStyle style, const RopeTable& table) override {
    const bool interleaved = style == RopeStyle::interleaved;
    for_rows(x, [&](int, int64_t i) {
      const float* cos_sin = table.cos_sin + i * table.n_rot;
      for (int64_t h = 0; h < x.cols; h += head_dim)
        kernels_.elementwise->rope(x.row(i) + h, cos_sin, table.n_rot, interleaved);
    });
  }

  void store_kv(const AttentionShape& shape, Mat k, Mat v, std::span<const SequenceRows> sequences) override {
    for (const SequenceRows& s : sequences)
      attention_.store(layout(shape), s.pages, s.pos0, s.n, k.row(s.row0), size_t(k.stride), v.row(s.row0),
                       size_t(v.stride));
  }

  void attention(Mat y, Mat q, const AttentionShape& shape, std::span<const SequenceRows> sequences) override {
    for (const SequenceRows& s : sequences) {
      attention_.run({.q = q.row(s.row0),
                      .ldq = size_t(q.stride),
                      .out = y.row(s.row0),
                      .ldo = size_t(y.stride),
                      .n_head = shape.n_head,
                      .kv = layout(shape),
                      .pages = s.pages,
                      .pos0 = s.pos0,
                      .n = s.n,
                      .scale = shape.scale,
                      .softcap = shape.softcap,
                      .window = shape.window,
                      .sinks = shape.sinks ? cpu(*shape.sinks).floats() : nullptr});
    }
  }

  void gate(ActivationFn fn, Mat g, Mat u) override {
    const auto f = gate_kernel(fn);
    for_rows(g, [&](int, int64_t i) { f(g.row(i), u.row(i), g.cols); });
  }
  void activate(ActivationFn fn, Mat x) override {
    const auto f = activation_kernel(fn);
    for_rows(x, [&](int, int64_t i) { f(x.row(i), x.cols); });
  }
  void softmax(Mat x) override {
    for_rows(x, [&](int, int64_t i) { kernels_.elementwise->softmax(x.row(i), x.cols); });
  }
  void add(Mat x, Mat y, float factor) override {  // a factor of 1 is exact
    for_rows(x, [&](int, int64_t i) { kernels_.elementwise->add_scaled(x.row(i), y.row(i), factor, x.cols); });
  }
  void scale(Mat x, float factor) override {
    for_rows(x, [&](int, int64_t i) { kernels_.elementwise->scale(x.row(i), factor, x.cols); });
  }
  void softcap(Mat x, float cap) override {
    for_rows(x, [&](int, int64_t i) { kernels_.elementwise->softcap(x.row(i), cap, x.cols); });
  }
  void copy_rows(Mat y, Mat x, std::span<const int32_t> rows) override {
    for_rows(y, [&](int, int64_t i) { std::memcpy(y.row(i), x.row(rows[size_t(i)]), size_t(y.cols) * sizeof(float)); });
  }
  void mix_rows(Mat y, Mat x, std::span<const int32_t> rows, Mat factors) override {
    for_rows(y, [&](int, int64_t i) {
      std::fill_n(y.row(i), y.cols, 0.f);
      for (int64_t j = 0; j < factors.cols; j++)
        kernels_.elementwise->add_scaled(y.row(i), x.row(rows[size_t(i * factors.cols + j)]), factors.row(i)[j],
                                         y.cols);
    });
  }

 private:
  struct Input {  // rows to prepare, and where in act_
    Mat x;
    const ActivationKernels& kernels;
    size_t at;
  };
  struct Item {  // panels [p0, p1) of one product with n rows prepared at act_ + at
    const Product* product;
    int n;
    size_t at;
    int64_t p0, p1;
  };
  // Enough for stealing to even out a busy core, few enough to read each range as one stream.
  static constexpr int kItemsPerThread = 8;
  static constexpr int64_t kFineRows = 8;            // a tile of 16 tokens
  static constexpr int64_t kFinePanels = 64;         // of an item: its sums stay in the cache
  static constexpr int64_t kSerialElements = 16384;  // less is done by the calling thread: waking others costs more

  template <class Fn>
  void for_rows(Mat m, Fn&& fn) {
    if (m.rows * m.cols <= kSerialElements || pool_.size() == 1) {
      for (int64_t i = 0; i < m.rows; i++) fn(0, i);
      return;
    }
    pool_.run(int(m.rows), [&](int thread, int i) { fn(thread, i); });
  }

  void prepare(const Input& in) {
    const Mat& x = in.x;
    uint8_t* act = act_.data() + in.at;
    for_rows(x, [&](int, int64_t t) {
      in.kernels.prepare(x.data, size_t(x.stride), x.cols, int(x.rows), int(t), int(t) + 1, act);
    });
  }

  void run_item(const Item& item) {
    const Product& p = *item.product;
    const CpuWeight& w = cpu(*p.w);
    kernels_.matmul[int(w.format)].matmul(w.data, w.cols, w.rows, act_.data() + item.at, item.n, p.y.data,
                                          size_t(p.y.stride), item.p0, item.p1);
    if (!p.bias) return;
    const int64_t r0 = item.p0 * kPanelRows, r1 = std::min(item.p1 * kPanelRows, w.rows);
    for (int t = 0; t < item.n; t++) kernels_.elementwise->add(p.y.row(t) + r0, cpu(*p.bias).floats() + r0, r1 - r0);
  }

  // Panels [p0, p1): the coarse and the fine sums of each row side by side, then added up.
  void run_fine_item(const Product& p, int64_t p0, int64_t p1) {
    const CpuWeight& w = cpu(*p.w);
    const int64_t r0 = p0 * kPanelRows, n_rows = std::min(p1 * kPanelRows, w.rows) - r0;
    alignas(64) float sums[2 * kFineRows * kFinePanels * kPanelRows];
    kernels_.matmul[int(w.format)].matmul(w.data + size_t(p0) * w.panel_bytes, w.cols, n_rows, act_.data(),
                                          int(2 * p.y.rows), sums, size_t(n_rows), 0, p1 - p0);
    for (int64_t t = 0; t < p.y.rows; t++) {
      float *y = p.y.row(t) + r0, *coarse = sums + 2 * t * n_rows;
      std::memcpy(y, coarse, size_t(n_rows) * sizeof(float));
      kernels_.elementwise->add(y, coarse + n_rows, n_rows);
      if (p.bias) kernels_.elementwise->add(y, cpu(*p.bias).floats() + r0, n_rows);
    }
  }

  using GateKernel = decltype(ElementwiseKernels::silu_gate);
  GateKernel gate_kernel(ActivationFn fn) const {
    const ElementwiseKernels& k = *kernels_.elementwise;
    switch (fn) {
      case ActivationFn::silu: return k.silu_gate;
      case ActivationFn::gelu_tanh: return k.gelu_tanh_gate;
      case ActivationFn::gelu_erf: return k.gelu_erf_gate;
      case ActivationFn::swiglu_oai: return k.swiglu_oai_gate;
      case ActivationFn::sigmoid: break;
    }
    throw Error(ErrorKind::internal, "this activation is no gate");
  }
  using ActivationKernel = decltype(ElementwiseKernels::silu);
  ActivationKernel activation_kernel(ActivationFn fn) const {
    const ElementwiseKernels& k = *kernels_.elementwise;
    switch (fn) {
      case ActivationFn::silu: return k.silu;
      case ActivationFn::gelu_tanh: return k.gelu_tanh;
      case ActivationFn::gelu_erf: return k.gelu_erf;
      case ActivationFn::sigmoid: return k.sigmoid;
      case ActivationFn::swiglu_oai: break;
    }
    throw Error(ErrorKind::internal, "this activation is only a gate");
  }

  static KvHead head(const KvShape& kv) { return {kv.head_dim_k, kv.head_dim_v, kv.types}; }
  static KvLayout layout(const AttentionShape& s) {
    const KvHead h = head(s.kv);
    return {s.kv.n_head_kv, h, size_t(s.layer) * size_t(s.kv.n_head_kv) * h.page_bytes()};
  }

  const KernelTable& kernels_;
  ThreadPool pool_;
  WeightStore store_;
  cpu::Attention attention_;
  Memory act_;                 // prepared activations of the running products
  MatBuffer fine_x_;           // of the running fine product
  std::vector<Input> inputs_;  // of the running products
  std::vector<Item> items_;
  std::vector<std::vector<uint8_t>> scratch_;  // by thread
};

}  // namespace

int thread_count(int n_threads) {
  constexpr int kMaxThreads = 1024;
  if (n_threads < 0 || n_threads > kMaxThreads) {
    throw Error(ErrorKind::bad_value, "n_threads must be between 0 and " + std::to_string(kMaxThreads) + ", not " +
                                          std::to_string(n_threads));
  }
  return n_threads == 0 ? plan_cpus().count : n_threads;
}

std::unique_ptr<Backend> make_cpu_backend(int n_threads, std::string_view level) {
  return std::make_unique<CpuBackend>(thread_count(n_threads), kernels(level));
}

}  // namespace pllm::cpu
