// The meaning of every format, in plain scalar code: what the kernels are tested against, and what reads single rows.
#pragma once
#include <cstdint>

#include "quant/formats.h"

namespace pllm {

// n weights (a multiple of the format's block) to floats, bit-equal to gguf.quants.dequantize.
void decode(Format format, const uint8_t* blocks, int64_t n, float* out);

// One row times one token, on the file's own blocks, with the order of operations of the SIMD kernels: sums inside a
// block are integers, each block adds one fused multiply-add. x is rounded as the format's activations are.
float reference_dot(Format format, const uint8_t* blocks, int64_t n, const float* x);

}  // namespace pllm
