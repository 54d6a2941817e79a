/* linear_edge.h - what linear layers do beside the matrix product. */
#ifndef BATCHMARK_KERNELS_CUDA_LINEAR_EDGE_H
#define BATCHMARK_KERNELS_CUDA_LINEAR_EDGE_H

#include "cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* to (n) of a 16-bit type = from (n) f32, rounded: a bias for a product of that type. */
Status linear_round_bias(Backend *be, Dtype dtype, const float *from, void *to, int64_t n);

/* y (rows,columns) += bias (columns), rounded to y's type: where no product will take the bias. */
Status linear_add_bias(Backend *be, Dtype dtype, void *y, const float *bias, int64_t rows, int64_t columns);

/* sum (n) += part (n), all f32. */
Status linear_add_vector(Backend *be, float *sum, const float *part, int64_t n);

#ifdef __cplusplus
}
#endif
#endif
