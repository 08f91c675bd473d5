// The table of each level, defined in isa_<level>.cpp. Only select.cpp looks at them: it knows which of them may run.
#pragma once
#include "backend/cpu/kernels.h"

namespace pllm::cpu {

// Those of this architecture are defined.
extern const KernelTable kBaselineTable;
extern const KernelTable kAvx2Table, kAvxVnniTable, kAvx512Table, kAvx512VnniTable;
extern const KernelTable kNeonTable, kDotprodTable, kI8mmTable;

}  // namespace pllm::cpu
