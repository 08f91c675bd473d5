#include "backend/cpu/attention.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "base/error.h"

namespace pllm::cpu {
namespace {

constexpr float kLog2E = 1.44269504f;
constexpr int kTileRows = 64;                          // query rows that share one pass over the pages
constexpr int kItemsPerThread = 8;                     // enough to even out threads that run at different speeds
constexpr size_t kMaxPartialBytes = size_t{64} << 20;  // above it whole tiles are the items
constexpr int kNoWindow = 1 << 30;                     // far from overflow when positions are subtracted

size_t round_up(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }
size_t padded(int head_dim_v) { return round_up(size_t(head_dim_v), 16); }

void check_dim(int dim) {
  if (dim >= 8 && dim <= 512 && dim % 8 == 0) return;
  throw Error(ErrorKind::unsupported_model,
              "attention head size " + std::to_string(dim) + " is not supported: it must be a multiple of 8 up to 512");
}

// The keys or the values of a head in a page: kPageTokens dim numbers, then the scales.
struct Part {
  const KvTypeInfo& type;
  size_t dim;

  size_t numbers_bytes() const { return dim * size_t(type.number_bytes) * kPageTokens; }
  size_t scales_bytes() const {
    const size_t shared = type.scale_numbers ? size_t(type.scale_numbers) : dim;
    return (dim + shared - 1) / shared * size_t(type.scale_bytes) * kPageTokens;
  }
  size_t bytes() const { return numbers_bytes() + scales_bytes(); }
};

// Whether no exponent is all ones.
template <class Bits>
bool exponents_fit(const uint8_t* p, size_t bytes, Bits exponent) {
  bool fit = true;
  for (size_t at = 0; at < bytes; at += sizeof(Bits)) {
    Bits bits;
    std::memcpy(&bits, p + at, sizeof bits);
    fit &= (bits & exponent) != exponent;
  }
  return fit;
}

bool part_is_finite(KvType type, const Part& part, const uint8_t* p) {
  const uint8_t* scales = p + part.numbers_bytes();
  switch (type) {
    case KvType::f16: return exponents_fit<uint16_t>(p, part.bytes(), 0x7c00);
    case KvType::bf16: return exponents_fit<uint16_t>(p, part.bytes(), 0x7f80);
    case KvType::f32: return exponents_fit<uint32_t>(p, part.bytes(), 0x7f800000);
    case KvType::q8_0: return exponents_fit<uint16_t>(scales, part.scales_bytes(), 0x7c00);
    case KvType::i16: return exponents_fit<uint32_t>(scales, part.scales_bytes(), 0x7f800000);
  }
  return false;
}

Part keys_of(const KvHead& h) { return {info(h.types.k), size_t(h.head_dim_k)}; }
Part values_of(const KvHead& h) { return {info(h.types.v), padded(h.head_dim_v)}; }

}  // namespace

size_t KvHead::values_at() const { return keys_of(*this).bytes(); }

size_t KvHead::page_bytes() const {
  check_dim(head_dim_k);
  check_dim(head_dim_v);
  return values_at() + values_of(*this).bytes();
}

bool KvHead::is_finite(const uint8_t* page) const {
  return part_is_finite(types.k, keys_of(*this), page) && part_is_finite(types.v, values_of(*this), page + values_at());
}

float* Attention::Floats::at_least(size_t n) {
  if (n > size_) {
    data_.reset();
    size_ = 0;
    data_.reset(static_cast<float*>(::operator new[](n * sizeof(float), std::align_val_t{64})));
    size_ = n;
  }
  return data_.get();
}

Attention::Attention(const KernelTable& kernels, ThreadPool& pool)
    : kernels_(kernels), pool_(pool), workspaces_(size_t(pool.size())) {}

void Attention::store(const KvLayout& kv, uint8_t* const* pages, int pos0, int n, const float* k, size_t ldk,
                      const float* v, size_t ldv) {
  if (n <= 0) return;
  const KvHead& h = kv.head;
  const size_t head_bytes = h.page_bytes(), values_at = h.values_at();
  const KeyKernels& keys = *kernels_.keys[int(h.types.k)];
  const ValueKernels& values = *kernels_.values[int(h.types.v)];
  const auto store_page = [&](int page, int head) {
    uint8_t* base = pages[page] + kv.layer_offset + size_t(head) * head_bytes;
    const int first = std::max(pos0, page * kPageTokens), last = std::min(pos0 + n, (page + 1) * kPageTokens);
    for (int pos = first; pos < last; pos++) {
      const size_t row = size_t(pos - pos0);
      const float *key = k + row * ldk + size_t(head * h.head_dim_k),
                  *value = v + row * ldv + size_t(head * h.head_dim_v);
      // A masked score is replaced, a masked value multiplied by 0: what is not finite goes into the scores.
      const bool finite =
          kernels_.attention->all_finite(key, h.head_dim_k) && kernels_.attention->all_finite(value, h.head_dim_v);
      keys.store(base, pos % kPageTokens, h.head_dim_k, finite ? key : nullptr);
      values.store(base + values_at, pos % kPageTokens, h.head_dim_v, finite ? value : nullptr);
    }
  };
  const int page0 = pos0 / kPageTokens, n_pages = (pos0 + n - 1) / kPageTokens + 1 - page0;
  if (n <= 2) {  // cheaper than waking anyone
    for (int i = 0; i < n_pages * kv.n_head_kv; i++) store_page(page0 + i / kv.n_head_kv, i % kv.n_head_kv);
  } else {
    pool_.run(n_pages * kv.n_head_kv, [&](int, int i) { store_page(page0 + i / kv.n_head_kv, i % kv.n_head_kv); });
  }
}

// A task is one (tile of queries, KV head), deepest tiles first; an item is one of n_splits runs of a task's chunks.
// With one split a task merges its chunks as it goes. With more, every chunk's results wait in partials_ and whoever
// finishes the task's last split merges them all in order.
struct Attention::Plan {
  int group, tile_tokens, n_tiles, n_tasks, n_splits, window;
  size_t n_v, head_bytes, values_at;
  const KeyKernels* keys;
  const ValueKernels* values;
  size_t max_rows, record_floats;  // one chunk of one task in partials_: max, sum, acc
  int max_chunks;

