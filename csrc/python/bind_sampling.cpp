#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <mutex>

#include "base/error.h"
#include "python/bindings.h"
#include "python/unlocked.h"
#include "sampling/sampler.h"

namespace py = pybind11;
namespace pllm::python {
namespace {

// The sampler's scratch memory serves one call at a time; with the GIL released, threads have to be kept apart here.
struct LockedSampler {
  LockedSampler(SamplingParams params, int n_vocab) : sampler(std::move(params), n_vocab) {}
  std::mutex mutex;
  Sampler sampler;
};

uint64_t to_unsigned(const py::object& value, const char* name, uint64_t largest) {
  const auto index = py::reinterpret_steal<py::object>(PyNumber_Index(value.ptr()));
  if (!index) throw py::error_already_set();
  const uint64_t number = PyLong_AsUnsignedLongLong(index.ptr());
  const bool overflow = PyErr_Occurred() != nullptr;
  if (overflow) PyErr_Clear();
  if (overflow || number > largest) {
    throw Error(ErrorKind::bad_value, std::string(name) + " = " + std::string(py::str(value)) + " is out of range",
                "Give an integer from 0 to " + std::to_string(largest));
  }
  return number;
}

float to_float(double value, const std::string& name) {
  if (std::isfinite(value) && std::abs(value) > std::numeric_limits<float>::max()) {
    throw Error(ErrorKind::bad_value, name + " = " + std::to_string(value) + " is out of range",
                "Give a number that fits a 32-bit float.");
  }
  return static_cast<float>(value);
}

int to_int(int64_t value) {  // saturated: "more than there are" keeps its meaning
  return static_cast<int>(std::clamp<int64_t>(value, std::numeric_limits<int>::min(), std::numeric_limits<int>::max()));
}

template <typename T>
std::span<const T> view(const py::array& array, const char* name, const char* dtype) {
  const bool contiguous = (array.flags() & py::array::c_style) != 0;
  const bool aligned = reinterpret_cast<uintptr_t>(array.data()) % alignof(T) == 0;
  if (!py::isinstance<py::array_t<T>>(array) || array.ndim() != 1 || !contiguous || !aligned) {
    throw Error(ErrorKind::bad_value,
                std::string(name) + " is " + (contiguous && aligned ? "" : "a strided or unaligned view, ") +
                    std::string(py::str(array.dtype())) + " with " + std::to_string(array.ndim()) + " dimensions",
                std::string("Give a contiguous one-dimensional numpy array of ") + dtype + '.');
  }
  return {static_cast<const T*>(array.data()), static_cast<size_t>(array.size())};
}

std::unique_ptr<LockedSampler> make(int64_t n_vocab, double temperature, int64_t top_k, double top_p, double min_p,
                                    double repeat_penalty, double frequency_penalty, double presence_penalty,
                                    int64_t penalty_last_n, const py::object& seed,
                                    const std::map<int64_t, double>& logit_bias) {
  SamplingParams params{.temperature = to_float(temperature, "temperature"),
                        .top_p = to_float(top_p, "top_p"),
                        .min_p = to_float(min_p, "min_p"),
                        .repeat_penalty = to_float(repeat_penalty, "repeat_penalty"),
                        .frequency_penalty = to_float(frequency_penalty, "frequency_penalty"),
                        .presence_penalty = to_float(presence_penalty, "presence_penalty"),
                        .top_k = to_int(top_k),
                        .penalty_last_n = to_int(penalty_last_n),
                        .seed = to_unsigned(seed, "seed", std::numeric_limits<uint64_t>::max()),
                        .logit_bias = {}};
  for (const auto& [id, bias] : logit_bias) {
    const std::string name = "logit_bias of token " + std::to_string(id);
    if (id != to_int(id)) throw Error(ErrorKind::bad_value, name + ": no vocabulary is that large");
    params.logit_bias.emplace_back(to_int(id), to_float(bias, name));
  }
  return std::make_unique<LockedSampler>(std::move(params), to_int(n_vocab));
}

py::tuple sample(LockedSampler& self, const py::array& logits, const py::array& history, const py::object& pos,
                 const py::object& choice, int64_t n_top_logprobs) {
  const auto logits_view = view<float>(logits, "logits", "float32");
  const auto history_view = view<int32_t>(history, "history", "int32");
  const uint64_t position = to_unsigned(pos, "pos", std::numeric_limits<uint64_t>::max());
  const auto index = static_cast<uint32_t>(to_unsigned(choice, "choice", std::numeric_limits<uint32_t>::max()));
  Sampled sampled;
  {
    const Unlocked unlocked;
    const std::scoped_lock lock(self.mutex);
    sampled = self.sampler.sample(logits_view, history_view, position, index, to_int(n_top_logprobs));
  }
  return py::make_tuple(sampled.id, sampled.logprob, sampled.top);
}

constexpr const char* kClassDoc = R"(Chooses the next token from logits: a pure function of its arguments.

The chain, always in this order: logit_bias; penalties over the last penalty_last_n tokens of the history
(repeat_penalty as in CTRL, frequency_penalty and presence_penalty as in OpenAI's API); top_k; top_p; min_p;
temperature; one draw with Philox4x32-10 keyed by (seed, choice, pos). Each default turns its step off.

temperature <= 0 takes the largest logit after the penalties. Equal logits rank by ascending id. A bias of -inf
bans a token. top_k of 0 or -1 is off; penalty_last_n of -1 is the whole history. The same arguments give the
same token on every machine. Raises ParameterError for a value out of range. Threads are served in turn.)";

constexpr const char* kSampleDoc = R"(-> (id, logprob, [(id, logprob), ...])

logits: float32 [n_vocab], finite or -inf. history: int32 [n], the prompt and the answer so far, read by the
penalties only. Neither is copied; do not write to them meanwhile (the GIL is released). pos: the position the
new token will take. choice: which of several answers to one request. n_top_logprobs: n >= 0 returns the
token's log-probability and the n best, ties by id, leaving out tokens of probability 0; with -1 the first is
nan, the list empty. They are the model's own: natural log softmax of the logits as given, before any step.

Raises InternalError if the logits hold nan or +inf or are all -inf; ParameterError if every token is banned, an
array has another type or size, or the penalized history names a token outside the vocabulary.)";

}  // namespace

void bind_sampling(py::module_& m) {
  const SamplingParams off;
  py::class_<LockedSampler>(m, "Sampler", kClassDoc)
      .def(py::init(&make), py::arg("n_vocab"), py::kw_only(), py::arg("temperature") = off.temperature,
           py::arg("top_k") = off.top_k, py::arg("top_p") = off.top_p, py::arg("min_p") = off.min_p,
           py::arg("repeat_penalty") = off.repeat_penalty, py::arg("frequency_penalty") = off.frequency_penalty,
           py::arg("presence_penalty") = off.presence_penalty, py::arg("penalty_last_n") = off.penalty_last_n,
           py::arg("seed") = off.seed, py::arg("logit_bias") = py::dict())
      .def("sample", &sample, kSampleDoc, py::arg("logits"), py::arg("history"), py::arg("pos"), py::kw_only(),
           py::arg("choice") = 0, py::arg("n_top_logprobs") = -1)
      .def_property_readonly("n_vocab", [](const LockedSampler& self) { return self.sampler.n_vocab(); })
      .def_property_readonly("seed", [](const LockedSampler& self) { return self.sampler.params().seed; });
}

}  // namespace pllm::python
