/* dropout_vec.h - the keep decisions of dropout.h for 64 neighbours of a row at once: eight Philox blocks side by side.
 *
 * Philox multiplies 32 x 32 -> 64 bits, so a block takes one 64-bit lane of each of four vectors. What stands in the upper
 * halves does not matter until the end: the multiplication does not see it. */
#ifndef BATCHMARK_KERNELS_CPU_DROPOUT_VEC_H
#define BATCHMARK_KERNELS_CPU_DROPOUT_VEC_H

#include "../dropout.h"
#include "vec.h"

typedef uint64_t VecW __attribute__((vector_size(64)));

/* One dropout of one call, seen as rows x columns. */
typedef struct DropoutVec {
    uint64_t key[10][2];   /* of each round, from the seed */
    uint64_t stream;
    int64_t  blocks;       /* of a row: ceil(columns / 8) */
    uint16_t last_dropped; /* 16 bits up to this are dropped ... */
    bool     drops;        /* ... if anything is at all */
    float    scale;        /* of what is kept: 1 / (1 - p) */
} DropoutVec;

static inline DropoutVec dropout_vec(const int32_t rng[4], uint32_t stream, int64_t columns, float p)
{
    const uint32_t threshold = dropout_threshold(p);
    DropoutVec d = { .stream = (uint64_t)stream << 32 | (uint32_t)rng[2],
                     .blocks = (columns + 7) / 8,
                     .last_dropped = (uint16_t)(threshold - 1), /* 65535 where p rounds to 1 */
                     .drops = threshold > 0,
                     .scale = (float)(1.0 / (1.0 - (double)p)) };
    for (uint32_t round = 0; round < COUNT_OF(d.key); round++) {
        d.key[round][0] = (uint32_t)rng[0] + round * 0x9E3779B9u;
        d.key[round][1] = (uint32_t)rng[1] + round * 0xBB67AE85u;
    }
    return d;
}

/* Products of the lower halves. */
ALWAYS_INLINE VecW dropout_multiply(VecW a, uint32_t b)
{
#ifdef __AVX512F__
    return (VecW)_mm512_mul_epu32((__m512i)a, _mm512_set1_epi64(b));
#else
    return (a & 0xffffffffu) * (VecW){ b, b, b, b, b, b, b, b };
#endif
}

/* Upper halves moved down. A shuffle, since the multiplications are what keeps the shifter's port busy. */
ALWAYS_INLINE VecW dropout_upper(VecW a)
{
#ifdef __AVX512F__
    return (VecW)_mm512_shuffle_epi32((__m512i)a, _MM_PERM_DDBB);
#else
    return a >> 32;
#endif
}

/* Bit l is set where 16-bit element l of the pair of vectors is above `last`: elements 0-3 of block b are lane b of `even`
 * (words 0 and 1), elements 4-7 lane b of `odd` (words 2 and 3). Lanes hold the blocks in the order 0 4 1 5 2 6 3 7, so
 * that one interleaving within pairs of lanes brings the elements into order. */
ALWAYS_INLINE uint64_t dropout_above(VecW even, VecW odd, uint16_t last)
{
#ifdef __AVX512BW__
    const __m512i limit = _mm512_set1_epi16((short)last);
    const __m512i low = _mm512_unpacklo_epi64((__m512i)even, (__m512i)odd);
    const __m512i high = _mm512_unpackhi_epi64((__m512i)even, (__m512i)odd);
    return _mm512_cmpgt_epu16_mask(low, limit) | (uint64_t)_mm512_cmpgt_epu16_mask(high, limit) << 32;
#else
    uint64_t bits = 0;
    for (int block = 0; block < 8; block++) {
        const int lane = 2 * (block % 4) + block / 4;
        for (int e = 0; e < 8; e++)
            bits |= (uint64_t)(((e < 4 ? even : odd)[lane] >> 16 * (e % 4) & 0xffffu) > last) << (8 * block + e);
    }
    return bits;
#endif
}

/* Bit l is set where element (row, j + l) is kept. j is a multiple of 64; bits beyond the last column mean nothing. */
ALWAYS_INLINE uint64_t dropout_keep64(const DropoutVec *d, int64_t row, int64_t j)
{
    if (!d->drops)
        return ~(uint64_t)0;
    const VecW block = { 0, 4, 1, 5, 2, 6, 3, 7 };
    VecW c0 = block + (uint64_t)(row * d->blocks + j / 8), c1 = c0 >> 32;
    VecW c2 = (VecW){ 0 } + (uint32_t)d->stream, c3 = (VecW){ 0 } + (d->stream >> 32);
    for (size_t round = 0; round < COUNT_OF(d->key); round++) {
        VecW p0 = dropout_multiply(c0, 0xD2511F53u), p1 = dropout_multiply(c2, 0xCD9E8D57u);
        c0 = dropout_upper(p1) ^ c1 ^ d->key[round][0];
        c2 = dropout_upper(p0) ^ c3 ^ d->key[round][1];
        c1 = p1;
        c3 = p0;
    }
    return dropout_above((c0 & 0xffffffffu) | c1 << 32, (c2 & 0xffffffffu) | c3 << 32, d->last_dropped);
}

/* The next up to sixteen of 64 decisions: bits for vec_keep. `at` is a multiple of 16 below 64. */
ALWAYS_INLINE uint32_t dropout_sixteen(uint64_t keep, int64_t at) { return (uint32_t)(keep >> at) & 0xffffu; }

#endif
