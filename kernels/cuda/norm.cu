/* norm.cu - batch normalisation forward (Ioffe and Szegedy 2015) with the residual add, ReLU and its mask fused in: training and
 * inference. norm_grad.cu has the gradient, norm.cuh how tensors are cut.
 *
 * Training is three kernels: sums over rows by parts, their merging with the update of the running statistics, and the output.
 * Each thread takes its sums about the first row that it meets, and means are kept as distances from the tensor's first row (base),
 * so nothing cancels where |mean| is far above the deviation; mean and squares of two sets are merged as in Chan, Golub and
 * LeVeque 1979.
 * Bytes moved: x twice, residual, y and mask once: one x more than op_cost's least, unless the L2 cache holds it.
 *
 * Not cuDNN's, though 9.19 finalises all these forms for sm_80, 90 and 100 (in 16 bits; in f32 asked for sm_90 only): the add, ReLU and
 * boolean mask fused, and the mask with the gradient. It has one engine for them, compiled at run time in half a second to two for
 * each of its 18 to 35 configurations and each shape, and own kernels would be needed around it: for running statistics that stay
 * when the new ones are not finite, and for gradients that add up. */
#include "norm.cuh"

/* partial = mean (less base) and sum of squares about the mean, of a part. */
template <class T, int V> __global__ void __launch_bounds__(NORM_THREADS, 2)
norm_statistics(const T *__restrict__ x, int64_t rows, int64_t channels, int columns, float *__restrict__ base,
                float *__restrict__ partial)
{
    enum { AHEAD = 4 };
    __shared__ float room[2][V][NORM_THREADS];
    __shared__ float counts[NORM_THREADS];
    const int tid = threadIdx.x, lines = NORM_THREADS / columns, line = tid / columns, parts = gridDim.y, part = blockIdx.y;
    const int64_t c = ((int64_t)blockIdx.x * columns + tid % columns) * V;
    const int64_t n = c < channels ? norm_line_rows(rows, lines, parts, part, line) : 0, step = (int64_t)lines * parts * channels;
    const T *from = x + ((int64_t)part * lines + line) * channels + c;
    float origin[V] = {}, shift[V] = {}, sum[V] = {}, square[V] = {};
    if (n) {
        load_floats<V>(x + c, origin);
        load_floats<V>(from, shift);
    }
    for (int64_t i = 0; i < n; i += AHEAD, from += AHEAD * step) {
        float v[AHEAD][V];
#pragma unroll
        for (int a = 0; a < AHEAD; a++)
            if (i + a < n)
                load_floats<V>(from + a * step, v[a]);
#pragma unroll
        for (int a = 0; a < AHEAD; a++)
            for (int k = 0; i + a < n && k < V; k++) {
                const float d = v[a][k] - shift[k];
                sum[k] += d;
                square[k] += d * d;
            }
    }
    const float count = (float)n;
    counts[tid] = count;
    for (int k = 0; k < V; k++) {
        const float away = n ? sum[k] / count : 0.0f, m2 = square[k] - away * sum[k];
        room[0][k][tid] = (shift[k] - origin[k]) + away;
        room[1][k][tid] = m2 < 0 ? 0.0f : m2;
    }
    for (int reach = lines / 2; reach > 0; reach /= 2) { /* line `line` and line + reach become one */
        __syncthreads();
        const int other = tid + reach * columns;
        if (line < reach && counts[other] > 0) { /* earlier lines have as many rows or more */
            const float a = counts[tid], b = counts[other], share = b / (a + b);
            for (int k = 0; k < V; k++) {
                const float d = room[0][k][other] - room[0][k][tid];
                room[0][k][tid] += d * share;
                room[1][k][tid] += room[1][k][other] + d * d * a * share;
            }
            counts[tid] = a + b;
        }
    }
    if (line == 0 && c < channels)
        for (int k = 0; k < V; k++) {
            if (part == 0)
                base[c + k] = origin[k];
            for (int which = 0; which < 2; which++)
                partial[(2 * (int64_t)part + which) * channels + c + k] = room[which][k][tid];
        }
}

