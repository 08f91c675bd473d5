// exp, log, sine and cosine in double, made of +, -, *, / alone: the same bits on every machine, which libm does not
// promise.
#pragma once
#include <bit>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <utility>

namespace pllm {

// e^x for x <= 0, within 2 ulp; 0 below -708.7, where normal doubles end. Branch-free, so loops over it vectorize;
// always inlined, as it is compiled for several instruction-set levels and none may be taken for another.
[[gnu::always_inline]] inline double exp_nonpositive(double x) {
  constexpr double kRound = 0x1.8p52;  // adding it leaves the nearest integer in the low mantissa bits
  constexpr double kLn2Hi = 0x1.62e42feep-1, kLn2Lo = 0x1.a39ef35793c76p-33;
  const double clamped = x < -709.0 ? -709.0 : x;  // there n + 1023 is 0, and so is the power below
  const double t = clamped * std::numbers::log2e + kRound;
  const double n = t - kRound;
  const double r = clamped - n * kLn2Hi - n * kLn2Lo;  // |r| <= ln(2)/2: 14 terms of the series reach 2^-57
  double p = 1.0 / 6227020800;
  p = p * r + 1.0 / 479001600;
  p = p * r + 1.0 / 39916800;
  p = p * r + 1.0 / 3628800;
  p = p * r + 1.0 / 362880;
  p = p * r + 1.0 / 40320;
  p = p * r + 1.0 / 5040;
  p = p * r + 1.0 / 720;
  p = p * r + 1.0 / 120;
  p = p * r + 1.0 / 24;
  p = p * r + 1.0 / 6;
  p = p * r + 0.5;
  p = p * r + 1.0;
  p = p * r + 1.0;
  const double power = std::bit_cast<double>((std::bit_cast<uint64_t>(t) + 1023) << 52);
  return p * power;
}

// ln x for normal x > 0, within 3e-16 (1 + |ln x|): Halley's iteration on e^y = x.
inline double natural_log(double x) {
  int exponent;
  const double m = std::frexp(x, &exponent);  // x = m * 2^exponent, 1/2 <= m < 1
  double y = 2 * (m - 1) / (m + 1);           // ln m within 0.03; each iteration cubes the error
  for (int i = 0; i < 3; ++i) {
    const double e = exp_nonpositive(y);
    y += 2 * (m - e) / (m + e);
  }
  return y + exponent * std::numbers::ln2;
}

// e^x; +infinity where a double does not reach.
inline double exponential(double x) { return x <= 0 ? exp_nonpositive(x) : 1 / exp_nonpositive(-x); }

struct SinCos {
  double sin, cos;
};
// Of an angle, within 2^-51 up to 2^20; precision is lost slowly beyond.
inline SinCos sin_cos(double x) {
  constexpr double kRound = 0x1.8p52;
  constexpr double kA = 0x1.921fb544p+0, kB = 0x1.0b4611a6p-34, kC = 0x1.3198a2e037073p-69;  // pi / 2 in parts
  const double t = x * (2 / std::numbers::pi) + kRound, n = t - kRound;
  const double r = x - n * kA - n * kB - n * kC, q = r * r;  // |r| <= pi / 4; n kA and n kB are exact
  double s = 1.0 / 355687428096000;
  s = 1.0 / -1307674368000 + s * q;
  s = 1.0 / 6227020800 + s * q;
  s = 1.0 / -39916800 + s * q;
  s = 1.0 / 362880 + s * q;
  s = 1.0 / -5040 + s * q;
  s = 1.0 / 120 + s * q;
  s = 1.0 / -6 + s * q;
  s = r + r * (q * s);
  double c = 1.0 / 20922789888000;
  c = 1.0 / -87178291200 + c * q;
  c = 1.0 / 479001600 + c * q;
  c = 1.0 / -3628800 + c * q;
  c = 1.0 / 40320 + c * q;
  c = 1.0 / -720 + c * q;
  c = 1.0 / 24 + c * q;
  c = 1 - (q * 0.5 - q * q * c);
  const auto quarter = std::bit_cast<uint64_t>(t) & 3;
  if (quarter & 1) std::swap(s, c);
  return {quarter & 2 ? -s : s, (quarter + 1) & 2 ? -c : c};
}

// x^y for x >= 0 (0^0 = 1).
inline double power(double x, double y) {
  if (y == 0) return 1;
  return x == 0 ? 0.0 : exponential(y * natural_log(x));
}

}  // namespace pllm
