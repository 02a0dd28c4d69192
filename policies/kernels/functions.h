// Elementary functions of eight numbers at a time. NaN stays NaN. The polynomials come from Cephes (Moshier,
// https://www.netlib.org/cephes, expf.c, logf.c and tanhf.c); relative errors are below 2e-7.
#pragma once

#include "vectors.h"

namespace minding {

ALWAYS_INLINE Float8 magnitude(Float8 x) { return where(x < 0.0f, -x, x); }

// e^x for |x| <= 87.
ALWAYS_INLINE Float8 exponential(Float8 x) {
  const Float8 rounder = Float8{} + 12582912.0f;
  Float8 power = (x * 1.44269504088896341f + rounder) - rounder;
  x = x - power * 0.693359375f + power * 2.12194440e-4f;
  Float8 y = Float8{} + 1.9875691500e-4f;
  y = y * x + 1.3981999507e-3f;
  y = y * x + 8.3334519073e-3f;
  y = y * x + 4.1665795894e-2f;
  y = y * x + 1.6666665459e-1f;
  y = y * x + 5.0000001201e-1f;
  y = y * x * x + x + 1.0f;
  Int8 exponent = (__builtin_convertvector(power, Int8) + 127) << 23;
  return y * reinterpret_cast<Float8&>(exponent);
}

// e^x for any x: 0 below -87, infinite above 88.
ALWAYS_INLINE Float8 any_exponential(Float8 x) {
  const Float8 small = Float8{}, large = Float8{} + __builtin_inff();
  Float8 y = exponential(bounded(x, -87.0f, 88.0f));
  return where(x < -87.0f, small, where(x > 88.0f, large, y));
}

// log(1 + x) for 0 <= x <= 1.
ALWAYS_INLINE Float8 log_of_one_plus(Float8 x) {
  // Above sqrt(2) - 1, the logarithm of the half is computed: (1 + x) / 2 = 1 + f.
  Int8 halved = x > 0.41421356f;
  Float8 f = where(halved, 0.5f * x - 0.5f, x), z = f * f;
  Float8 y = Float8{} + 7.0376836292e-2f;
  y = y * f - 1.1514610310e-1f;
  y = y * f + 1.1676998740e-1f;
  y = y * f - 1.2420140846e-1f;
  y = y * f + 1.4249322787e-1f;
  y = y * f - 1.6668057665e-1f;
  y = y * f + 2.0000714765e-1f;
  y = y * f - 2.4999993993e-1f;
  y = y * f + 3.3333331174e-1f;
  y = y * f * z - 0.5f * z + f;
  return where(halved, y + 0.69314718056f, y);
}

// log(x) for x >= 2^-126, finite.
ALWAYS_INLINE Float8 logarithm(Float8 x) {
  // x = 2^exponent (1 + f) with 0 <= f < 1.
  Int8 bits = (Int8)x;
  Float8 exponent = __builtin_convertvector((bits >> 23) - 127, Float8);
  Float8 scaled = (Float8)((bits & 0x7fffff) | (127 << 23));
  Float8 y = exponent * 0.69314718056f + log_of_one_plus(scaled - 1.0f);
  return where(x != x, x, y);
}

ALWAYS_INLINE Float8 hyperbolic_tangent(Float8 x) {
  Float8 size = magnitude(x);
  // In float32, tanh is 1 above 10. NaN passes.
  Float8 e = exponential(where(size > 10.0f, Float8{} + 20.0f, 2.0f * size));
  Float8 large = 1.0f - 2.0f / (e + 1.0f);
  large = where(x < 0.0f, -large, large);
  Float8 z = x * x;
  Float8 y = Float8{} - 5.70498872745e-3f;
  y = y * z + 2.06390887954e-2f;
  y = y * z - 5.37397155531e-2f;
  y = y * z + 1.33314422036e-1f;
  y = y * z - 3.33332819422e-1f;
  return where(size < 0.625f, y * z * x + x, large);
}

ALWAYS_INLINE Float8 sigmoid(Float8 x) { return 0.5f * hyperbolic_tangent(0.5f * x) + 0.5f; }

}  // namespace minding
