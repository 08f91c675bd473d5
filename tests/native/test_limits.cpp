// The loops that measure the machine do what is counted: at every level, under emulators and sanitizers too.
#include <cstring>
#include <string>
#include <vector>

#include "backend/cpu/limits.h"
#include "base/isa.h"
#include "check.h"

using namespace pllm;
using namespace pllm::cpu;

static void reads_all(Limits& limits, size_t pages) {
  std::vector<uint8_t> data(pages * kReadGrain);
  for (size_t i = 0; i < data.size(); i++) data[i] = uint8_t(i * 2654435761u >> 13);
  uint32_t want = 0;
  for (size_t i = 0; i < data.size(); i += 4) {
    uint32_t word;
    std::memcpy(&word, &data[i], 4);
    want += word;
  }
  for (int pattern = 0; pattern < kReadPatterns; pattern++) CHECK(limits.sum(pattern, data) == want);
}

int main() {
  for (const std::string& level : supported_levels()) {
    Limits one(level, 1), three(level, 3);
    for (const size_t pages : {1, 2, 7, 1500}) {
      reads_all(one, pages);
      reads_all(three, pages);
    }
    for (const PeakKind kind : {PeakKind::int8, PeakKind::f32, PeakKind::bf16}) {
      CHECK(one.count(kind, 0) == 0);
      CHECK(one.count(kind, 777) == 777 * one.count(kind, 1));
      CHECK(three.count(kind, 777) == 3 * one.count(kind, 777));
      CHECK(kind == PeakKind::bf16 || one.count(kind, 1) > 0);
    }
  }
  std::printf("%d failed\n", failures);
  return failures != 0;
}
