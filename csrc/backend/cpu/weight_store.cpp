#include "backend/cpu/weight_store.h"

#include <algorithm>

#include "quant/reference.h"

namespace pllm::cpu {
namespace {

constexpr size_t kArenaBytes = size_t{64} << 20;
constexpr size_t kRepackChunk = size_t{256} << 10;  // file bytes read and repacked by one thread at a time

}  // namespace

uint8_t* WeightStore::take(size_t bytes) {
  bytes = (bytes + 63) / 64 * 64;
  if (arenas_.empty() || arenas_.back().size() - used_ < bytes) {
    arenas_.emplace_back(std::max(bytes, kArenaBytes));
    used_ = 0;
  }
  uint8_t* p = arenas_.back().data() + used_;
  used_ += bytes;
  return p;
}

std::unique_ptr<CpuWeight> WeightStore::upload(const KernelTable& kernels, ThreadPool& pool, const TensorSource& t,
                                               WeightUse use) {
  auto w = std::make_unique<CpuWeight>();
  w->rows = t.rows;
  w->cols = t.cols;
  w->format = t.format;
  w->row_bytes = t.row_bytes();
  if (use == WeightUse::lookup) {
    w->in_file = true;
    w->source = t;
    return w;
  }
  if (use == WeightUse::vector) {
    w->bytes = size_t(t.rows * t.cols) * sizeof(float);
    uint8_t* out = take(w->bytes);
    std::vector<uint8_t> blocks(size_t(t.rows) * w->row_bytes);
    t.read(0, blocks);
    decode(t.format, blocks.data(), t.rows * t.cols, reinterpret_cast<float*>(out));
    w->data = out;
    return w;
  }
  const MatmulKernels& k = kernels.matmul[int(t.format)];
  w->panel_bytes = k.panel_bytes(t.cols);
  w->bytes = size_t(w->n_panels()) * w->panel_bytes;
  uint8_t* out = take(w->bytes);
  w->data = out;

  // Chunk by chunk through a buffer that stays in the cache: no second copy of the tensor is ever in memory.
  const size_t file_panel = w->row_bytes * kPanelRows;
  const auto per_item = int64_t(std::max<size_t>(1, kRepackChunk / file_panel));
  buffers_.resize(size_t(pool.size()));
  pool.run(int((w->n_panels() + per_item - 1) / per_item), [&](int thread, int item) {
    const int64_t p0 = item * per_item, p1 = std::min(w->n_panels(), p0 + per_item);
    std::vector<uint8_t>& rows = buffers_[size_t(thread)];
    rows.resize(size_t(std::min(p1 * kPanelRows, t.rows) - p0 * kPanelRows) * w->row_bytes);
    t.read(size_t(p0) * file_panel, rows);
    for (int64_t p = p0; p < p1; p++) {
      const int n_rows = int(std::min<int64_t>(kPanelRows, t.rows - p * kPanelRows));
      k.repack(rows.data() + size_t(p - p0) * file_panel, w->row_bytes, n_rows, t.cols,
               out + size_t(p) * w->panel_bytes);
    }
  });
  return w;
}

void read_row(const KernelTable& kernels, const CpuWeight& w, int64_t i, float* out, uint8_t* scratch) {
  if (w.in_file) {
    w.source.read(uint64_t(i) * w.row_bytes, {scratch, w.row_bytes});
  } else {
    const uint8_t* panel = w.data + size_t(i / kPanelRows) * w.panel_bytes;
    kernels.matmul[int(w.format)].unpack_row(panel, int(i % kPanelRows), w.cols, scratch);
  }
  decode(w.format, scratch, w.cols, out);
}

}  // namespace pllm::cpu
