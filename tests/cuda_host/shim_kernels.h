/* shim_kernels.h - small kernels to test the shim with, some of them wrong on purpose. */
#ifndef BATCHMARK_TESTS_CUDA_HOST_SHIM_KERNELS_H
#define BATCHMARK_TESTS_CUDA_HOST_SHIM_KERNELS_H

#include "../../kernels/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* out[thread of the grid] = its number, counted from 1, made of all of threadIdx, blockIdx, blockDim, gridDim. */
Status shim_number(Backend *be, dim3 grid, int *out);

/* out[row] = sum of a row of n, by block_sum, in a block of `threads`. */
Status shim_row_sums(Backend *be, const float *x, float *out, int64_t rows, int n, int threads);

/* y = the rows of `n` floats of x reversed, through n floats of dynamic shared memory; n <= 1024. */
typedef enum ShimBarrier { SHIM_RIGHT, SHIM_NONE_BEFORE_READ, SHIM_NONE_BEFORE_WRITE, SHIM_DIVERGENT } ShimBarrier;
Status shim_reverse(Backend *be, const float *x, float *y, int rows, int n, ShimBarrier barrier);

/* out[0..31] by lane: xor 5, down 3, up 2, from lane 7, down 1 in groups of 8, votes for odd lanes, lanes below 8 alone. */
enum { SHIM_WARP_TESTS = 7 };
Status shim_warp(Backend *be, int *out);

/* Lanes of one warp: `wrong` 0 lane 3 outside its mask; 1 half in a shuffle, half in a vote of the same lanes. */
Status shim_wrong_warp(Backend *be, int wrong, int *out);

/* counts[i % n] += 1 for i < total; last[0] = number of the block that came last. */
Status shim_count(Backend *be, int *counts, int n, int total, int *came, int *last);

/* y[i] = x[i] + 1 for i < n + beyond. */
Status shim_add_one(Backend *be, const float *x, float *y, int n, int beyond);

/* y = x narrowed to f16 and to bf16, and widened again. */
Status shim_round(Backend *be, const float *x, float *as_f16, float *as_bf16, int n);

/* A kernel that LAUNCHABLE does not name. */
Status shim_unknown(Backend *be);

/* One element of dynamic shared memory past `shared` bytes is written. */
Status shim_shared_overrun(Backend *be, int bytes, float *y);

#ifdef __cplusplus
}
#endif
#endif
