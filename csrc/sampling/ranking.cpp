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

bool Ranking::may_be_few(double floor) const {
  const auto n = std::count_if(block_max_.begin(), block_max_.end(), [&](float max) { return max >= floor; });
  return static_cast<size_t>(n) <= block_max_.size() / 8;
}

void Ranking::collect(double floor, std::vector<Candidate>& out) const {
  out.clear();
  const double bound = std::max<double>(floor, -kLargest);  // -infinity is never a candidate
  for (size_t b = 0; b < block_max_.size(); ++b) {
    if (block_max_[b] < bound) continue;
    const size_t end = std::min((b + 1) * kBlock, logits_.size());
    for (size_t i = b * kBlock; i < end; ++i) {
      if (logits_[i] >= bound) out.push_back({logits_[i], static_cast<int32_t>(i)});
    }
  }
}

void Ranking::best(size_t k, double floor, std::vector<Candidate>& out) {
  if (k < block_max_.size()) {  // k blocks hold a value at least as large as the k-th largest block maximum
    scratch_ = block_max_;
    std::nth_element(scratch_.begin(), scratch_.begin() + (k - 1), scratch_.end(), std::greater<>());
    floor = std::max<double>(floor, scratch_[k - 1]);
  }
  collect(floor, out);
  keep_best_of(out, k);
}

}  // namespace pllm
