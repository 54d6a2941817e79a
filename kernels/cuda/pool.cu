/* pool.cu - max pooling and global average pooling, both directions.
 *
 * Own kernels rather than cuDNN's: these are bound by memory, cuDNN leaves open which of equal maxima wins, and it has no f32 form
 * with an index that it can also take back. The index of a maximum is its tap within the window, row-major (row * kernel +
 * column); the first one wins, and a NaN wins over any number: it must not vanish. The gradient gathers: each input pixel looks
 * at the windows that hold it, so nothing is zeroed or written twice.
 *
 * A block takes rows of pixels, its threads V neighbouring channels of a pixel: 16 bytes, or 1 element where C does not divide.
 * Bytes moved: op_cost's; what windows share comes from the caches. */
#include "launch.cuh"

enum { POOL_THREADS = 256, POOL_COLUMNS = 32, POOL_SLICES = POOL_THREADS / POOL_COLUMNS, POOL_BLOCKS = 1 << 16 };

typedef struct PoolShape {
    int64_t n, h, w, p, q, groups; /* input (n, h, w), output (n, p, q); groups of V channels */
    int     kernel, stride, pad;
} PoolShape;

/* KERNEL: the window's size if it is known, else 0. */
template <class T, int V, int KERNEL> __global__ void __launch_bounds__(POOL_THREADS, 2)
maxpool_forward(const Pack<T, V> *__restrict__ x, PoolShape s, Pack<T, V> *__restrict__ y, Pack<unsigned char, V> *__restrict__ index)
{
    const int kernel = KERNEL ? KERNEL : s.kernel;
    for (int64_t row = blockIdx.x; row < s.n * s.p; row += gridDim.x) {
        const int64_t image = row / s.p, h0 = row % s.p * s.stride - s.pad;
        for (unsigned i = threadIdx.x; i < (unsigned)(s.q * s.groups); i += blockDim.x) {
            const int64_t w0 = (int64_t)(i / (unsigned)s.groups) * s.stride - s.pad, group = i % (unsigned)s.groups;
            float best[V] = {};
            Pack<unsigned char, V> taps = {};
            bool found = false;
#pragma unroll (KERNEL ? KERNEL : 1)
            for (int r = 0; r < kernel; r++)
#pragma unroll (KERNEL ? KERNEL : 1)
                for (int t = 0; t < kernel; t++) {
                    const int64_t h = h0 + r, w = w0 + t;
                    if (h < 0 || h >= s.h || w < 0 || w >= s.w)
                        continue;
                    const Pack<T, V> v = x[((image * s.h + h) * s.w + w) * s.groups + group];
                    for (int k = 0; k < V; k++) {
                        const float f = widen(v.at[k]);
                        if (!found || f > best[k] || f != f) {
                            best[k] = f;
                            taps.at[k] = (unsigned char)(r * kernel + t);
                        }
                    }
                    found = true;
                }
            Pack<T, V> out;
            for (int k = 0; k < V; k++)
                out.at[k] = narrow<T>(best[k]);
            y[row * s.q * s.groups + i] = out;
            index[row * s.q * s.groups + i] = taps;
        }
    }
}

/* First and last + 1 of the outputs whose windows hold input i. */
static __device__ __forceinline__ void outputs_of(int64_t i, int64_t outputs, const PoolShape &s, int64_t *first, int64_t *last)
{
    const int64_t low = i + s.pad - s.kernel + 1, high = (i + s.pad) / s.stride + 1;
    *first = low <= 0 ? 0 : (low + s.stride - 1) / s.stride;
    *last = high < outputs ? high : outputs;
}

template <class T, int V> __global__ void __launch_bounds__(POOL_THREADS, 2)
maxpool_backward(const Pack<T, V> *__restrict__ dy, const Pack<unsigned char, V> *__restrict__ index, PoolShape s,
                 Pack<T, V> *__restrict__ dx)
{
    for (int64_t row = blockIdx.x; row < s.n * s.h; row += gridDim.x) {
        const int64_t image = row / s.h, h = row % s.h;
        int64_t p0, p1;
        outputs_of(h, s.p, s, &p0, &p1);
        for (unsigned i = threadIdx.x; i < (unsigned)(s.w * s.groups); i += blockDim.x) {
            const int64_t w = i / (unsigned)s.groups, group = i % (unsigned)s.groups;
            int64_t q0, q1;
            outputs_of(w, s.q, s, &q0, &q1);
            float sum[V] = {};
            for (int64_t p = p0; p < p1; p++)
                for (int64_t q = q0; q < q1; q++) {
                    const int64_t e = ((image * s.p + p) * s.q + q) * s.groups + group;
                    const int tap = (int)((h - p * s.stride + s.pad) * s.kernel + w - q * s.stride + s.pad);
                    const Pack<T, V> g = dy[e];
                    const Pack<unsigned char, V> taps = index[e];
                    for (int k = 0; k < V; k++)
                        sum[k] += taps.at[k] == tap ? widen(g.at[k]) : 0.0f;
                }
            Pack<T, V> out;
            for (int k = 0; k < V; k++)
                out.at[k] = narrow<T>(sum[k]);
            dx[row * s.w * s.groups + i] = out;
        }
    }
}

