#include "model/loader.h"

#include <cmath>

#include "base/error.h"
#include "base/printable.h"

namespace pllm {
namespace {

std::string shape_text(Loader::Shape s) {
  std::string text = s.rows == 1 ? std::to_string(s.cols) : std::to_string(s.rows) + " x " + std::to_string(s.cols);
  return s.depth == 1 ? text : std::to_string(s.depth) + " x " + text;
}

}  // namespace

const gguf::Tensor* Loader::find(const std::string& name, Shape shape) {
  const gguf::Tensor* t = file_.tensor(name);
  if (!t) return nullptr;
  const auto& have = t->shape;
  if (have[0] != shape.cols || have[1] != shape.rows || have[2] != shape.depth || have[3] != 1) {
    throw Error(ErrorKind::bad_shape,
                "tensor " + name + ": expected " + shape_text(shape) + " from the metadata, the file has " +
                    shape_text({have[1], have[0], have[2] * have[3]}),
                "The file is corrupt or made by a broken converter.");
  }
  if (!t->format) {
    throw Error(
        ErrorKind::unsupported_model,
        "tensor " + name + " has format " + std::string(t->type_name) + ", which this engine cannot compute with",
        "Take the same model in another quantization, such as Q4_K_M or Q8_0.");
  }
  used_.insert(t->name);
  return t;
}

void Loader::need(const std::string& name) const {
  if (has(name)) return;
  throw Error(ErrorKind::missing_tensor, "tensor " + name + " is missing from " + file_.path(),
              "The file itself is whole: it was made without this tensor. Get another copy or convert it again.");
}

const gguf::Tensor& Loader::require(const std::string& name, Shape shape) {
  need(name);
  return *find(name, shape);
}

WeightPtr Loader::matrix(const std::string& name, int64_t rows, int64_t cols, WeightUse use) {
  return part(require(name, {rows, cols}), use, 0, rows, cols);
}

WeightPtr Loader::vector(const std::string& name, int64_t n, bool needed) {
  const gguf::Tensor* t = needed ? &require(name, {1, n}) : find(name, {1, n});
  return t ? part(*t, WeightUse::vector, 0, 1, n) : nullptr;
}

WeightPtr Loader::part(const gguf::Tensor& t, WeightUse use, int64_t first, int64_t rows, int64_t cols) {
  const FormatInfo& format = info(*t.format);
  if (first % format.block_weights != 0 || cols % format.block_weights != 0) {
    throw Error(ErrorKind::unsupported_model,
                "tensor " + std::string(t.name) + " has format " + std::string(format.name) +
                    ", whose blocks do not fit its parts",
                "Take the same model in another quantization, such as Q8_0.");
  }
  const uint64_t begin = uint64_t(first / format.block_weights) * uint64_t(format.block_bytes);
  const auto read = [&file = file_, &t, begin](uint64_t at, std::span<uint8_t> out) { file.read(t, begin + at, out); };
  WeightPtr w = backend_.upload({t.name, *t.format, rows, cols, read}, use);
  bytes_ += w->bytes;
  return w;
}

void Loader::stacked(const std::string& name, std::initializer_list<Stacked> parts, int64_t cols) {
  int64_t total = 0, first = 0;
  for (const Stacked& p : parts) total += p.rows;
  const gguf::Tensor& t = require(name, cols ? Shape{total, cols} : Shape{1, total});
  for (const Stacked& p : parts) {
    p.weight = cols ? part(t, WeightUse::product, first, p.rows, cols) : part(t, WeightUse::vector, first, 1, p.rows);
    first += p.rows * (cols ? cols : 1);
  }
}

std::vector<float> Loader::divisors(const std::string& name, int64_t n, bool needed) {
  const gguf::Tensor* t = needed ? &require(name, {1, n}) : find(name, {1, n});
  if (!t) return {};
  const char* hint = "The file is corrupt or made by a broken converter.";
  if (t->format != Format::F32)
    throw Error(ErrorKind::bad_shape, "tensor " + name + " has format " + std::string(t->type_name) + ", not F32",
                hint);
  std::vector<float> values(static_cast<size_t>(n));
  file_.read(*t, 0, {reinterpret_cast<uint8_t*>(values.data()), values.size() * sizeof(float)});
  for (const float v : values) {
    if (std::isnormal(v) && v > 0) continue;
    throw Error(ErrorKind::bad_file, "tensor " + name + ": " + std::to_string(v) + " is no divisor", hint);
  }
  return values;
}

void Loader::refuse_unused(const Hparams& h) const {
  for (const gguf::Tensor& t : file_.tensors()) {
    if (used_.contains(t.name) || t.name.ends_with(".attn_rot_embd.weight")) continue;  // derived, in early files
    throw Error(ErrorKind::unsupported_model,
                "tensor " + printable(t.name) + " has no use in a model of architecture " + h.arch + " with " +
                    std::to_string(h.n_layer) + " layers",
                "It is a variant that is not supported, or the file was made by a broken converter.");
  }
}

}  // namespace pllm
