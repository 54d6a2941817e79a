/* vec_log.h - log(1 + x) and exp(-x) of sixteen floats, x >= 0: what losses are made of. NaN passes through both. */
#ifndef BATCHMARK_KERNELS_CPU_VEC_LOG_H
#define BATCHMARK_KERNELS_CPU_VEC_LOG_H

#include "vec.h"

/* exp(x) for x <= 0: 2^k exp(r), |r| <= ln 2 / 2, by the Taylor series to r^7 / 7! (the next term is below 2^-27); below the
 * least normal number 0. */
ALWAYS_INLINE VecF vec_exp_negative(VecF x)
{
    const VecF k = (x * 0x1.715476p+0f + 0x1.8p23f) - 0x1.8p23f; /* x / ln 2 to the nearest integer */
    const VecF r = (x - k * 0x1.62ep-1f) - k * 0x1.0bfbe8p-15f;  /* ln 2 in two parts, k times the first is exact */
    VecF y = vec_set(1.0f / 5040);
    y = y * r + 1.0f / 720;
    y = y * r + 1.0f / 120;
    y = y * r + 1.0f / 24;
    y = y * r + 1.0f / 6;
    y = y * r + 0.5f;
    y = y * r + 1.0f;
    y = y * r + 1.0f;
    const VecI below = x < -87.0f;
    const VecI power = (__builtin_convertvector((VecF)((VecI)k & ~below), VecI) + 127) << 23;
    return (VecF)((VecI)(y * (VecF)power) & ~below);
}

/* log(1 + x) for x >= 0 = log m + k ln 2, 1 + x = m 2^k, sqrt(1/2) <= m < sqrt 2; log m = 2 atanh(s), s = (m - 1) / (m + 1), by its
 * series (the term in s^11 is below 2^-28 of the sum). Where k = 0, m - 1 is x itself: nothing small is lost beside 1. */
ALWAYS_INLINE VecF vec_log1p(VecF x)
{
    const VecF u = 1.0f + x;
    const VecI k = ((VecI)u - 0x3f3504f3) >> 23; /* from sqrt(1/2) on */
    const VecF m = (VecF)((VecI)u - (k << 23));
    const VecI same = k == 0;
    const VecF f = (VecF)(((VecI)x & same) | ((VecI)(m - 1.0f) & ~same));
    const VecF s = f / (2.0f + f), t = s * s;
    const VecF series = 1.0f + t * (1.0f / 3 + t * (1.0f / 5 + t * (1.0f / 7 + t * (1.0f / 9))));
    const VecF y = 2.0f * s * series + __builtin_convertvector(k, VecF) * 0x1.62e43p-1f;
    const VecI finite = x < __builtin_inff();
    return (VecF)(((VecI)y & finite) | ((VecI)x & ~finite)); /* infinity and NaN */
}

#endif
