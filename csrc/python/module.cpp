#include "base/error.h"
#include "python/bindings.h"
#include "python/unlocked.h"

namespace py = pybind11;
namespace pllm::python {
namespace {

const char* name_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::io: return "io";
    case ErrorKind::bad_file: return "bad_file";
    case ErrorKind::missing_tensor: return "missing_tensor";
    case ErrorKind::bad_shape: return "bad_shape";
    case ErrorKind::unsupported_model: return "unsupported_model";
    case ErrorKind::out_of_memory: return "out_of_memory";
    case ErrorKind::context_overflow: return "context_overflow";
    case ErrorKind::bad_value: return "bad_value";
    case ErrorKind::internal: return "internal";
  }
  return "internal";
}

// pyllamacpp.errors owns the classes; the core only says which kind it is.
void raise(const Error& e) {
  const py::object make = py::module_::import("pyllamacpp.errors").attr("from_core");
  const py::object error = make(name_of(e.kind()), py::bytes(e.what()), py::bytes(e.hint()));
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
}

void translate(std::exception_ptr p) {
  try {
    if (p) std::rethrow_exception(p);
  } catch (const Error& e) {
    raise(e);
  } catch (const py::builtin_exception&) {
    throw;  // pybind11's own: TypeError and the like
  } catch (const std::bad_alloc&) {
    raise({ErrorKind::out_of_memory, "the system refused memory",
           "Close other programs, take a smaller model or a smaller context."});
  } catch (const std::exception& e) {
    raise({ErrorKind::internal, e.what(), "This is a fault of pyllamacpp: please report it."});
  }
}

}  // namespace
}  // namespace pllm::python

PYBIND11_MODULE(_core, m) {
  using namespace pllm::python;
  m.doc() = "The native core of pyllamacpp. Use the classes of `pyllamacpp`; this surface may change.";
  py::register_exception_translator(&translate);
  py::module_::import("atexit").attr("register")(py::cpp_function(&finish_unlocked));
  bind_gguf(m);
  bind_kernels(m);
  bind_attention(m);
  bind_sampling(m);
  bind_limits(m);
  bind_model(m);
}
