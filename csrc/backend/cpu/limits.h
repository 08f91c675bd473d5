// The limits of this machine: what all threads together can read from memory and multiply, at one instruction-set
// level. Measured, as they change with the moment: beside whatever is compared with them.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/cpu/kernels.h"
#include "base/thread_pool.h"

namespace pllm::cpu {

enum class PeakKind : uint8_t { int8, f32, bf16 };

class Limits {
 public:
  Limits(std::string_view level, int n_threads);  // bad_value as for a backend

  std::string_view level() const { return kernels_.level; }
  int n_threads() const { return pool_.size(); }

  // The fastest of several patterns that read n_bytes over and over, in bytes a second. Of that many bytes a cache may
  // hold a part: what reads as many again and again, as decoding does, has the same limit.
  struct Read {
    double rate;
    std::string pattern;
  };
  Read read(size_t n_bytes, double seconds);  // Error out_of_memory

  // Products of one kind a second. 0: this CPU has none.
  double peak(PeakKind kind, double seconds);

  // For tests: what a pattern's loop returns, on all threads.
  std::vector<std::string> patterns() const;
  uint32_t sum(int pattern, std::span<const uint8_t> data);
  uint64_t count(PeakKind kind, int rounds);

 private:
  Peak kernel(PeakKind kind) const;

  const KernelTable& kernels_;
  ThreadPool pool_;
};

}  // namespace pllm::cpu
