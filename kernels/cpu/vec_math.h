/* vec_math.h - reciprocal, exp, log, tanh and the normal distribution's tail of sixteen floats at once.
 *
 * Minimax polynomials (relative error, fitted for this file) after the usual reductions. The bounds stated are those that
 * tests/test_vec_math.c holds them to, against libm in double; ulp is the spacing of floats at the result. NaN gives
 * NaN. */
#ifndef BATCHMARK_KERNELS_CPU_VEC_MATH_H
#define BATCHMARK_KERNELS_CPU_VEC_MATH_H

#include "vec.h"

#include <math.h>

/* a b + c, in one rounding where the machine can. (ISO C forbids the compiler to fuse by itself.) */
ALWAYS_INLINE VecF vec_fma(VecF a, VecF b, VecF c)
{
#ifdef __AVX512F__
    return (VecF)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#else
    return a * b + c;
#endif
}

/* yes[l] where the mask is all ones, no[l] where it is zero. */
ALWAYS_INLINE VecF vec_select(VecI mask, VecF yes, VecF no) { return (VecF)(((VecI)yes & mask) | ((VecI)no & ~mask)); }

/* a > b ? a : b, so that NaN in b stays. */
ALWAYS_INLINE VecF vec_max(VecF a, VecF b)
{
#ifdef __AVX512F__
    return (VecF)_mm512_max_ps((__m512)a, (__m512)b);
#else
    return vec_select(a > b, a, b);
#endif
}

/* a < b ? a : b, so that NaN in b stays. */
ALWAYS_INLINE VecF vec_min(VecF a, VecF b)
{
#ifdef __AVX512F__
    return (VecF)_mm512_min_ps((__m512)a, (__m512)b);
#else
    return vec_select(a < b, a, b);
#endif
}

/* 1 / v within 1 ulp, for |v| from 2^-100 to 2^100: an estimate of 14 bits and one of Newton's steps take a fraction of a
 * division's time. */
ALWAYS_INLINE VecF vec_reciprocal(VecF v)
{
#ifdef __AVX512F__
    VecF r = (VecF)_mm512_rcp14_ps((__m512)v);
    return vec_fma(r, vec_fma(-v, r, vec_set(1.0f)), r);
#else
    return 1.0f / v;
#endif
}

ALWAYS_INLINE VecF vec_abs(VecF v) { return (VecF)((VecI)v & 0x7fffffff); }

/* Lanes added pairwise: a fixed order. */
ALWAYS_INLINE float vec_sum(VecF v)
{
#ifdef __AVX512F__
    return _mm512_reduce_add_ps((__m512)v);
#else
    float f[LANES];
    vec_store_f32(f, v);
    for (int half = LANES / 2; half; half /= 2)
        for (int l = 0; l < half; l++)
            f[l] += f[l + half];
    return f[0];
#endif
}

/* e^x within 1.2 ulp; 0 below -87.7, where results would lose their precision anyway, and infinity above 88.3.
 * x = n ln 2 + r with |r| <= ln 2 / 2; ln 2 in two parts, of which n times the first is exact. */
ALWAYS_INLINE VecF vec_exp(VecF x)
{
    const VecF magic = vec_set(0x1.8p23f); /* adding it rounds to an integer, which then stands in the last bits */
    x = vec_min(vec_set(89.0f), vec_max(vec_set(-88.0f), x));
    VecF shifted = vec_fma(x, vec_set(0x1.715476p+0f), magic), n = shifted - magic;
    VecF r = vec_fma(n, vec_set(-0x1.7f7d1cp-20f), vec_fma(n, vec_set(-0x1.62e4p-1f), x));
    VecF p = vec_fma(vec_set(0.00138144649f), r, vec_set(0.00836878084f));
    p = vec_fma(p, r, vec_set(0.0416683927f));
    p = vec_fma(p, r, vec_set(0.166665196f));
    p = vec_fma(p, r, vec_set(0.49999994f));
    p = vec_fma(p, r * r, r) + 1.0f;
    VecI power = ((VecI)shifted - 0x4b400000 + 127) << 23;
    return p * (VecF)power;
}

