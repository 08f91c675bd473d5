// The blocks of the quantized GGUF formats, byte for byte as in the file (little endian, unaligned).
#pragma once
#include <cstdint>

#include "quant/formats.h"

namespace pllm {

using Half = uint8_t[2];  // IEEE half; bytes, so that blocks have no padding

struct BlockQ4_0 {
  Half d;
  uint8_t codes[16];  // low nibbles are weights 0..15, high nibbles 16..31
};
struct BlockQ4_1 {
  Half d, min;
  uint8_t codes[16];
};
struct BlockQ5_0 {
  Half d;
  uint8_t fifth[4];  // bit k belongs to weight k
  uint8_t codes[16];
};
struct BlockQ5_1 {
  Half d, min;
  uint8_t fifth[4];
  uint8_t codes[16];
};
struct BlockQ8_0 {
  Half d;
  int8_t codes[32];
};
struct BlockQ2_K {
  uint8_t scales[16];  // of 16 weights each: scale in the low nibble, min in the high
  uint8_t codes[64];   // for each 128 weights: bits 2j, 2j + 1 of byte i are weight 32 j + i
  Half d, dmin;
};
struct BlockQ3_K {
  uint8_t third[32];   // bit j of byte i: third bit of weight 32 j + i
  uint8_t codes[64];   // as in Q2_K
  uint8_t scales[12];  // of 16 weights each: 6 bits with offset 32, nibbles in bytes 0..7, upper bits in 8..11
  Half d;
};
struct BlockQ4_K {
  Half d, dmin;
  uint8_t scales[12];  // of 32 weights each: 6-bit scales and mins
  uint8_t codes[128];  // for each 64 weights: low nibbles of 32 bytes, then high
};
struct BlockQ5_K {
  Half d, dmin;
  uint8_t scales[12];
  uint8_t fifth[32];  // bit j of byte i: fifth bit of weight 32 j + i
  uint8_t codes[128];
};
struct BlockQ6_K {
  uint8_t low[128];  // for each 128 weights 64 bytes: low nibbles, then high
  uint8_t high[64];  // for each 128 weights 32 bytes: bits 2j, 2j + 1 of byte i belong to weight 32 j + i
  int8_t scales[16];
  Half d;
};
struct BlockIQ4_NL {
  Half d;
  uint8_t codes[16];  // indices of kIq4Values, as in Q4_0
};
struct BlockIQ4_XS {
  Half d;
  uint8_t scales_high[2];  // of 32 weights each: 6 bits with offset 32
  uint8_t scales_low[4];
  uint8_t codes[128];  // for each 32 weights 16 bytes, as in IQ4_NL
};
struct BlockMXFP4 {
  uint8_t e;          // scale 2^(e - 128)
  uint8_t codes[16];  // indices of kMxfp4Values, as in Q4_0
};

#define SAME_SIZE(f) static_assert(sizeof(Block##f) == info(Format::f).block_bytes && alignof(Block##f) == 1);
SAME_SIZE(Q4_0)
SAME_SIZE(Q4_1)
SAME_SIZE(Q5_0)
SAME_SIZE(Q5_1)
SAME_SIZE(Q8_0)
SAME_SIZE(Q2_K)
SAME_SIZE(Q3_K)
SAME_SIZE(Q4_K)
SAME_SIZE(Q5_K)
SAME_SIZE(Q6_K)
SAME_SIZE(IQ4_NL)
SAME_SIZE(IQ4_XS)
SAME_SIZE(MXFP4)
#undef SAME_SIZE

inline constexpr int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
inline constexpr int8_t kMxfp4Values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};  // doubled

}  // namespace pllm