/* mean, invstd and the running statistics of NORM_LANES channels from all parts, in double. */
static __global__ void __launch_bounds__(NORM_LANES * NORM_SLICES, 1)
norm_merge(const float *__restrict__ base, const float *__restrict__ partial, int64_t rows, int64_t channels, int lines, int parts,
           float eps, float momentum, float *__restrict__ mean, float *__restrict__ invstd, float *__restrict__ run_mean,
           float *__restrict__ run_var)
{
    const int slice = threadIdx.x / NORM_LANES, slices = blockDim.x / NORM_LANES;
    const int64_t c = (int64_t)blockIdx.x * NORM_LANES + threadIdx.x % NORM_LANES;
    double sum = 0, square = 0;
#pragma unroll 8
    for (int part = slice; c < channels && part < parts; part += slices) {
        const double n = (double)norm_part_rows(rows, lines, parts, part), d = partial[2 * (int64_t)part * channels + c];
        sum += n * d;
        square += n * d * d + partial[(2 * (int64_t)part + 1) * channels + c];
    }
    norm_add_slices(&sum, &square);
    if (slice || c >= channels)
        return;
    const double n = (double)rows, away = sum / n, middle = base[c] + away;
    double variance = square / n - away * away;
    variance = variance < 0 ? 0 : variance;
    mean[c] = (float)middle;
    invstd[c] = (float)(1.0 / sqrt(variance + (double)eps));
    if (rows > 1 && fabsf(mean[c]) < INFINITY && fabsf((float)variance) < INFINITY) { /* tests/CASES.md D9 */
        run_mean[c] = (float)((1.0 - (double)momentum) * run_mean[c] + (double)momentum * middle);
        run_var[c] = (float)((1.0 - (double)momentum) * run_var[c] + (double)momentum * (variance * (n / (n - 1))));
    }
}

/* y = (x - mean) scale + beta of eight channels. */
typedef struct Affine { float mean[NORM_UNIT], scale[NORM_UNIT], beta[NORM_UNIT]; } Affine;

/* deviation: 1 / standard deviation, or with inference the variance. First channel c, wrapping around. */
static __device__ __forceinline__ void load_affine(const float *gamma, const float *beta, const float *mean, const float *deviation,
                                                   bool inference, float eps, int64_t c, int64_t channels, Affine *a)
{
#pragma unroll
    for (int k = 0; k < NORM_UNIT; k++) {
        a->mean[k] = mean[c];
        a->scale[k] = inference ? gamma[c] / sqrtf(deviation[c] + eps) : gamma[c] * deviation[c];
        a->beta[k] = beta[c];
        c = c + 1 < channels ? c + 1 : 0;
    }
}

template <class T, bool FIXED> __global__ void __launch_bounds__(NORM_THREADS, 2)
norm_output(const T *__restrict__ x, const T *__restrict__ residual, const float *__restrict__ gamma, const float *__restrict__ beta,
            const float *__restrict__ mean, const float *__restrict__ deviation, bool inference, float eps, bool relu,
            int64_t count, int64_t channels, T *__restrict__ y, unsigned char *__restrict__ mask)
{
    const int64_t units = (count + NORM_UNIT - 1) / NORM_UNIT, threads = grid_threads();
    const int64_t first = grid_thread();
    Affine a;
    if (FIXED && first < units)
        load_affine(gamma, beta, mean, deviation, inference, eps, (units - 1 - first) * NORM_UNIT % channels, channels, &a);
    for (int64_t u = first; u < units; u += threads) {
        const int64_t e = (units - 1 - u) * NORM_UNIT;
        const int n = (int)(count - e < NORM_UNIT ? count - e : (int64_t)NORM_UNIT);
        const bool whole = FIXED || n == NORM_UNIT;
        float v[NORM_UNIT], r[NORM_UNIT] = {};
        whole ? load_floats<NORM_UNIT>(x + e, v) : load_some(x + e, n, v);
        if (residual)
            whole ? load_floats<NORM_UNIT>(residual + e, r) : load_some(residual + e, n, r);
        if (!FIXED)
            load_affine(gamma, beta, mean, deviation, inference, eps, e % channels, channels, &a);
        unsigned bits = 0;
#pragma unroll
        for (int k = 0; k < NORM_UNIT; k++) {
            v[k] = (v[k] - a.mean[k]) * a.scale[k] + a.beta[k] + r[k];
            bits |= (unsigned)(k < n && v[k] > 0) << k;
            if (relu)
                v[k] = v[k] <= 0 ? 0.0f : v[k]; /* NaN stays */
        }
        whole ? store_floats<NORM_UNIT>(y + e, v) : store_some(y + e, n, v);
        if (mask)
            mask[e / 8] = (unsigned char)bits;
    }
}

