#include "sampling/candidates.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/exp_log.h"

namespace pllm {
namespace {

constexpr size_t kFew = 32;  // up to this share of the vocabulary a list is worth its while

// In lanes, because the compiler may not reorder a running maximum of floats, but vectorizes this.
float largest(std::span<const float> logits) {
  constexpr size_t kLanes = 16;
  float lanes[kLanes];
  std::fill_n(lanes, kLanes, Ranking::kNoFloor);
  size_t i = 0;
  for (; i + kLanes <= logits.size(); i += kLanes) {
    for (size_t j = 0; j < kLanes; ++j) lanes[j] = logits[i + j] > lanes[j] ? logits[i + j] : lanes[j];
  }
  const float rest = i < logits.size() ? *std::max_element(logits.begin() + i, logits.end()) : Ranking::kNoFloor;
  return std::max(rest, *std::max_element(lanes, lanes + kLanes));
}

}  // namespace

float Candidates::to_finite(double x) {
  constexpr double kLargest = std::numeric_limits<float>::max();
  return static_cast<float>(std::clamp(x, -kLargest, kLargest));
}

void Candidates::reset(Ranking& raw) {
  raw_ = &raw;
  logits_ = raw.logits();
  whole_ = is_raw_ = true;
  temperature_ = 1;
  raw_total_ = 0;
  forget();
}

void Candidates::forget() { max_known_ = ranked_ = softmax_known_ = drops_weights_ = false; }

void Candidates::heat(double factor) {
  constexpr double kColdest = 1e-280;  // its reciprocal is finite
  temperature_ = std::max(temperature_ * factor, kColdest);
  softmax_known_ = drops_weights_ = false;
}

Ranking& Candidates::ranking() {
  if (is_raw_) return *raw_;
  if (!ranked_) changed_.scan(logits_);
  ranked_ = true;
  return changed_;
}

float Candidates::max() {
  if (max_known_) return max_;
  max_ = whole_ ? ranking().max() : largest(logits_);
  if (max_ == Ranking::kNoFloor) {
    throw Error(ErrorKind::bad_value, "every token the model could choose is banned",
                "Leave one possible: logit_bias bans (-100 or less) or allows only some (100 or more), and min_tokens "
                "bans the tokens that end an answer.");
  }
  max_known_ = true;
  return max_;
}

size_t Candidates::n_possible() {
  return whole_ ? size() - std::count(logits_.begin(), logits_.end(), Ranking::kNoFloor) : size();
}

int32_t Candidates::best() {
  const float largest = max();
  if (whole_) return ranking().argmax();
  return ids_[std::find(logits_.begin(), logits_.end(), largest) - logits_.begin()];
}

const Softmax& Candidates::softmax() {
  if (!softmax_known_) {
    softmax_.compute(logits_, max(), temperature_);
    if (is_raw_ && temperature_ == 1) raw_total_ = softmax_.total;
  } else if (drops_weights_) {
    softmax_.keep(marks_.data());
  }
  softmax_known_ = true;
  drops_weights_ = false;
  return softmax_;
}

double Candidates::raw_total() {
  if (raw_total_ == 0) {
    reset(*raw_);
    softmax();
  }
  return raw_total_;
}

double Candidates::standard_deviation() {
  const double center = max();  // as far from the mean as that is: the difference below keeps 10 digits or more
  const Moments m = softmax_.moments(logits_, center);
  const double mean = m.sum / m.n;
  return std::sqrt(std::max(0.0, m.squares / m.n - mean * mean));
}

double Candidates::entropy() {
  softmax();
  return softmax_.entropy(logits_, temperature_);
}

float* Candidates::writable(int32_t id) {
  if (is_raw_) {
    own_.resize(size());
    std::copy(logits_.begin(), logits_.end(), own_.begin());
    logits_ = own_;
    is_raw_ = false;
  }
  forget();
  if (whole_) return &own_[id];
  const auto found = std::lower_bound(ids_.begin(), ids_.begin() + size(), id);
  return found != ids_.begin() + size() && *found == id ? &own_[found - ids_.begin()] : nullptr;
}

void Candidates::ban(int32_t id) {
  if (float* logit = writable(id)) *logit = Ranking::kNoFloor;
}

void Candidates::allow_only(std::span<const int32_t> ids) {
  std::vector<float> kept;
  kept.reserve(ids.size());
  for (const int32_t id : ids) kept.push_back(*writable(id));
  std::fill(own_.begin(), own_.end(), Ranking::kNoFloor);
  for (size_t i = 0; i < ids.size(); ++i) own_[ids[i]] = kept[i];
}

void Candidates::keep_where(const auto& keep) {
  const auto source = logits_;  // may be own_: written behind where it is read
  reserve();
  size_t kept = 0;
  for (size_t i = 0; i < source.size(); ++i) {  // without a branch
    const float logit = source[i];
    const int32_t token = id(i);
    const bool keeps = keep(i);
    own_[kept] = logit;
    ids_[kept] = token;
    kept += keeps;
  }
  become_list(kept);
}

void Candidates::assign(const std::vector<Candidate>& kept) {
  reserve();
  for (size_t i = 0; i < kept.size(); ++i) {
    own_[i] = kept[i].logit;
    ids_[i] = kept[i].id;
  }
  become_list(kept.size());
}

void Candidates::reserve() {
  const size_t n_vocab = raw_->logits().size();
  own_.resize(n_vocab);
  ids_.resize(n_vocab);
}

void Candidates::become_list(size_t n) {
  logits_ = std::span(own_).first(n);
  whole_ = is_raw_ = false;
  forget();
}

void Candidates::select(size_t k) {
  max();  // Error if there is none
  if (whole_) {
    ranking().best(k, selection_);
    return;
  }
  selection_.clear();
  for (size_t i = 0; i < size(); ++i) selection_.push_back({own_[i], ids_[i]});
  keep_best_of(selection_, k);
}

std::vector<float> Candidates::best_logits(size_t k) {
  select(k);
  std::vector<float> logits;
  for (const Candidate& c : selection_) logits.push_back(c.logit);
  return logits;
}

void Candidates::keep_best(size_t k) {
  if (k >= size()) return;
  select(k);
  std::sort(selection_.begin(), selection_.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
  assign(selection_);
}

// Of the whole vocabulary what is dropped becomes impossible: faster than a list of the many that are left, and
// weights that are known stay so.
void Candidates::keep_marked() {
  if (!whole_) return keep_where([&](size_t i) { return marks_.keeps(i); });
  constexpr double kNear = 4;  // temperatures that the best may lie below the one that the weights are relative to
  const bool weighed = softmax_known_ && !drops_weights_, keeps_best = marks_.keeps(static_cast<size_t>(best()));
  const float best_before = max();
  const auto source = logits_;
  own_.resize(size());
  softmax_.passes.keep_logits(marks_.data(), source.data(), source.size(), own_.data());
  logits_ = own_;
  is_raw_ = false;
  forget();
  if (keeps_best) {
    max_ = best_before;
    max_known_ = true;
  }
  drops_weights_ = softmax_known_ = weighed && softmax_.max - double{max()} <= kNear * temperature_;
}

void Candidates::keep_from(double floor) {
  const double bound = std::max<double>(std::min<double>(floor, max()), -std::numeric_limits<float>::max());
  if (whole_ && ranking().collect(bound, size() / kFew, selection_)) return assign(selection_);
  if (drops_weights_) softmax_known_ = drops_weights_ = false;  // the marks are needed for others
  marks_.where(size(), [logits = logits_, least = at_least(bound)](size_t i) { return logits[i] >= least; });
  keep_marked();
}

void Candidates::drop_above_last(double share) {
  const double least = std::max(share * softmax().total, std::numeric_limits<double>::min());
  size_t n = 0, last = 0;
  const auto consider = [&](size_t i) {
    if (softmax_.weights[i] < least) return;
    if (n++ == 0 || logits_[i] <= logits_[last]) last = i;
  };
  constexpr double kSpare = 1e-6;  // more than logarithm and weights are wrong by
  const double log_least = natural_log(least);
  const double floor = softmax_.max + temperature_ * (log_least - kSpare * (1 - log_least));
  if (whole_ && ranking().collect(floor, size() / kFew, selection_)) {
    for (const Candidate& c : selection_) consider(static_cast<size_t>(c.id));
  } else {
    for (size_t i = 0; i < size(); ++i) consider(i);
  }
  if (n < 2) return;
  marks_.where(size(), [last, logits = logits_, worst = logits_[last]](size_t i) {  // without a branch
    return (unsigned{logits[i] < worst} | (unsigned{logits[i] == worst} & unsigned{i >= last})) != 0;
  });
  keep_marked();
}

// Narrows the whole vocabulary to a list that surely holds what keep_nearest() needs, its weights with it, if that is
// short: to what is as near as the best is, or further, as far as it takes to reach the target. least: of all logits
// that may be needed.
void Candidates::narrow_around(double center, double least, double target) {
  const double nearest = std::min(center, 2 * center - max());
  for (double depth = 2; whole_; depth *= 2) {
    const double floor = std::max(least, nearest - depth * temperature_);
    if (!ranking().collect(floor, size() / kFew, selection_)) return;
    double sum = 0;
    for (const Candidate& c : selection_) sum += softmax_.weights[size_t(c.id)];
    if (sum < target && floor > least) continue;
    assign(selection_);
    for (size_t i = 0; i < size(); ++i) softmax_.weights[i] = softmax_.weights[size_t(ids_[i])];
  }
}

void Candidates::keep_nearest(double center, double share) {
  constexpr double kPossible = 708;  // temperatures below the best where a weight is no normal number any more
  const double target = share * softmax().total;
  // The logits below hold so little that the share is reached without them, with a nat to spare for rounding; nor is
  // any needed that is further from the center than the best and all above `dispensable`.
  const double spare = std::max((1 - share) * softmax_.total, std::numeric_limits<double>::min());
  const double dispensable = softmax_.max - temperature_ * (natural_log(static_cast<double>(size()) / spare) + 1);
  const double possible = softmax_.max - temperature_ * kPossible;
  const double least = std::max(std::min(dispensable, 2 * center - max()), possible);
  if (whole_) narrow_around(center, least, target);
  marks_.nearest(logits_, softmax_, center, least, target);
  keep_marked();
}

}  // namespace pllm
