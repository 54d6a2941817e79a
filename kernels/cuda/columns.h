/* columns.h - sums over the rows of a matrix, one number a column: bias gradients of convolutions and linear layers. */
#ifndef BATCHMARK_KERNELS_CUDA_COLUMNS_H
#define BATCHMARK_KERNELS_CUDA_COLUMNS_H

#include "cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A matrix in device memory: row r begins at element r pitch. Activations (N,H,W,C) are N H W rows of C columns. */
typedef struct Columns {
    Dtype   dtype; /* f32, bf16 or f16 */
    int64_t rows, columns, pitch;
} Columns;

/* Of a rank-2 tensor or an activation, pitch of LAYOUT_PADDED included. */
Columns columns_of(const Tensor *t);

/* Bytes that columns_sum needs at `scratch`, 16-byte aligned there; 0 for small matrices. */
size_t columns_scratch(const Columns *c);

/* sum (columns) f32 = sum over rows of x; added to what is there if `accumulate`. Sums are made in f32 in an order that depends on
 * the shape alone. No rows: zeros. */
Status columns_sum(Backend *be, const Columns *c, const void *x, float *sum, bool accumulate, void *scratch);

#ifdef __cplusplus
}
#endif
#endif
