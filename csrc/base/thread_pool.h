// A persistent pool: run() hands out numbered items and returns when all are done.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

namespace pllm {

class ThreadPool {
 public:
  explicit ThreadPool(int n_threads);  // Error bad_value if the system refuses to start so many
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return n_threads_; }

  // Calls fn(thread, item) for every item in [0, n_items), thread in [0, size()). Each thread owns a contiguous range
  // (the same items step after step stay in its caches), then steals. One caller at a time. If fn throws, the other
  // items run all the same, then run() throws the first such exception. In a forked child the first run() starts
  // threads anew.
  template <class Fn>
  void run(int n_items, Fn&& fn) {
    run_erased(
        n_items, [](void* f, int thread, int item) { (*static_cast<std::remove_reference_t<Fn>*>(f))(thread, item); },
        &fn);
  }

 private:
  using Call = void (*)(void* fn, int thread, int item);
  struct Shared;
  void start();
  void stop() noexcept;
  void abandon() noexcept;
  void run_erased(int n_items, Call call, void* fn);
  void helper(int thread);
  void take_items(int thread, uint64_t generation);
  void wait_for_items();

  int n_threads_;
  uint32_t fork_count_;  // of the process that the threads live in
  std::unique_ptr<Shared> shared_;
  std::vector<std::thread> threads_;
};

}  // namespace pllm
