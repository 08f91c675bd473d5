// Attention over KV pages on the CPU: who computes what, and where partial results wait. The arithmetic is
// attention.inl.h's, through AttentionKernels; its order is fixed there, so the split chosen here never shows in a bit.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <vector>

#include "backend/cpu/kernels.h"
#include "base/thread_pool.h"

namespace pllm::cpu {

// One KV head in one page (64 positions): its keys, then its values.
struct KvHead {
  int head_dim_k, head_dim_v;
  KvTypes types;
  // A multiple of 128. Head dims must be multiples of 8 up to 512; others throw Error unsupported_model.
  size_t page_bytes() const;
  size_t values_at() const;
  // Whether all numbers are, and all scales of codes.
  bool is_finite(const uint8_t* page) const;
};

// Where a layer's heads lie inside a page. A page is one block of memory, 64-byte aligned, for 64 positions of all
// layers and heads; it must be zero-filled when allocated, and need not be cleared when reused.
struct KvLayout {
  int n_head_kv;
  KvHead head;
  size_t layer_offset;  // head h at layer_offset + h * head.page_bytes(), a multiple of 64
};

struct AttentionArgs {
  const float* q;  // (n, n_head, head_dim_k), rows ldq floats apart
  size_t ldq;
  float* out;  // (n, n_head, head_dim_v), rows ldo floats apart
  size_t ldo;
  int n_head;  // a multiple of kv.n_head_kv: query heads [h g, h g + g) share KV head h, g = n_head / n_head_kv
  KvLayout kv;
  const uint8_t* const* pages;  // pages[i]: positions [64 i, 64 i + 64), for every position that a query sees
  int pos0, n;                  // queries at positions [pos0, pos0 + n); their own keys are stored already
  float scale;
  float softcap;                 // scores become softcap tanh(score / softcap); 0: none
  int window;                    // query at pos sees keys (pos - window, pos]; 0: all up to pos
  const float* sinks = nullptr;  // (n_head) or null: one more score a head, of a key without a value
};

class Attention {
 public:
  Attention(const KernelTable& kernels, ThreadPool& pool);

  // k: (n, n_head_kv, head_dim_k), rows ldk floats apart; v likewise -> positions [pos0, pos0 + n) of the pages.
  void store(const KvLayout& kv, uint8_t* const* pages, int pos0, int n, const float* k, size_t ldk, const float* v,
             size_t ldv);
  // One caller at a time. Workspaces grow to the largest call and stay.
  void run(const AttentionArgs& args);

 private:
  class Floats {  // 64-byte aligned scratch, contents undefined
   public:
    float* at_least(size_t n);
    float* data() { return data_.get(); }

   private:
    struct Free {
      void operator()(float* p) const { ::operator delete[](p, std::align_val_t{64}); }
    };
    std::unique_ptr<float[], Free> data_;
    size_t size_ = 0;
  };
  struct Results {  // (rows), (rows), (rows, head_dim_v padded to 16)
    float *max, *sum, *acc;
  };
  struct Workspace {
    Floats floats;  // holds all below
    float *q, *scores, *page;
    Results chunk, total;
    std::vector<int> pos;
  };
  struct Plan;
  struct Task {
    int head, token0, n_tokens, n_rows, chunk0, n_chunks;
  };

  Plan make_plan(const AttentionArgs& a) const;
  void reserve(const AttentionArgs& a, const Plan& p);
  void load_queries(const AttentionArgs& a, const Plan& p, const Task& t, Workspace& w);
  void run_item(const AttentionArgs& a, const Plan& p, Workspace& w, int item);
  Results partial(const Plan& p, int task, int chunk);
  void start_totals(const AttentionArgs& a, const Plan& p, const Task& t, Workspace& w);
  void merge(const AttentionArgs& a, const Task& t, const Results& from, Workspace& w);

  const KernelTable& kernels_;
  ThreadPool& pool_;
  std::vector<Workspace> workspaces_;  // one a thread
  Floats partials_;
  std::vector<std::atomic<int>> left_;  // splits of each task not done yet
};

}  // namespace pllm::cpu