  Task task(const AttentionArgs& a, int i) const {
    Task t;
    t.head = i % a.kv.n_head_kv;
    t.token0 = (n_tiles - 1 - i / a.kv.n_head_kv) * tile_tokens;
    t.n_tokens = std::min(tile_tokens, a.n - t.token0);
    t.n_rows = t.n_tokens * group;
    const int pos = a.pos0 + t.token0;
    t.chunk0 = std::max(0, pos - window + 1) / kChunkTokens;
    t.n_chunks = (pos + t.n_tokens - 1) / kChunkTokens + 1 - t.chunk0;
    return t;
  }
};

Attention::Plan Attention::make_plan(const AttentionArgs& a) const {
  if (a.kv.n_head_kv < 1 || a.n_head < 1 || a.n_head % a.kv.n_head_kv != 0) {
    throw Error(ErrorKind::bad_shape, std::to_string(a.n_head) + " attention heads do not divide among " +
                                          std::to_string(a.kv.n_head_kv) + " key/value heads");
  }
  Plan p;
  p.group = a.n_head / a.kv.n_head_kv;
  p.tile_tokens = std::max(1, kTileRows / p.group);
  p.n_tiles = (a.n + p.tile_tokens - 1) / p.tile_tokens;
  p.n_tasks = p.n_tiles * a.kv.n_head_kv;
  p.window = a.window > 0 ? std::min(a.window, kNoWindow) : kNoWindow;
  const KvHead& h = a.kv.head;
  p.n_v = padded(h.head_dim_v);
  p.head_bytes = h.page_bytes();
  p.values_at = h.values_at();
  p.keys = kernels_.keys[int(h.types.k)];
  p.values = kernels_.values[int(h.types.v)];
  p.max_chunks = 0;
  for (int i = 0; i < p.n_tasks; i += a.kv.n_head_kv) p.max_chunks = std::max(p.max_chunks, p.task(a, i).n_chunks);
  p.max_rows = size_t(std::min(p.tile_tokens, a.n) * p.group);
  p.record_floats = round_up(2 * p.max_rows, 16) + p.max_rows * p.n_v;
  const int wanted = (kItemsPerThread * pool_.size() + p.n_tasks - 1) / p.n_tasks;
  const bool fits = size_t(p.n_tasks) * size_t(p.max_chunks) * p.record_floats * sizeof(float) <= kMaxPartialBytes;
  p.n_splits = pool_.size() > 1 && fits ? std::min(wanted, p.max_chunks) : 1;
  return p;
}

void Attention::reserve(const AttentionArgs& a, const Plan& p) {
  const size_t rows = p.max_rows, d_k = size_t(a.kv.head.head_dim_k);
  for (Workspace& w : workspaces_) {
    const std::pair<float**, size_t> parts[] = {
        {&w.q, rows * d_k},
        {&w.scores, rows * kChunkTokens},
        {&w.page, std::max(d_k, p.n_v) * kPageTokens},
        {&w.chunk.max, rows},
        {&w.chunk.sum, rows},
        {&w.chunk.acc, rows * p.n_v},
        {&w.total.max, rows},
        {&w.total.sum, rows},
        {&w.total.acc, rows * p.n_v},
    };
    size_t total = 0;
    for (const auto& [place, n] : parts) total += round_up(n, 16);
    float* next = w.floats.at_least(total);
    for (const auto& [place, n] : parts) {
      *place = next;
      next += round_up(n, 16);
    }
    if (w.pos.size() < rows) w.pos.resize(rows);
  }
  if (p.n_splits == 1) return;
  partials_.at_least(size_t(p.n_tasks) * size_t(p.max_chunks) * p.record_floats);
  if (left_.size() < size_t(p.n_tasks)) left_ = std::vector<std::atomic<int>>(size_t(p.n_tasks));
  for (int i = 0; i < p.n_tasks; i++) left_[size_t(i)].store(p.n_splits, std::memory_order_relaxed);
}

void Attention::run(const AttentionArgs& args) {
  if (args.n <= 0) return;
  const Plan plan = make_plan(args);
  reserve(args, plan);
  pool_.run(plan.n_tasks * plan.n_splits,
            [&](int thread, int item) { run_item(args, plan, workspaces_[size_t(thread)], item); });
}

void Attention::load_queries(const AttentionArgs& a, const Plan& p, const Task& t, Workspace& w) {
  const float scale = a.softcap != 0 ? a.scale / a.softcap : a.scale * kLog2E;
  const int dim = a.kv.head.head_dim_k;
  for (int r = 0; r < t.n_rows; r++) {
    const int token = t.token0 + r / p.group, head = t.head * p.group + r % p.group;
    const float* from = a.q + size_t(token) * a.ldq + size_t(head) * size_t(dim);
    float* to = w.q + size_t(r) * size_t(dim);
    for (int d = 0; d < dim; d++) to[d] = from[d] * scale;
    p.keys->prepare(to, dim);
    w.pos[size_t(r)] = a.pos0 + token;
  }
}

void Attention::run_item(const AttentionArgs& a, const Plan& p, Workspace& w, int item) {
  const int index = item / p.n_splits, split = item % p.n_splits;
  const Task t = p.task(a, index);
  const int begin = t.n_chunks * split / p.n_splits, end = t.n_chunks * (split + 1) / p.n_splits;
  if (begin < end) load_queries(a, p, t, w);
  if (p.n_splits == 1) start_totals(a, p, t, w);
  const size_t keys_at = a.kv.layer_offset + size_t(t.head) * p.head_bytes;
  for (int i = begin; i < end; i++) {
    const int c = t.chunk0 + i, next_page = (c + 1) * (kChunkTokens / kPageTokens);
    const Results to = p.n_splits == 1 ? w.chunk : partial(p, index, i);
    kernels_.attention->chunk({.keys = *p.keys,
                               .values = *p.values,
                               .head_dim_k = a.kv.head.head_dim_k,
                               .head_dim_v = a.kv.head.head_dim_v,
                               .pages = a.pages,
                               .keys_at = keys_at,
                               .values_at = keys_at + p.values_at,
                               .chunk = c,
                               .next = i + 1 < end ? a.pages[next_page] + keys_at : nullptr,
                               .n_rows = t.n_rows,
                               .q = w.q,
                               .pos = w.pos.data(),
                               .window = p.window,
                               .softcap = a.softcap,
                               .scores = w.scores,
                               .page = w.page,
                               .max = to.max,
                               .sum = to.sum,
                               .acc = to.acc});
    if (p.n_splits == 1) merge(a, t, to, w);
  }
  if (p.n_splits > 1) {
    if (left_[size_t(index)].fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    start_totals(a, p, t, w);
    for (int i = 0; i < t.n_chunks; i++) merge(a, t, partial(p, index, i), w);
  }
  for (int r = 0; r < t.n_rows; r++) {
    const int token = t.token0 + r / p.group, head = t.head * p.group + r % p.group;
    float* out = a.out + size_t(token) * a.ldo + size_t(head) * size_t(a.kv.head.head_dim_v);
    kernels_.attention->finish(a.kv.head.head_dim_v, w.total.sum[r], w.total.acc + size_t(r) * p.n_v, out);
  }
}

Attention::Results Attention::partial(const Plan& p, int task, int chunk) {
  float* record = partials_.data() + (size_t(task) * size_t(p.max_chunks) + size_t(chunk)) * p.record_floats;
  return {record, record + p.max_rows, record + round_up(2 * p.max_rows, 16)};
}

// A sink is what a chunk with one key of that score and a value of zeros would have left.
void Attention::start_totals(const AttentionArgs& a, const Plan& p, const Task& t, Workspace& w) {
  for (int r = 0; r < t.n_rows; r++) {
    w.total.max[r] =
        a.sinks ? a.sinks[t.head * p.group + r % p.group] * kLog2E : -std::numeric_limits<float>::infinity();
    w.total.sum[r] = a.sinks ? 1.f : 0.f;
  }
  std::fill_n(w.total.acc, size_t(t.n_rows) * p.n_v, 0.f);
}

void Attention::merge(const AttentionArgs& a, const Task& t, const Results& from, Workspace& w) {
  kernels_.attention->merge(t.n_rows, a.kv.head.head_dim_v, from.max, from.sum, from.acc, w.total.max, w.total.sum,
                            w.total.acc);
}

}  // namespace pllm::cpu
