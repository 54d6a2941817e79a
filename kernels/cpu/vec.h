/* vec.h - sixteen floats at a time: loads and stores of f32 and bf16, bit masks; the width of one nChw16c block.
 *
 * GCC vector extensions, so the compiler lowers them to whatever the target has; intrinsics only where AVX-512 has an
 * instruction that the extension cannot express or the compiler does not find. Pass the type as a constant: the branch on it
 * then folds away. */
#ifndef BATCHMARK_KERNELS_CPU_VEC_H
#define BATCHMARK_KERNELS_CPU_VEC_H

#include "../tensor.h"

#include <string.h>
#ifdef __AVX512F__
#include <immintrin.h>
#endif

/* Only inlined functions here pass vectors, so the ABI that this warns of is never used. */
#pragma GCC diagnostic ignored "-Wpsabi"

#define ALWAYS_INLINE static inline __attribute__((always_inline))

enum { LANES = 16 };

typedef float    VecF __attribute__((vector_size(64)));
typedef int32_t  VecI __attribute__((vector_size(64)));
typedef uint32_t VecU __attribute__((vector_size(64)));
typedef uint16_t VecH __attribute__((vector_size(32)));
typedef uint8_t  VecB __attribute__((vector_size(16)));

/* Subtracting 0 changes nothing, not even the sign of 0, so what is left is a broadcast. */
ALWAYS_INLINE VecF vec_set(float f) { return f - (VecF){ 0 }; }

ALWAYS_INLINE VecF vec_load_f32(const float *p)
{
    VecF v;
    memcpy(&v, p, sizeof v);
    return v;
}

ALWAYS_INLINE void vec_store_f32(float *p, VecF v) { memcpy(p, &v, sizeof v); }

ALWAYS_INLINE VecF vec_from_bf16(VecH h)
{
#ifdef __AVX512F__
    return (VecF)_mm512_slli_epi32(_mm512_cvtepu16_epi32((__m256i)h), 16); /* gcc 12 makes five instructions of the first step */
#else
    return (VecF)(__builtin_convertvector(h, VecU) << 16);
#endif
}

/* As bf16_from_f32: round to nearest even, NaN kept quiet. (The instruction also makes results below 2^-126 zero.) */
ALWAYS_INLINE VecH vec_to_bf16(VecF f)
{
#ifdef __AVX512BF16__
    return (VecH)_mm512_cvtneps_pbh((__m512)f);
#else
    VecU u = (VecU)f;
    VecU rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
    VecU quiet = (u >> 16) | 0x40u;
    VecU nan = (VecU)(f != f);
    return __builtin_convertvector((rounded & ~nan) | (quiet & nan), VecH);
#endif
}

/* Elements of type t, f32 or bf16: sixteen from element i on. */
ALWAYS_INLINE VecF vec_load(Dtype t, const void *base, int64_t i)
{
    if (t == DTYPE_F32)
        return vec_load_f32((const float *)base + i);
    VecH h;
    memcpy(&h, (const uint16_t *)base + i, sizeof h);
    return vec_from_bf16(h);
}

ALWAYS_INLINE void vec_store(Dtype t, void *base, int64_t i, VecF v)
{
    if (t == DTYPE_F32) {
        vec_store_f32((float *)base + i, v);
    } else {
        VecH h = vec_to_bf16(v);
        memcpy((uint16_t *)base + i, &h, sizeof h);
    }
}

/* One element. */
ALWAYS_INLINE float element_load(Dtype t, const void *base, int64_t i)
{
    return t == DTYPE_F32 ? ((const float *)base)[i] : bf16_to_f32(((const uint16_t *)base)[i]);
}

ALWAYS_INLINE void element_store(Dtype t, void *base, int64_t i, float f)
{
    if (t == DTYPE_F32)
        ((float *)base)[i] = f;
    else
        ((uint16_t *)base)[i] = bf16_from_f32(f);
}

/* Lanes of the next block where n elements are left. */
ALWAYS_INLINE int vec_lanes(int64_t n) { return n < LANES ? (int)n : LANES; }

/* The statements for each block of the elements j = first .. end - 1; lanes is a constant but in the last block. */
#define FOR_BLOCKS(j, first, end, lanes, ...)                 \
    do {                                                      \
        int64_t j = (first);                                  \
        for (; j + LANES <= (end); j += LANES) {              \
            const int lanes = LANES;                          \
            __VA_ARGS__                                       \
        }                                                     \
        if (j < (end)) {                                      \
            const int lanes = vec_lanes((end) - j);           \
            __VA_ARGS__                                       \
        }                                                     \
    } while (0)

/* The first `lanes` of a block; the missing ones load as 0. */
ALWAYS_INLINE VecF vec_load_some(Dtype t, const void *base, int64_t i, int lanes)
{
    if (lanes == LANES)
        return vec_load(t, base, i);
    float f[LANES] = { 0 };
    for (int l = 0; l < lanes; l++)
        f[l] = element_load(t, base, i + l);
    return vec_load_f32(f);
}

ALWAYS_INLINE void vec_store_some(Dtype t, void *base, int64_t i, VecF v, int lanes)
{
    if (lanes == LANES) {
        vec_store(t, base, i, v);
        return;
    }
    for (int l = 0; l < lanes; l++)
        element_store(t, base, i + l, v[l]);
}

/* Bit l is set where v[l] > 0. */
ALWAYS_INLINE uint32_t vec_positive(VecF v)
{
#ifdef __AVX512F__
    return _mm512_cmp_ps_mask((__m512)v, _mm512_setzero_ps(), _CMP_GT_OQ);
#else
    uint32_t bits = 0;
    for (int l = 0; l < LANES; l++)
        bits |= (uint32_t)(v[l] > 0) << l;
    return bits;
#endif
}

/* v[l] where bit l is set, else 0. */
ALWAYS_INLINE VecF vec_keep(VecF v, uint32_t bits)
{
#ifdef __AVX512F__
    return (VecF)_mm512_maskz_mov_ps((__mmask16)bits, (__m512)v);
#else
    const VecU lane = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 };
    VecU wanted = ((VecU){ 0 } + bits) >> lane & 1u;
    return (VecF)((VecU)v & -wanted);
#endif
}

/* max(v, 0) that lets NaN through. */
ALWAYS_INLINE VecF vec_relu(VecF v) { return (VecF)((VecI)v & ~(v < 0.0f)); }

/* Bits i .. i+lanes-1 of a bit tensor. With whole blocks only, i is a multiple of 16 and they are one aligned u16. */
ALWAYS_INLINE uint32_t bits_load(const void *base, int64_t i, int lanes, bool whole)
{
    if (whole) {
        uint16_t h;
        memcpy(&h, (const uint8_t *)base + i / 8, sizeof h);
        return h;
    }
    uint32_t bits = 0;
    for (int l = 0; l < lanes; l++)
        bits |= (uint32_t)(((const uint8_t *)base)[(i + l) / 8] >> ((i + l) % 8) & 1) << l;
    return bits;
}

ALWAYS_INLINE void bits_store(void *base, int64_t i, uint32_t bits, int lanes, bool whole)
{
    if (whole) {
        uint16_t h = (uint16_t)bits;
        memcpy((uint8_t *)base + i / 8, &h, sizeof h);
        return;
    }
    for (int l = 0; l < lanes; l++) {
        uint8_t *byte = (uint8_t *)base + (i + l) / 8;
        int      shift = (int)((i + l) % 8);
        *byte = (uint8_t)((*byte & ~(1u << shift)) | (bits >> l & 1u) << shift);
    }
}

#endif
