/* norm_grad.cu - the gradient of batch normalisation, with those of ReLU (by the mask) and of the residual add fused in.
 *
 * With g = dy where the mask is set, xhat = (x - mean) invstd and n rows:
 *   dbeta = sum g,  dgamma = sum g xhat,  dx = gamma invstd (g - dbeta / n - xhat dgamma / n),  dresidual = g
 * Three kernels: sums over rows by parts, their merging, and the outputs. Bytes moved: x, dy and mask twice, dx and dresidual
 * once: x, dy and mask once more than op_cost's least, unless the L2 cache holds them. */
#include "norm.cuh"

/* partial = sum g and sum g (x - mean), of a part. mask: NULL keeps all. */
template <class T, int V> __global__ void __launch_bounds__(NORM_THREADS, 2)
norm_grad_sums(const T *__restrict__ x, const T *__restrict__ dy, const unsigned char *__restrict__ mask,
               const float *__restrict__ mean, int64_t rows, int64_t channels, int columns, float *__restrict__ partial)
{
    enum { AHEAD = 2 };
    __shared__ float room[2][V][NORM_THREADS];
    const int tid = threadIdx.x, lines = NORM_THREADS / columns, line = tid / columns, parts = gridDim.y, part = blockIdx.y;
    const int64_t c = ((int64_t)blockIdx.x * columns + tid % columns) * V;
    const int64_t n = c < channels ? norm_line_rows(rows, lines, parts, part, line) : 0, step = (int64_t)lines * parts * channels;
    int64_t e = ((int64_t)part * lines + line) * channels + c;
    float middle[V] = {}, sum[V] = {}, product[V] = {};
    for (int k = 0; n && k < V; k++)
        middle[k] = mean[c + k];
    for (int64_t i = 0; i < n; i += AHEAD, e += AHEAD * step) {
        float g[AHEAD][V], v[AHEAD][V];
        unsigned bits[AHEAD];
#pragma unroll
        for (int a = 0; a < AHEAD; a++)
            if (i + a < n) {
                const int64_t at = e + a * step;
                load_floats<V>(dy + at, g[a]);
                load_floats<V>(x + at, v[a]);
                bits[a] = mask ? (unsigned)mask[at / 8] >> at % 8 : ~0u; /* V = 8: at is a multiple of 8 */
            }
#pragma unroll
        for (int a = 0; a < AHEAD; a++)
            for (int k = 0; i + a < n && k < V; k++) {
                const float kept = bits[a] >> k & 1 ? g[a][k] : 0.0f;
                sum[k] += kept;
                product[k] += kept * (v[a][k] - middle[k]);
            }
    }
    for (int k = 0; k < V; k++) {
        room[0][k][tid] = sum[k];
        room[1][k][tid] = product[k];
    }
    for (int reach = lines / 2; reach > 0; reach /= 2) {
        __syncthreads();
        for (int k = 0; line < reach && k < V; k++)
            for (int which = 0; which < 2; which++)
                room[which][k][tid] += room[which][k][tid + reach * columns];
    }
    if (line == 0 && c < channels)
        for (int k = 0; k < V; k++)
            for (int which = 0; which < 2; which++)
                partial[(2 * (int64_t)part + which) * channels + c + k] = room[which][k][tid];
}

/* dgamma, dbeta, and for the outputs dx = g gamma invstd + (x - mean) slope + offset. */
static __global__ void __launch_bounds__(NORM_LANES * NORM_SLICES, 1)
norm_grad_merge(const float *__restrict__ partial, int64_t rows, int64_t channels, int parts, const float *__restrict__ gamma,
                const float *__restrict__ invstd, bool accumulate, float *__restrict__ dgamma, float *__restrict__ dbeta,
                float *__restrict__ slope, float *__restrict__ offset)
{
    const int slice = threadIdx.x / NORM_LANES, slices = blockDim.x / NORM_LANES;
    const int64_t c = (int64_t)blockIdx.x * NORM_LANES + threadIdx.x % NORM_LANES;
    double sum = 0, product = 0;
#pragma unroll 8
    for (int part = slice; c < channels && part < parts; part += slices) {
        sum += partial[2 * (int64_t)part * channels + c];
        product += partial[(2 * (int64_t)part + 1) * channels + c];
    }
    norm_add_slices(&sum, &product);
    if (slice || c >= channels)
        return;
    const double n = (double)rows, inverse = invstd[c], scale = gamma[c] * inverse, dg = product * inverse;
    dgamma[c] = (accumulate ? dgamma[c] : 0.0f) + (float)dg;
    dbeta[c] = (accumulate ? dbeta[c] : 0.0f) + (float)sum;
    slope[c] = (float)(-scale * inverse * dg / n);
    offset[c] = (float)(-scale * sum / n);
}

typedef struct Slopes { float mean[NORM_UNIT], scale[NORM_UNIT], slope[NORM_UNIT], offset[NORM_UNIT]; } Slopes;

static __device__ __forceinline__ void load_slopes(const float *gamma, const float *mean, const float *invstd, const float *slope,
                                                   const float *offset, int64_t c, int64_t channels, Slopes *s)
{
#pragma unroll
    for (int k = 0; k < NORM_UNIT; k++) {
        s->mean[k] = mean[c];
        s->scale[k] = gamma[c] * invstd[c];
        s->slope[k] = slope[c];
        s->offset[k] = offset[c];
        c = c + 1 < channels ? c + 1 : 0;
    }
}

