#include "backend/profiled.h"

#include <chrono>
#include <utility>

namespace pllm {
namespace {

class Timed final : public ProfiledBackend {
 public:
  explicit Timed(std::unique_ptr<Backend> of) : of_(std::move(of)) {}

  std::array<double, size_t(kOpClassCount)> take_profile() override { return std::exchange(seconds_, {}); }

  std::string_view level() const override { return of_->level(); }
  int n_threads() const override { return of_->n_threads(); }
  std::unique_ptr<Weight> upload(const TensorSource& tensor, WeightUse use) override {
    return of_->upload(tensor, use);
  }
  size_t kv_page_bytes(const KvShape& kv) const override { return of_->kv_page_bytes(kv); }
  bool kv_is_finite(const KvShape& kv, std::span<const uint8_t> pages) const override {
    return of_->kv_is_finite(kv, pages);
  }

  void get_rows(Mat y, const Weight& table, std::span<const int32_t> ids) override {
    timed(OpClass::embd, [&] { of_->get_rows(y, table, ids); });
  }
  void norm(Mat y, Mat x, NormKind kind, const Weight* w, const Weight* b, float eps) override {
    timed(OpClass::norm, [&] { of_->norm(y, x, kind, w, b, eps); });
  }
  void matmul(std::span<const Group> groups) override {
    timed(OpClass::matmul, [&] { of_->matmul(groups); });
  }
  void matmul_fine(Mat x, const Product& product) override {  // only the head is
    timed(OpClass::head, [&] { of_->matmul_fine(x, product); });
  }
  void rope(Mat x, int head_dim, RopeStyle style, const RopeTable& table) override {
    timed(OpClass::rope, [&] { of_->rope(x, head_dim, style, table); });
  }
  void store_kv(const AttentionShape& shape, Mat k, Mat v, std::span<const SequenceRows> sequences) override {
    timed(OpClass::attention, [&] { of_->store_kv(shape, k, v, sequences); });
  }
  void attention(Mat y, Mat q, const AttentionShape& shape, std::span<const SequenceRows> sequences) override {
    timed(OpClass::attention, [&] { of_->attention(y, q, shape, sequences); });
  }
  void gate(ActivationFn fn, Mat g, Mat u) override {
    timed(OpClass::gate, [&] { of_->gate(fn, g, u); });
  }
  void activate(ActivationFn fn, Mat x) override {
    timed(OpClass::gate, [&] { of_->activate(fn, x); });
  }
  void softmax(Mat x) override {
    timed(OpClass::other, [&] { of_->softmax(x); });
  }
  void add(Mat x, Mat y, float factor) override {
    timed(OpClass::other, [&] { of_->add(x, y, factor); });
  }
  void scale(Mat x, float factor) override {
    timed(OpClass::other, [&] { of_->scale(x, factor); });
  }
  void softcap(Mat x, float cap) override {
    timed(OpClass::other, [&] { of_->softcap(x, cap); });
  }
  void copy_rows(Mat y, Mat x, std::span<const int32_t> rows) override {
    timed(OpClass::other, [&] { of_->copy_rows(y, x, rows); });
  }
  void mix_rows(Mat y, Mat x, std::span<const int32_t> rows, Mat factors) override {
    timed(OpClass::other, [&] { of_->mix_rows(y, x, rows, factors); });
  }

 private:
  template <class Fn>
  void timed(OpClass kind, Fn&& fn) {
    const auto begin = std::chrono::steady_clock::now();
    fn();
    seconds_[size_t(kind)] += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }

  std::unique_ptr<Backend> of_;
  std::array<double, size_t(kOpClassCount)> seconds_{};
};

}  // namespace

std::unique_ptr<ProfiledBackend> profiled(std::unique_ptr<Backend> backend) {
  return std::make_unique<Timed>(std::move(backend));
}

}  // namespace pllm
