// Merges of any SentencePiece vocabulary, against the definition told in gguf/spm_merges.h word by word.
#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include "base/error.h"
#include "bytes.h"
#include "gguf/spm_merges.h"

using namespace pllm;
using gguf::Merge;

namespace {

struct Vocabulary {
  std::vector<std::string> texts;
  std::vector<float> scores;
  std::vector<int32_t> types;
};

Vocabulary vocabulary_of(Bytes& in) {
  constexpr size_t kMost = 40, kLongest = 6;
  Vocabulary v;
  while (!in.empty() && v.texts.size() < kMost) {
    v.texts.push_back(in.text(kLongest));
    v.scores.push_back(in.flip() ? in.take<float>() : float(in.take<int8_t>()));
    v.types.push_back(in.flip() ? in.take<int32_t>() : 1);
  }
  return v;
}

std::vector<std::pair<uint32_t, uint32_t>> expected(const Vocabulary& v) {
  const auto last = [&](const std::string& text) {
    const auto found = std::find(v.texts.rbegin(), v.texts.rend(), text);
    return found == v.texts.rend() ? -1 : int(v.texts.rend() - found) - 1;
  };
  std::vector<std::tuple<float, uint32_t, uint32_t, uint32_t>> all;  // -score, whole, left, right
  for (uint32_t id = 0; id < v.texts.size(); id++) {
    if (v.types[id] == 2 || v.types[id] == 3 || v.types[id] == 6) continue;
    const std::string& text = v.texts[id];
    for (size_t k = 1; k < text.size(); k++) {
      const int left = last(text.substr(0, k)), right = last(text.substr(k));
      if ((uint8_t(text[k]) & 0xc0) != 0x80 && left >= 0 && right >= 0)
        all.emplace_back(-v.scores[id], id, uint32_t(left), uint32_t(right));
    }
  }
  std::sort(all.begin(), all.end());
  std::vector<std::pair<uint32_t, uint32_t>> merges;
  for (const auto& [score, whole, left, right] : all) merges.emplace_back(left, right);
  return merges;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Bytes in(data, size);
  const Vocabulary v = vocabulary_of(in);
  const std::vector<std::string_view> texts(v.texts.begin(), v.texts.end());
  const bool numbers = std::none_of(v.scores.begin(), v.scores.end(), [](float s) { return s != s; });
  try {
    std::vector<std::pair<uint32_t, uint32_t>> merges;
    for (const Merge& m : gguf::spm_merges(texts, v.scores, v.types)) merges.emplace_back(m.left, m.right);
    CHECK(numbers && merges == expected(v));
  } catch (const Error& error) {
    CHECK(!numbers && error.kind() == ErrorKind::bad_file);
  }
  return finished();
}
