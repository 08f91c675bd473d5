// The smallest test harness that does the job: CHECK counts, main() returns 1 if any failed.
#pragma once
#include <cstdio>

inline int failures = 0;

#define CHECK(condition)                                                  \
  do {                                                                    \
    if (!(condition)) {                                                   \
      std::printf("%s:%d: failed: %s\n", __FILE__, __LINE__, #condition); \
      failures++;                                                         \
    }                                                                     \
  } while (0)
