// What fork() leaves behind: the child has the memory, but only the thread that called fork().
#pragma once
#include <atomic>
#include <cstdint>

namespace pllm {

// How many forks lie between the first process and this one: another number than before means that other threads, and
// whatever they were doing, are gone.
uint32_t fork_count();

// A mutex that says so when its owner is such a thread, where std::mutex would wait for ever.
class ForkMutex {
 public:
  void lock();  // Error bad_value in a child forked while another thread held it
  void unlock();

 private:
  std::atomic<uint32_t> owner_{0};  // 0: free, else the owner's fork_count() + 1
};

}  // namespace pllm
