// ke_math.h: branch-free single-precision functions for generated CPU kernels.
//
// Every function is a template over V, which is `float` or `ke::vf` (a vector of KE_WIDTH floats made with the
// compiler's vector extension). The scalar form has no branches and no library calls, so loops over it vectorise
// without -ffast-math; the vector form is explicit. Intrinsics are only
// used where the compiler has no portable form, behind guards: the header compiles on x86 and Arm.
//
// Accuracy (tests/agent/recipe/test_ke_math.py measures it against double precision): a few units in the last place
// over the whole range; NaN, infinities, overflow and subnormal results are right.
//
// Where the formulas come from: argument reduction x = n ln 2 + r and Cody-Waite splitting of ln 2 and pi/2
// (Cody & Waite, "Software Manual for the Elementary Functions", 1980); log1p's correction term (Kahan; also
// Goldberg, "What every computer scientist should know about floating-point arithmetic", theorem 4); tanh through
// expm1. All polynomial coefficients are Chebyshev fits made for this file: of (e^r - 1 - r) / r^2 on |r| < 0.35,
// of (log(1+f) - f + f^2/2) / f^3 on [sqrt(1/2), sqrt(2)] - 1, of erf(x)/x - 1 in x^2 on [0, 1], of log(erfc(t))/t
// on [1, 4.05], and of the sine and cosine remainders in x^2 on |x| < pi/4.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#ifdef __x86_64__
#include <immintrin.h>  // square root and non-temporal stores only; everything else is portable
#endif

#ifndef KE_WIDTH
#if defined(__AVX512F__)
#define KE_WIDTH 16
#elif defined(__AVX__)
#define KE_WIDTH 8
#else
#define KE_WIDTH 4
#endif
#endif

#define KE_INLINE inline __attribute__((always_inline))
#define KE_LAMBDA __attribute__((always_inline))

