// Instruction-set extensions: CPUID on x86, what the kernel tells on ARM.
#include <string>
#include <vector>

#include "base/cpu_info.h"

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#elif defined(__aarch64__) && defined(__APPLE__)
#include <sys/sysctl.h>
#endif

namespace pllm {

#if defined(__x86_64__)

std::vector<std::string> cpu_features() {
  struct Registers {
    uint32_t a = 0, b = 0, c = 0, d = 0;
  } one, seven, seven_one;
  if (!__get_cpuid_count(1, 0, &one.a, &one.b, &one.c, &one.d)) return {};
  __get_cpuid_count(7, 0, &seven.a, &seven.b, &seven.c, &seven.d);
  if (seven.a >= 1) __get_cpuid_count(7, 1, &seven_one.a, &seven_one.b, &seven_one.c, &seven_one.d);

  uint64_t saved = 0;  // XCR0: the register state that the OS saves for a thread
  if (one.c >> 27 & 1) {
    uint32_t low, high;
    asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    saved = uint64_t{high} << 32 | low;
  }
  constexpr uint64_t kYmm = 0x06, kZmm = 0xe6, kTiles = 0x60000;
  const struct {
    const char* name;
    uint32_t reg;
    int bit;
    uint64_t state;
  } all[] = {{"sse4_2", one.c, 20, 0},          {"avx", one.c, 28, kYmm},
             {"fma", one.c, 12, kYmm},          {"f16c", one.c, 29, kYmm},
             {"bmi2", seven.b, 8, 0},           {"avx2", seven.b, 5, kYmm},
             {"avxvnni", seven_one.a, 4, kYmm}, {"avx512f", seven.b, 16, kZmm},
             {"avx512dq", seven.b, 17, kZmm},   {"avx512bw", seven.b, 30, kZmm},
             {"avx512vl", seven.b, 31, kZmm},   {"avx512vbmi", seven.c, 1, kZmm},
             {"avx512vnni", seven.c, 11, kZmm}, {"avx512bf16", seven_one.a, 5, kZmm},
             {"avx512fp16", seven.d, 23, kZmm}, {"amx_tile", seven.d, 24, kTiles},
             {"amx_int8", seven.d, 25, kTiles}, {"amx_bf16", seven.d, 22, kTiles}};
  std::vector<std::string> found;
  for (const auto& f : all)
    if (f.reg >> f.bit & 1 && (saved & f.state) == f.state) found.emplace_back(f.name);
  return found;
}

#elif defined(__aarch64__) && defined(__linux__)

std::vector<std::string> cpu_features() {  // with the kernel's own names, as in /proc/cpuinfo
  constexpr unsigned long kHwcap = AT_HWCAP, kHwcap2 = AT_HWCAP2;
  constexpr struct {  // numbers of the kernel's interface, which older headers do not have all of
    const char* name;
    unsigned long word;
    int bit;
  } all[] = {{"asimd", kHwcap, 1},     {"fphp", kHwcap, 9},   {"asimdhp", kHwcap, 10}, {"asimddp", kHwcap, 20},
             {"asimdfhm", kHwcap, 23}, {"sve", kHwcap, 22},   {"sve2", kHwcap2, 1},    {"svei8mm", kHwcap2, 9},
             {"i8mm", kHwcap2, 13},    {"bf16", kHwcap2, 14}, {"sme", kHwcap2, 23}};
  std::vector<std::string> found;
  for (const auto& f : all)
    if (getauxval(f.word) >> f.bit & 1) found.emplace_back(f.name);
  return found;
}

#elif defined(__aarch64__) && defined(__APPLE__)

std::vector<std::string> cpu_features() {  // with the names that Linux has for them
  constexpr struct {
    const char *name, *key;
  } all[] = {{"asimd", "hw.optional.AdvSIMD"},         {"fphp", "hw.optional.arm.FEAT_FP16"},
             {"asimdhp", "hw.optional.arm.FEAT_FP16"}, {"asimddp", "hw.optional.arm.FEAT_DotProd"},
             {"asimdfhm", "hw.optional.arm.FEAT_FHM"}, {"i8mm", "hw.optional.arm.FEAT_I8MM"},
             {"bf16", "hw.optional.arm.FEAT_BF16"},    {"sme", "hw.optional.arm.FEAT_SME"}};
  std::vector<std::string> found;
  for (const auto& f : all) {
    int value = 0;
    size_t size = sizeof value;
    if (sysctlbyname(f.key, &value, &size, nullptr, 0) == 0 && value != 0) found.emplace_back(f.name);
  }
  return found;
}

#else

std::vector<std::string> cpu_features() { return {}; }

#endif

}  // namespace pllm
