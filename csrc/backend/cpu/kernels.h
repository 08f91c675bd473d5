// What one instruction-set level offers. Each isa_<level>.cpp fills one KernelTable from the same kernel source.
//
// Pointers in the table are the only way into code compiled with special flags; these headers hold no code at all.
#pragma once
#include <cstddef>
#include <cstdint>

#include "quant/formats.h"

namespace pllm::cpu {

inline constexpr int kPanelRows = 16;

// Products with one weight format. A panel is 16 rows of weights, transposed (see formats.inl.h); `cols` is a multiple
// of the format's block. Panels follow each other at panel_bytes(cols); rows past the last one are zero.
struct MatmulKernels {
  size_t (*panel_bytes)(int64_t cols);
  // rows: n_rows <= 16 rows of the file's blocks, row_bytes apart -> one panel
  void (*repack)(const uint8_t* rows, size_t row_bytes, int n_rows, int64_t cols, uint8_t* panel);
  // the inverse for one row: panel -> the file's own blocks, cols / block_weights * block_bytes bytes
  void (*unpack_row)(const uint8_t* panel, int row, int64_t cols, uint8_t* blocks);
  // y[t * ldy + r] = sum over k of w[r][k] x[t][k], for rows [16 * panel0, min(16 * panel1, n_rows)) and all n tokens.
  // act: n tokens prepared by this format's ActivationKernels. Writes no element outside those rows.
  void (*matmul)(const uint8_t* panels, int64_t cols, int64_t n_rows, const uint8_t* act, int n, float* y, size_t ldy,
                 int64_t panel0, int64_t panel1);
};

// Activations as the products read them: (tile, block, token in the tile).
struct ActivationKernels {
  size_t (*bytes)(int64_t cols, int n);
  // x[t * ldx + k], tokens [t0, t1) of n -> their places in act; calls for different tokens may run in parallel
  void (*prepare)(const float* x, size_t ldx, int64_t cols, int n, int t0, int t1, uint8_t* act);
};

struct KernelTable {
  const char* level;                               // "baseline", "avx2", "avxvnni", "avx512", "avx512vnni"
  MatmulKernels matmul[kFormatCount];              // by Format
  ActivationKernels activation[kActivationCount];  // by Activation
};

}  // namespace pllm::cpu
