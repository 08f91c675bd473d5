#include "backend/cpu/select.h"

#include "backend/cpu/levels.h"
#include "base/error.h"
#include "base/isa.h"

namespace pllm::cpu {
namespace {

constexpr const KernelTable* kTables[] = {
#if defined(__aarch64__)
    &kNeonTable, &kDotprodTable, &kI8mmTable,
#else
    &kBaselineTable,
#endif
#if defined(__x86_64__)
    &kAvx2Table, &kAvxVnniTable, &kAvx512Table, &kAvx512VnniTable,
#endif
};

}  // namespace

const KernelTable& kernels(std::string_view level) {
  const std::string_view name = isa_level(level).name;
  for (const KernelTable* table : kTables)
    if (table->level == name) return *table;
  throw Error(ErrorKind::internal, "no kernels for instruction-set level " + std::string(name));
}

}  // namespace pllm::cpu
