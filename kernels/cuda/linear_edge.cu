/* linear_edge.cu - biases of linear layers beside the matrix product; see linear_edge.h. Vectors are short (a layer's outputs), so
 * only linear_add_bias, which is a fall-back, moves more than some 100 KiB: y once in, once out. */
#include "launch.cuh"
#include "linear_edge.h"

enum { EDGE_BLOCK = 256 };

template <class T> static __global__ void round_bias_kernel(const float *from, T *to, int64_t n)
{
    for (int64_t i = (int64_t)blockIdx.x * EDGE_BLOCK + threadIdx.x; i < n; i += (int64_t)gridDim.x * EDGE_BLOCK)
        to[i] = narrow<T>(from[i]);
}

static __global__ void add_vector_kernel(float *sum, const float *part, int64_t n)
{
    for (int64_t i = (int64_t)blockIdx.x * EDGE_BLOCK + threadIdx.x; i < n; i += (int64_t)gridDim.x * EDGE_BLOCK)
        sum[i] += part[i];
}

template <class T> static __global__ void add_bias_kernel(T *y, const float *bias, int64_t n, int64_t columns)
{
    for (int64_t i = (int64_t)blockIdx.x * EDGE_BLOCK + threadIdx.x; i < n; i += (int64_t)gridDim.x * EDGE_BLOCK)
        y[i] = narrow<T>(widen(y[i]) + bias[i % columns]);
}

LAUNCHABLE(round_bias_kernel<bf16>);
LAUNCHABLE(round_bias_kernel<f16>);
LAUNCHABLE(add_vector_kernel);
LAUNCHABLE(add_bias_kernel<float>);
LAUNCHABLE(add_bias_kernel<bf16>);
LAUNCHABLE(add_bias_kernel<f16>);

Status linear_round_bias(Backend *be, Dtype dtype, const float *from, void *to, int64_t n)
{
    const dim3 grid(cuda_blocks(n, EDGE_BLOCK));
    if (dtype == DTYPE_BF16)
        return cuda_launch(be, round_bias_kernel<bf16>, grid, EDGE_BLOCK, 0, from, (bf16 *)to, n);
    return cuda_launch(be, round_bias_kernel<f16>, grid, EDGE_BLOCK, 0, from, (f16 *)to, n);
}

Status linear_add_bias(Backend *be, Dtype dtype, void *y, const float *bias, int64_t rows, int64_t columns)
{
    const int64_t n = rows * columns;
    const dim3    grid(cuda_blocks(n, EDGE_BLOCK));
    switch (dtype) {
    case DTYPE_F32:  return cuda_launch(be, add_bias_kernel<float>, grid, EDGE_BLOCK, 0, (float *)y, bias, n, columns);
    case DTYPE_BF16: return cuda_launch(be, add_bias_kernel<bf16>, grid, EDGE_BLOCK, 0, (bf16 *)y, bias, n, columns);
    default:         return cuda_launch(be, add_bias_kernel<f16>, grid, EDGE_BLOCK, 0, (f16 *)y, bias, n, columns);
    }
}

Status linear_add_vector(Backend *be, float *sum, const float *part, int64_t n)
{
    return cuda_launch(be, add_vector_kernel, dim3(cuda_blocks(n, EDGE_BLOCK)), EDGE_BLOCK, 0, sum, part, n);
}
