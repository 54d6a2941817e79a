/* amx_pack.h - bf16 matrices copied into tiles of 1 KiB, for products on AMX tiles.
 *
 * The left factor's tile is 16 rows by 32 terms, the right one's 16 pairs of terms by 16 columns. Where memory holds rows of
 * features, `row` elements apart, of which `rows` exist (what is missing becomes 0):
 *   rows          left, terms = features        rows turned    right, terms = features, columns = rows
 *   pairs         right, terms = rows           pairs turned   left, terms = rows, rows = features */
#ifndef BATCHMARK_KERNELS_CPU_AMX_PACK_H
#define BATCHMARK_KERNELS_CPU_AMX_PACK_H

#include "amx.h"
#include "transpose.h"

#include <stdbool.h>

enum { AMX_TILE = AMX_BLOCK * AMX_STEP }; /* elements */

#if HAVE_AMX

/* Element i of a matrix of bf16, or, if `wide`, of f32 that is rounded as it is read. */
static inline __attribute__((always_inline)) const void *amx_element(const void *from, int64_t i, bool wide)
{
    return (const char *)from + i * (wide ? 4 : 2);
}

static inline __attribute__((always_inline)) __m512i amx_load_32(const void *from, bool wide, __mmask32 mask)
{
    if (!wide)
        return _mm512_maskz_loadu_epi16(mask, from);
    return (__m512i)_mm512_cvtne2ps_pbh(_mm512_maskz_loadu_ps((__mmask16)(mask >> 16), (const float *)from + 16),
                                        _mm512_maskz_loadu_ps((__mmask16)mask, from));
}

static inline __attribute__((always_inline)) __m256i amx_load_16(const void *from, bool wide, __mmask16 mask)
{
    return wide ? (__m256i)_mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(mask, from)) : _mm256_maskz_loadu_epi16(mask, from);
}

/* Features d .. d + 31 of 16 rows, zeros where there are none. */
static inline __attribute__((always_inline)) void amx_load_rows(const void *from, bool wide, int64_t row, int64_t rows,
                                                          int64_t features, __m512i v[16])
{
    const __mmask32 mask = features >= AMX_STEP ? 0xffffffffu : (1u << features) - 1u;
    if (rows >= AMX_BLOCK)
        for (int i = 0; i < 16; i++)
            v[i] = amx_load_32(amx_element(from, i * row, wide), wide, mask);
    else
        for (int i = 0; i < 16; i++)
            v[i] = i < rows ? amx_load_32(amx_element(from, i * row, wide), wide, mask) : _mm512_setzero_si512();
}

static inline void amx_store_tile(uint16_t *to, const __m512i v[16])
{
    for (int i = 0; i < 16; i++)
        _mm512_store_si512(to + i * AMX_STEP, v[i]);
}

/* Blocks of 16 rows by 32 features, as they are or turned: [blocks][size / 32, rounded up] tiles. `wide` has to be a constant. */
static inline __attribute__((always_inline)) void amx_pack_rows_of(const void *from, bool wide, int64_t row, int64_t rows,
                                                                   int64_t size, int64_t blocks, bool turn, uint16_t *to)
{
    __m512i v[16];
    for (int64_t b = 0; b < blocks; b++, rows -= AMX_BLOCK)
        for (int64_t d = 0; d < size; d += AMX_STEP, to += AMX_TILE) {
            amx_load_rows(amx_element(from, b * AMX_BLOCK * row + d, wide), wide, row, rows, size - d, v);
            if (turn)
                transpose_16x16(v);
            amx_store_tile(to, v);
        }
}

static inline void amx_pack_rows(const uint16_t *from, int64_t row, int64_t rows, int64_t size, int64_t blocks, bool turn,
                                 uint16_t *to)
{
    amx_pack_rows_of(from, false, row, rows, size, blocks, turn, to);
}

/* Two rows of 16 elements side by side, from one vector that holds one after the other. */
static inline __m512i amx_pair_up(__m512i rows)
{
    const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21, 5, 20,
                                           4, 19, 3, 18, 2, 17, 1, 16, 0);
    return _mm512_permutexvar_epi16(order, rows);
}

/* Features d .. d + 15 of 16 pairs of rows, zeros where there are none. */
static inline __attribute__((always_inline)) void amx_load_pairs(const void *from, bool wide, int64_t row, int64_t rows,
                                                           int64_t features, __m512i v[16])
{
    const __mmask16 mask = features >= AMX_BLOCK ? 0xffff : (__mmask16)((1u << features) - 1u);
    const __m256i   none = _mm256_setzero_si256();
    for (int p = 0; p < 16; p++) {
        const void *first = amx_element(from, 2 * p * row, wide), *second = amx_element(from, (2 * p + 1) * row, wide);
        __m256i a, b;
        if (rows >= AMX_STEP) {
            a = amx_load_16(first, wide, mask);
            b = amx_load_16(second, wide, mask);
        } else {
            a = 2 * p < rows ? amx_load_16(first, wide, mask) : none;
            b = 2 * p + 1 < rows ? amx_load_16(second, wide, mask) : none;
        }
        v[p] = amx_pair_up(_mm512_inserti64x4(_mm512_castsi256_si512(a), b, 1));
    }
}

/* 16 pairs of rows by 16 features, as they are or turned: tile (feature block f, row block b) at to + f step + b AMX_TILE.
 * `wide` has to be a constant. */
static inline __attribute__((always_inline)) void amx_pack_pairs_of(const void *from, bool wide, int64_t row, int64_t rows,
                                                                    int64_t size, int64_t blocks, bool turn, uint16_t *to,
                                                                    int64_t step)
{
    __m512i v[16];
    for (int64_t b = 0; b < blocks; b++, rows -= AMX_STEP, to += AMX_TILE)
        for (int64_t d = 0; d < size; d += AMX_BLOCK) {
            const void *corner = amx_element(from, b * AMX_STEP * row + d, wide);
            if (rows >= AMX_STEP) /* said here so that the usual case has no branches inside */
                amx_load_pairs(corner, wide, row, AMX_STEP, size - d, v);
            else
                amx_load_pairs(corner, wide, row, rows, size - d, v);
            if (turn)
                transpose_16x16(v);
            amx_store_tile(to + d / AMX_BLOCK * step, v);
        }
}

static inline void amx_pack_pairs(const uint16_t *from, int64_t row, int64_t rows, int64_t size, int64_t blocks, bool turn,
                                  uint16_t *to, int64_t step)
{
    amx_pack_pairs_of(from, false, row, rows, size, blocks, turn, to, step);
}

#endif
#endif
