/* conv_fold.cu - see conv_fold.h. Bytes: `from` read once, `to` written once, and read if it accumulates. */
#include "conv_fold.h"
#include "launch.cuh"

enum { FOLD_BLOCK = 256 };

/* Dense rows: one vector of n elements. */
static __global__ void fold_dense_kernel(const float *from, int64_t n, float *to, bool accumulate)
{
    const int64_t packs = n / 4;
    for (int64_t i = grid_thread(); i < packs; i += grid_threads()) {
        Pack<float, 4> p = reinterpret_cast<const Pack<float, 4> *>(from)[i];
        if (accumulate) {
            const Pack<float, 4> old = reinterpret_cast<const Pack<float, 4> *>(to)[i];
#pragma unroll
            for (int k = 0; k < 4; k++)
                p.at[k] += old.at[k];
        }
        reinterpret_cast<Pack<float, 4> *>(to)[i] = p;
    }
    for (int64_t i = 4 * packs + grid_thread(); i < n; i += grid_threads())
        to[i] = (accumulate ? to[i] : 0.0f) + from[i];
}

/* Few columns out of padded rows: one thread a row, which is one or two accesses of 16 bytes. */
static __global__ void fold_padded_kernel(const float *from, int64_t rows, int columns, int64_t pitch, float *to, bool accumulate)
{
    for (int64_t r = grid_thread(); r < rows; r += grid_threads())
        for (int c = 0; c < columns; c += 4) {
            const Pack<float, 4> p = *reinterpret_cast<const Pack<float, 4> *>(from + r * pitch + c);
            float *out = to + r * columns + c;
#pragma unroll
            for (int k = 0; k < 4; k++)
                if (c + k < columns)
                    out[k] = (accumulate ? out[k] : 0.0f) + p.at[k];
        }
}

LAUNCHABLE(fold_dense_kernel);
LAUNCHABLE(fold_padded_kernel);

Status conv_fold(Backend *be, const float *from, int64_t rows, int64_t columns, int64_t pitch, float *to, bool accumulate)
{
    if (pitch == columns) {
        const int64_t n = rows * columns;
        return cuda_launch(be, fold_dense_kernel, dim3(cuda_blocks(n, 4 * FOLD_BLOCK)), FOLD_BLOCK, 0, from, n, to, accumulate);
    }
    CHECK(pitch % 4 == 0);
    return cuda_launch(be, fold_padded_kernel, dim3(cuda_blocks(rows, FOLD_BLOCK)), FOLD_BLOCK, 0, from, rows, (int)columns, pitch, to,
                       accumulate);
}
