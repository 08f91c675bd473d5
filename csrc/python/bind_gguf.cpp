#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <cstring>
#include <string>
#include <vector>

#include "base/error.h"
#include "gguf/spm_merges.h"
#include "python/bindings.h"
#include "python/gguf_file.h"
#include "python/unlocked.h"

namespace py = pybind11;

namespace pllm::python {
namespace {

using gguf::Tensor;
using gguf::Value;
using gguf::ValueType;

// Text of a file may be any bytes: what is not UTF-8 becomes lone surrogates, which encode back to the same bytes.
py::object to_str(std::string_view text) {
  PyObject* str = PyUnicode_DecodeUTF8(text.data(), Py_ssize_t(text.size()), "surrogateescape");
  if (!str) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(str);
}

py::bytes to_bytes(const py::str& text) {
  PyObject* bytes = PyUnicode_AsEncodedString(text.ptr(), "utf-8", "surrogateescape");
  if (!bytes) throw py::error_already_set();
  return py::reinterpret_steal<py::bytes>(bytes);
}

std::string_view view(const py::bytes& bytes) {
  return {PyBytes_AS_STRING(bytes.ptr()), size_t(PyBytes_GET_SIZE(bytes.ptr()))};
}

template <class T>
py::object to_array(const Value& array) {
  py::array_t<T> result(py::ssize_t(array.count));
  if (array.count != 0) std::memcpy(result.mutable_data(), array.bytes.data(), array.bytes.size());
  return result;
}

// Scalars and arrays of scalars, by the value's or the items' type.
template <class T>
py::object convert(const Value& value) {
  if (value.type == ValueType::array) return to_array<T>(value);
  return py::cast(value.as<T>());
}

py::object to_python(const Value& value) {
  switch (value.type == ValueType::array ? value.element_type : value.type) {
    case ValueType::u8: return convert<uint8_t>(value);
    case ValueType::i8: return convert<int8_t>(value);
    case ValueType::u16: return convert<uint16_t>(value);
    case ValueType::i16: return convert<int16_t>(value);
    case ValueType::u32: return convert<uint32_t>(value);
    case ValueType::i32: return convert<int32_t>(value);
    case ValueType::u64: return convert<uint64_t>(value);
    case ValueType::i64: return convert<int64_t>(value);
    case ValueType::f32: return convert<float>(value);
    case ValueType::f64: return convert<double>(value);
    case ValueType::boolean: return convert<bool>(value);
    case ValueType::string:
    case ValueType::array: break;
  }
  if (value.type == ValueType::string) return to_str(value.string());
  py::list items(value.count);
  Py_ssize_t i = 0;
  gguf::for_each_item(value,
                      [&](const Value& item) { PyList_SET_ITEM(items.ptr(), i++, to_python(item).release().ptr()); });
  return items;
}

struct TensorInfo {
  py::object name;
  std::string format;
  py::tuple shape;
  size_t n_bytes;
  int shard;
};

TensorInfo tensor_info(const Tensor& tensor) {
  py::tuple shape(size_t(tensor.n_dims));
  for (int i = 0; i < tensor.n_dims; i++) shape[size_t(i)] = tensor.shape[size_t(i)];
  return {to_str(tensor.name), std::string(tensor.type_name), shape, tensor.n_bytes, tensor.shard};
}

py::dict metadata_dict(const gguf::Metadata& metadata) {
  py::dict result;
  for (const auto& entry : metadata.entries()) result[to_str(entry.key)] = to_python(entry.value);
  return result;
}

py::array_t<uint8_t> tensor_bytes(const gguf::File& file, const py::str& name) {
  const py::bytes key = to_bytes(name);
  const Tensor* tensor = file.tensor(view(key));
  if (!tensor)
    throw Error(ErrorKind::missing_tensor, "'" + file.path() + "' has no tensor '" + std::string(view(key)) + "'");
  py::array_t<uint8_t> result(py::ssize_t(tensor->n_bytes));
  uint8_t* out = result.mutable_data();
  const Unlocked unlocked;
  file.read(*tensor, 0, {out, tensor->n_bytes});
  file.check_unchanged();
  return result;
}

py::object to_path(const std::string& path) { return py::module_::import("os").attr("fsdecode")(py::bytes(path)); }

template <class T>
std::string raw(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

gguf::Override to_override(const std::string& key, const py::handle& value) {
  if (py::isinstance<py::bool_>(value)) return {key, ValueType::boolean, raw(uint8_t(value.cast<bool>()))};
  if (py::isinstance<py::int_>(value)) return {key, ValueType::i64, raw(value.cast<int64_t>())};
  if (py::isinstance<py::float_>(value)) return {key, ValueType::f64, raw(value.cast<double>())};
  return {key, ValueType::string, std::string(view(to_bytes(py::cast<py::str>(value))))};
}

std::unique_ptr<GgufFile> open(const py::object& path, const py::dict& overrides) {
  const py::bytes bytes = py::module_::import("os").attr("fsencode")(path);
  const std::string native(view(bytes));
  std::vector<gguf::Override> values;
  for (const auto& item : overrides)
    values.push_back(to_override(std::string(view(to_bytes(py::cast<py::str>(item.first)))), item.second));
  auto opened = std::make_unique<GgufFile>();
  const Unlocked unlocked;
  opened->file = gguf::File::open(native, std::move(values));
  return opened;
}

py::list spm_merges(const py::list& tokens, const py::array_t<float, py::array::c_style | py::array::forcecast>& scores,
                    const py::array_t<int32_t, py::array::c_style | py::array::forcecast>& types) {
  std::vector<py::bytes> escaped;  // owns the bytes of tokens that are not valid UTF-8
  std::vector<std::string_view> texts;
  texts.reserve(tokens.size());
  for (const py::handle token : tokens) {
    if (!PyUnicode_Check(token.ptr())) throw py::type_error("spm_merges: tokens must be str");
    Py_ssize_t n = 0;
    if (const char* text = PyUnicode_AsUTF8AndSize(token.ptr(), &n)) {
      texts.emplace_back(text, size_t(n));
    } else {
      PyErr_Clear();
      escaped.push_back(to_bytes(py::reinterpret_borrow<py::str>(token)));
      texts.push_back(view(escaped.back()));
    }
  }
  const auto merges =
      gguf::spm_merges(texts, {scores.data(), size_t(scores.size())}, {types.data(), size_t(types.size())});
  py::list result(merges.size());
  for (size_t i = 0; i < merges.size(); i++) {
    PyObject* pair =
        PyTuple_Pack(2, PyList_GET_ITEM(tokens.ptr(), merges[i].left), PyList_GET_ITEM(tokens.ptr(), merges[i].right));
    if (!pair) throw py::error_already_set();
    PyList_SET_ITEM(result.ptr(), Py_ssize_t(i), pair);
  }
  return result;
}

}  // namespace

void bind_gguf(py::module_& m) {
  py::class_<TensorInfo>(m, "TensorInfo", "One tensor of a GGUF file.")
      .def_readonly("name", &TensorInfo::name)
      .def_readonly("format", &TensorInfo::format, "The GGUF type's name, e.g. 'Q4_K'.")
      .def_readonly("shape", &TensorInfo::shape, "GGUF order: columns (contiguous) first.")
      .def_readonly("n_bytes", &TensorInfo::n_bytes)
      .def_readonly("shard", &TensorInfo::shard, "Index into `GgufFile.shards`.")
      .def("__repr__", [](const TensorInfo& t) {
        return py::str("TensorInfo({!r}, {}, {}, {} bytes)").format(t.name, t.format, t.shape, t.n_bytes);
      });

  py::class_<GgufFile>(
      m, "GgufFile",
      "A GGUF model, read and validated; any shard of a split model opens the whole set.\n\n"
      "Raises ModelNotFoundError (cannot be opened, or a shard is missing), ModelFileError (not GGUF,\n"
      "truncated, corrupt) or UnsupportedModelError (a tensor type that is not known).")
      .def(py::init(&open), py::arg("path"), py::kw_only(), py::arg("overrides") = py::dict())
      .def_property_readonly("path", [](const GgufFile& f) { return to_path(f.file->path()); })
      .def_property_readonly("version", [](const GgufFile& f) { return f.file->version(); })
      .def_property_readonly("shards",
                             [](const GgufFile& f) {
                               py::list paths;
                               for (const std::string& path : f.file->shards()) paths.append(to_path(path));
                               return paths;
                             })
      .def_property_readonly("unasked_overrides",
                             [](const GgufFile& f) {
                               py::list keys;
                               for (const std::string_view key : f.file->metadata().unasked()) keys.append(to_str(key));
                               return keys;
                             })
      .def_property_readonly(
          "metadata",
          [](GgufFile& f) {
            if (!f.metadata) f.metadata = metadata_dict(f.file->metadata());
            return *f.metadata;
          },
          "The key-value pairs: scalars as int, float, bool or str; arrays as list[str] or numpy arrays. Built once.")
      .def_property_readonly(
          "tensors",
          [](GgufFile& f) {
            if (!f.tensors) {
              py::list infos;
              for (const Tensor& tensor : f.file->tensors()) infos.append(tensor_info(tensor));
              f.tensors = infos;
            }
            return *f.tensors;
          },
          "list[TensorInfo] in file order, shard after shard.")
      .def(
          "stop_reading", [](const GgufFile& f) { f.file->stop_reading(); },
          "Make every later read an error: a model that another thread loads from the file fails soon.")
      .def(
          "tensor", [](const GgufFile& f, const py::str& name) { return tensor_bytes(*f.file, name); }, py::arg("name"),
          "A copy of a tensor's bytes, uint8 of shape (n_bytes,). MissingTensorError if there is none of that name.");
  m.def("spm_merges", &spm_merges, py::arg("tokens"), py::arg("scores"), py::arg("types"),
        "Merge rules [(left, right), ...] of a SentencePiece BPE vocabulary, best first, from its scores and token "
        "types.");
}

}  // namespace pllm::python
