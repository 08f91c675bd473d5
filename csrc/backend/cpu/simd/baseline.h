// The words without intrinsics: compiler vector extensions, on any CPU. No fused multiply-add, so the last bits of
// float results may differ from the other levels; integers are the same.
#pragma once
#include <bit>
#include <cstdint>
#include <cstring>

#define SIMD_INLINE static inline __attribute__((always_inline))

#ifndef SIMD_BYTES
#define SIMD_BYTES 64  // of a register; the compiler splits it into what the CPU has
#endif

namespace pllm::cpu {
namespace {  // one copy an instruction set: the linker must never merge two

typedef int32_t I __attribute__((vector_size(SIMD_BYTES)));  // bytes, int16 or int32
typedef float F __attribute__((vector_size(SIMD_BYTES)));    // float32
constexpr int kLanes = SIMD_BYTES / 4;
typedef uint32_t U32 __attribute__((vector_size(SIMD_BYTES)));
typedef int16_t I16 __attribute__((vector_size(SIMD_BYTES)));
typedef int8_t I8 __attribute__((vector_size(SIMD_BYTES)));

// ---- float words
SIMD_INLINE F setf(float v) { return v - F{}; }
SIMD_INLINE F loadf(const float* p) {
  F v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
SIMD_INLINE void storef(float* p, F v) { std::memcpy(p, &v, sizeof v); }
SIMD_INLINE F add(F a, F b) { return a + b; }
SIMD_INLINE F sub(F a, F b) { return a - b; }
SIMD_INLINE F mul(F a, F b) { return a * b; }
SIMD_INLINE F div(F a, F b) { return a / b; }
SIMD_INLINE F max(F a, F b) { return a > b ? a : b; }
SIMD_INLINE F min(F a, F b) { return a < b ? a : b; }
SIMD_INLINE F fma(F a, F b, F c) { return a * b + c; }
SIMD_INLINE F fnma(F a, F b, F c) { return c - a * b; }
SIMD_INLINE F to_float(I a) { return __builtin_convertvector(a, F); }

// ---- integer words
constexpr int kTokens = 4;    // most tokens of one tile
constexpr int kTileSums = 8;  // registers for sums while a panel is read once
#define SIMD_DP 1
SIMD_INLINE I set32(int32_t v) { return v - I{}; }
SIMD_INLINE I set16(int v) { return set32(int32_t(uint32_t(v & 0xffff) * 0x10001u)); }
SIMD_INLINE I set8(int v) { return set32(int32_t(uint32_t(v & 0xff) * 0x01010101u)); }
SIMD_INLINE I load(const void* p) {
  I v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
SIMD_INLINE void storei(void* p, I a) { std::memcpy(p, &a, sizeof a); }
SIMD_INLINE I load_bytes(const void* p) {
  typedef uint8_t Bytes __attribute__((vector_size(SIMD_BYTES / 4)));
  Bytes v;
  std::memcpy(&v, p, sizeof v);
  return __builtin_convertvector(v, I);
}
SIMD_INLINE void store_bytes(void* p, I a) {  // the low byte of each int32
  typedef int8_t Bytes __attribute__((vector_size(SIMD_BYTES / 4)));
  const Bytes v = __builtin_convertvector(a, Bytes);
  std::memcpy(p, &v, sizeof v);
}
SIMD_INLINE I load_int8(const void* p) {  // as int16
  typedef int8_t Bytes __attribute__((vector_size(SIMD_BYTES / 2)));
  Bytes v;
  std::memcpy(&v, p, sizeof v);
  return (I) __builtin_convertvector(v, I16);
}
SIMD_INLINE void store_int16(void* p, I a) {  // the low half of each int32
  typedef int16_t Halves __attribute__((vector_size(SIMD_BYTES / 2)));
  const Halves v = __builtin_convertvector(a, Halves);
  std::memcpy(p, &v, sizeof v);
}
SIMD_INLINE I and_(I a, I b) { return a & b; }
SIMD_INLINE I or_(I a, I b) { return a | b; }
SIMD_INLINE I xor_(I a, I b) { return a ^ b; }
SIMD_INLINE I or_and(I a, I b, I m) { return a | (b & m); }
SIMD_INLINE I add(I a, I b) { return (I)((U32)a + (U32)b); }  // wraps, as instructions do
SIMD_INLINE I sub(I a, I b) { return (I)((U32)a - (U32)b); }
SIMD_INLINE I mul(I a, I b) { return (I)((U32)a * (U32)b); }
SIMD_INLINE I max(I a, I b) { return a > b ? a : b; }
SIMD_INLINE int32_t largest(I a) {
  int32_t v = a[0];
  for (int i = 1; i < kLanes; i++) v = a[i] > v ? a[i] : v;
  return v;
}
SIMD_INLINE I sub8(I a, I b) { return (I)((I8)a - (I8)b); }
template <int N>
SIMD_INLINE I shr(I a) {  // int32, unsigned; N < 0 shifts left
  if constexpr (N > 0)
    return (I)((U32)a >> N);
  else
    return (I)((U32)a << -N);
}
template <int N>
SIMD_INLINE I sar(I a) {
  return a >> N;
}
SIMD_INLINE I low16(I a) { return sar<16>(shr<-16>(a)); }
SIMD_INLINE I madd16(I acc, I a, I b) { return add(add(acc, mul(low16(a), low16(b))), mul(sar<16>(a), sar<16>(b))); }
// Even and odd bytes: a product of an unsigned byte and one within +-127 fits int16.
SIMD_INLINE I dp(I acc, I u, I s) {
  const I16 even = (I16)(u & set16(255)) * (((I16)s << 8) >> 8), odd = (I16)and_(shr<8>(u), set16(255)) * ((I16)s >> 8);
  return acc + low16((I)even) + sar<16>((I)even) + low16((I)odd) + sar<16>((I)odd);
}
SIMD_INLINE I table16(const void* p) {
  I v;
  for (int i = 0; i < SIMD_BYTES; i += 16) std::memcpy((char*)&v + i, p, 16);
  return v;
}
SIMD_INLINE I lookup(I table, I codes) {  // codes 0..15
  I8 out;
  const I8 t = (I8)table, c = (I8)codes;
  for (int i = 0; i < SIMD_BYTES; i++) out[i] = t[c[i]];
  return (I)out;
}
SIMD_INLINE I high_nibbles(I a) { return and_(shr<4>(a), set8(15)); }
SIMD_INLINE F as_float(I a) { return (F)a; }
SIMD_INLINE I as_int(F a) { return (I)a; }
SIMD_INLINE F low_half(I a) {  // the f16 in the low 16 bits of each int32
  const I magnitude = a & set32(0x7fff);
  const F finite = as_float(shr<-13>(magnitude)) * 0x1p112f;  // exact, denormals too
  const I special = or_(shr<-13>(magnitude), set32(0x7f800000));
  const I bits = magnitude >= 0x7c00 ? special : as_int(finite);
  return as_float(or_(bits, shr<-16>(a & set32(0x8000))));
}
SIMD_INLINE F load_half(const void* p) {
  typedef uint16_t Halves __attribute__((vector_size(SIMD_BYTES / 2)));
  Halves v;
  std::memcpy(&v, p, sizeof v);
  return low_half(__builtin_convertvector(v, I));
}
SIMD_INLINE F load_bf16(const void* p) {
  typedef uint16_t Halves __attribute__((vector_size(SIMD_BYTES / 2)));
  Halves v;
  std::memcpy(&v, p, sizeof v);
  return as_float(shr<-16>(__builtin_convertvector(v, I)));
}

}  // namespace
}  // namespace pllm::cpu
