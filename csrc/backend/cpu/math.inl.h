// exp, tanh, sigmoid, erfc and GELU as our own polynomials: the same bits on every level with fused multiply-add.
//
// Written over the words of simd/<isa>.h and simd/<isa>_float.h; include one of each first. Coefficients are minimax
// fits of the exact functions, rounded to float32.
#pragma once

namespace pllm::cpu {
namespace {

SIMD_INLINE F abs(F x) { return as_float(and_(as_int(x), set32(0x7fffffff))); }
SIMD_INLINE F copysign(F magnitude, F sign) {
  return as_float(or_and(and_(as_int(magnitude), set32(0x7fffffff)), as_int(sign), set32(INT32_MIN)));
}
SIMD_INLINE F negate(F x) { return as_float(xor_(as_int(x), set32(INT32_MIN))); }

// Adding this rounds to an integer and leaves that integer in the low bits of the sum.
constexpr float kRound = 12582912.f;

SIMD_INLINE F pow2(F rounded) { return as_float(shr<-23>(add(as_int(rounded), set32(127)))); }  // 2^k of kRound + k

SIMD_INLINE F exp2m1(F f) {  // 2^f - 1 for |f| <= 1/2, relative error 1e-8 before rounding
  F p = setf(1.54035122e-04f);
  p = fma(p, f, setf(1.33907353e-03f));
  p = fma(p, f, setf(9.61823761e-03f));
  p = fma(p, f, setf(5.55035733e-02f));
  p = fma(p, f, setf(2.40226492e-01f));
  p = fma(p, f, setf(6.93147182e-01f));
  return mul(p, f);
}

// 2^x. Exactly 0 below -64, infinite from 127.5. For weights beside one of 1, where less never shows; but products of
// less would be denormal, and some CPUs take a hundred cycles for each.
SIMD_INLINE F exp2(F x) {
  x = min(setf(128.f), x);  // min and max hand on a NaN in their second operand
  const F t = add(x, setf(kRound)), f = sub(x, sub(t, setf(kRound)));
  return select(less(x, setf(-64.f)), setf(0.f), mul(add(exp2m1(f), setf(1.f)), pow2(t)));
}

struct Exp {
  F scale, minus1;  // e^x = scale (1 + minus1), scale a power of two
};
SIMD_INLINE Exp split_exp(F x) {
  const F t = add(mul(x, setf(1.44269502f)), setf(kRound)), k = sub(t, setf(kRound));
  const F f = fma(x, setf(1.92596299e-08f), fma(x, setf(1.44269502f), negate(k)));  // log2 e in two parts
  return {pow2(t), exp2m1(f)};
}

// e^x. Exactly 0 below -87.33 (2^-126).
SIMD_INLINE F exp(F x) {
  x = min(setf(88.722839f), x);
  const Exp e = split_exp(x);
  return select(less(x, setf(-87.3365448f)), setf(0.f), mul(add(e.minus1, setf(1.f)), e.scale));
}

SIMD_INLINE F tanh(F x) {  // -e / (2 + e) with e = e^(-2|x|) - 1, which keeps its digits near 0
  const Exp s = split_exp(max(setf(-80.f), mul(abs(x), setf(-2.f))));
  const F e = fma(s.scale, s.minus1, sub(s.scale, setf(1.f)));
  return copysign(div(e, add(e, setf(2.f))), x);
}

SIMD_INLINE F sigmoid(F x) {  // never an overflow, and every digit of the small side
  const F e = exp(negate(abs(x)));
  return div(select(less(x, setf(0.f)), e, setf(1.f)), add(e, setf(1.f)));
}

SIMD_INLINE F silu(F x) { return mul(x, sigmoid(x)); }

SIMD_INLINE F gelu_tanh(F x) {  // (1 + tanh y) / 2 = sigmoid(2 y), y = sqrt(2 / pi) (x + 0.044715 x^3)
  const F y = mul(x, fma(mul(x, x), setf(2 * 0.7978845608f * 0.044715f), setf(2 * 0.7978845608f)));
  return mul(x, sigmoid(y));
}

// x Phi(x) through erfc(z) = e^(-z z) r(q) / (1 + 2 z), z = |x| / sqrt 2, q = (z - 2) / (z + 2).
SIMD_INLINE F gelu_erf(F x) {
  const F z = mul(abs(x), setf(0.707106781f)), q = sub(setf(1.f), div(setf(4.f), add(z, setf(2.f))));
  F r = setf(-4.01715166e-04f);
  r = fma(r, q, setf(-1.23187713e-03f));
  r = fma(r, q, setf(1.31372246e-03f));
  r = fma(r, q, setf(8.63327086e-03f));
  r = fma(r, q, setf(-8.05959944e-03f));
  r = fma(r, q, setf(-5.42047098e-02f));
  r = fma(r, q, setf(1.64055273e-01f));
  r = fma(r, q, setf(-1.66031390e-01f));
  r = fma(r, q, setf(-9.27639753e-02f));
  r = fma(r, q, setf(1.27697837e+00f));
  const F gauss = exp(mul(mul(x, x), setf(-0.5f)));
  const F tail = mul(setf(0.5f), div(mul(r, gauss), fma(z, setf(2.f), setf(1.f))));
  return mul(x, select(less(x, setf(0.f)), tail, sub(setf(1.f), tail)));
}

}  // namespace
}  // namespace pllm::cpu
