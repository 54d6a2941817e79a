/* tile_copy.c - see tile_copy.h. The update makes two compute copies of every weight, so this runs over 200 MB a step. */
#include "tile_copy.h"

#include "transpose.h"

#if defined(__AVX512BF16__) && defined(__AVX512BW__)
#define HAVE_PAIRS 1
#else
#define HAVE_PAIRS 0
#endif

enum { SIDE = 16, PAIR_ROW = 2 * SIDE, PAIR_TILE = PAIR_ROW * SIDE };

static bool is_transpose(const int *place, int size)
{
    if (size != SIDE * SIDE)
        return false;
    for (int i = 0; i < size; i++)
        if (place[i] != place[i % SIDE] + i / SIDE)
            return false;
    return true;
}

static bool is_row_pairs(const int *place, int size)
{
    if (size % PAIR_ROW)
        return false;
    for (int i = 0; i < size; i++)
        if (place[i] != place[i / PAIR_ROW * PAIR_ROW + i % 2] + i % PAIR_ROW / 2)
            return false;
    return true;
}

/* Row j of the source has two halves of 16 columns; its first elements are where destination rows 0 and 8 start. */
static bool is_column_pairs(const int *place, int size)
{
    if (size != PAIR_TILE)
        return false;
    for (int i = 0; i < size; i++) {
        const int column = i / PAIR_ROW * 2 + i % 2, j = i % PAIR_ROW / 2;
        if (place[i] != place[column / SIDE * PAIR_TILE / 2 + 2 * j] + column % SIDE)
            return false;
    }
    return true;
}

TileOrder tile_order(Dtype to, const int *place, int size)
{
    (void)is_transpose, (void)is_row_pairs, (void)is_column_pairs;
#ifdef __AVX512F__
    if (to == DTYPE_F32 && is_transpose(place, size))
        return TILE_TRANSPOSE;
#endif
    if (HAVE_PAIRS && to == DTYPE_BF16 && is_row_pairs(place, size))
        return TILE_ROW_PAIRS;
    if (HAVE_PAIRS && to == DTYPE_BF16 && is_column_pairs(place, size))
        return TILE_COLUMN_PAIRS;
    return TILE_GATHER;
}

static void gather(Dtype type, const int *restrict place, int size, const float *restrict from, void *restrict to)
{
    if (type == DTYPE_F32)
        for (int i = 0; i < size; i++)
            ((float *)to)[i] = from[place[i]];
    else
        for (int i = 0; i < size; i++)
            ((uint16_t *)to)[i] = bf16_from_f32(from[place[i]]);
}

#ifdef __AVX512F__
static void transpose(const int *place, const float *from, float *to)
{
    __m512i v[SIDE];
    for (int i = 0; i < SIDE; i++)
        v[i] = _mm512_loadu_si512(from + place[i]);
    transpose_16x16(v);
    for (int i = 0; i < SIDE; i++)
        _mm512_storeu_si512(to + SIDE * i, v[i]);
}
#endif

#if HAVE_PAIRS
static void row_pairs(const int *place, int size, const float *from, uint16_t *to)
{
    const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21, 5, 20,
                                           4, 19, 3, 18, 2, 17, 1, 16, 0);
    for (int i = 0; i < size; i += PAIR_ROW) {
        __m512  even = _mm512_loadu_ps(from + place[i]), odd = _mm512_loadu_ps(from + place[i + 1]);
        __m512i both = (__m512i)_mm512_cvtne2ps_pbh(odd, even);
        _mm512_storeu_si512(to + i, _mm512_permutexvar_epi16(order, both));
    }
}

static void column_pairs(const int *place, const float *from, uint16_t *to)
{
    __m512i v[SIDE];
    for (int j = 0; j < SIDE; j++) {
        __m512 left = _mm512_loadu_ps(from + place[2 * j]), right = _mm512_loadu_ps(from + place[PAIR_TILE / 2 + 2 * j]);
        v[j] = (__m512i)_mm512_cvtne2ps_pbh(right, left);
    }
    transpose_16x16(v);
    for (int i = 0; i < SIDE; i++)
        _mm512_storeu_si512(to + PAIR_ROW * i, v[i]);
}
#endif

void tile_copy(TileOrder order, Dtype type, const int *restrict place, int size, const float *restrict from, void *restrict to)
{
    switch (order) {
#ifdef __AVX512F__
    case TILE_TRANSPOSE:
        transpose(place, from, to);
        return;
#endif
#if HAVE_PAIRS
    case TILE_ROW_PAIRS:
        row_pairs(place, size, from, to);
        return;
    case TILE_COLUMN_PAIRS:
        column_pairs(place, from, to);
        return;
#endif
    default:
        gather(type, place, size, from, to);
    }
}
