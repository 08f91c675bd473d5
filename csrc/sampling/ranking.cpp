#include "sampling/ranking.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>

#include "base/error.h"

namespace pllm {
namespace {

constexpr size_t kBlock = 128, kHalf = kBlock / 2;
constexpr float kLargest = std::numeric_limits<float>::max();

[[noreturn]] void throw_not_finite(std::span<const float> logits) {
  size_t i = 0;
  while (logits[i] <= kLargest) ++i;
  throw Error(ErrorKind::internal,
              std::string("the model produced ") + (std::isnan(logits[i]) ? "NaN" : "+infinity") +
                  " as the logit of token " + std::to_string(i),
              "The model file may be damaged (compare its SHA-256 with the publisher's); if it is whole, report this.");
}

// The largest of x[kBlock]; `bad` where one is NaN or +infinity. Halving, because the compiler may not reorder a
// running maximum of floats, but vectorizes this.
float block_max(const float* x, bool& bad) {
  float best[kHalf];
  int not_finite = 0;
  for (size_t i = 0; i < kHalf; ++i) {
    best[i] = x[i] > x[i + kHalf] ? x[i] : x[i + kHalf];
    not_finite |= !(x[i] <= kLargest) | !(x[i + kHalf] <= kLargest);
  }
  for (size_t i = 0; i < kHalf / 2; ++i) best[i] = best[i] > best[i + kHalf / 2] ? best[i] : best[i + kHalf / 2];
  bad = not_finite != 0;
  return *std::max_element(best, best + kHalf / 2);
}

}  // namespace

float at_least(double x) {
  const auto rounded = static_cast<float>(std::clamp<double>(x, -kLargest, kLargest));
  return rounded < x ? std::nextafter(rounded, kLargest) : rounded;
}

void keep_best_of(std::vector<Candidate>& candidates, size_t k) {
  if (k < candidates.size()) {
    std::nth_element(candidates.begin(), candidates.begin() + k, candidates.end(), ranks_before);
    candidates.resize(k);
  }
  std::sort(candidates.begin(), candidates.end(), ranks_before);
}

void Ranking::scan(std::span<const float> logits) {
  logits_ = logits;
  block_max_.resize((logits.size() + kBlock - 1) / kBlock);
  float padded[kBlock];
  for (size_t b = 0; b < block_max_.size(); ++b) {
    const float* block = logits.data() + b * kBlock;
    const size_t n = std::min(kBlock, logits.size() - b * kBlock);
    if (n < kBlock) {
      std::fill(std::copy_n(block, n, padded), padded + kBlock, kNoFloor);
      block = padded;
    }
    bool bad;
    block_max_[b] = block_max(block, bad);
    if (bad) throw_not_finite(logits);
  }
  max_ = *std::max_element(block_max_.begin(), block_max_.end());
}

int32_t Ranking::argmax() const {
  const size_t block = std::find(block_max_.begin(), block_max_.end(), max_) - block_max_.begin();
  return static_cast<int32_t>(std::find(logits_.begin() + block * kBlock, logits_.end(), max_) - logits_.begin());
}

bool Ranking::collect(double floor, size_t limit, std::vector<Candidate>& out) const {
  const float bound = std::max(at_least(floor), -kLargest);  // -infinity is never a candidate
  size_t n = 0;
  for (size_t b = 0; b < block_max_.size() && n <= limit; ++b) {
    if (block_max_[b] < bound) continue;
    const size_t end = std::min((b + 1) * kBlock, logits_.size());
    if (out.size() < n + kBlock) out.resize(2 * n + kBlock);
    Candidate* next = out.data() + n;
    for (size_t i = b * kBlock; i < end; ++i) {  // without a branch
      const float logit = logits_[i];
      *next = {logit, static_cast<int32_t>(i)};
      next += logit >= bound;
    }
    n = static_cast<size_t>(next - out.data());
  }
  out.resize(n);
  return n <= limit;
}

void Ranking::append_equal(float logit, size_t n, std::vector<Candidate>& out) const {
  for (size_t i = 0; i < logits_.size() && n > 0; ++i) {
    if (logits_[i] != logit) continue;
    out.push_back({logit, static_cast<int32_t>(i)});
    --n;
  }
}

void Ranking::best(size_t k, std::vector<Candidate>& out) {
  if (k >= block_max_.size()) {
    collect(kNoFloor, logits_.size(), out);
  } else {  // k blocks hold a value at least as large as the k-th largest block maximum
    scratch_ = block_max_;
    std::nth_element(scratch_.begin(), scratch_.begin() + (k - 1), scratch_.end(), std::greater<>());
    const float floor = scratch_[k - 1];
    // Fewer than k blocks hold larger ones: if there are more candidates than that, the rest are ties.
    if (!collect(floor, k * kBlock, out)) {
      collect(std::nextafter(floor, kLargest), k * kBlock, out);
      append_equal(floor, k, out);
    }
  }
  keep_best_of(out, k);
}

}  // namespace pllm
