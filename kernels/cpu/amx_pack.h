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

/* Features d .. d + 31 of 16 rows, zeros where there are none. */
static inline __attribute__((always_inline)) void amx_load_rows(const uint16_t *from, int64_t row, int64_t rows, int64_t features,
                                                          __m512i v[16])
{
    const __mmask32 mask = features >= AMX_STEP ? 0xffffffffu : (1u << features) - 1u;
    if (rows >= AMX_BLOCK)
        for (int i = 0; i < 16; i++)
            v[i] = _mm512_maskz_loadu_epi16(mask, from + i * row);
    else
        for (int i = 0; i < 16; i++)
            v[i] = i < rows ? _mm512_maskz_loadu_epi16(mask, from + i * row) : _mm512_setzero_si512();
}

static inline void amx_store_tile(uint16_t *to, const __m512i v[16])
{
    for (int i = 0; i < 16; i++)
        _mm512_store_si512(to + i * AMX_STEP, v[i]);
}

/* Blocks of 16 rows by 32 features, as they are or turned: [blocks][size / 32, rounded up] tiles. */
static inline void amx_pack_rows(const uint16_t *from, int64_t row, int64_t rows, int64_t size, int64_t blocks, bool turn,
                                 uint16_t *to)
{
    __m512i v[16];
    for (int64_t b = 0; b < blocks; b++, from += AMX_BLOCK * row, rows -= AMX_BLOCK)
        for (int64_t d = 0; d < size; d += AMX_STEP, to += AMX_TILE) {
            amx_load_rows(from + d, row, rows, size - d, v);
            if (turn)
                transpose_16x16(v);
            amx_store_tile(to, v);
        }
}

/* Two rows of 16 elements side by side, from one vector that holds one after the other. */
static inline __m512i amx_pair_up(__m512i rows)
{
    const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21, 5, 20,
                                           4, 19, 3, 18, 2, 17, 1, 16, 0);
    return _mm512_permutexvar_epi16(order, rows);
}

/* Features d .. d + 15 of 16 pairs of rows, zeros where there are none. */
static inline __attribute__((always_inline)) void amx_load_pairs(const uint16_t *from, int64_t row, int64_t rows, int64_t features,
                                                           __m512i v[16])
{
    const __mmask16 mask = features >= AMX_BLOCK ? 0xffff : (__mmask16)((1u << features) - 1u);
    const __m256i   none = _mm256_setzero_si256();
    for (int p = 0; p < 16; p++, from += 2 * row) {
        __m256i a, b;
        if (rows >= AMX_STEP) {
            a = _mm256_maskz_loadu_epi16(mask, from);
            b = _mm256_maskz_loadu_epi16(mask, from + row);
        } else {
            a = 2 * p < rows ? _mm256_maskz_loadu_epi16(mask, from) : none;
            b = 2 * p + 1 < rows ? _mm256_maskz_loadu_epi16(mask, from + row) : none;
        }
        v[p] = amx_pair_up(_mm512_inserti64x4(_mm512_castsi256_si512(a), b, 1));
    }
}

/* 16 pairs of rows by 16 features, as they are or turned: tile (feature block f, row block b) at to + f step + b AMX_TILE. */
static inline void amx_pack_pairs(const uint16_t *from, int64_t row, int64_t rows, int64_t size, int64_t blocks, bool turn,
                                  uint16_t *to, int64_t step)
{
    __m512i v[16];
    for (int64_t b = 0; b < blocks; b++, from += AMX_STEP * row, rows -= AMX_STEP, to += AMX_TILE)
        for (int64_t d = 0; d < size; d += AMX_BLOCK) {
            if (rows >= AMX_STEP) /* said here so that the usual case has no branches inside */
                amx_load_pairs(from + d, row, AMX_STEP, size - d, v);
            else
                amx_load_pairs(from + d, row, rows, size - d, v);
            if (turn)
                transpose_16x16(v);
            amx_store_tile(to + d / AMX_BLOCK * step, v);
        }
}

#endif
#endif
