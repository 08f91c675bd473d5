// One loop compiled for several instruction sets by the compiler alone; the best this CPU has is chosen at start-up.
// -ffp-contract=off holds for all of them, so they give the same bits.
#pragma once

#define PLLM_INLINE [[gnu::always_inline]] inline

#if defined(__x86_64__) && defined(__GNUC__)
// PLLM_CLONES(name, body, result, (parameters), (arguments)): name is body, at the best level.
#define PLLM_CLONES(name, body, result, parameters, arguments)                                  \
  [[gnu::target("avx512f,avx512dq,prefer-vector-width=512")]] result name##_avx512 parameters { \
    return body arguments;                                                                      \
  }                                                                                             \
  [[gnu::target("avx2")]] result name##_avx2 parameters { return body arguments; }              \
  result name##_baseline parameters { return body arguments; }                                  \
  result(*const name) parameters = __builtin_cpu_supports("avx512dq") ? name##_avx512           \
                                   : __builtin_cpu_supports("avx2")   ? name##_avx2             \
                                                                      : name##_baseline;
#else
#define PLLM_CLONES(name, body, result, parameters, arguments) \
  result name parameters { return body arguments; }
#endif
