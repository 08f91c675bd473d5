#include "base/thread_pool.h"

#include <chrono>
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

// How long a helper watches for the next run() before it sleeps: longer than the gap between two products of one
// step, far shorter than a person's pause.
constexpr auto kSpin = std::chrono::microseconds(200);

inline void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

struct ThreadPool::Shared {
  struct alignas(128) Range {
    std::atomic<uint64_t> word{0};
  };
  std::unique_ptr<Range[]> ranges;
  alignas(128) std::atomic<uint32_t> generation{0};  // what sleepers wait on
  std::atomic<bool> stop{false};
  alignas(128) std::atomic<int> left{0};
  alignas(128) std::atomic<int> sleepers{0};
  Call call = nullptr;  // written before the ranges are published
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
  } catch (const std::system_error& error) {
    stop();
    throw Error(ErrorKind::out_of_memory,
                "the system refused to start " + std::to_string(n_threads_) + " threads: " + error.what(),
                "Ask for fewer threads (n_threads, -t), or raise the limit on memory or processes.");
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
      s.call(s.fn, thread, int(seen & kItemMask));
      done++;
      seen = word.load(std::memory_order_acquire);
    }
  }
  if (done) s.left.fetch_sub(done, std::memory_order_acq_rel);  // once: a counter hit per item bounces between cores
}

void ThreadPool::helper(int thread) {
  Shared& s = *shared_;
  uint32_t seen = 0;
  while (true) {
    const auto deadline = std::chrono::steady_clock::now() + kSpin;
    for (int spins = 0; s.generation.load(std::memory_order_acquire) == seen; spins++) {
      pause();
      if (spins % 64 == 63 && std::chrono::steady_clock::now() > deadline) {
        s.sleepers.fetch_add(1, std::memory_order_seq_cst);
        s.generation.wait(seen, std::memory_order_seq_cst);
        s.sleepers.fetch_sub(1, std::memory_order_seq_cst);
      }
    }
    seen = s.generation.load(std::memory_order_acquire);
    if (s.stop) return;
    take_items(thread, seen & kGenerationMask);
  }
}

// Waits for items, never for threads: a helper that the OS has put to sleep holds nothing up unless it sleeps inside
// an item.
void ThreadPool::run_erased(int n_items, Call call, void* fn) {
  if (n_threads_ == 1 || n_items <= 1) {
    for (int i = 0; i < n_items; i++) call(fn, 0, i);
    return;
  }
  if (fork_count_ != fork_count()) {
    abandon();
    start();
  }
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
  while (s.left.load(std::memory_order_acquire) > 0) pause();
}

}  // namespace pllm
