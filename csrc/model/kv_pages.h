// The KV cache: pages of 64 tokens (all layers and heads of those positions in one block), allocated as tokens arrive.
#pragma once
#include <vector>

#include "backend/backend.h"
#include "base/memory.h"

namespace pllm {

// Pages of one size. Memory is taken in arenas and touched page by page; freed pages are used again.
class KvPool {
 public:
  explicit KvPool(size_t page_bytes) : page_bytes_(page_bytes) {}

  uint8_t* take();  // zero-filled when new; a used page holds finite values
  void give_back(uint8_t* page) { free_.push_back(page); }
  size_t page_bytes() const { return page_bytes_; }

 private:
  size_t page_bytes_;
  std::vector<Memory> arenas_;
  std::vector<uint8_t*> free_;
};

// One sequence's page table.
class KvSequence {
 public:
  explicit KvSequence(KvPool& pool) : pool_(pool) {}
  ~KvSequence() { truncate(0); }
  KvSequence(const KvSequence&) = delete;
  KvSequence& operator=(const KvSequence&) = delete;

  int n_tokens() const { return n_tokens_; }
  uint8_t* const* pages() const { return pages_.data(); }
  size_t bytes() const { return pages_.size() * pool_.page_bytes(); }

  void reserve(int n_tokens);  // pages for that many tokens in all
  void extend(int n) { n_tokens_ += n; }
  void truncate(int n_tokens);  // keeps the first n_tokens, gives the other pages back

 private:
  KvPool& pool_;
  std::vector<uint8_t*> pages_;
  int n_tokens_ = 0;
};

}  // namespace pllm