/* A block takes POOL_COLUMNS groups of an image; up to POOL_SLICES threads share the pixels of a group. */
template <class T, int V> __global__ void __launch_bounds__(POOL_THREADS, 2)
avgpool_forward(const Pack<T, V> *__restrict__ x, int64_t images, int64_t pixels, int64_t groups, Pack<T, V> *__restrict__ y)
{
    __shared__ float room[V][POOL_SLICES][POOL_COLUMNS];
    const int column = threadIdx.x % POOL_COLUMNS, slice = threadIdx.x / POOL_COLUMNS, slices = blockDim.x / POOL_COLUMNS;
    const int64_t tiles = (groups + POOL_COLUMNS - 1) / POOL_COLUMNS;
    for (int64_t item = blockIdx.x; item < images * tiles; item += gridDim.x) {
        const int64_t image = item / tiles, group = item % tiles * POOL_COLUMNS + column;
        float sum[V] = {};
#pragma unroll 4
        for (int64_t i = slice; group < groups && i < pixels; i += slices) {
            const Pack<T, V> v = x[(image * pixels + i) * groups + group];
            for (int k = 0; k < V; k++)
                sum[k] += widen(v.at[k]);
        }
        __syncthreads();
        for (int k = 0; k < V; k++)
            room[k][slice][column] = sum[k];
        __syncthreads();
        if (slice || group >= groups)
            continue;
        Pack<T, V> out;
        for (int k = 0; k < V; k++) {
            for (int i = 1; i < slices; i++)
                sum[k] += room[k][i][column];
            out.at[k] = narrow<T>(sum[k] / (float)pixels);
        }
        y[image * groups + group] = out;
    }
}

template <class T, int V> __global__ void __launch_bounds__(POOL_THREADS, 2)
avgpool_backward(const Pack<T, V> *__restrict__ dy, int64_t images, int64_t pixels, int64_t groups, Pack<T, V> *__restrict__ dx)
{
    const int64_t count = images * pixels * groups, step = grid_threads();
    for (int64_t i = grid_thread(); i < count; i += step) {
        const Pack<T, V> g = dy[i / (pixels * groups) * groups + i % groups];
        Pack<T, V> out;
        for (int k = 0; k < V; k++)
            out.at[k] = narrow<T>(widen(g.at[k]) / (float)pixels);
        dx[i] = out;
    }
}

#define EACH_WIDTH(T, V)                                                                                         \
    LAUNCHABLE(maxpool_forward<T, V, 0>); LAUNCHABLE(maxpool_forward<T, V, 2>); LAUNCHABLE(maxpool_forward<T, V, 3>); \
    LAUNCHABLE(maxpool_backward<T, V>); LAUNCHABLE(avgpool_forward<T, V>); LAUNCHABLE(avgpool_backward<T, V>);
#define EACH_TYPE(T) EACH_WIDTH(T, 1) EACH_WIDTH(T, Wide<T>::N)
EACH_TYPE(float)
EACH_TYPE(bf16)
EACH_TYPE(f16)

static Status pool_query(Backend *be, const OpDesc *op, OpNeeds *needs)
{
    (void)be, (void)needs;
    return cuda_query_rows(op);
}

/* x: the op's input or its gradient, y: its output or that one's gradient. */
static PoolShape pool_shape(const OpDesc *op, const Tensor *x, const Tensor *y, int vector)
{
    PoolShape s = { x->dim[0], x->dim[1], x->dim[2], y->dim[1], y->dim[2], x->dim[3] / vector, op->attr.kernel, op->attr.stride,
                    op->attr.pad };
    return s;
}

