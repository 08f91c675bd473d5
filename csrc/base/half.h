// IEEE half, bfloat16 and E8M0 to and from float, scalar. The exact meaning; kernels use the ISA's own conversions.
#pragma once
#include <bit>
#include <cstdint>

namespace pllm {

inline float half_to_float(uint16_t h) {
  const uint32_t sign = uint32_t(h & 0x8000u) << 16, exponent = h >> 10 & 31u, mantissa = h & 0x3ffu;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | mantissa << 13);  // inf, nan
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112u) << 23 | mantissa << 13);
  const float magnitude = float(mantissa) * 0x1p-24f;  // zero and denormals, exact
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
}

// Round to nearest even; beyond 65504 gives inf, as the hardware does.
inline uint16_t float_to_half(float f) {
  const uint32_t bits = std::bit_cast<uint32_t>(f), sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return uint16_t(sign | 0x7e00u);
  if (magnitude >= 0x477ff000u) return uint16_t(sign | 0x7c00u);
  if (magnitude >= 0x38800000u) {
    const uint32_t rounded = magnitude + 0xfffu + (magnitude >> 13 & 1u);
    return uint16_t(sign | (rounded - 0x38000000u) >> 13);
  }
  // Adding 0.5 leaves the value in units of 2^-24 in the low mantissa bits, rounded to even by the adder.
  const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
  return uint16_t(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000u));
}

inline float bf16_to_float(uint16_t b) { return std::bit_cast<float>(uint32_t(b) << 16); }

}  // namespace pllm
