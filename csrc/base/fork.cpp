#include "base/fork.h"

#include "base/error.h"

#if !defined(_WIN32)
#include <pthread.h>
#endif

namespace pllm {
namespace {

std::atomic<uint32_t> forks{0};
#if !defined(_WIN32)
[[maybe_unused]] const int registered = pthread_atfork(nullptr, nullptr, [] { forks++; });
#endif

}  // namespace

uint32_t fork_count() { return forks.load(std::memory_order_relaxed); }

void ForkMutex::lock() {
  const uint32_t self = fork_count() + 1;
  uint32_t owner = 0;
  while (!owner_.compare_exchange_weak(owner, self, std::memory_order_acquire)) {
    if (owner != 0 && owner != self) {
      throw Error(ErrorKind::bad_value, "this process was forked while the model was computing in another thread",
                  "Open the model in the child process, or fork before the model is used.");
    }
    if (owner != 0) owner_.wait(owner, std::memory_order_relaxed);
    owner = 0;
  }
}

void ForkMutex::unlock() {
  // Not just release: notify_one() first looks whether anyone sleeps, and must not look before the store is seen.
  owner_.store(0, std::memory_order_seq_cst);
  owner_.notify_one();
}

}  // namespace pllm