#define EACH_TYPE(T)                                                                                 \
    LAUNCHABLE(norm_statistics<T, 1>); LAUNCHABLE(norm_statistics<T, NORM_UNIT>);                    \
    LAUNCHABLE(norm_output<T, false>); LAUNCHABLE(norm_output<T, true>);
EACH_TYPE(float)
EACH_TYPE(bf16)
EACH_TYPE(f16)
LAUNCHABLE(norm_merge);

static Status norm_query(Backend *be, const OpDesc *op, OpNeeds *needs)
{
    (void)be;
    const NormShape s = norm_shape(op);
    needs->scratch = norm_partial_bytes(&s) + (size_t)s.channels * sizeof(float);
    return cuda_query_rows(op);
}

static Status norm_infer_query(Backend *be, const OpDesc *op, OpNeeds *needs)
{
    (void)be, (void)needs;
    return cuda_query_rows(op);
}

template <class T> static Status launch_output(Backend *be, const OpDesc *op, const NormShape *s, void *const *buf)
{
    const bool inference = op->kind == OP_batchnorm_infer;
    const float *mean = (const float *)buf[inference ? 3 : op->n_in + 1], *deviation = (const float *)buf[inference ? 4 : op->n_in + 2];
    bool fixed;
    const unsigned blocks = norm_blocks(s, &fixed);
    return cuda_launch(be, fixed ? norm_output<T, true> : norm_output<T, false>, dim3(blocks), NORM_THREADS, 0, (const T *)buf[0],
                       (const T *)(op->attr.residual ? buf[5] : nullptr), (const float *)buf[1], (const float *)buf[2], mean, deviation,
                       inference, op->attr.eps, op->attr.relu, s->count, s->channels, (T *)buf[op->n_in],
                       (unsigned char *)(op->attr.relu && !inference ? buf[op->n_in + 3] : nullptr));
}

template <class T> static Status run_training(Backend *be, const OpDesc *op, const NormShape *s, void *const *buf, float *partial)
{
    float *base = partial + norm_partial_bytes(s) / sizeof(float);
    TRY(cuda_launch(be, s->vector == 1 ? norm_statistics<T, 1> : norm_statistics<T, NORM_UNIT>,
                    dim3((unsigned)s->tiles, (unsigned)s->parts), NORM_THREADS, 0, (const T *)buf[0], s->rows, s->channels, s->columns,
                    base, partial));
    TRY(cuda_launch(be, norm_merge, dim3(cuda_blocks(s->channels, NORM_LANES, INT32_MAX)), norm_merge_threads(s), 0, base,
                    partial, s->rows, s->channels, s->lines, s->parts, op->attr.eps, op->attr.momentum,
                    (float *)buf[op->n_in + 1], (float *)buf[op->n_in + 2], (float *)buf[3], (float *)buf[4]));
    return launch_output<T>(be, op, s, buf);
}

static Status norm_run(Backend *be, const OpDesc *op, void *state, void *const *buf, void *scratch)
{
    (void)state;
    const NormShape s = norm_shape(op);
    float *partial = (float *)scratch;
    return CUDA_BY_TYPE(op->in[0].dtype, run_training, be, op, &s, buf, partial);
}

static Status norm_infer_run(Backend *be, const OpDesc *op, void *state, void *const *buf, void *scratch)
{
    (void)state, (void)scratch;
    const NormShape s = norm_shape(op);
    return CUDA_BY_TYPE(op->in[0].dtype, launch_output, be, op, &s, buf);
}

CUDA_KERNEL(batchnorm, norm_query, nullptr, norm_run, nullptr, nullptr)
CUDA_KERNEL(batchnorm_infer, norm_infer_query, nullptr, norm_infer_run, nullptr, nullptr)
