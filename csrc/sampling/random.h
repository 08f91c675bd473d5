// Counter-based random numbers: Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2,
// 3", SC'11). No state: a draw depends on its key and counter alone, never on which draws came before.
#pragma once
#include <array>
#include <cstdint>

namespace pllm {

inline std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53} * counter[0];
    const uint64_t b = uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(b),
               static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(a)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

enum class Purpose : uint32_t { token = 0, xtc = 1 };

// The one random number of token `pos` of answer `choice` for one purpose: uniform in [0, 1), a multiple of 2^-53.
inline double uniform(uint64_t seed, uint32_t choice, uint64_t pos, Purpose purpose) {
  const auto r =
      philox4x32({static_cast<uint32_t>(pos), static_cast<uint32_t>(pos >> 32), choice, static_cast<uint32_t>(purpose)},
                 {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  return static_cast<double>((uint64_t{r[1]} << 32 | r[0]) >> 11) * 0x1p-53;
}

}  // namespace pllm
