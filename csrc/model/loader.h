// One file's tensors on their way to a backend: looked up by name, checked against the shapes the metadata asks for.
#pragma once
#include <initializer_list>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "backend/backend.h"
#include "gguf/file.h"
#include "model/weights.h"

namespace pllm {

class Loader {
 public:
  Loader(const gguf::File& file, Backend& backend) : file_(file), backend_(backend) {}

  struct Shape {
    int64_t rows, cols, depth = 1;  // depth: as many such matrices
  };
  const gguf::Tensor* unchecked(const std::string& name) const { return file_.tensor(name); }  // null if absent
  bool has(const std::string& name) const { return unchecked(name) != nullptr; }
  void need(const std::string& name) const;                           // Error missing_tensor if absent
  const gguf::Tensor* find(const std::string& name, Shape shape);     // null if absent
  const gguf::Tensor& require(const std::string& name, Shape shape);  // Error missing_tensor

  WeightPtr matrix(const std::string& name, int64_t rows, int64_t cols, WeightUse use = WeightUse::product);
  WeightPtr vector(const std::string& name, int64_t n, bool needed = false);  // null if absent and not needed
  // The matrix or vector (rows, cols) at the tensor's first-th value.
  WeightPtr part(const gguf::Tensor& tensor, WeightUse use, int64_t first, int64_t rows, int64_t cols);

  // Matrices of `cols` columns (or vectors, cols = 0) stacked in one tensor.
  struct Stacked {
    WeightPtr& weight;
    int64_t rows;
  };
  void stacked(const std::string& name, std::initializer_list<Stacked> parts, int64_t cols);

  // (n) divisors of the rope's frequencies; empty if absent and not needed.
  std::vector<float> divisors(const std::string& name, int64_t n, bool needed);

  // Error unsupported_model if a tensor was never asked for. It belongs to a computation which this engine would leave
  // out, or to a layer beyond the metadata's count: the answers would be wrong.
  void refuse_unused(const Hparams& h) const;
  size_t bytes() const { return bytes_; }

 private:
  const gguf::File& file_;
  Backend& backend_;
  std::unordered_set<std::string_view> used_;
  size_t bytes_ = 0;
};

}  // namespace pllm