template <class T, bool FIXED> __global__ void __launch_bounds__(NORM_THREADS, 2)
norm_grad_output(const T *__restrict__ x, const T *__restrict__ dy, const unsigned char *__restrict__ mask,
                 const float *__restrict__ gamma, const float *__restrict__ mean, const float *__restrict__ invstd,
                 const float *__restrict__ slope, const float *__restrict__ offset, int64_t count, int64_t channels,
                 T *__restrict__ dx, T *__restrict__ dresidual)
{
    const int64_t units = (count + NORM_UNIT - 1) / NORM_UNIT, threads = grid_threads();
    const int64_t first = grid_thread();
    Slopes s;
    if (FIXED && first < units)
        load_slopes(gamma, mean, invstd, slope, offset, (units - 1 - first) * NORM_UNIT % channels, channels, &s);
    for (int64_t u = first; u < units; u += threads) {
        const int64_t e = (units - 1 - u) * NORM_UNIT;
        const int n = (int)(count - e < NORM_UNIT ? count - e : (int64_t)NORM_UNIT);
        const bool whole = FIXED || n == NORM_UNIT;
        const unsigned bits = mask ? mask[e / 8] : ~0u;
        float v[NORM_UNIT], g[NORM_UNIT];
        whole ? load_floats<NORM_UNIT>(x + e, v) : load_some(x + e, n, v);
        whole ? load_floats<NORM_UNIT>(dy + e, g) : load_some(dy + e, n, g);
        if (!FIXED)
            load_slopes(gamma, mean, invstd, slope, offset, e % channels, channels, &s);
#pragma unroll
        for (int k = 0; k < NORM_UNIT; k++) {
            g[k] = bits >> k & 1 ? g[k] : 0.0f;
            v[k] = g[k] * s.scale[k] + (v[k] - s.mean[k]) * s.slope[k] + s.offset[k];
        }
        whole ? store_floats<NORM_UNIT>(dx + e, v) : store_some(dx + e, n, v);
        if (dresidual)
            whole ? store_floats<NORM_UNIT>(dresidual + e, g) : store_some(dresidual + e, n, g);
    }
}

#define EACH_TYPE(T)                                                                                 \
    LAUNCHABLE(norm_grad_sums<T, 1>); LAUNCHABLE(norm_grad_sums<T, NORM_UNIT>);                      \
    LAUNCHABLE(norm_grad_output<T, false>); LAUNCHABLE(norm_grad_output<T, true>);
EACH_TYPE(float)
EACH_TYPE(bf16)
EACH_TYPE(f16)
LAUNCHABLE(norm_grad_merge);

static Status norm_grad_query(Backend *be, const OpDesc *op, OpNeeds *needs)
{
    (void)be;
    const NormShape s = norm_shape(op);
    needs->scratch = norm_partial_bytes(&s) + 2 * (size_t)s.channels * sizeof(float);
    return cuda_query_rows(op);
}

template <class T> static Status run_grad(Backend *be, const OpDesc *op, const NormShape *s, void *const *buf, float *partial)
{
    float *slope = partial + norm_partial_bytes(s) / sizeof(float), *offset = slope + s->channels;
    const T *x = (const T *)buf[0], *dy = (const T *)buf[1];
    const float *gamma = (const float *)buf[2], *mean = (const float *)buf[3], *invstd = (const float *)buf[4];
    const unsigned char *mask = (const unsigned char *)(op->attr.relu ? buf[5] : nullptr);
    void *const *out = buf + op->n_in;
    bool fixed;
    const unsigned blocks = norm_blocks(s, &fixed);
    TRY(cuda_launch(be, s->vector == 1 ? norm_grad_sums<T, 1> : norm_grad_sums<T, NORM_UNIT>,
                    dim3((unsigned)s->tiles, (unsigned)s->parts), NORM_THREADS, 0, x, dy, mask, mean, s->rows, s->channels, s->columns,
                    partial));
    TRY(cuda_launch(be, norm_grad_merge, dim3(cuda_blocks(s->channels, NORM_LANES, INT32_MAX)), norm_merge_threads(s), 0, partial,
                    s->rows, s->channels, s->parts, gamma, invstd, op->attr.accumulate, (float *)out[1], (float *)out[2], slope, offset));
    return cuda_launch(be, fixed ? norm_grad_output<T, true> : norm_grad_output<T, false>, dim3(blocks), NORM_THREADS, 0, x, dy, mask,
                       gamma, mean, invstd, slope, offset, s->count, s->channels, (T *)out[0],
                       (T *)(op->attr.residual ? out[3] : nullptr));
}

static Status norm_grad_run(Backend *be, const OpDesc *op, void *state, void *const *buf, void *scratch)
{
    (void)state;
    const NormShape s = norm_shape(op);
    float *partial = (float *)scratch;
    return CUDA_BY_TYPE(op->in[0].dtype, run_grad, be, op, &s, buf, partial);
}

CUDA_KERNEL(batchnorm_grad, norm_grad_query, nullptr, norm_grad_run, nullptr, nullptr)
