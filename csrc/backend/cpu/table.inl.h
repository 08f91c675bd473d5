// The KernelTable of one level, over the words of the ISA header included before. Each isa_<level>.cpp is this and its
// name.
#pragma once
#include "backend/cpu/simd/dot.inl.h"
// after the dots
#include "backend/cpu/limits.inl.h"
#include "backend/cpu/matmul.inl.h"
#include "backend/cpu/repack.h"

namespace pllm::cpu {
namespace {

template <Format f>
constexpr MatmulKernels matmul_kernels() {
  return {&panel_bytes_of<f>, &repack<f>, &unpack_row<f>, &matmul<f>};
}

constexpr KernelTable make_table(const char* level, const ElementwiseKernels* elementwise,
                                 const AttentionKernels* attention, const FloatKvKernels* floats,
                                 const CodeKvKernels* codes) {
  return {level,
          {
#define FORMAT(name, ...) matmul_kernels<Format::name>(),
#include "quant/formats.def"
#undef FORMAT
          },
          {activation_kernels<Activation::f32>(), activation_kernels<Activation::q8>()},
          elementwise,
          attention,
          {
#define KV_TYPE(name, arithmetic, ...) &arithmetic->keys_##name,
#include "backend/kv_types.def"
#undef KV_TYPE
          },
          {
#define KV_TYPE(name, arithmetic, ...) &arithmetic->values_##name,
#include "backend/kv_types.def"
#undef KV_TYPE
          },
          limit_kernels()};
}

}  // namespace
}  // namespace pllm::cpu
