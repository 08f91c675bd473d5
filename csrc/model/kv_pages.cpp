#include "model/kv_pages.h"

#include <algorithm>

namespace pllm {
namespace {
constexpr size_t kArenaBytes = size_t{64} << 20;  // address space, not memory: untouched pages cost nothing
}

uint8_t* KvPool::take() {
  if (free_.empty()) {
    const size_t n_pages = std::max<size_t>(1, kArenaBytes / page_bytes_);
    arenas_.emplace_back(n_pages * page_bytes_);
    for (size_t i = n_pages; i-- > 0;) free_.push_back(arenas_.back().data() + i * page_bytes_);
  }
  uint8_t* page = free_.back();
  free_.pop_back();
  return page;
}

void KvSequence::reserve(int n_tokens) {
  const size_t needed = size_t(n_tokens + kPageTokens - 1) / kPageTokens;
  while (pages_.size() < needed) pages_.push_back(pool_.take());
}

void KvSequence::truncate(int n_tokens) {
  n_tokens_ = std::min(n_tokens_, n_tokens);
  const size_t needed = size_t(n_tokens_ + kPageTokens - 1) / kPageTokens;
  for (; pages_.size() > needed; pages_.pop_back()) pool_.give_back(pages_.back());
}

}  // namespace pllm
