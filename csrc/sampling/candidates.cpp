#include "sampling/candidates.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"

namespace pllm {
namespace {

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
  forget();
}

void Candidates::forget() { max_known_ = softmax_known_ = false; }

void Candidates::heat(double factor) {
  constexpr double kColdest = 1e-280;  // its reciprocal is finite
  temperature_ = std::max(temperature_ * factor, kColdest);
  softmax_known_ = false;
}

Ranking& Candidates::ranking() {
  if (is_raw_) return *raw_;
  if (!max_known_) changed_.scan(logits_);
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
  if (!softmax_known_) softmax_.compute(logits_, max(), temperature_);
  softmax_known_ = true;
  return softmax_;
}

double Candidates::entropy() {
  softmax();
  return softmax_.entropy(logits_, max(), temperature_);
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
    ranking().best(k, Ranking::kNoFloor, selection_);
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

void Candidates::keep_from(double floor) {
  const double bound = std::max<double>(std::min<double>(floor, max()), -std::numeric_limits<float>::max());
  const auto logits = logits_;
  if (whole_ && ranking().may_be_few(bound)) {
    ranking().collect(bound, selection_);
    assign(selection_);
  } else {
    keep_where([&](size_t i) { return logits[i] >= bound; });
  }
}

void Candidates::drop_before(int32_t last) {
  const auto index = whole_ ? last : std::lower_bound(ids_.begin(), ids_.begin() + size(), last) - ids_.begin();
  const float worst = logits_[index];
  const auto dropped = [&](float logit, int32_t id) {  // without a branch
    return (unsigned{logit > worst} | (unsigned{logit == worst} & unsigned{id < last})) != 0;
  };
  if (!whole_) {
    keep_where([&, logits = logits_](size_t i) { return !dropped(logits[i], ids_[i]); });
    return;
  }
  writable(last);
  for (size_t i = 0; i < size(); ++i) own_[i] = dropped(own_[i], id(i)) ? Ranking::kNoFloor : own_[i];
}

void Candidates::keep_likeliest(double share) {
  const double target = share * softmax().total;
  for (double depth = 2; whole_; depth *= 2) {  // nats below the best: as a rule few are needed, and block maxima tell
    const double floor = max() - depth * temperature_;
    if (!ranking().may_be_few(floor)) break;
    ranking().collect(floor, selection_);
    keep_best_of(selection_, selection_.size());
    double sum = 0;
    for (size_t i = 0; i < selection_.size(); ++i) {
      sum += softmax_.weights[size_t(selection_[i].id)];
      if (sum >= target) return keep_best(i + 1);
    }
  }
  keep_nearest(max(), share);
}

void Candidates::keep_nearest(double center, double share) {
  constexpr double kReach = 32;  // nats below the best, where next to no probability is left
  const double reach = std::abs(max() - center) + kReach * temperature_;
  nearest_.find(logits_, softmax(), center, reach, share);
  keep_where([&](size_t i) { return nearest_.keeps(i); });
}

}  // namespace pllm
