/* conv_narrow.cu - see conv_narrow.h. Weights (K,C), pixels p, K <= 8:
 *
 *   forward  y[p][k] = relu?(bias[k] + sum over c of x[p][c] w[k][c])
 *   dgrad    dx[p][c] = sum over k of dy[p][k] w[k][c]
 *   wgrad    dw[k][c] = sum over p of dy[p][k] x[p][c]
 *
 * Bytes: forward reads x once and writes y, dgrad reads dy and writes dx, wgrad reads x and dy once; weights are in shared
 * memory or registers, partial sums of wgrad (at most NARROW_PIECES of K C f32) stay in L2. Arithmetic is f32. Kernels are made for
 * 1, 2, 4 and 8 outputs; K in between leaves the rest zero. Sums of wgrad are made in an order that depends on the shape alone. */
#include "conv_narrow.h"
#include "launch.cuh"

enum { NARROW_OUTPUTS = 8, NARROW_CHANNELS = 1024, NARROW_BLOCK = 256, NARROW_PIECES = 512, NARROW_ROWS = 64 };

/* w (k,c) into f32 (M,c), rows past k zero. */
template <int M, class T> static __device__ __forceinline__ void stage_weights(const T *w, int k, int c, float *staged)
{
    for (int i = (int)threadIdx.x; i < M * c; i += (int)blockDim.x)
        staged[i] = i < k * c ? widen(w[i]) : 0.0f;
    __syncthreads();
}

/* `lanes` neighbouring threads, a power of two up to 32, share a pixel: each takes 16 bytes of channels, then the next. */
template <class T, int M>
static __global__ void narrow_forward_kernel(const T *x, const T *w, const float *bias, int64_t pixels, int c, int k, int lanes, bool relu, T *y)
{
    constexpr int V = Wide<T>::N;
    SHARED_DYNAMIC(float, weights);
    stage_weights<M>(w, k, c, weights);
    const int     lane = (int)threadIdx.x % lanes;
    const int64_t step = grid_threads() / lanes;
    const int64_t rounds = (pixels + step - 1) / step; /* the same for all: lanes of a warp shuffle together */
    for (int64_t i = 0; i < rounds; i++) {
        const int64_t p = i * step + grid_thread() / lanes;
        float         sum[M] = { 0.0f };
        if (p < pixels)
            for (int at = lane * V; at < c; at += lanes * V) {
                float v[V];
                load_floats(x + p * c + at, v);
#pragma unroll
                for (int m = 0; m < M; m++)
#pragma unroll
                    for (int n = 0; n < V; n++)
                        sum[m] += v[n] * weights[m * c + at + n];
            }
        for (int other = lanes / 2; other > 0; other /= 2)
#pragma unroll
            for (int m = 0; m < M; m++)
                sum[m] += __shfl_xor_sync(0xffffffffu, sum[m], other);
        if (p < pixels)
#pragma unroll
            for (int m = 0; m < M; m++)
                if (m < k && m % lanes == lane) {
                    const float value = sum[m] + (bias ? bias[m] : 0.0f);
                    y[p * k + m] = narrow<T>(relu && value < 0.0f ? 0.0f : value);
                }
    }
}

/* One thread makes 16 bytes of dx. */
template <class T, int M>
static __global__ void narrow_dgrad_kernel(const T *dy, const T *w, int64_t pixels, int c, int k, T *dx)
{
    constexpr int V = Wide<T>::N;
    SHARED_DYNAMIC(float, weights);
    stage_weights<M>(w, k, c, weights);
    const int     packs = c / V;
    const int64_t total = pixels * packs;
    for (int64_t i = grid_thread(); i < total; i += grid_threads()) {
        const int64_t p = i / packs;
        const int     at = (int)(i - p * packs) * V;
        float         sum[V] = { 0.0f };
#pragma unroll
        for (int m = 0; m < M; m++) {
            const float d = m < k ? widen(dy[p * k + m]) : 0.0f;
#pragma unroll
            for (int n = 0; n < V; n++)
                sum[n] += d * weights[m * c + at + n];
        }
        store_floats(dx + p * c + at, sum);
    }
}

