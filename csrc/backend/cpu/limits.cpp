#include "backend/cpu/limits.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>

#include "backend/cpu/bf16_peak.h"
#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/select.h"
#include "base/cpu_info.h"
#include "base/error.h"
#include "base/memory.h"

namespace pllm::cpu {
namespace {

constexpr size_t kItemBytes = size_t{4} << 20;  // read by one thread at a time
constexpr int kItemsPerThread = 4;
constexpr int kLeastRepeats = 3;

// The shortest of at least kLeastRepeats calls, as many as fit the time.
template <class Fn>
double best_seconds(double seconds, Fn&& fn) {
  using Clock = std::chrono::steady_clock;
  const auto since = [](Clock::time_point t) { return std::chrono::duration<double>(Clock::now() - t).count(); };
  const auto begin = Clock::now();
  double best = 1e30;
  for (int i = 0; i < kLeastRepeats || since(begin) < seconds; i++) {
    const auto start = Clock::now();
    fn();
    best = std::min(best, since(start));
  }
  return best;
}

}  // namespace

Limits::Limits(std::string_view level, int n_threads) : kernels_(kernels(level)), pool_(thread_count(n_threads)) {}

uint32_t Limits::sum(int pattern, std::span<const uint8_t> data) {
  if (pattern < 0 || pattern >= kReadPatterns || data.size() % kReadGrain)
    throw Error(ErrorKind::bad_value, "no such reading pattern, or not whole pages of 4096 bytes");
  // At least an item a thread, so that a small part of memory is read by all of them too.
  const size_t share = data.size() / size_t(pool_.size()) / kReadGrain * kReadGrain;
  const size_t item = std::clamp(share, kReadGrain, kItemBytes);
  std::atomic<uint32_t> total{0};
  pool_.run(int((data.size() + item - 1) / item), [&](int, int i) {
    const auto part = data.subspan(size_t(i) * item).first(std::min(item, data.size() - size_t(i) * item));
    total.fetch_add(kernels_.limits.read[pattern].sum(part.data(), part.size()), std::memory_order_relaxed);
  });
  return total;
}

std::vector<std::string> Limits::patterns() const {
  std::vector<std::string> names;
  for (const ReadPattern& pattern : kernels_.limits.read) names.emplace_back(pattern.name);
  return names;
}

Limits::Read Limits::read(size_t n_bytes, double seconds) {
  n_bytes = std::max(n_bytes / kReadGrain, size_t(pool_.size())) * kReadGrain;
  if (n_bytes > available_memory()) {
    throw Error(ErrorKind::out_of_memory,
                "measuring the read bandwidth needs " + std::to_string(n_bytes >> 20) + " MiB, more than is available",
                "Free memory, or take a smaller model.");
  }
  const Memory memory(n_bytes);
  const int n_items = int((n_bytes + kItemBytes - 1) / kItemBytes);
  pool_.run(n_items, [&](int, int i) {  // pages that were never written are all the same one
    const size_t at = size_t(i) * kItemBytes;
    std::memset(memory.data() + at, 1, std::min(kItemBytes, n_bytes - at));
  });
  Read best{0, ""};
  for (int p = 0; p < kReadPatterns; p++) {
    const double took = best_seconds(seconds / kReadPatterns, [&] { sum(p, {memory.data(), n_bytes}); });
    if (double(n_bytes) / took > best.rate) best = {double(n_bytes) / took, kernels_.limits.read[p].name};
  }
  return best;
}

Peak Limits::kernel(PeakKind kind) const {
  switch (kind) {
    case PeakKind::int8: return kernels_.limits.int8;
    case PeakKind::f32: return kernels_.limits.f32;
    case PeakKind::bf16: return bf16_peak();
  }
  throw Error(ErrorKind::internal, "no such kind of product");
}

uint64_t Limits::count(PeakKind kind, int rounds) {
  if (rounds < 0 || rounds > kMaxRounds)
    throw Error(ErrorKind::bad_value, "rounds must be between 0 and " + std::to_string(kMaxRounds));
  const Peak peak = kernel(kind);
  if (!peak.multiply) return 0;
  std::atomic<uint64_t> total{0};
  pool_.run(pool_.size() * kItemsPerThread,
            [&](int, int) { total.fetch_add(peak.multiply(rounds), std::memory_order_relaxed); });
  return total;
}

double Limits::peak(PeakKind kind, double seconds) {
  constexpr int kRounds = 1 << 15;  // a millisecond or little more
  uint64_t macs = 0;
  const double took = best_seconds(seconds, [&] { macs = count(kind, kRounds); });
  return double(macs) / took;
}

}  // namespace pllm::cpu
