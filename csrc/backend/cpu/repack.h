// File blocks to panels and back: the same bytes on every level, so one copy for all.
#pragma once
#include <cstddef>
#include <cstdint>

#include "quant/formats.h"

namespace pllm::cpu {

// The functions of MatmulKernels with these names; instantiated for every format in repack.cpp.
template <Format f>
size_t panel_bytes_of(int64_t cols);
template <Format f>
void repack(const uint8_t* rows, size_t row_bytes, int n_rows, int64_t cols, uint8_t* panel);
template <Format f>
void unpack_row(const uint8_t* panel, int row, int64_t cols, uint8_t* blocks);

}  // namespace pllm::cpu
