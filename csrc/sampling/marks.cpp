#include "sampling/marks.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "sampling/passes.h"

namespace pllm {
namespace {

constexpr int kBuckets = Passes::kBuckets;
constexpr size_t kBlock = Passes::kBlock;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Which of the buckets of [lo, lo + kBuckets / scale] a distance belongs to.
int bucket_of(double distance, double lo, double scale) {
  return static_cast<int>(std::min((distance - lo) * scale, kBuckets - 1.0));
}

bool all_equal(std::span<const float> logits) {
  return std::all_of(logits.begin(), logits.end(), [&](float x) { return x == logits[0]; });
}

double distance_of(float logit, double center) { return std::abs(static_cast<double>(logit) - center); }

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

// The smallest finite float for which `holds`, which is false before some float and true from there on; +infinity if
// there is none.
float first_float(const auto& holds) {
  const auto ordered = [](int32_t bits) { return bits ^ (bits >> 31 & 0x7fffffff); };  // as the floats are; involutive
  const auto to_float = [&](int64_t key) { return std::bit_cast<float>(ordered(static_cast<int32_t>(key))); };
  const auto to_key = [&](float x) { return int64_t{ordered(std::bit_cast<int32_t>(x))}; };
  constexpr float kLargest = std::numeric_limits<float>::max();
  int64_t low = to_key(-kLargest), high = to_key(kLargest) + 1;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (holds(to_float(middle)))
      high = middle;
    else
      low = middle + 1;
  }
  return to_float(low);
}

// The logits of at least `least` that are no further than `distance` from the center, exactly as distance_of() has it.
Interval within(double distance, double center, double least) {
  const float low = first_float([&](float x) { return x >= least && center - x <= distance; });
  const float above = first_float([&](float x) { return x - center > distance; });
  return {low, std::nextafter(above, -std::numeric_limits<float>::infinity())};
}

}  // namespace

void Marks::reserve(size_t n) {
  const size_t whole = (n + Softmax::kBlock - 1) / Softmax::kBlock * Softmax::kBlock;
  if (marks_.size() < whole) marks_.resize(whole);
}

void Marks::nearest(std::span<const float> logits, const Softmax& softmax, double center, double least, double target) {
  constexpr size_t kFew = 8192;  // so many are looked at one by one
  reserve(logits.size());
  if (all_equal(logits)) return mark_equal(logits.size(), softmax.weights[0], target);
  double sum = 0;
  const auto look = [&](Band band) {
    sum = softmax.mark(logits, within(band.near, center, least), within(band.far, center, least), marks_.data());
    collect(logits, softmax, center);
    double around = sum;
    for (const Item& item : items_) around += item.weight;
    return sum < target && around >= target;
  };
  const bool found = logits.size() > kFew && look(locate(logits, softmax, center, least, target));
  if (!found) look({-1, kInfinity});
  narrow(target, sum);
}

void Marks::mark_equal(size_t n, double weight, double target) {
  auto kept = static_cast<size_t>(std::clamp(std::ceil(target / weight), 1.0, static_cast<double>(n)));
  if (kept > 1 && static_cast<double>(kept - 1) * weight >= target) --kept;  // where the division rounded up
  std::fill_n(marks_.begin(), kept, uint8_t{Passes::kInside});
  std::fill(marks_.begin() + kept, marks_.begin() + n, uint8_t{Passes::kDropped});
}

// A histogram of distances, with room for sums that round otherwise.
Marks::Band Marks::locate(std::span<const float> logits, const Softmax& softmax, double center, double least,
                          double target) const {
  constexpr double kMargin = 1e-9;
  const double reach = std::max(center - least, std::numeric_limits<double>::min()), scale = kBuckets / reach;
  double mass[kBuckets] = {}, odd[kBuckets] = {};  // neighbours of the same bucket would wait for each other
  double total = 0;
  uint16_t buckets[kBlock];
  for (size_t begin = 0; begin < logits.size(); begin += kBlock) {
    const size_t n = std::min(kBlock, logits.size() - begin);
    const double* weights = &softmax.weights[begin];
    softmax.passes.assign(logits.data() + begin, n, center, scale, buckets);
    for (size_t i = 0; i + 1 < n; i += 2) {
      mass[buckets[i]] += weights[i];
      odd[buckets[i + 1]] += weights[i + 1];
    }
    if (n % 2 == 1) mass[buckets[n - 1]] += weights[n - 1];
  }
  for (int b = 0; b < kBuckets; ++b) total += mass[b] += odd[b];
  const auto reached = [&](double share) {
    double sum = 0;
    return bucket_reaching(mass, share * total, sum);
  };
  const double share = target / softmax.total;
  const int first = reached(share - kMargin), last = reached(share + kMargin);
  if (first < 0) return {-1, kInfinity};  // no weight that counts
  return {first == 0 ? -1 : first / scale, last == kBuckets - 1 ? kInfinity : (last + 1) / scale};
}

// Those marked kBetween, into items_; what is kept of them is marked again later.
void Marks::collect(std::span<const float> logits, const Softmax& softmax, double center) {
  static_assert(kBlock % sizeof(uint64_t) == 0 && std::endian::native == std::endian::little);
  constexpr uint64_t kHits = 0x0101010101010101u * Passes::kBetween;
  items_.clear();
  for (size_t begin = 0; begin < logits.size(); begin += sizeof(uint64_t)) {
    uint64_t eight;
    std::memcpy(&eight, &marks_[begin], sizeof eight);
    for (uint64_t hits = eight & kHits; hits != 0; hits &= hits - 1) {
      const size_t i = begin + static_cast<size_t>(std::countr_zero(hits)) / 8;
      if (i >= logits.size()) break;
      items_.push_back({distance_of(logits[i], center), softmax.weights[i], static_cast<uint32_t>(i)});
      marks_[i] = Passes::kDropped;
    }
  }
}

// Keeps those of items_ that are needed. Each round has the sum reach the target inside a smaller range of distances;
// what is surely nearer is kept at once. The order of all additions follows from distances and indices alone.
void Marks::narrow(double target, double sum) {
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
      if (bucket < found) marks_[item.index] = Passes::kInside;
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
    marks_[item.index] = Passes::kInside;
    if (sum >= target) return;
  }
}

}  // namespace pllm
