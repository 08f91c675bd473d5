// Views and buffers. Activations are float matrices, one row a token; heads are a stride, so two dimensions are enough.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

#include "base/memory.h"
#include "quant/formats.h"

namespace pllm {

struct Mat {
  float* data = nullptr;
  int64_t rows = 0, cols = 0, stride = 0;  // stride in floats, >= cols

  float* row(int64_t i) const { return data + i * stride; }
  Mat rows_from(int64_t first, int64_t n) const { return {row(first), n, cols, stride}; }
  Mat cols_from(int64_t first, int64_t n) const { return {data + first, rows, n, stride}; }
};

// A growing float matrix: mat(rows, cols) is a view of at least that size, contents undefined after growth.
class MatBuffer {
 public:
  Mat mat(int64_t rows, int64_t cols) {
    const size_t bytes = size_t(rows) * size_t(cols) * sizeof(float);
    if (bytes > memory_.size()) memory_ = Memory(bytes);
    return {reinterpret_cast<float*>(memory_.data()), rows, cols, cols};
  }
  size_t bytes() const { return memory_.size(); }

 private:
  Memory memory_;
};

// Weights as the file holds them: `rows` rows of `cols` values, row after row of whole blocks.
struct TensorSource {
  std::string_view name;
  Format format = Format::F32;
  int64_t rows = 0, cols = 0;
  // Fills `out` with the bytes from `first` on; may be kept as long as the file. Threads may call it at once. It throws
  // where the file cannot be read.
  std::function<void(uint64_t first, std::span<uint8_t> out)> read;
  size_t row_bytes() const { return size_t(cols / info(format).block_weights) * size_t(info(format).block_bytes); }
};

}  // namespace pllm
