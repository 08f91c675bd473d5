// The table of each level, defined in isa_<level>.cpp. Only select.cpp looks at them: it knows which of them may run.
#pragma once
#include "backend/cpu/kernels.h"

namespace pllm::cpu {

extern const KernelTable kBaselineTable;
#if defined(__x86_64__)
extern const KernelTable kAvx2Table, kAvxVnniTable, kAvx512Table, kAvx512VnniTable;
#endif

}  // namespace pllm::cpu
