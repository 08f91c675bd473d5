// Releases the interpreter's lock while native code computes.
//
// When the interpreter ends, Python (up to 3.13) ends any other thread that asks for the lock, by pthread_exit; in a
// destructor of ours that would be std::terminate. So at exit finish_unlocked() waits until nobody computes unlocked,
// and from then on the lock is kept.
#pragma once
#include <pybind11/pybind11.h>

namespace pllm::python {

class Unlocked {
 public:
  Unlocked();
  ~Unlocked();
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;

 private:
  PyThreadState* state_ = nullptr;  // null: the lock was kept
};

void finish_unlocked();  // for atexit

}  // namespace pllm::python
