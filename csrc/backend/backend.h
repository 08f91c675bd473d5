// What a device offers: about a dozen operations on float matrices (one row a token) and its own weights.
//
// forward() sees nothing else. Every operation's result for a row depends on that row alone, bit for bit, whatever else
// is in the batch.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "backend/kv_type.h"
#include "tensor/mat.h"

namespace pllm {

enum class NormKind : uint8_t { rms, layer };
enum class RopeStyle : uint8_t { half_split, interleaved };  // pairs (i, i + n_rot/2) | pairs (2i, 2i + 1)
enum class ActivationFn : uint8_t {
  silu,
  gelu_tanh,
  gelu_erf,
  sigmoid,
  swiglu_oai,  // only as a gate: min(g, 7) sigmoid(1.702 min(g, 7)) (1 + u), u within -7 … 7 (gpt-oss)
};

// A weight as the backend keeps it.
class Weight {
 public:
  virtual ~Weight() = default;
  int64_t rows = 0, cols = 0;
  Format format = Format::F32;
  size_t bytes = 0;      // memory of its own
  bool in_file = false;  // rows are read when they are looked up
};

enum class WeightUse : uint8_t {
  product,  // multiplied with activations; rows may be looked up too
  lookup,   // only get_rows: may stay in the file
  vector,   // norms and biases: rows = 1
};

struct Product {  // y = x w^T (+ bias)
  const Weight* w;
  const Weight* bias;  // (w.rows) or null
  Mat y;               // (n, w.rows)
};

struct Group {  // products of the same rows
  Mat x;
  std::span<const Product> products;
};

struct RopeTable {
  int n_rot = 0;                   // rotated dimensions of each head, even
  const float* cos_sin = nullptr;  // (n, n_rot / 2, 2), for the batch's rows in order
};

struct KvShape {
  int n_layer = 0, n_head_kv = 0, head_dim_k = 0, head_dim_v = 0;
  KvTypes types;
};

// Rows [row0, row0 + n) of the batch are tokens pos0, pos0 + 1, … of one sequence. pages[i] holds positions
// [64 i, 64 i + 64) of all layers; pages up to pos0 + n - 1 are present.
struct SequenceRows {
  uint8_t* const* pages;
  int row0, n, pos0;
};

struct AttentionShape {
  KvShape kv;
  int layer, n_head;
  float scale;                    // of q k
  float softcap;                  // 0: none
  int window;                     // 0: all earlier positions
  const Weight* sinks = nullptr;  // (n_head) or null: scores of a key that every query sees and that has no value
};

inline constexpr int kPageTokens = 64;

// One operation at a time: the caller sees to it (Model::turn).
class Backend {
 public:
  virtual ~Backend() = default;

  virtual std::string_view level() const = 0;  // e.g. "avx512vnni"
  virtual int n_threads() const = 0;

  virtual std::unique_ptr<Weight> upload(const TensorSource& tensor, WeightUse use) = 0;
  virtual size_t kv_page_bytes(const KvShape& kv) const = 0;
  // Of whole pages from outside: store_kv writes what is finite, or a key that says that it is not.
  virtual bool kv_is_finite(const KvShape& kv, std::span<const uint8_t> pages) const = 0;

  virtual void get_rows(Mat y, const Weight& table, std::span<const int32_t> ids) = 0;
  // Over groups of w.cols columns (a head, or the whole row), group i with row i % w.rows of w; w may be null (whole
  // row), b too. y may be x.
  virtual void norm(Mat y, Mat x, NormKind kind, const Weight* w, const Weight* b, float eps) = 0;
  virtual void matmul(std::span<const Group> groups) = 0;
  void matmul(Mat x, std::span<const Product> products) {
    const Group group{x, products};
    matmul({&group, 1});
  }
  // The same with activations rounded to 16 bits instead of 8: for few rows whose errors count, at twice the
  // arithmetic.
  virtual void matmul_fine(Mat x, const Product& product) = 0;
  virtual void rope(Mat x, int head_dim, RopeStyle style, const RopeTable& table) = 0;
  virtual void store_kv(const AttentionShape& shape, Mat k, Mat v, std::span<const SequenceRows> sequences) = 0;
  virtual void attention(Mat y, Mat q, const AttentionShape& shape, std::span<const SequenceRows> sequences) = 0;
  virtual void gate(ActivationFn fn, Mat g, Mat u) = 0;  // g = fn(g) * u
  virtual void activate(ActivationFn fn, Mat x) = 0;
  virtual void softmax(Mat x) = 0;                   // of each row
  virtual void add(Mat x, Mat y, float factor) = 0;  // x += factor y
  virtual void scale(Mat x, float factor) = 0;
  virtual void softcap(Mat x, float cap) = 0;                               // cap tanh(x / cap)
  virtual void copy_rows(Mat y, Mat x, std::span<const int32_t> rows) = 0;  // y[i] = x[rows[i]]
  // y[i] = sum over j of factors[i][j] x[rows[i * factors.cols + j]], j ascending
  virtual void mix_rows(Mat y, Mat x, std::span<const int32_t> rows, Mat factors) = 0;
};

}  // namespace pllm
