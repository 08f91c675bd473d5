#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <mutex>
#include <set>

#include "base/error.h"
#include "python/bindings.h"
#include "python/unlocked.h"
#include "sampling/chain.h"
#include "sampling/sampler.h"

namespace py = pybind11;
namespace pllm::python {
namespace {

// The sampler's scratch memory serves one call at a time; with the GIL released, threads have to be kept apart here.
struct LockedSampler {
  LockedSampler(SamplingParams params, int n_vocab, const std::string& isa)
      : sampler(std::move(params), n_vocab, isa) {}
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

// Reads one keyword argument after the other into the parameters.
class Reader {
 public:
  Reader(const py::kwargs& given) : given_(given) {}

  void operator()(const char* name, float& into) { read<double>(name, into, to_float); }
  void operator()(const char* name, int& into) {
    read<int64_t>(name, into, [](int64_t value, const std::string&) { return to_int(value); });
  }
  void operator()(const char* name, uint64_t& into) {
    read<py::object>(name, into, [](const py::object& value, const std::string& key) {
      return to_unsigned(value, key.c_str(), std::numeric_limits<uint64_t>::max());
    });
  }
  template <typename T>
  void operator()(const char* name, std::vector<T>& into) {
    read<std::vector<T>>(name, into, [](std::vector<T> value, const std::string&) { return value; });
  }
  void operator()(const char* name, std::vector<std::pair<int32_t, float>>& into) {
    read<std::map<int64_t, double>>(name, into, to_bias);
  }

  void finish() const {
    if (n_read_ == given_.size()) return;
    for (const auto& [key, value] : given_) {
      const auto name = py::cast<std::string>(key);
      if (!known_.contains(name)) throw py::type_error("Sampler() got an unexpected keyword argument '" + name + '\'');
    }
  }

 private:
  template <typename From, typename To, typename Convert>
  void read(const char* name, To& into, Convert convert) {
    known_.insert(name);
    if (!given_.contains(name)) return;
    ++n_read_;
    try {
      into = convert(py::cast<From>(given_[name]), name);
    } catch (const py::cast_error&) {
      throw py::type_error(std::string("Sampler(): ") + name + " has the wrong type");
    }
  }

  static std::vector<std::pair<int32_t, float>> to_bias(const std::map<int64_t, double>& table,
                                                        const std::string& key) {
    std::vector<std::pair<int32_t, float>> result;
    for (const auto& [id, bias] : table) {
      const std::string name = key + " of token " + std::to_string(id);
      if (id != to_int(id)) throw Error(ErrorKind::bad_value, name + ": no vocabulary is that large");
      result.emplace_back(to_int(id), to_float(bias, name));
    }
    return result;
  }

