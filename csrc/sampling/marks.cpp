#include "sampling/marks.h"

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

// Of the weights in each bucket. Neighbours go to sums of their own: with one they would wait for each other where they
// are of the same bucket.
struct Mass {
  double even[kBuckets + 1] = {}, odd[kBuckets + 1] = {};  // the last for what is never kept
  void add(const uint16_t* buckets, const double* weights, size_t n) {
    for (size_t i = 0; i + 1 < n; i += 2) {
      even[buckets[i]] += weights[i];
      odd[buckets[i + 1]] += weights[i + 1];
    }
    if (n % 2 == 1) even[buckets[n - 1]] += weights[n - 1];
    for (int b = 0; b < kBuckets; ++b) even[b] += odd[b];
  }
};

// The bucket in which the sum, in order, reaches the target, or the last that is not empty. Adds those before to `sum`.
int bucket_reaching(const double* mass, double target, double& sum) {
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

void Marks::reserve(size_t n) {
  const size_t whole = (n + Softmax::kBlock - 1) / Softmax::kBlock * Softmax::kBlock;
  if (buckets_.size() < whole) buckets_.resize(whole);
}

void Marks::nearest(std::span<const float> logits, const Softmax& softmax, double center, double reach, double target) {
  const size_t n = logits.size();
  const double* weights = softmax.weights.data();
  double sum = 0;
  reserve(n);
  if (all_equal(logits)) {
    last_ = 0;
    for (size_t i = 0; i < n; ++i) {
      buckets_[i] = i == 0 || sum < target ? 0 : kNever;
      sum += weights[i];
    }
    return;
  }
  softmax.passes.assign(logits.data(), weights, n, center, kBuckets / reach, buckets_.data());
  Mass mass;
  mass.add(buckets_.data(), weights, n);
  const int found = bucket_reaching(mass.even, target, sum);
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
void Marks::narrow(double target, double& sum) {
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
