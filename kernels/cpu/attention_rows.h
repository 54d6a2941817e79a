/* attention_rows.h - softmax and its gradient for one row of scores, and what attention's two ways of multiplying share. */
#ifndef BATCHMARK_KERNELS_CPU_ATTENTION_ROWS_H
#define BATCHMARK_KERNELS_CPU_ATTENTION_ROWS_H

#include "attention.h"
#include "vec.h"
#include "vec_math.h"

#include <float.h>
#include <math.h>

static inline int64_t round_up(int64_t n, int64_t step) { return (n + step - 1) / step * step; }

/* Hands out scratch in pieces that start at cache lines. From address 0 on, it adds up how much is needed. */
static inline void *scratch_take(uintptr_t *at, int64_t bytes)
{
    const uintptr_t piece = *at;
    *at = piece + (uintptr_t)round_up(bytes, 64);
    return (void *)piece;
}

/* Element i of q, k, .. */
static inline const void *head_element(const AttentionHead *h, const void *base, int64_t i)
{
    return (const char *)base + (size_t)i * (h->type == DTYPE_F32 ? 4 : 2);
}

/* Lanes of the vector at j that are columns. */
ALWAYS_INLINE int columns_at(int64_t n, int64_t j) { return n - j < LANES ? (int)(n - j) : LANES; }

/* Bit l: column j + l exists; and dropout keeps it in query row i. One call a 64 columns draws them. */
typedef struct KeepBits { uint64_t drawn; } KeepBits;

ALWAYS_INLINE uint32_t keep_bits(const AttentionHead *h, KeepBits *k, int64_t i, int64_t j)
{
    const int      lanes = columns_at(h->rows, j);
    const uint32_t exist = lanes == LANES ? 0xffffu : (1u << lanes) - 1u;
    if (!h->dropout)
        return exist;
    if (j % 64 == 0)
        k->drawn = dropout_keep64(h->dropout, h->mask_row + i, j);
    return exist & dropout_sixteen(k->drawn, j % 64);
}

ALWAYS_INLINE float dropout_scale(const AttentionHead *h) { return h->dropout ? h->dropout->scale : 1; }

ALWAYS_INLINE float vec_max_of(VecF v)
{
#ifdef __AVX512F__
    return _mm512_reduce_max_ps((__m512)v);
#else
    float m = v[0];
    for (int l = 1; l < LANES; l++)
        m = m > v[l] ? m : v[l];
    return m;
#endif
}

ALWAYS_INLINE float row_maximum(const float *s, int64_t n)
{
    VecF largest = vec_set(-FLT_MAX);
    int64_t j = 0;
    for (; j + LANES <= n; j += LANES)
        largest = vec_max(largest, vec_load_f32(s + j));
    float m = vec_max_of(largest);
    for (; j < n; j++)
        m = m > s[j] ? m : s[j];
    return m;
}

/* Row i of scores to keep e, sixteen at a time to to[j / 32 * block + j % 32] as type t, up to `padded` columns, a multiple
 * of 16; columns beyond n get 0. Returns the factor that is still missing, scale / sum e, and sets lse. */
ALWAYS_INLINE float softmax_row(const AttentionHead *h, int64_t i, const float *s, Dtype t, void *to, int64_t block, int64_t padded)
{
    const float largest = row_maximum(s, h->rows);
    const VecF  scale = vec_set(h->scale), shift = vec_set(-h->scale * largest);
    VecF     sum = vec_set(0);
    KeepBits keep = { 0 };
    for (int64_t j = 0; j < padded; j += LANES) {
        VecF e = vec_exp(vec_fma(vec_load_f32(s + j), scale, shift));
        if (j + LANES > h->rows)
            e = vec_keep(e, j < h->rows ? (1u << (h->rows - j)) - 1u : 0);
        sum += e;
        vec_store(t, to, j / 32 * block + j % 32, vec_keep(e, j < h->rows ? keep_bits(h, &keep, i, j) : 0));
    }
    const float total = vec_sum(sum);
    h->lse[i * h->lse_row] = h->scale * largest + logf(total);
    return dropout_scale(h) / total;
}

/* Sixteen lanes: keep p and ds from scores and dy v^T. */
typedef struct GradientLanes { VecF p, ds; } GradientLanes;

ALWAYS_INLINE GradientLanes gradient_lanes(VecF s, VecF dp, VecF scale, VecF lse, VecF delta, uint32_t exist, uint32_t keep)
{
    const VecF p = vec_keep(vec_exp(vec_fma(s, scale, -lse)), exist);
    return (GradientLanes){ vec_keep(p, keep), p * (vec_keep(dp, keep) - delta) };
}

/* (1 - rate) dy y^T of a row. */
ALWAYS_INLINE float row_delta(const AttentionHead *h, Dtype t, int64_t i)
{
    VecF sum = vec_set(0);
    for (int64_t d = 0; d < h->size; d += LANES) {
        const int lanes = columns_at(h->size, d);
        sum += vec_load_some(t, h->dy, i * h->y_row + d, lanes) * vec_load_some(t, h->y_made, i * h->y_row + d, lanes);
    }
    return vec_sum(sum) / dropout_scale(h);
}

#endif