  const py::kwargs& given_;
  std::set<std::string> known_;
  size_t n_read_ = 0;
};

std::unique_ptr<LockedSampler> make(int64_t n_vocab, const std::string& isa, const py::kwargs& given) {
  SamplingParams p;
  p.samplers = step_names();
  Reader read(given);
  read("logit_bias", p.logit_bias);
  read("min_tokens", p.min_tokens);
  read("eog_ids", p.eog_ids);
  read("repeat_penalty", p.repeat_penalty);
  read("frequency_penalty", p.frequency_penalty);
  read("presence_penalty", p.presence_penalty);
  read("penalty_last_n", p.penalty_last_n);
  read("dry_multiplier", p.dry_multiplier);
  read("dry_base", p.dry_base);
  read("dry_allowed_length", p.dry_allowed_length);
  read("dry_penalty_last_n", p.dry_penalty_last_n);
  read("dry_breakers", p.dry_breakers);
  read("top_n_sigma", p.top_n_sigma);
  read("top_k", p.top_k);
  read("typical_p", p.typical_p);
  read("top_p", p.top_p);
  read("min_p", p.min_p);
  read("xtc_probability", p.xtc_probability);
  read("xtc_threshold", p.xtc_threshold);
  read("temperature", p.temperature);
  read("dynatemp_range", p.dynatemp_range);
  read("dynatemp_exponent", p.dynatemp_exponent);
  read("mirostat_mode", p.mirostat_mode);
  read("mirostat_tau", p.mirostat_tau);
  read("mirostat_eta", p.mirostat_eta);
  read("samplers", p.samplers);
  read("seed", p.seed);
  read.finish();
  return std::make_unique<LockedSampler>(std::move(p), to_int(n_vocab), isa);
}

Draw to_draw(const py::array& history, const py::object& pos, const py::object& choice, const py::object& n_prompt) {
  constexpr uint64_t kLargest = std::numeric_limits<uint64_t>::max();
  return {.history = {view<int32_t>(history, "history", "int32"), to_unsigned(n_prompt, "n_prompt", kLargest)},
          .pos = to_unsigned(pos, "pos", kLargest),
          .choice = static_cast<uint32_t>(to_unsigned(choice, "choice", std::numeric_limits<uint32_t>::max()))};
}

py::tuple sample(LockedSampler& self, const py::array& logits, const py::array& history, const py::object& pos,
                 const py::object& choice, const py::object& n_prompt, int64_t n_top_logprobs) {
  const auto logits_view = view<float>(logits, "logits", "float32");
  const Draw draw = to_draw(history, pos, choice, n_prompt);
  Sampled sampled;
  {
    const Unlocked unlocked;
    const std::scoped_lock lock(self.mutex);
    sampled = self.sampler.sample(logits_view, draw, to_int(n_top_logprobs));
  }
  return py::make_tuple(sampled.id, sampled.logprob, sampled.top);
}

std::vector<std::pair<int32_t, double>> distribution(LockedSampler& self, const py::array& logits,
                                                     const py::array& history, const py::object& pos,
                                                     const py::object& choice, const py::object& n_prompt) {
  const auto logits_view = view<float>(logits, "logits", "float32");
  const Draw draw = to_draw(history, pos, choice, n_prompt);
  const Unlocked unlocked;
  const std::scoped_lock lock(self.mutex);
  return self.sampler.distribution(logits_view, draw);
}

constexpr const char* kClassDoc = R"(Sampler(n_vocab, isa='', **parameters): chooses the next token from logits.

The chain: logit_bias and min_tokens; the steps named in `samplers`, in that order (samplers() has the default one);
mirostat instead of the cuts where it is on; one draw with Philox4x32-10 keyed by (seed, choice, pos). Each default
turns its step off. The parameters are the fields of pyllamacpp.SamplingParams, but: logit_bias maps ids to numbers,
-inf bans, +inf allows these tokens alone; eog_ids are what min_tokens bans; dry_breakers are automata, each a list of (state, token, next).
isa names the instruction-set level of its loops, of levels(); it changes no result.

temperature <= 0 takes the largest logit after bias, penalties and dry. Equal logits rank by ascending id. The same
arguments give the same token on every machine; with mirostat, given the tokens drawn for earlier positions of the
same choice. Raises ParameterError for a value out of range. Threads are served in turn.)";

constexpr const char* kSampleDoc = R"(-> (id, logprob, [(id, logprob), ...])

logits: float32 [n_vocab], finite or -inf. history: int32 [n], the prompt and the answer so far, the first n_prompt of
them prompt. Neither is copied; do not write to them meanwhile (the GIL is released). pos: the position the new token
will take. choice: which of several answers to one request. n_top_logprobs: n >= 0 returns the token's
log-probability and the n best, ties by id, leaving out tokens of probability 0; with -1 the first is nan, the list
empty. They are the model's own: natural log softmax of the logits as given, before any step.

Raises InternalError if the logits hold nan or +inf or are all -inf; ParameterError if every token is banned, an
array has another type or size, or the history names a token outside the vocabulary where a step looks at it.)";

}  // namespace

void bind_sampling(py::module_& m) {
  m.def("samplers", &step_names, "Names of the steps, in the default order.");
  py::class_<LockedSampler>(m, "Sampler", kClassDoc)
      .def(py::init(&make), py::arg("n_vocab"), py::kw_only(), py::arg("isa") = "")
      .def("sample", &sample, kSampleDoc, py::arg("logits"), py::arg("history"), py::arg("pos"), py::kw_only(),
           py::arg("choice") = 0, py::arg("n_prompt") = 0, py::arg("n_top_logprobs") = -1)
      .def("distribution", &distribution, "What sample() would draw from: [(id, probability), ...] in order of id.",
           py::arg("logits"), py::arg("history"), py::arg("pos"), py::kw_only(), py::arg("choice") = 0,
           py::arg("n_prompt") = 0)
      .def_property_readonly("n_vocab", [](const LockedSampler& self) { return self.sampler.n_vocab(); })
      .def_property_readonly("seed", [](const LockedSampler& self) { return self.sampler.params().seed; });
}

}  // namespace pllm::python
