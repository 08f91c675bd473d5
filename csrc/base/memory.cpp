#include "base/memory.h"

#include <string>
#include <utility>
#include <vector>

#include "base/cpu_info.h"
#include "base/cpu_plan.h"
#include "base/error.h"

#if defined(_WIN32)
#include <windows.h>
#else
#include <sys/mman.h>
#endif
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace pllm {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;

// Advice: a sandbox may refuse it, which costs speed only. Pages not touched yet follow it.
[[maybe_unused]] void interleave([[maybe_unused]] void* p, [[maybe_unused]] size_t bytes) {
#if defined(SYS_mbind)
  static const std::vector<int> nodes = numa_nodes("", cpu_affinity());
  if (nodes.size() < 2) return;
  constexpr int kInterleave = 3;  // MPOL_INTERLEAVE of <linux/mempolicy.h>, which is not everywhere
  constexpr size_t kBits = 8 * sizeof(unsigned long);
  std::vector<unsigned long> mask(size_t(nodes.back()) / kBits + 1);
  for (int node : nodes) mask[size_t(node) / kBits] |= 1ul << (size_t(node) % kBits);
  (void)syscall(SYS_mbind, p, bytes, kInterleave, mask.data(), mask.size() * kBits + 1, 0u);
#endif
}

uint8_t* take(size_t bytes) {
#if defined(_WIN32)
  return static_cast<uint8_t*>(VirtualAlloc(nullptr, bytes, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE));
#else
  void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) return nullptr;
#if defined(MADV_HUGEPAGE)
  if (bytes >= kHugePage) madvise(p, bytes, MADV_HUGEPAGE);  // advice: refusal costs speed only
#endif
  if (bytes >= kHugePage) interleave(p, bytes);
  return static_cast<uint8_t*>(p);
#endif
}

void give_back(uint8_t* p, size_t bytes) {
#if defined(_WIN32)
  (void)bytes;
  VirtualFree(p, 0, MEM_RELEASE);
#else
  munmap(p, bytes);
#endif
}

}  // namespace

Memory::Memory(size_t bytes) : size_(bytes) {
  if (bytes == 0) return;
  data_ = take(bytes);
  if (!data_) {
    throw Error(ErrorKind::out_of_memory, "the system refused " + std::to_string(bytes >> 20) + " MiB of memory",
                "Close other programs, take a smaller model or a smaller context.");
  }
}

Memory::~Memory() {
  if (data_) give_back(data_, size_);
}

Memory::Memory(Memory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

Memory& Memory::operator=(Memory&& other) noexcept {
  if (this != &other) {
    if (data_) give_back(data_, size_);
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
  }
  return *this;
}

}  // namespace pllm
