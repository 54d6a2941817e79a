/* gemm_f32_tile.h - the inner loop of gemm_f32.c: up to 14 x 32 sums in registers.
 *
 *   sums[i][j] = sum over t of a[i][t] b[t][j],   i < height, j < 16 vectors
 *
 * 28 sums, two vectors of b and one spread element of a fill the 32 registers: 28 multiply-adds for 16 loads, so the two
 * multiply-add units are busy while a and b come from the second-level cache (Goto & van de Geijn 2008). a is packed in
 * groups of sixteen terms, [terms / 16][14][16]: its rows are copied by whole lines, nothing has to be transposed, and every
 * element is at a constant distance from one pointer. b is [terms][16 vectors]. */
#ifndef BATCHMARK_KERNELS_CPU_GEMM_F32_TILE_H
#define BATCHMARK_KERNELS_CPU_GEMM_F32_TILE_H

#include "vec.h"

enum { TILE_HEIGHT = 14, TILE_VECTORS = 2, TILE_WIDTH = TILE_VECTORS * LANES, TILE_GROUP = TILE_HEIGHT * LANES };

#ifdef __AVX512F__

/* How far ahead lines of b are asked for, in floats. */
enum { TILE_AHEAD = 16 * TILE_WIDTH };

/* Rows of the tile, each a pair of named registers: gcc 12 leaves an array of so many in memory. */
#define TILE_ROWS(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13)
#define TILE_CLEAR(i) __m512 low##i = _mm512_setzero_ps(), high##i = _mm512_setzero_ps();
#define TILE_ADD(i)                                                   \
    if (i < height) {                                                 \
        const __m512 spread = _mm512_set1_ps(a[i * LANES]);           \
        low##i = _mm512_fmadd_ps(spread, b_low, low##i);              \
        if (vectors == TILE_VECTORS)                                  \
            high##i = _mm512_fmadd_ps(spread, b_high, high##i);       \
    }
#define TILE_STORE(i)                                                 \
    if (i < height) {                                                 \
        _mm512_store_ps(sums + i * TILE_WIDTH, low##i);               \
        if (vectors == TILE_VECTORS)                                  \
            _mm512_store_ps(sums + i * TILE_WIDTH + LANES, high##i);  \
    }

/* Memory that will be packed next: rows of whole lines, asked for while the tiles before it are multiplied. */
typedef struct Ahead {
    const char *line;
    int64_t     rows, left, row_lines; /* rows to come, lines left of this one, lines of each */
    int64_t     skip;                  /* bytes from the end of a row to the next one */
    int         rate;                  /* lines for each group of sixteen terms */
} Ahead;

ALWAYS_INLINE void ahead_step(Ahead *h)
{
    for (int n = h->rate; n > 0 && h->rows > 0; n--, h->line += 64) {
        _mm_prefetch(h->line, _MM_HINT_T1);
        if (--h->left == 0) {
            h->left = h->row_lines;
            h->line += h->skip;
            h->rows--;
        }
    }
}

ALWAYS_INLINE void tile_sum(int height, int vectors, int64_t terms, const float *a, const float *b, float *sums, Ahead *ahead)
{
    TILE_ROWS(TILE_CLEAR)
    for (int64_t group = 0; group < terms; group += LANES, a += TILE_GROUP - LANES) {
        for (int i = 0; i < height; i++)
            _mm_prefetch((const char *)(a + TILE_GROUP + i * LANES), _MM_HINT_T0);
        ahead_step(ahead);
        for (const float *end = a + (terms - group < LANES ? terms - group : LANES); a < end; a++, b += vectors * LANES) {
            const __m512 b_low = _mm512_loadu_ps(b), b_high = vectors == TILE_VECTORS ? _mm512_loadu_ps(b + LANES) : b_low;
            for (int j = 0; j < vectors; j++)
                _mm_prefetch((const char *)(b + TILE_AHEAD + j * LANES), _MM_HINT_T0);
            TILE_ROWS(TILE_ADD)
        }
    }
    TILE_ROWS(TILE_STORE)
}

#define TILE_CASE(h)                                        \
    case h:                                                 \
        if (vectors == TILE_VECTORS)                        \
            tile_sum(h, TILE_VECTORS, terms, a, b, sums, ahead);   \
        else                                                \
            tile_sum(h, 1, terms, a, b, sums, ahead);              \
        break;

/* sums is [14][32], 64-byte aligned; height 1..14, vectors 1 or 2. */
static inline void tile_multiply(int height, int vectors, int64_t terms, const float *a, const float *b, float *sums, Ahead *ahead)
{
    switch (height) {
    TILE_CASE(14) TILE_CASE(13) TILE_CASE(12) TILE_CASE(11) TILE_CASE(10) TILE_CASE(9) TILE_CASE(8)
    TILE_CASE(7) TILE_CASE(6) TILE_CASE(5) TILE_CASE(4) TILE_CASE(3) TILE_CASE(2) TILE_CASE(1)
    }
}

#undef TILE_ROWS
#undef TILE_CLEAR
#undef TILE_ADD
#undef TILE_STORE
#undef TILE_CASE

#endif
#endif