/* Natural logarithm of normal positive numbers (2^-126 and above), within 1 ulp; 0 gives -infinity, what is negative NaN.
 * x = 2^n m with m in [sqrt(1/2), sqrt(2)); log(1 + f) = f - f^2 / 2 + f^3 P(f). */
ALWAYS_INLINE VecF vec_log(VecF x)
{
    const int32_t root = 0x3f3504f3; /* sqrt(1/2) */
    VecI n = ((VecI)x - root) >> 23;
    VecF f = (VecF)((VecI)x - (n << 23)) - 1.0f, e = __builtin_convertvector(n, VecF);
    VecF p = vec_fma(vec_set(-0.0763442963f), f, vec_set(0.127615497f));
    p = vec_fma(p, f, vec_set(-0.131601945f));
    p = vec_fma(p, f, vec_set(0.142017618f));
    p = vec_fma(p, f, vec_set(-0.166233569f));
    p = vec_fma(p, f, vec_set(0.200012267f));
    p = vec_fma(p, f, vec_set(-0.250008225f));
    p = vec_fma(p, f, vec_set(0.333333313f));
    VecF square = f * f;
    VecF low = vec_fma(e, vec_set(0x1.7f7d1cp-20f), vec_fma(square, vec_set(-0.5f), square * f * p));
    VecF y = vec_fma(e, vec_set(0x1.62e4p-1f), f + low);
    y = vec_select(x == INFINITY, x, y);
    y = vec_select(x == 0.0f, vec_set(-INFINITY), y);
    return vec_select(x >= 0.0f, y, vec_set(NAN));
}

/* tanh within 1.5 ulp: x + x^3 P(x^2) for small x, else 1 - 2 / (e^2|x| + 1). */
ALWAYS_INLINE VecF vec_tanh(VecF x)
{
    VecF a = vec_abs(x), s = x * x;
    VecF p = vec_fma(vec_set(-0.00570497848f), s, vec_set(0.0206390787f));
    p = vec_fma(p, s, vec_set(-0.0537397116f));
    p = vec_fma(p, s, vec_set(0.133314416f));
    p = vec_fma(p, s, vec_set(-0.333332807f));
    VecF small = vec_fma(p, s * x, x);
    VecF half = vec_min(vec_set(20.0f), a);
    VecF large = 1.0f - 2.0f * vec_reciprocal(vec_exp(half + half) + 1.0f);
    large = (VecF)((VecI)large | ((VecI)x & INT32_MIN));
    return vec_select(a < 0.625f, small, large);
}

/* The tail of the normal distribution, Phi(-z) = erfc(z / sqrt 2) / 2 for z >= 0, and, where asked for, the density
 * e^(-z^2 / 2) / sqrt(2 pi). Phi(-z) within 2^-22, the density within 2^-24; both within 2^-20 of themselves for z up to 5, since
 * rounding z^2 costs more the larger it is.
 * Phi(-z) = e^(-z^2 / 2) t P(t) with t = 1 / (1 + 0.35 z): without the exponential it is smooth. */
ALWAYS_INLINE VecF vec_normal_tail(VecF z, VecF *density)
{
    z = vec_min(vec_set(20.0f), z);
    VecF t = vec_reciprocal(vec_fma(z, vec_set(0.35f), vec_set(1.0f)));
    VecF e = vec_exp(-0.5f * z * z);
    VecF p = vec_fma(vec_set(-0.0291258711f), t, vec_set(0.143872261f));
    p = vec_fma(p, t, vec_set(-0.255504638f));
    p = vec_fma(p, t, vec_set(0.158929363f));
    p = vec_fma(p, t, vec_set(-0.0229371879f));
    p = vec_fma(p, t, vec_set(0.105432957f));
    p = vec_fma(p, t, vec_set(0.119852431f));
    p = vec_fma(p, t, vec_set(0.13985908f));
    p = vec_fma(p, t, vec_set(0.139621571f));
    if (density)
        *density = 0.3989422804f * e;
    return p * t * e;
}

#endif
