#include "base/thread_pool.h"

#include <chrono>
#include <exception>
#include <string>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/fork.h"

namespace pllm {
namespace {

// A range is one word, generation : end : next, so that taking an item is one compare-exchange and a helper that wakes
// late can never take an item of another generation.
constexpr int kItemBits = 22;
constexpr uint64_t kItemMask = (uint64_t{1} << kItemBits) - 1;
constexpr uint64_t pack(uint64_t generation, uint64_t end, uint64_t next) {
  return generation << 2 * kItemBits | end << kItemBits | next;
}
constexpr uint64_t kGenerationMask = (uint64_t{1} << (64 - 2 * kItemBits)) - 1;

inline void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Waiting, in three stages. A microsecond of pauses: most waits end here. Then yielding: with more threads than CPUs
// whoever waits must not keep out who works. After kSpin again() is false, and it is time to sleep: that is longer than
// the gap between two products of one step and than what a sleep costs, and far shorter than a person's pause.
// More pauses were no better: beside busy neighbours 16 times as many are within the noise, 256 times as many cost a
// tenth to a quarter as soon as threads outnumber free CPUs.
class Spin {
 public:
  bool again() {
    if (count_ < kPauses)
      pause();
    else
      std::this_thread::yield();
    if (++count_ % kPauses) return true;
    const auto now = std::chrono::steady_clock::now();
    if (count_ == kPauses) deadline_ = now + kSpin;
    return now < deadline_;
  }

 private:
  static constexpr auto kSpin = std::chrono::microseconds(200);
  static constexpr uint32_t kPauses = 64;
  std::chrono::steady_clock::time_point deadline_;
  uint32_t count_ = 0;
};

}  // namespace

struct ThreadPool::Shared {
  struct alignas(128) Range {
    std::atomic<uint64_t> word{0};
  };
  std::unique_ptr<Range[]> ranges;
  alignas(128) std::atomic<uint32_t> generation{0};  // what helpers sleep on
  std::atomic<bool> stop{false};
  alignas(128) std::atomic<int> left{0};  // items not done; what the caller sleeps on
  alignas(128) std::atomic<int> sleepers{0};
  std::atomic<bool> caller_sleeps{false};
  std::atomic<bool> failed{false};
  std::exception_ptr error;  // of the first item that failed
  Call call = nullptr;       // written before the ranges are published
  void* fn = nullptr;
};

ThreadPool::ThreadPool(int n_threads) : n_threads_(n_threads < 1 ? 1 : n_threads) { start(); }

ThreadPool::~ThreadPool() {
  if (fork_count_ == fork_count())
    stop();
  else
    abandon();
}

void ThreadPool::start() {
  fork_count_ = fork_count();
  shared_ = std::make_unique<Shared>();
  shared_->ranges = std::make_unique<Shared::Range[]>(size_t(n_threads_));
  try {
    for (int i = 1; i < n_threads_; i++) threads_.emplace_back([this, i] { helper(i); });
  } catch (const std::system_error&) {
    const size_t n = threads_.size();
    stop();
    throw Error(ErrorKind::bad_value,
                "the system refused to start more than " + std::to_string(n + 1) + " of " + std::to_string(n_threads_) +
                    " threads",
                "Ask for fewer threads, or raise the limit on processes or memory (ulimit -u, -v, the container's pids "
                "limit).");
  }
}

void ThreadPool::stop() noexcept {
  shared_->stop = true;
  shared_->generation.fetch_add(1);
  shared_->generation.notify_all();
  for (auto& t : threads_) t.join();
  threads_.clear();
}

// In a forked child the threads do not exist, and their handles may by now be those of others: neither joined nor
// detached, nor is what they may have held in the middle of touched again.
void ThreadPool::abandon() noexcept {
  (void)new std::vector<std::thread>(std::move(threads_));
  (void)shared_.release();
  threads_.clear();
}

void ThreadPool::take_items(int thread, uint64_t generation) {
  Shared& s = *shared_;
  int done = 0;
  for (int k = 0; k < n_threads_; k++) {
    auto& word = s.ranges[size_t((thread + k) % n_threads_)].word;
    uint64_t seen = word.load(std::memory_order_acquire);
    while (seen >> 2 * kItemBits == generation && (seen & kItemMask) < (seen >> kItemBits & kItemMask)) {
      if (!word.compare_exchange_weak(seen, seen + 1, std::memory_order_acq_rel)) continue;
      try {
        s.call(s.fn, thread, int(seen & kItemMask));
      } catch (...) {
        if (!s.failed.exchange(true)) s.error = std::current_exception();
      }
      done++;
      seen = word.load(std::memory_order_acquire);
    }
  }
  if (done == 0) return;
  // Once for all of them: a counter hit per item bounces between cores. Either this sees that the caller sleeps, or the
  // caller, who says so first, sees no item left.
  const bool last = s.left.fetch_sub(done, std::memory_order_seq_cst) == done;
  if (last && s.caller_sleeps.load(std::memory_order_seq_cst)) s.left.notify_one();
}

void ThreadPool::helper(int thread) {
  Shared& s = *shared_;
  uint32_t seen = 0;
  while (true) {
    Spin spin;
    while (s.generation.load(std::memory_order_acquire) == seen) {
      if (spin.again()) continue;
      s.sleepers.fetch_add(1, std::memory_order_seq_cst);
      s.generation.wait(seen, std::memory_order_seq_cst);
      s.sleepers.fetch_sub(1, std::memory_order_seq_cst);
    }
    seen = s.generation.load(std::memory_order_acquire);
    if (s.stop) return;
    take_items(thread, seen & kGenerationMask);
  }
}

void ThreadPool::run_erased(int n_items, Call call, void* fn) {
  if (n_threads_ == 1 || n_items <= 1) {
    for (int i = 0; i < n_items; i++) call(fn, 0, i);
    return;
  }
  if (fork_count_ != fork_count()) {
    abandon();
    start();
  }
  if (uint64_t(n_items) > kItemMask) throw Error(ErrorKind::internal, "too many items for one run of the thread pool");
  Shared& s = *shared_;
  s.call = call;
  s.fn = fn;
  s.left.store(n_items, std::memory_order_relaxed);
  const uint32_t generation = s.generation.load(std::memory_order_relaxed) + 1;
  for (int i = 0; i < n_threads_; i++) {
    const uint64_t begin = uint64_t(n_items) * uint64_t(i) / uint64_t(n_threads_);
    const uint64_t end = uint64_t(n_items) * uint64_t(i + 1) / uint64_t(n_threads_);
    s.ranges[size_t(i)].word.store(pack(generation & kGenerationMask, end, begin), std::memory_order_release);
  }
  s.generation.store(generation, std::memory_order_seq_cst);
  if (s.sleepers.load(std::memory_order_seq_cst) > 0) s.generation.notify_all();
  take_items(0, generation & kGenerationMask);
  wait_for_items();
  if (s.failed.exchange(false)) std::rethrow_exception(std::exchange(s.error, nullptr));
}

// Waits for items, never for threads: a helper that has lost its CPU holds nothing up unless it lost it inside an item;
// then the caller's sleep leaves it this one.
void ThreadPool::wait_for_items() {
  Shared& s = *shared_;
  Spin spin;
  while (const int left = s.left.load(std::memory_order_acquire)) {
    if (spin.again()) continue;
    s.caller_sleeps.store(true, std::memory_order_seq_cst);
    s.left.wait(left, std::memory_order_seq_cst);
    s.caller_sleeps.store(false, std::memory_order_relaxed);
  }
}

}  // namespace pllm
