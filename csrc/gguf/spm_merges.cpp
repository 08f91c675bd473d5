#include "gguf/spm_merges.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <optional>
#include <string>

#include "base/error.h"

namespace pllm::gguf {
namespace {

// Token text -> id. The hash is a polynomial in the bytes, so the hashes of all prefixes and suffixes of a token cost
// one pass together, and a long token costs no more per byte than a short one.
class TokenTable {
 public:
  static constexpr uint64_t kBase = 0x9e3779b97f4a7c15;

  explicit TokenTable(std::span<const std::string_view> tokens) : tokens_(tokens) {
    slots_.resize(std::bit_ceil(tokens.size() * 2 + 1));
    hashes_.reserve(tokens.size());
    for (size_t id = 0; id < tokens.size(); id++) {
      uint64_t hash = 0;
      for (const char c : tokens[id]) hash = extend(hash, c);
      hashes_.push_back(hash);
      slot(tokens[id], hash) = uint32_t(id) + 1;
    }
  }
  static uint64_t extend(uint64_t hash, char c) { return hash * kBase + uint8_t(c) + 1; }

  std::optional<uint32_t> find(std::string_view text, uint64_t hash) {
    const uint32_t found = slot(text, hash);
    if (found == 0) return std::nullopt;
    return found - 1;
  }

 private:
  // Where `text` is, or the free slot where it belongs.
  uint32_t& slot(std::string_view text, uint64_t hash) {
    const size_t mask = slots_.size() - 1;
    for (size_t i = (hash ^ (hash >> 32)) * kBase >> 20 & mask;; i = (i + 1) & mask) {
      const uint32_t id = slots_[i];
      if (id == 0 || (hashes_[id - 1] == hash && tokens_[id - 1] == text)) return slots_[i];
    }
  }

  std::span<const std::string_view> tokens_;
  std::vector<uint64_t> hashes_;
  std::vector<uint32_t> slots_;  // id + 1; 0: free
};

// Appends the splits of one token, ordered by (left, right).
void split(std::string_view token, TokenTable& table, std::vector<uint64_t>& prefix, std::vector<uint64_t>& power,
           std::vector<Merge>& merges) {
  prefix.assign(1, 0);
  for (const char c : token) prefix.push_back(TokenTable::extend(prefix.back(), c));
  while (power.size() <= token.size()) power.push_back(power.back() * TokenTable::kBase);
  const size_t begin = merges.size();
  for (size_t k = 1; k < token.size(); k++) {
    if ((uint8_t(token[k]) & 0xc0) == 0x80) continue;  // inside a character
    const auto left = table.find(token.substr(0, k), prefix[k]);
    if (!left) continue;
    const uint64_t suffix_hash = prefix.back() - prefix[k] * power[token.size() - k];
    if (const auto right = table.find(token.substr(k), suffix_hash)) merges.push_back({*left, *right});
  }
  std::sort(merges.begin() + ptrdiff_t(begin), merges.end(),
            [](Merge a, Merge b) { return a.left != b.left ? a.left < b.left : a.right < b.right; });
}

}  // namespace

std::vector<Merge> spm_merges(std::span<const std::string_view> tokens, std::span<const float> scores,
                              std::span<const int32_t> types) {
  constexpr int32_t kUnknown = 2, kControl = 3, kByte = 6;
  if (scores.size() != tokens.size() || types.size() != tokens.size())
    throw Error(ErrorKind::bad_file,
                "the vocabulary has " + std::to_string(tokens.size()) + " tokens, but " +
                    std::to_string(scores.size()) + " scores and " + std::to_string(types.size()) + " token types",
                "The file's tokenizer is damaged: get the model from another source or convert it again.");
  for (size_t id = 0; id < scores.size(); id++)
    if (std::isnan(scores[id]))
      throw Error(ErrorKind::bad_file, "the score of token " + std::to_string(id) + " is not a number",
                  "The file's tokenizer is damaged: get the model from another source or convert it again.");

  std::vector<uint32_t> order(tokens.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return scores[a] > scores[b]; });
  TokenTable table(tokens);
  std::vector<Merge> merges;
  std::vector<uint64_t> prefix, power{1};
  for (const uint32_t id : order)
    if (types[id] != kUnknown && types[id] != kControl && types[id] != kByte)
      split(tokens[id], table, prefix, power, merges);
  return merges;
}

}  // namespace pllm::gguf
