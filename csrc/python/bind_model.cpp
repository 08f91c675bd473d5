#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <optional>

#include "backend/profiled.h"
#include "backend/registry.h"
#include "base/cpu_info.h"
#include "base/error.h"
#include "model/memory_plan.h"
#include "model/session.h"
#include "model/work.h"
#include "python/bindings.h"
#include "python/gguf_file.h"
#include "python/kv_types.h"
#include "python/unlocked.h"

namespace py = pybind11;
namespace pllm::python {
namespace {

using Tokens = py::array_t<int32_t, py::array::c_style>;

std::shared_ptr<Model> load_model(const GgufFile& gguf, int n_threads, const std::string& isa, bool profile) {
  const Unlocked unlocked;
  auto backend = make_backend({n_threads, isa});
  if (profile) backend = profiled(std::move(backend));
  return std::make_shared<Model>(gguf.file, std::move(backend));
}

py::dict take_profile(const Model& model) {
  auto* backend = dynamic_cast<ProfiledBackend*>(&model.backend());
  if (!backend) throw Error(ErrorKind::bad_value, "this model was not opened with profile=True");
  std::array<double, size_t(kOpClassCount)> seconds;
  {
    const Unlocked unlocked;
    const std::lock_guard turn(model.turn());
    seconds = backend->take_profile();
  }
  py::dict d;
  for (size_t i = 0; i < seconds.size(); i++) d[py::str(std::string(kOpClassNames[i]))] = seconds[i];
  return d;
}

py::dict as_dict(const Work& work) {
  py::dict d;
  d["bytes"] = work.bytes;
  d["int8_macs"] = work.int8_macs;
  d["float_macs"] = work.float_macs;
  return d;
}

Session::Rows which_rows(const std::string& name) {
  if (name == "none") return Session::Rows::none;
  if (name == "last") return Session::Rows::last;
  if (name == "all") return Session::Rows::all;
  throw Error(ErrorKind::bad_value, "logits must be 'none', 'last' or 'all', not '" + name + "'");
}

// (n_rows, width). Refused where it would not fit: Linux promises more memory than there is.
py::array_t<float> new_rows(int64_t n_rows, int64_t width) {
  constexpr size_t kSmall = size_t{64} << 20;  // less is not worth asking the system
  const size_t bytes = size_t(n_rows) * size_t(width) * sizeof(float);
  if (bytes <= kSmall || bytes <= available_memory()) {
    try {
      return py::array_t<float>({n_rows, width});
    } catch (const py::error_already_set& error) {
      if (!error.matches(PyExc_MemoryError)) throw;
    }
  }
  throw Error(ErrorKind::out_of_memory,
              "the results of " + std::to_string(n_rows) + " tokens need " + std::to_string(bytes >> 20) +
                  " MiB, more than is available",
              "Ask for the last row alone, or evaluate fewer tokens at a time.");
}

py::array_t<float> run(Session& session, const Tokens& tokens, Output output, Session::Rows which,
                       const Tap* tap = nullptr) {
  if (tokens.ndim() != 1) throw Error(ErrorKind::bad_value, "tokens must be a one-dimensional int32 array");
  const auto n = int64_t(tokens.size());
  if (n > session.n_ctx()) {  // before the result is allocated
    throw Error(ErrorKind::context_overflow,
                std::to_string(n) + " tokens do not fit the context of " + std::to_string(session.n_ctx()),
                "Shorten the prompt or open the model with a larger n_ctx (-c).");
  }
  const Hparams& p = session.model().hparams();
  py::array_t<float> out = new_rows(Session::n_rows(which, n), output == Output::hidden ? p.n_embd : p.n_vocab);
  const std::span<const int32_t> ids(tokens.data(), size_t(n));
  float* data = out.mutable_data();
  {
    const Unlocked unlocked;
    session.eval(ids, output, which, data, tap);
  }
  return out;
}

py::array_t<float> eval(Session& session, const Tokens& tokens, const std::string& logits) {
  return run(session, tokens, Output::logits, which_rows(logits));
}

py::array_t<float> embed(Session& session, const Tokens& tokens) {
  return run(session, tokens, Output::hidden, Session::Rows::all);
}

py::array_t<uint8_t> save(const Session& session) {
  size_t bytes = 0;
  {
    const Unlocked unlocked;
    bytes = session.kv_bytes();
  }
  py::array_t<uint8_t> pages{py::ssize_t(bytes)};
  uint8_t* data = pages.mutable_data();
  const Unlocked unlocked;
  session.save({data, bytes});
  return pages;
}

// A method that takes what save() returned.
template <class Method>
auto saved(Method method) {
  return [method](Session& session, int n_tokens, const py::array_t<uint8_t, py::array::c_style>& pages) {
    const std::span<const uint8_t> bytes(pages.data(), size_t(pages.size()));
    const Unlocked unlocked;
    (session.*method)(n_tokens, bytes);
  };
}

// eval() of all logits, showing tap(name, values (n, cols) float32) every intermediate; "name.layer" inside a layer.
void trace(Session& session, const Tokens& tokens, const py::function& tap) {
  const Tap show = [&](std::string_view name, int layer, Mat values) {
    const py::gil_scoped_acquire held;
    py::array_t<float> copy({values.rows, values.cols});
    for (int64_t i = 0; i < values.rows; i++)
      std::copy_n(values.row(i), values.cols, copy.mutable_data() + i * values.cols);
    tap(layer < 0 ? std::string(name) : std::string(name) + "." + std::to_string(layer), copy);
  };
  run(session, tokens, Output::logits, Session::Rows::all, &show);
}

std::shared_ptr<Session> new_session(std::shared_ptr<const Model> model, int n_ctx, const std::string& type_k,
                                     const std::string& type_v) {
  return std::make_shared<Session>(std::move(model), n_ctx, kv_types(type_k, type_v));
}

py::dict plan_context(const GgufFile& gguf, std::optional<int> n_ctx, bool weights_loaded, const std::string& type_k,
                      const std::string& type_v) {
  const auto backend = make_backend({1, {}});
  const MemoryPlan plan =
      plan_memory(*gguf.file, *backend, available_memory(), weights_loaded, n_ctx, kv_types(type_k, type_v));
  py::dict d;
  d["available"] = plan.available;
  d["weight_bytes"] = plan.weight_bytes;
  d["kv_bytes_per_token"] = plan.kv_bytes_per_token;
  d["reserve"] = plan.reserve;
  d["n_ctx_train"] = plan.n_ctx_train;
  d["n_ctx"] = plan.n_ctx;
  d["total_bytes"] = plan.total();
  return d;
}

// A method that waits where another thread uses the session.
template <class R, class... Args>
auto unlocked(R (Session::*method)(Args...)) {
  return [method](Session& s, Args... args) {
    const Unlocked released;
    return (s.*method)(args...);
  };
}
template <class R>
auto unlocked(R (Session::*method)() const) {
  return [method](const Session& s) {
    const Unlocked released;
    return (s.*method)();
  };
}

template <class T>
auto hparam(T Hparams::* field) {
  return [field](const Model& m) { return m.hparams().*field; };
}

}  // namespace

void bind_model(py::module_& m) {
  py::class_<Model, std::shared_ptr<Model>>(m, "Model")
      .def(py::init(&load_model), py::arg("file"), py::kw_only(), py::arg("n_threads") = 0, py::arg("isa") = "",
           py::arg("profile") = false)
      .def("take_profile", &take_profile)
      .def_property_readonly("layers_work", [](const Model& self) { return as_dict(layers_work(self)); })
      .def_property_readonly("head_work", [](const Model& self) { return as_dict(head_work(self)); })
      .def(
          "kv_bytes_read",
          [](const Model& self, int n_keys, const std::string& type_k, const std::string& type_v) {
            return kv_bytes_read(self, kv_types(type_k, type_v), n_keys);
          },
          py::arg("n_keys"), py::kw_only(), py::arg("type_k") = kDefaultKvType, py::arg("type_v") = kDefaultKvType)
      .def_property_readonly("arch", hparam(&Hparams::arch))
      .def_property_readonly("n_vocab", hparam(&Hparams::n_vocab))
      .def_property_readonly("n_embd", hparam(&Hparams::n_embd))
      .def_property_readonly("n_layer", hparam(&Hparams::n_layer))
      .def_property_readonly("n_head", hparam(&Hparams::n_head))
      .def_property_readonly("n_head_kv", hparam(&Hparams::n_head_kv))
      .def_property_readonly("head_dim", hparam(&Hparams::head_dim_k))
      .def_property_readonly("n_ff", hparam(&Hparams::n_ff))
      .def_property_readonly("n_ctx_train", hparam(&Hparams::n_ctx_train))
      .def_property_readonly("isa", [](const Model& self) { return std::string(self.backend().level()); })
      .def_property_readonly("n_threads", [](const Model& self) { return self.backend().n_threads(); })
      .def_property_readonly("weight_bytes", [](const Model& self) { return self.weights().bytes; })
      .def(
          "kv_bytes_per_token",
          [](const Model& self, const std::string& type_k, const std::string& type_v) {
            return self.backend().kv_page_bytes(self.kv_shape(kv_types(type_k, type_v))) / size_t(kPageTokens);
          },
          py::kw_only(), py::arg("type_k") = kDefaultKvType, py::arg("type_v") = kDefaultKvType);

  py::class_<Session, std::shared_ptr<Session>>(m, "Session")
      .def(py::init(&new_session), py::arg("model"), py::arg("n_ctx"), py::kw_only(),
           py::arg("type_k") = kDefaultKvType, py::arg("type_v") = kDefaultKvType)
      .def_property_readonly("n_ctx", &Session::n_ctx)
      .def_property_readonly(
          "kv_types", [](const Session& s) { return std::pair(info(s.kv_types().k).name, info(s.kv_types().v).name); })
      .def_property_readonly("n_tokens", unlocked(&Session::n_tokens))
      .def_property_readonly("kv_bytes", unlocked(&Session::kv_bytes))
      .def("eval", &eval, py::arg("tokens"), py::arg("logits") = "last")
      .def("embed", &embed, py::arg("tokens"))
      .def("save", &save)
      .def("check_saved", saved(&Session::check_saved), py::arg("n_tokens"), py::arg("pages"))
      .def("restore", saved(&Session::restore), py::arg("n_tokens"), py::arg("pages"))
      .def("trace", &trace, py::arg("tokens"), py::arg("tap"))
      .def("truncate", unlocked(&Session::truncate), py::arg("n_tokens"));

  m.def("plan_context", &plan_context, py::arg("file"), py::arg("n_ctx") = py::none(), py::kw_only(),
        py::arg("weights_loaded") = false, py::arg("type_k") = kDefaultKvType, py::arg("type_v") = kDefaultKvType);
  m.def("kv_types", [] {
    py::dict ids;
    for (const KvTypeInfo& t : kKvTypes)
      ids[py::str(t.name)] = t.ggml_id < 0 ? py::object(py::none()) : py::object(py::int_(t.ggml_id));
    return ids;
  });
  m.def("architectures", [] {
    py::dict models;  // in the table's order
    for (const Arch& arch : architectures()) models[py::str(arch.name)] = py::str(arch.models);
    return models;
  });
}

}  // namespace pllm::python
