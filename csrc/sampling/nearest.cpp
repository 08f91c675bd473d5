#include "sampling/nearest.h"

#include <algorithm>
#include <cmath>

#include "sampling/passes.h"

namespace pllm {
namespace {

constexpr int kBuckets = Passes::kBuckets;
constexpr uint16_t kNever = Passes::kNever;

// Which of the buckets of [lo, lo + kBuckets / scale] a distance belongs to.
int bucket_of(double distance, double lo, double scale) {
  return static_cast<int>(std::min((distance - lo) * scale, kBuckets - 1.0));
}

bool all_equal(std::span<const float> logits) {
  return std::all_of(logits.begin(), logits.end(), [&](float x) { return x == logits[0]; });
}

// The bucket in which the sum, in order, reaches the target, or the last that is not empty. Adds those before to `sum`.
int bucket_reaching(const double (&mass)[kBuckets], double target, double& sum) {
  int found = -1;
  for (int b = 0; b < kBuckets; ++b) {
    if (mass[b] == 0) continue;
    if (found >= 0) sum += mass[found];
    found = b;
    if (sum + mass[b] >= target) break;
  }
  return found;
}

}  // namespace

void Nearest::find(std::span<const float> logits, const Softmax& softmax, double center, double reach, double share) {
  const size_t n = logits.size();
  const double* weights = softmax.weights.data();
  const double target = share * softmax.total;
  double sum = 0;
  buckets_.resize(n);
  if (all_equal(logits)) {
    last_ = 0;
    for (size_t i = 0; i < n; ++i) {
      buckets_[i] = i == 0 || sum < target ? 0 : kNever;
      sum += weights[i];
    }
    return;
  }
  softmax.passes.assign(logits.data(), weights, n, center, kBuckets / reach, buckets_.data());
  double mass[kBuckets + 1] = {};  // the last for what has weight 0
  for (size_t i = 0; i < n; ++i) mass[buckets_[i]] += weights[i];
  const int found = bucket_reaching(reinterpret_cast<double (&)[kBuckets]>(mass), target, sum);
  last_ = static_cast<uint16_t>(found);
  items_.clear();
  for (size_t i = 0; i < n; ++i) {
    if (buckets_[i] != found) continue;
    items_.push_back({std::abs(static_cast<double>(logits[i]) - center), weights[i], static_cast<uint32_t>(i)});
    buckets_[i] = kNever;
  }
  narrow(target, sum);
}

// Keeps those of items_ that are needed. Each round has the sum reach the target inside a smaller range of distances;
// what is surely nearer is kept at once. The order of all additions follows from distances and indices alone.
void Nearest::narrow(double target, double& sum) {
  constexpr size_t kFew = 128;
  while (items_.size() > kFew) {
    const auto [nearest, farthest] = std::minmax_element(
        items_.begin(), items_.end(), [](const Item& a, const Item& b) { return a.distance < b.distance; });
    const double lo = nearest->distance, range = farthest->distance - lo;
    if (range < 1e-280) break;  // equal
    const double scale = kBuckets / range;
    double mass[kBuckets] = {};
    for (const Item& item : items_) mass[bucket_of(item.distance, lo, scale)] += item.weight;
    const int found = bucket_reaching(mass, target, sum);
    narrow_.clear();
    for (const Item& item : items_) {
      const int bucket = bucket_of(item.distance, lo, scale);
      if (bucket < found) buckets_[item.index] = last_;
      if (bucket == found) narrow_.push_back(item);
    }
    items_.swap(narrow_);
  }
  const auto before = [](const Item& a, const Item& b) {
    return a.distance != b.distance ? a.distance < b.distance : a.index < b.index;
  };
  if (!std::is_sorted(items_.begin(), items_.end(), before)) std::sort(items_.begin(), items_.end(), before);
  for (const Item& item : items_) {
    sum += item.weight;
    buckets_[item.index] = last_;
    if (sum >= target) return;
  }
}

}  // namespace pllm
