/* shim_kernels.cu - small kernels to test the shim with, some of them wrong on purpose. */
#include "shim_kernels.h"

#include "../../kernels/cuda/launch.cuh"

static __global__ void number(int *out)
{
    const unsigned threads = blockDim.x * blockDim.y * blockDim.z;
    const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    out[block * threads + thread] = (int)(block * threads + thread + 1);
}
LAUNCHABLE(number);

template <class T> static __global__ void row_sums(const T *x, float *out, int64_t rows, int n)
{
    __shared__ float room[32];
    for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
        float sum = 0;
        for (int i = (int)threadIdx.x; i < n; i += (int)blockDim.x)
            sum += widen(x[row * n + i]);
        sum = block_sum(sum, room);
        if (threadIdx.x == 0)
            out[row] = sum;
    }
}
LAUNCHABLE(row_sums<float>);

/* x is read into shared memory, and from there backwards, row after row. */
template <bool BEFORE_READ, bool BEFORE_WRITE> static __global__ void reverse(const float *x, float *y, int rows, int n)
{
    SHARED_DYNAMIC(float, room);
    for (int row = 0; row < rows; row++) {
        const int i = (int)threadIdx.x;
        if (BEFORE_WRITE)
            __syncthreads();
        room[i] = x[row * n + i];
        if (BEFORE_READ)
            __syncthreads();
        y[row * n + i] = room[n - 1 - i];
    }
}
LAUNCHABLE(reverse<true, true>);
LAUNCHABLE(reverse<false, true>);
LAUNCHABLE(reverse<true, false>);

/* Half the threads wait for the others once more than those do. */
static __global__ void divergent(float *y)
{
    __syncthreads();
    if (threadIdx.x < blockDim.x / 2)
        (void)__shfl_sync(0xffffffffu, 1, 0);
    else
        __syncthreads();
    y[threadIdx.x] = 1;
}
LAUNCHABLE(divergent);

static __global__ void warp_calls(int *out)
{
    const int lane = (int)threadIdx.x & 31, v = 100 + lane;
    out[0 * 32 + lane] = __shfl_xor_sync(0xffffffffu, v, 5);
    out[1 * 32 + lane] = __shfl_down_sync(0xffffffffu, v, 3);
    out[2 * 32 + lane] = __shfl_up_sync(0xffffffffu, v, 2);
    out[3 * 32 + lane] = __shfl_sync(0xffffffffu, v, 7);
    out[4 * 32 + lane] = __shfl_down_sync(0xffffffffu, v, 1, 8);
    out[5 * 32 + lane] = (int)__ballot_sync(0xffffffffu, lane & 1);
    out[6 * 32 + lane] = lane < 8 ? (int)__ballot_sync(0xffu, 1) : 0;
}
LAUNCHABLE(warp_calls);

static __global__ void outside_mask(int *out)
{
    const int lane = (int)threadIdx.x;
    out[lane] = __shfl_sync(lane == 3 ? 0xfffffff0u : 0xffffffffu, lane, 0);
}
LAUNCHABLE(outside_mask);

static __global__ void two_calls(int *out)
{
    const int lane = (int)threadIdx.x;
    out[lane] = lane < 16 ? __shfl_sync(0xffffffffu, lane, 0) : (int)__ballot_sync(0xffffffffu, 1);
}
LAUNCHABLE(two_calls);

static __global__ void count(int *counts, int n, int total, int *came, int *last)
{
    for (int i = (int)(blockIdx.x * blockDim.x + threadIdx.x); i < total; i += (int)(gridDim.x * blockDim.x))
        atomicAdd(&counts[i % n], 1);
    __threadfence();
    if (threadIdx.x == 0 && atomicAdd(came, 1) == (int)gridDim.x - 1)
        *last = (int)blockIdx.x;
}
LAUNCHABLE(count);

static __global__ void add_one(const float *x, float *y, int n)
{
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n)
        y[i] = x[i] + 1;
}
LAUNCHABLE(add_one);

static __global__ void round_both(const float *x, float *as_f16, float *as_bf16, int n)
{
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n) {
        as_f16[i] = widen(narrow<f16>(x[i]));
        as_bf16[i] = widen(narrow<bf16>(x[i]));
    }
}
LAUNCHABLE(round_both);

static __global__ void unknown(int) {}

static __global__ void shared_overrun(int bytes, float *y)
{
    SHARED_DYNAMIC(unsigned char, room);
    room[bytes - 1 + (int)threadIdx.x] = 1;
    y[0] = room[bytes - 1];
}
LAUNCHABLE(shared_overrun);

Status shim_number(Backend *be, dim3 grid, int *out) { return cuda_launch(be, number, grid, 48, 0, out); }

Status shim_row_sums(Backend *be, const float *x, float *out, int64_t rows, int n, int threads)
{
    return cuda_launch(be, row_sums<float>, dim3(cuda_blocks(rows, 1, 1 << 20)), threads, 0, x, out, rows, n);
}

Status shim_reverse(Backend *be, const float *x, float *y, int rows, int n, ShimBarrier barrier)
{
    if (barrier == SHIM_DIVERGENT)
        return cuda_launch(be, divergent, dim3(1), n, 0, y);
    return cuda_launch(be, barrier == SHIM_RIGHT ? reverse<true, true> : barrier == SHIM_NONE_BEFORE_READ ? reverse<false, true> :
                       reverse<true, false>, dim3(1), n, (size_t)n * sizeof(float), x, y, rows, n);
}

Status shim_warp(Backend *be, int *out) { return cuda_launch(be, warp_calls, dim3(1), 32, 0, out); }

Status shim_wrong_warp(Backend *be, int wrong, int *out)
{
    return cuda_launch(be, wrong ? two_calls : outside_mask, dim3(1), 32, 0, out);
}

Status shim_count(Backend *be, int *counts, int n, int total, int *came, int *last)
{
    return cuda_launch(be, count, dim3(7), 96, 0, counts, n, total, came, last);
}

Status shim_add_one(Backend *be, const float *x, float *y, int n, int beyond)
{
    return cuda_launch(be, add_one, dim3(cuda_blocks(n + beyond, 64)), 64, 0, x, y, n + beyond);
}

Status shim_round(Backend *be, const float *x, float *as_f16, float *as_bf16, int n)
{
    return cuda_launch(be, round_both, dim3(cuda_blocks(n, 64)), 64, 0, x, as_f16, as_bf16, n);
}

Status shim_unknown(Backend *be) { return cuda_launch(be, unknown, dim3(1), 32, 0, 1); }

Status shim_shared_overrun(Backend *be, int bytes, float *y)
{
    return cuda_launch(be, shared_overrun, dim3(1), 32, (size_t)bytes, bytes, y);
}
