// Weights in the CPU's own layout: panels for products, floats for vectors; rows for look-ups stay in the file.
#pragma once
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/kernels.h"
#include "base/memory.h"
#include "base/thread_pool.h"

namespace pllm::cpu {

struct CpuWeight final : Weight {
  const uint8_t* data = nullptr;  // null: in the file
  TensorSource source;            // of what is there
  size_t panel_bytes = 0;         // of one 16-row panel
  size_t row_bytes = 0;           // of one row in the file's blocks

  int64_t n_panels() const { return (rows + kPanelRows - 1) / kPanelRows; }
  const float* floats() const { return reinterpret_cast<const float*>(data); }
};

class WeightStore {
 public:
  std::unique_ptr<CpuWeight> upload(const KernelTable& kernels, ThreadPool& pool, const TensorSource& t, WeightUse use);

 private:
  uint8_t* take(size_t bytes);

  std::vector<Memory> arenas_;                 // few and large: huge pages
  size_t used_ = 0;                            // of the last arena
  std::vector<std::vector<uint8_t>> buffers_;  // of each thread: file rows on their way into panels
};

// Row i of a weight as floats, (w.cols). `scratch` holds a row's blocks, w.row_bytes.
void read_row(const KernelTable& kernels, const CpuWeight& w, int64_t i, float* out, uint8_t* scratch);

}  // namespace pllm::cpu