namespace ke {

constexpr int W = KE_WIDTH;
typedef float vf __attribute__((vector_size(KE_WIDTH * 4)));
typedef int32_t vi __attribute__((vector_size(KE_WIDTH * 4)));
typedef float vf_unaligned __attribute__((vector_size(KE_WIDTH * 4), aligned(4), may_alias));
typedef int32_t vi_unaligned __attribute__((vector_size(KE_WIDTH * 4), aligned(4), may_alias));

KE_INLINE int32_t bits(float x) { int32_t i; std::memcpy(&i, &x, 4); return i; }
KE_INLINE float from_bits(int32_t i) { float x; std::memcpy(&x, &i, 4); return x; }
KE_INLINE float to_float(int32_t i) { return static_cast<float>(i); }
KE_INLINE vi bits(vf x) { return reinterpret_cast<vi>(x); }
KE_INLINE vf from_bits(vi i) { return reinterpret_cast<vf>(i); }
KE_INLINE vf to_float(vi i) { return __builtin_convertvector(i, vf); }

template <class V> KE_INLINE V splat(float c) { return V{} + c; }
template <class V, class M> KE_INLINE V select(M m, V a, V b) { return m ? a : b; }
// Mask of a 0/1 byte or any integer; true is all ones in a vector mask and `true` in a scalar one.
template <class V> struct mask { typedef bool type; };
template <> struct mask<vf> { typedef vi type; };

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// torch.maximum/minimum/relu/clamp semantics: a NaN on either side gives NaN.
KE_INLINE float max(float a, float b) { return ((a > b) | (a != a)) ? a : b; }
KE_INLINE float min(float a, float b) { return ((a < b) | (a != a)) ? a : b; }
KE_INLINE vf max(vf a, vf b) { return ((a > b) | (a != a)) ? a : b; }
KE_INLINE vf min(vf a, vf b) { return ((a < b) | (a != a)) ? a : b; }

template <class V> KE_INLINE V abs(V x) { return from_bits(bits(x) & 0x7fffffff); }
template <class V> KE_INLINE V copysign(V x, V s) {
  return from_bits((bits(x) & 0x7fffffff) | (bits(s) & static_cast<int32_t>(0x80000000)));
}
KE_INLINE float sqrt(float x) { return __builtin_sqrtf(x); }
KE_INLINE vf sqrt(vf x) {
#if defined(__AVX512F__) && KE_WIDTH == 16
  return reinterpret_cast<vf>(_mm512_sqrt_ps(reinterpret_cast<__m512>(x)));
#elif defined(__AVX__) && KE_WIDTH == 8
  return reinterpret_cast<vf>(_mm256_sqrt_ps(reinterpret_cast<__m256>(x)));
#else
  for (int l = 0; l < W; ++l) x[l] = __builtin_sqrtf(x[l]);  // one instruction under -fno-math-errno
  return x;
#endif
}
template <class V> KE_INLINE V rsqrt(V x) { return 1.0f / sqrt(x); }

// Round to nearest even, for |x| < 2^22.
template <class V> KE_INLINE V round_small(V x) { return (x + 12582912.0f) - 12582912.0f; }
template <class V> KE_INLINE V round(V x) {
  V a = abs(x);
  V r = copysign(V((a + 8388608.0f) - 8388608.0f), x);  // from 2^23 on every float is whole
  return select(a < 8388608.0f, r, x);
}
template <class V> KE_INLINE V floor(V x) {
  V r = round(x);
  return select(r > x, V(r - 1.0f), r);
}
template <class V> KE_INLINE V ceil(V x) {
  V r = round(x);
  return select(r < x, copysign(V(r + 1.0f), x), r);
}
template <class V> KE_INLINE V trunc(V x) { return copysign(floor(abs(x)), x); }
// As torch.sign: the sign of NaN is 0.
template <class V> KE_INLINE V sign(V x) {
  V zero = splat<V>(0.0f), one = splat<V>(1.0f);
  return select(x > 0.0f, one, select(x < 0.0f, V(zero - one), zero));
}

// e^r - 1 = r + r^2 q(r) on |r| <= 0.35.
template <class V> KE_INLINE V expm1_reduced(V r) {
  V q = r * 0.00019900444f + 0.0013934545f;
  q = q * r + 0.00833329745f;
  q = q * r + 0.0416664556f;
  q = q * r + 0.166666672f;
  q = q * r + 0.5f;
  return q * (r * r) + r;
}

template <class V> KE_INLINE V exp(V x) {
  V c = select(x > 89.0f, splat<V>(89.0f), x);
  c = select(c < -104.0f, splat<V>(-104.0f), c);
  V t = c * 1.44269504f + 12582912.0f;
  V n = t - 12582912.0f;
  auto i = bits(t) - 0x4b400000;
  V r = n * -0.693145752f + c;  // ln 2 in two parts: the first has trailing zeros, so n * hi is exact
  r = n * -1.42860677e-6f + r;
  V p = expm1_reduced(r) + 1.0f;
  auto half = i >> 1;
  p = p * from_bits((half + 127) << 23);
  return p * from_bits((i - half + 127) << 23);
}

template <class V> KE_INLINE V expm1(V x) {
  V c = select(x > 89.0f, splat<V>(89.0f), x);
  c = select(c < -20.0f, splat<V>(-20.0f), c);
  V t = c * 1.44269504f + 12582912.0f;
  V n = t - 12582912.0f;
  auto i = bits(t) - 0x4b400000;
  V r = n * -0.693145752f + c;
  r = n * -1.42860677e-6f + r;
  V s = from_bits((i + 126) << 23);  // 2^(n-1): 2^128 itself would overflow
  V y = (s * expm1_reduced(r) + (s - 0.5f)) * 2.0f;
  return select(abs(x) < 1e-7f, x, y);  // keeps subnormals and the sign of zero
}

template <class V> KE_INLINE V log(V x) {
  auto tiny = x < 1.17549435e-38f;
  V y = select(tiny, V(x * 8388608.0f), x);
  auto b = bits(y) - 0x3f3504f3;  // mantissa in [sqrt(1/2), sqrt(2))
  V e = to_float(b >> 23) - select(tiny, splat<V>(23.0f), splat<V>(0.0f));
  V f = from_bits((b & 0x007fffff) + 0x3f3504f3) - 1.0f;
  V q = f * 0.0714975372f - 0.115712009f;
  q = q * f + 0.116615109f;
  q = q * f - 0.124110505f;
  q = q * f + 0.142499372f;
  q = q * f - 0.166684806f;
  q = q * f + 0.200007081f;
  q = q * f - 0.249999896f;
  q = q * f + 0.333333313f;
  V s = f * f;
  V r = q * f * s + e * 1.42860677e-6f;
  r = r - 0.5f * s;
  r = r + f;
  r = e * 0.693145752f + r;
  r = select(x == 0.0f, splat<V>(-kInf), r);
  r = select((x < 0.0f) | (x != x), splat<V>(kNaN), r);
  return select(x == kInf, x, r);
}
template <class V> KE_INLINE V log2(V x) { return log(x) * 1.44269504f; }
template <class V> KE_INLINE V log10(V x) { return log(x) * 0.434294482f; }
template <class V> KE_INLINE V exp2(V x) { return exp(V(x * 0.693147182f)); }

template <class V> KE_INLINE V log1p(V x) {
  V u = x + 1.0f;
  V r = log(u) + (x - (u - 1.0f)) / u;
  r = select((u == 0.0f) | (u == kInf), log(u), r);
  return select(abs(x) < 1e-7f, x, r);
}

template <class V> KE_INLINE V sigmoid(V x) { return 1.0f / (1.0f + exp(V(-x))); }

template <class V> KE_INLINE V tanh(V x) {
  V a = abs(x);
  V c = select(a > 10.0f, splat<V>(10.0f), a);
  V e = expm1(V(c + c));
  return copysign(V(e / (e + 2.0f)), x);
}

template <class V> KE_INLINE V erf(V x) {
  V t = abs(x);
  V s = x * x;
  V p = s * 7.88249745e-05f - 0.000801885501f;
  p = p * s + 0.00518931216f;
  p = p * s - 0.0268543288f;
  p = p * s + 0.112835974f;
  p = p * s - 0.37612626f;
  p = p * s + 0.128379166f;
  V inner = p * x + x;
  V c = select(t > 4.05f, splat<V>(4.05f), t);
  V q = c * 1.12122848e-06f - 3.57782301e-05f;
  q = q * c + 0.000509592181f;
  q = q * c - 0.00434898352f;
  q = q * c + 0.0252502095f;
  q = q * c - 0.108013175f;
  q = q * c - 0.634027898f;
  q = q * c - 1.1289407f;
  V outer = copysign(V(1.0f - exp(V(q * c))), x);
  return select(t < 1.0f, inner, outer);
}

template <class V> KE_INLINE V softplus(V x) { return max(x, splat<V>(0.0f)) + log1p(exp(V(-abs(x)))); }

// Sine and cosine; |x| beyond 8192 goes lane by lane to the C library, whose reduction is exact.
template <bool Cosine, class V> KE_INLINE V sin_reduced(V x) {
  V t = x * 0.636619772f + 12582912.0f;
  V n = t - 12582912.0f;
  auto quadrant = bits(t) + (Cosine ? 1 : 0);
  V r = n * -1.5703125f + x;  // pi/2 in three parts
  r = n * -4.83751297e-4f + r;
  r = n * -7.54978942e-8f + r;
  V s = r * r;
  V sine = ((s * -0.000195829241f + 0.00833272468f) * s - 0.166666642f) * s * r + r;
  V cosine = ((s * 2.45415067e-05f - 0.00138882757f) * s + 0.0416666642f) * s * s - 0.5f * s + 1.0f;
  V y = select((quadrant & 1) != 0, cosine, sine);
  return from_bits(bits(y) ^ ((quadrant & 2) << 30));
}
KE_INLINE float sin(float x) { return std::fabs(x) < 8192.0f ? sin_reduced<false>(x) : std::sin(x); }
KE_INLINE float cos(float x) { return std::fabs(x) < 8192.0f ? sin_reduced<true>(x) : std::cos(x); }
KE_INLINE bool any(vi m) {
  int32_t r = 0;
  for (int l = 0; l < W; ++l) r |= m[l];
  return r != 0;
}
KE_INLINE vf sin(vf x) {
  vf y = sin_reduced<false>(x);
  vi far = ~(abs(x) < 8192.0f);
  if (__builtin_expect(any(far), 0))
    for (int l = 0; l < W; ++l) y[l] = far[l] ? std::sin(x[l]) : y[l];
  return y;
}
KE_INLINE vf cos(vf x) {
  vf y = sin_reduced<true>(x);
  vi far = ~(abs(x) < 8192.0f);
  if (__builtin_expect(any(far), 0))
    for (int l = 0; l < W; ++l) y[l] = far[l] ? std::cos(x[l]) : y[l];
  return y;
}

// General powers go through the C library, lane by lane; code generators expand small constant exponents.
KE_INLINE float pow(float x, float y) { return std::pow(x, y); }
KE_INLINE vf pow(vf x, vf y) {
  for (int l = 0; l < W; ++l) x[l] = std::pow(x[l], y[l]);
  return x;
}

}  // namespace ke

template <class V> KE_INLINE V ke_exp(V x) { return ke::exp(x); }
template <class V> KE_INLINE V ke_expm1(V x) { return ke::expm1(x); }
template <class V> KE_INLINE V ke_log(V x) { return ke::log(x); }
template <class V> KE_INLINE V ke_log1p(V x) { return ke::log1p(x); }
template <class V> KE_INLINE V ke_tanh(V x) { return ke::tanh(x); }
template <class V> KE_INLINE V ke_erf(V x) { return ke::erf(x); }
template <class V> KE_INLINE V ke_sigmoid(V x) { return ke::sigmoid(x); }
template <class V> KE_INLINE V ke_softplus(V x) { return ke::softplus(x); }
template <class V> KE_INLINE V ke_sin(V x) { return ke::sin(x); }
template <class V> KE_INLINE V ke_cos(V x) { return ke::cos(x); }
template <class V> KE_INLINE V ke_pow(V x, V y) { return ke::pow(x, y); }
template <class V> KE_INLINE V ke_rsqrt(V x) { return ke::rsqrt(x); }
