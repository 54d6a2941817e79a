/* amx_product.h - products of packed bf16 matrices (amx_pack.h) on AMX tiles, 32 x 32 sums at a time. */
#ifndef BATCHMARK_KERNELS_CPU_AMX_PRODUCT_H
#define BATCHMARK_KERNELS_CPU_AMX_PRODUCT_H

#include "amx_pack.h"

#if HAVE_AMX

/* c = a b, or += with add. rows, columns, terms: in tiles. Elements from one row of tiles of a, and one column of b, to the
 * next; a row's tiles follow each other. c has rows of `pitch` floats. */
typedef struct AmxProduct {
    const uint16_t *a, *b;
    float          *c;
    int64_t         rows, columns, terms, a_step, b_step, pitch;
    bool            add;
} AmxProduct;

/* Up to 2 x 2 tiles of c: tiles 0-3 are sums, 4 and 5 a, 6 and 7 b. */
static inline __attribute__((always_inline)) void amx_multiply_tiles(const AmxProduct *m, const uint16_t *a, const uint16_t *b,
                                                                     float *c, bool two_a, bool two_b)
{
    const int64_t pitch = 4 * m->pitch;
    float *const  below = c + AMX_BLOCK * m->pitch;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    if (m->add) {
        _tile_loadd(0, c, pitch);
        if (two_b)
            _tile_loadd(1, c + AMX_BLOCK, pitch);
        if (two_a)
            _tile_loadd(2, below, pitch);
        if (two_a && two_b)
            _tile_loadd(3, below + AMX_BLOCK, pitch);
    }
    for (int64_t i = 0; i < m->terms; i++, a += AMX_TILE, b += AMX_TILE) {
        _tile_loadd(4, a, 64);
        _tile_loadd(6, b, 64);
        _tile_dpbf16ps(0, 4, 6);
        if (two_b) {
            _tile_loadd(7, b + m->b_step, 64);
            _tile_dpbf16ps(1, 4, 7);
        }
        if (two_a) {
            _tile_loadd(5, a + m->a_step, 64);
            _tile_dpbf16ps(2, 5, 6);
        }
        if (two_a && two_b)
            _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, c, pitch);
    if (two_b)
        _tile_stored(1, c + AMX_BLOCK, pitch);
    if (two_a)
        _tile_stored(2, below, pitch);
    if (two_a && two_b)
        _tile_stored(3, below + AMX_BLOCK, pitch);
}

/* The same with the number of tiles as values: 1 or 2 in each direction. */
static inline void amx_multiply(const AmxProduct *m, const uint16_t *a, const uint16_t *b, float *c, bool two_a, bool two_b)
{
    if (two_a && two_b)
        amx_multiply_tiles(m, a, b, c, true, true);
    else if (two_a)
        amx_multiply_tiles(m, a, b, c, true, false);
    else if (two_b)
        amx_multiply_tiles(m, a, b, c, false, true);
    else
        amx_multiply_tiles(m, a, b, c, false, false);
}

static inline void amx_multiply_all(const AmxProduct *m)
{
    for (int64_t i = 0; i < m->rows; i += 2)
        for (int64_t j = 0; j < m->columns; j += 2)
            amx_multiply(m, m->a + i * m->a_step, m->b + j * m->b_step, m->c + (i * m->pitch + j) * AMX_BLOCK, i + 1 < m->rows,
                         j + 1 < m->columns);
}

#endif
#endif
