// Large zero-filled memory from the operating system, on huge pages where it gives them; pages cost nothing until
// touched. Where this process may run on several NUMA nodes, pages are dealt out over all of them: every thread reads
// weights and KV pages, and no node's memory has to serve them all.
#pragma once
#include <cstddef>
#include <cstdint>

namespace pllm {

class Memory {
 public:
  Memory() = default;
  explicit Memory(size_t bytes);  // 64-byte aligned at least; Error out_of_memory if the system refuses
  ~Memory();
  Memory(Memory&& other) noexcept;
  Memory& operator=(Memory&& other) noexcept;

  uint8_t* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace pllm
