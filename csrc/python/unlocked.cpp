#include "python/unlocked.h"

#include <atomic>
#include <chrono>
#include <thread>

#include "base/fork.h"

namespace pllm::python {
namespace {

// Changed with the interpreter's lock held.
bool exiting = false;
uint32_t counted_in = 0;  // fork_count() of the process whose threads are counted
std::atomic<int> computing{0};

}  // namespace

Unlocked::Unlocked() {
  if (exiting) return;
  if (counted_in != fork_count()) {  // a child: the threads that were counted do not exist here
    counted_in = fork_count();
    computing = 0;
  }
  computing++;
  state_ = PyEval_SaveThread();
}

Unlocked::~Unlocked() {
  if (!state_) return;
  PyEval_RestoreThread(state_);
  computing--;
}

void finish_unlocked() {
  exiting = true;
  const pybind11::gil_scoped_release unlocked;
  while (computing > 0 && counted_in == fork_count()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

}  // namespace pllm::python