/* Block b adds up pixels b each ... : threads side by side over channels, 16 bytes each, the others over pixels. partial[b] (k,c). */
template <class T, int M>
static __global__ void narrow_wgrad_kernel(const T *x, const T *dy, int64_t pixels, int c, int k, int64_t each, float *partial)
{
    constexpr int V = Wide<T>::N;
    __shared__ float room[NARROW_BLOCK * V];
    const int     packs = c / V, down = NARROW_BLOCK / packs, row = (int)threadIdx.x / packs, at = (int)threadIdx.x % packs * V;
    const int64_t begin = (int64_t)blockIdx.x * each, end = begin + each < pixels ? begin + each : pixels;
    float         sum[M][V] = { { 0.0f } };
    if (row < down)
        for (int64_t p = begin + row; p < end; p += down) {
            float v[V];
            load_floats(x + p * c + at, v);
#pragma unroll
            for (int m = 0; m < M; m++) {
                const float d = m < k ? widen(dy[p * k + m]) : 0.0f;
#pragma unroll
                for (int n = 0; n < V; n++)
                    sum[m][n] += d * v[n];
            }
        }
#pragma unroll
    for (int m = 0; m < M; m++) { /* room: one output, (down,c) */
        if (row < down)
#pragma unroll
            for (int n = 0; n < V; n++)
                room[row * c + at + n] = sum[m][n];
        __syncthreads();
        for (int i = (int)threadIdx.x; m < k && i < c; i += NARROW_BLOCK) {
            float total = 0.0f;
            for (int r = 0; r < down; r++)
                total += room[r * c + i];
            partial[((int64_t)blockIdx.x * k + m) * c + i] = total;
        }
        __syncthreads();
    }
}

/* One warp adds up one element of all pieces. */
static __global__ void narrow_sum_kernel(const float *partial, int pieces, int count, float *dw, bool accumulate)
{
    const int i = (int)(grid_thread() / 32), lane = (int)threadIdx.x % 32;
    float     sum = 0.0f;
    for (int piece = lane; i < count && piece < pieces; piece += 32)
        sum += partial[(int64_t)piece * count + i];
    sum = warp_sum(sum);
    if (i < count && lane == 0)
        dw[i] = (accumulate ? dw[i] : 0.0f) + sum;
}

#define NARROW_LAUNCHABLE(T, M)               \
    LAUNCHABLE(narrow_forward_kernel<T, M>);  \
    LAUNCHABLE(narrow_dgrad_kernel<T, M>);    \
    LAUNCHABLE(narrow_wgrad_kernel<T, M>)
#define NARROW_OF_TYPE(T)    \
    NARROW_LAUNCHABLE(T, 1); \
    NARROW_LAUNCHABLE(T, 2); \
    NARROW_LAUNCHABLE(T, 4); \
    NARROW_LAUNCHABLE(T, 8)
NARROW_OF_TYPE(float);
NARROW_OF_TYPE(bf16);
NARROW_OF_TYPE(f16);
LAUNCHABLE(narrow_sum_kernel);

/* ---- host. Slots: x is also dx, y also dy. */

static const Tensor *tensor_x(const OpDesc *op) { return op->kind == OP_conv2d_dgrad ? &op->out[0] : &op->in[0]; }
static const Tensor *tensor_y(const OpDesc *op)
{
    return op->kind == OP_conv2d ? &op->out[0] : op->kind == OP_conv2d_dgrad ? &op->in[0] : &op->in[1];
}

typedef struct NarrowSizes { int64_t pixels, each; int c, k, pieces; } NarrowSizes;

