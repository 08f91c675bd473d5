#include "sampling/chain.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "base/error.h"

namespace pllm {
namespace {

enum class Kind { penalty, cut, heat };

struct Row {
  std::string_view name;
  Kind kind;
  Step (*make)(const SamplingParams& p, int n_vocab);
};

// The default order. A new sampler is a row.
constexpr Row kRows[] = {
    {"penalties", Kind::penalty, make_penalties},
    {"dry", Kind::penalty, make_dry},
    {"top_n_sigma", Kind::cut, [](const auto& p, int) { return make_top_n_sigma(p); }},
    {"top_k", Kind::cut, [](const auto& p, int) { return make_top_k(p); }},
    {"typical_p", Kind::cut, [](const auto& p, int) { return make_typical_p(p); }},
    {"top_p", Kind::cut, [](const auto& p, int) { return make_top_p(p); }},
    {"min_p", Kind::cut, [](const auto& p, int) { return make_min_p(p); }},
    {"xtc", Kind::cut, [](const auto& p, int) { return make_xtc(p); }},
    {"temperature", Kind::heat, [](const auto& p, int) { return make_temperature(p); }},
};

const Row& row_of(const std::string& name) {
  const auto row = std::find_if(std::begin(kRows), std::end(kRows), [&](const Row& r) { return r.name == name; });
  if (row != std::end(kRows)) return *row;
  std::string known;
  for (const Row& r : kRows) known += (known.empty() ? "" : ", ") + std::string(r.name);
  throw Error(ErrorKind::bad_value, "samplers names '" + name + "', which is no sampler", "There are: " + known + '.');
}

bool takes_part(const Row& row, const SamplingParams& p) {
  if (p.temperature <= 0) return row.kind == Kind::penalty;
  return p.mirostat_mode == 0 || row.kind != Kind::cut;
}

}  // namespace

std::vector<std::string> step_names() {
  std::vector<std::string> names;
  for (const Row& row : kRows) names.emplace_back(row.name);
  return names;
}

std::vector<Step> make_chain(const SamplingParams& p, int n_vocab) {
  std::vector<Step> chain;
  if (Step bias = make_logit_bias(p)) chain.push_back(std::move(bias));
  for (auto name = p.samplers.begin(); name != p.samplers.end(); ++name) {
    const Row& row = row_of(*name);
    if (std::find(p.samplers.begin(), name, *name) != name) {
      throw Error(ErrorKind::bad_value, "samplers names " + *name + " twice", "Each can be taken once.");
    }
    if (!takes_part(row, p)) continue;
    if (Step step = row.make(p, n_vocab)) chain.push_back(std::move(step));
  }
  return chain;
}

}  // namespace pllm
