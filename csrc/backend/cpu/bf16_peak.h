// Products of bfloat16, which no level computes with: only measured, where the CPU has them.
#pragma once
#include "backend/cpu/kernels.h"

namespace pllm::cpu {

// Defined in isa_avx512_bf16.cpp and isa_i8mm_bf16.cpp.
extern const Peak kBf16Peak;

Peak bf16_peak();  // without a function where the CPU has no such instruction

}  // namespace pllm::cpu