/* Threads for a row of so many groups. */
static int row_threads(int64_t groups)
{
    return groups < POOL_THREADS ? (int)(groups + 31) / 32 * 32 : (int)POOL_THREADS;
}

template <class T, int V> static Status maxpool_launch(Backend *be, const OpDesc *op, void *const *buf)
{
    const PoolShape s = pool_shape(op, &op->in[0], &op->out[0], V);
    CHECK(s.q * s.groups < INT32_MAX);
    return cuda_launch(be, s.kernel == 2 ? maxpool_forward<T, V, 2> : s.kernel == 3 ? maxpool_forward<T, V, 3> : maxpool_forward<T, V, 0>,
                       dim3(cuda_blocks(s.n * s.p, 1, POOL_BLOCKS)), row_threads(s.q * s.groups), 0, (const Pack<T, V> *)buf[0], s,
                       (Pack<T, V> *)buf[1], (Pack<unsigned char, V> *)buf[2]);
}

template <class T, int V> static Status maxpool_grad_launch(Backend *be, const OpDesc *op, void *const *buf)
{
    const PoolShape s = pool_shape(op, &op->out[0], &op->in[0], V);
    CHECK(s.w * s.groups < INT32_MAX);
    return cuda_launch(be, maxpool_backward<T, V>, dim3(cuda_blocks(s.n * s.h, 1, POOL_BLOCKS)), row_threads(s.w * s.groups), 0,
                       (const Pack<T, V> *)buf[0], (const Pack<unsigned char, V> *)buf[1], s, (Pack<T, V> *)buf[2]);
}

template <class T, int V> static Status avgpool_launch(Backend *be, const OpDesc *op, void *const *buf)
{
    const Tensor *x = &op->in[0];
    const int64_t groups = x->dim[3] / V, tiles = (groups + POOL_COLUMNS - 1) / POOL_COLUMNS, pixels = x->dim[1] * x->dim[2];
    const int slices = pixels < POOL_SLICES ? (int)pixels : (int)POOL_SLICES;
    return cuda_launch(be, avgpool_forward<T, V>, dim3(cuda_blocks(x->dim[0] * tiles, 1, POOL_BLOCKS)), slices * POOL_COLUMNS, 0,
                       (const Pack<T, V> *)buf[0], x->dim[0], pixels, groups, (Pack<T, V> *)buf[1]);
}

template <class T, int V> static Status avgpool_grad_launch(Backend *be, const OpDesc *op, void *const *buf)
{
    const Tensor *x = &op->out[0];
    const int64_t groups = x->dim[3] / V, pixels = x->dim[1] * x->dim[2];
    return cuda_launch(be, avgpool_backward<T, V>, dim3(cuda_blocks(x->dim[0] * pixels * groups, POOL_THREADS)), POOL_THREADS, 0,
                       (const Pack<T, V> *)buf[0], x->dim[0], pixels, groups, (Pack<T, V> *)buf[1]);
}

template <class T> static Status pool_launch(Backend *be, const OpDesc *op, void *const *buf)
{
    enum { V = Wide<T>::N };
    const Tensor *act = op->kind == OP_avgpool_grad ? &op->out[0] : &op->in[0];
    const bool wide = act->dim[3] % V == 0;
    switch (op->kind) {
    case OP_maxpool:      return (wide ? maxpool_launch<T, V> : maxpool_launch<T, 1>)(be, op, buf);
    case OP_maxpool_grad: return (wide ? maxpool_grad_launch<T, V> : maxpool_grad_launch<T, 1>)(be, op, buf);
    case OP_avgpool:      return (wide ? avgpool_launch<T, V> : avgpool_launch<T, 1>)(be, op, buf);
    default:              return (wide ? avgpool_grad_launch<T, V> : avgpool_grad_launch<T, 1>)(be, op, buf);
    }
}

static Status pool_run(Backend *be, const OpDesc *op, void *state, void *const *buf, void *scratch)
{
    (void)state, (void)scratch;
    return CUDA_BY_TYPE(op->in[0].dtype, pool_launch, be, op, buf);
}

CUDA_KERNEL(maxpool, pool_query, nullptr, pool_run, nullptr, nullptr)
CUDA_KERNEL(maxpool_grad, pool_query, nullptr, pool_run, nullptr, nullptr)
CUDA_KERNEL(avgpool, pool_query, nullptr, pool_run, nullptr, nullptr)
CUDA_KERNEL(avgpool_grad, pool_query, nullptr, pool_run, nullptr, nullptr)
