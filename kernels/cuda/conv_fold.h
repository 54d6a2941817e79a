/* conv_fold.h - takes a gradient of weights from where a convolution could write it to where it belongs. */
#ifndef BATCHMARK_KERNELS_CUDA_CONV_FOLD_H
#define BATCHMARK_KERNELS_CUDA_CONV_FOLD_H

#include "cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* to[r][c] = from[r][c], or += if `accumulate`, for r < rows, c < columns. Rows of `from` are `pitch` apart, those of `to` are dense. */
Status conv_fold(Backend *be, const float *from, int64_t rows, int64_t columns, int64_t pitch, float *to, bool accumulate);

#ifdef __cplusplus
}
#endif
#endif
