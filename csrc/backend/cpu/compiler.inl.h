// What compilers have to be told about loops over registers.
#pragma once

#define SIMD_FN __attribute__((always_inline))  // for lambdas: registers must not cross a call

#if defined(__clang__)
#define SIMD_UNROLL _Pragma("unroll")
#define SIMD_ROLLED _Pragma("nounroll")
#else
#define SIMD_UNROLL _Pragma("GCC unroll 16")
#define SIMD_ROLLED _Pragma("GCC unroll 1")
#endif

// Loops over the tokens of a tile. With dot products and 32 registers an unrolled one keeps its sums there, for up to a
// fifth fewer instructions. Without, it is long already; the levels of x86 were measured as compilers leave them.
#if defined(__ARM_FEATURE_DOTPROD) || defined(__AVX512VNNI__)
#define SIMD_TOKENS SIMD_UNROLL
#else
#define SIMD_TOKENS
#endif
