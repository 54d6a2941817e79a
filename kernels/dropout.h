/* dropout.h - which elements dropout keeps: the one rule that the reference and every backend follow.
 *
 * A tensor is seen as rows x columns. rng i32 (4) = {seed low, seed high, draw, 0} is written by the host once per micro-batch;
 * draw counts micro-batches, so no two draw alike. Eight elements share a Philox block, 16 bits each:
 *   block(row, j / 8) = rng_block(seed, stream << 32 | draw, row * ceil(columns / 8) + j / 8)
 *   bits of element j = word[(j % 8) / 2] >> 16 (j % 2) & 0xffff;   kept if bits >= round(p 2^16)
 * What is kept is multiplied by 1 / (1 - p) (Srivastava et al. 2014; "inverted", as in torch). */
#ifndef BATCHMARK_KERNELS_DROPOUT_H
#define BATCHMARK_KERNELS_DROPOUT_H

#include "base.h"

static inline uint32_t dropout_threshold(float p) { return (uint32_t)((double)p * 65536.0 + 0.5); }

/* The block of elements 8 (j / 8) .. 8 (j / 8) + 7 of a row. */
static inline RngBlock dropout_block(const int32_t rng[4], uint32_t stream, int64_t row, int64_t columns, int64_t j)
{
    uint64_t seed = (uint32_t)rng[0] | (uint64_t)(uint32_t)rng[1] << 32;
    return rng_block(seed, (uint64_t)stream << 32 | (uint32_t)rng[2], (uint64_t)(row * ((columns + 7) / 8) + j / 8));
}

/* Whether element (row, j) is kept. */
static inline bool dropout_keeps(const int32_t rng[4], uint32_t stream, int64_t row, int64_t columns, int64_t j, float p)
{
    RngBlock b = dropout_block(rng, stream, row, columns, j);
    return (b.word[j % 8 / 2] >> 16 * (j % 2) & 0xffffu) >= dropout_threshold(p);
}

#endif