static NarrowSizes sizes_of(const OpDesc *op)
{
    const Tensor *x = tensor_x(op);
    NarrowSizes   s = { x->dim[0] * x->dim[1] * x->dim[2], 0, (int)x->dim[3], (int)tensor_y(op)->dim[3], 1 };
    const int64_t most = NARROW_PIECES;
    int64_t       pieces = (s.pixels + NARROW_ROWS - 1) / NARROW_ROWS;
    pieces = pieces < 1 ? 1 : pieces > most ? most : pieces;
    s.each = (s.pixels + pieces - 1) / pieces;
    s.pieces = s.each > 0 ? (int)((s.pixels + s.each - 1) / s.each) : 1;
    return s;
}

bool conv_narrow_fits(const OpDesc *op)
{
    const Tensor *x = tensor_x(op), *y = tensor_y(op);
    return op->attr.kernel == 1 && op->attr.stride == 1 && op->attr.pad == 0 && y->dim[3] <= NARROW_OUTPUTS && x->dim[3] % 8 == 0 &&
           x->dim[3] <= NARROW_CHANNELS;
}

size_t conv_narrow_scratch(const OpDesc *op)
{
    const NarrowSizes s = sizes_of(op);
    return op->kind == OP_conv2d_wgrad ? (size_t)s.pieces * (size_t)(s.k * s.c) * sizeof(float) : 0;
}

template <class T, int M> static Status run_outputs(Backend *be, const OpDesc *op, void *const *buf, void *scratch)
{
    constexpr int     V = Wide<T>::N;
    const NarrowSizes s = sizes_of(op);
    const size_t      shared = (size_t)(M * s.c) * sizeof(float);
    int               lanes = 1;
    while (lanes < 32 && lanes * V < s.c)
        lanes *= 2;
    if (op->kind == OP_conv2d)
        return cuda_launch(be, narrow_forward_kernel<T, M>, dim3(cuda_blocks(s.pixels, NARROW_BLOCK / lanes, 2048)), NARROW_BLOCK, shared,
                           (const T *)buf[0], (const T *)buf[1], op->n_in == 3 ? (const float *)buf[2] : nullptr, s.pixels, s.c, s.k, lanes,
                           op->attr.relu, (T *)buf[op->n_in]);
    if (op->kind == OP_conv2d_dgrad)
        return cuda_launch(be, narrow_dgrad_kernel<T, M>, dim3(cuda_blocks(s.pixels * (s.c / V), NARROW_BLOCK, 2048)), NARROW_BLOCK, shared,
                           (const T *)buf[0], (const T *)buf[1], s.pixels, s.c, s.k, (T *)buf[2]);
    TRY(cuda_launch(be, narrow_wgrad_kernel<T, M>, dim3((unsigned)s.pieces), NARROW_BLOCK, 0, (const T *)buf[0], (const T *)buf[1], s.pixels,
                    s.c, s.k, s.each, (float *)scratch));
    return cuda_launch(be, narrow_sum_kernel, dim3(cuda_blocks((int64_t)32 * s.k * s.c, NARROW_BLOCK)), NARROW_BLOCK, 0, (const float *)scratch,
                       s.pieces, s.k * s.c, (float *)buf[2], op->attr.accumulate);
}

template <class T> static Status run_type(Backend *be, const OpDesc *op, void *const *buf, void *scratch)
{
    const int64_t k = tensor_y(op)->dim[3];
    return k == 1 ? run_outputs<T, 1>(be, op, buf, scratch) : k == 2 ? run_outputs<T, 2>(be, op, buf, scratch)
         : k <= 4 ? run_outputs<T, 4>(be, op, buf, scratch) : run_outputs<T, 8>(be, op, buf, scratch);
}

Status conv_narrow_run(Backend *be, const OpDesc *op, void *const *buf, void *scratch)
{
    return CUDA_BY_TYPE(tensor_x(op)->dtype, run_type, be, op, buf, scratch);
}
