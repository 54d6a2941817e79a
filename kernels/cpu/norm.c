/* norm.c - batch normalisation (Ioffe and Szegedy 2015) with the residual add and ReLU fused in: forward, backward, inference.
 *
 * Memory-bound, so it is about passes: forward reads x twice (statistics, then output), backward reads x and dy twice. The
 * rows (pixels) are divided among the threads. Sums run in fp32 over a few hundred rows and then in double; the squares
 * are of x - shift with shift a mean of sampled rows, so that nothing cancels where |mean| is far above the deviation. The
 * order of every sum depends only on shape and thread count: the same bits every time.
 *
 * The mask has the bit of each element of y that is > 0, in the physical order of y. */
#include "cpu.h"
#include "vec.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>

enum { SAMPLED_ROWS = 64, SUMMED_ROWS = 256 };

/* One call, seen by every thread. Vectors are padded to whole blocks, [blocks * 16]. */
typedef struct NormJob {
    const OpDesc *op;
    ActView v;
    const void *x, *dy, *residual, *mask_in;
    void   *y, *mask_out, *dresidual;
    double *partial;    /* [threads][2][padded channels]: the two sums */
    float  *recent;     /* [threads][2][padded channels]: of the last rows */
    float  *shift;      /* forward: what squares are taken about; then the mean */
    float  *scale, *offset, *slope; /* y = (x - shift) scale + offset;  dx = dy scale + (x - shift) slope + offset */
    void *const *buf;
} NormJob;

static int64_t padded_channels(const ActView *v) { return 16 * (int64_t)v->blocks; }

/* Calls body(first element index of a run, rows of the run, block, lanes) for the rows [first, last): blocks inside runs,
 * so that a run of all channels stays near. */
#define FOR_RUNS(v, first, last, index, rows, block, lanes, body)                                                     \
    for (int64_t row_ = (first); row_ < (last);) {                                                                    \
        int64_t image_ = row_ / (v)->image, within_ = row_ % (v)->image, left_ = (last) - row_;                       \
        int64_t rows = (v)->image - within_ < left_ ? (v)->image - within_ : left_;                                   \
        rows = rows < (v)->run ? rows : (v)->run;                                                                     \
        for (int block = 0; block < (v)->blocks; block++) {                                                           \
            const int     lanes = act_lanes((v), block);                                                              \
            const int64_t index = act_index((v), image_, within_, block);                                             \
            body                                                                                                      \
        }                                                                                                             \
        row_ += rows;                                                                                                 \
    }

/* ---- sums */

ALWAYS_INLINE void add_to(float *sum, VecF s) { vec_store_f32(sum, vec_load_f32(sum) + s); }

/* Moves what SUMMED_ROWS rows have gathered in fp32 into the thread's double sums. */
static void flush_sums(float *restrict recent, double *restrict sum, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        sum[i] += (double)recent[i];
        recent[i] = 0;
    }
}

/* sum and square sum of x - shift over a run of one block. Four accumulators hide the latency of the adds. */
ALWAYS_INLINE void sum_run(Dtype t, const void *x, int64_t i, int64_t step, int64_t rows, int lanes, VecF shift, float *sum,
                           float *square)
{
    VecF    s[4] = { { 0 } }, q[4] = { { 0 } };
    int64_t r = 0;
    for (; r + 4 <= rows; r += 4)
        for (int k = 0; k < 4; k++) {
            VecF d = vec_load_some(t, x, i + (r + k) * step, lanes) - shift;
            s[k] += d;
            q[k] += d * d;
        }
    for (; r < rows; r++) {
        VecF d = vec_load_some(t, x, i + r * step, lanes) - shift;
        s[0] += d;
        q[0] += d * d;
    }
    add_to(sum, (s[0] + s[1]) + (s[2] + s[3]));
    add_to(square, (q[0] + q[1]) + (q[2] + q[3]));
}

/* sum of dy and of dy (x - mean) over a run of one block, dy masked. */
ALWAYS_INLINE void sum_grad_run(Dtype t, const NormJob *j, int64_t i, int64_t rows, int lanes, bool whole, bool relu, VecF mean,
                                float *sum, float *product)
{
    VecF    s[2] = { { 0 } }, p[2] = { { 0 } };
    int64_t step = j->v.row_stride, r = 0;
    for (; r < rows; r++) {
        int64_t e = i + r * step;
        VecF    dy = vec_load_some(t, j->dy, e, lanes);
        if (relu)
            dy = vec_keep(dy, bits_load(j->mask_in, e, lanes, whole));
        s[r & 1] += dy;
        p[r & 1] += dy * (vec_load_some(t, j->x, e, lanes) - mean);
    }
    add_to(sum, s[0] + s[1]);
    add_to(product, p[0] + p[1]);
}

ALWAYS_INLINE void sum_rows(Dtype t, bool whole, const NormJob *j, int64_t first, int64_t last, float *recent)
{
    const int64_t channels = padded_channels(&j->v);
    FOR_RUNS(&j->v, first, last, i, rows, b, lanes, {
        sum_run(t, j->x, i, j->v.row_stride, rows, whole ? LANES : lanes, vec_load_f32(j->shift + 16 * b), recent + 16 * b,
                recent + channels + 16 * b);
    })
}

ALWAYS_INLINE void sum_grad_rows(Dtype t, bool whole, bool relu, const NormJob *j, int64_t first, int64_t last, float *recent)
{
    const int64_t channels = padded_channels(&j->v);
    FOR_RUNS(&j->v, first, last, i, rows, b, lanes, {
        sum_grad_run(t, j, i, rows, whole ? LANES : lanes, whole, relu, vec_load_f32(j->shift + 16 * b), recent + 16 * b,
                     recent + channels + 16 * b);
    })
}

/* ---- outputs */

ALWAYS_INLINE void output_run(Dtype t, const NormJob *j, int64_t i, int64_t rows, int block, int lanes, bool whole, bool relu,
                              bool residual)
{
    const VecF shift = vec_load_f32(j->shift + 16 * block), scale = vec_load_f32(j->scale + 16 * block);
    const VecF offset = vec_load_f32(j->offset + 16 * block);
    for (int64_t r = 0; r < rows; r++) {
        int64_t e = i + r * j->v.row_stride;
        VecF    y = (vec_load_some(t, j->x, e, lanes) - shift) * scale + offset;
        if (residual)
            y += vec_load_some(t, j->residual, e, lanes);
        if (relu) {
            if (j->mask_out)
                bits_store(j->mask_out, e, vec_positive(y), lanes, whole);
            y = vec_relu(y);
        }
        vec_store_some(t, j->y, e, y, lanes);
    }
}

ALWAYS_INLINE void output_rows(Dtype t, bool whole, bool relu, bool residual, const NormJob *j, int64_t first, int64_t last)
{
    FOR_RUNS(&j->v, first, last, i, rows, b, lanes, {
        output_run(t, j, i, rows, b, whole ? LANES : lanes, whole, relu, residual);
    })
}

ALWAYS_INLINE void grad_run(Dtype t, const NormJob *j, int64_t i, int64_t rows, int block, int lanes, bool whole, bool relu,
                            bool residual)
{
    const VecF shift = vec_load_f32(j->shift + 16 * block), scale = vec_load_f32(j->scale + 16 * block);
    const VecF offset = vec_load_f32(j->offset + 16 * block), slope = vec_load_f32(j->slope + 16 * block);
    for (int64_t r = 0; r < rows; r++) {
        int64_t e = i + r * j->v.row_stride;
        VecF    dy = vec_load_some(t, j->dy, e, lanes);
        if (relu)
            dy = vec_keep(dy, bits_load(j->mask_in, e, lanes, whole));
        if (residual)
            vec_store_some(t, j->dresidual, e, dy, lanes);
        VecF dx = dy * scale + (vec_load_some(t, j->x, e, lanes) - shift) * slope + offset;
        vec_store_some(t, j->y, e, dx, lanes);
    }
}

ALWAYS_INLINE void grad_rows(Dtype t, bool whole, bool relu, bool residual, const NormJob *j, int64_t first, int64_t last)
{
    FOR_RUNS(&j->v, first, last, i, rows, b, lanes, {
        grad_run(t, j, i, rows, b, whole ? LANES : lanes, whole, relu, residual);
    })
}

/* Loops with the type, whole blocks, ReLU and residual as constants. */
#define BY_TYPE(function, t, whole, ...)                       \
    do {                                                       \
        if ((t) == DTYPE_F32 && (whole))                       \
            function(DTYPE_F32, true, __VA_ARGS__);            \
        else if ((t) == DTYPE_BF16 && (whole))                 \
            function(DTYPE_BF16, true, __VA_ARGS__);           \
        else                                                   \
            function((t), false, __VA_ARGS__);                 \
    } while (0)

#define BY_FUSION(function, t, whole, relu, residual, ...)     \
    do {                                                       \
        if ((relu) && (residual))                              \
            BY_TYPE(function, t, whole, true, true, __VA_ARGS__);   \
        else if (relu)                                         \
            BY_TYPE(function, t, whole, true, false, __VA_ARGS__);  \
        else if (residual)                                     \
            BY_TYPE(function, t, whole, false, true, __VA_ARGS__);  \
        else                                                   \
            BY_TYPE(function, t, whole, false, false, __VA_ARGS__); \
    } while (0)

static void sum_forward(const NormJob *j, int64_t first, int64_t last, float *recent)
{
    BY_TYPE(sum_rows, j->op->in[0].dtype, j->v.whole, j, first, last, recent);
}

static void sum_backward(const NormJob *j, int64_t first, int64_t last, float *recent)
{
    if (j->op->attr.relu)
        BY_TYPE(sum_grad_rows, j->op->in[0].dtype, j->v.whole, true, j, first, last, recent);
    else
        BY_TYPE(sum_grad_rows, j->op->in[0].dtype, j->v.whole, false, j, first, last, recent);
}

/* A thread's sums over its rows: fp32 over SUMMED_ROWS of them, double over the rest. */
static void sum_share(const NormJob *j, int thread, int64_t first, int64_t last,
                      void sum_some(const NormJob *j, int64_t first, int64_t last, float *recent))
{
    const int64_t n = 2 * padded_channels(&j->v);
    for (int64_t row = first; row < last; row += SUMMED_ROWS) {
        sum_some(j, row, row + SUMMED_ROWS < last ? row + SUMMED_ROWS : last, j->recent + thread * n);
        flush_sums(j->recent + thread * n, j->partial + thread * n, n);
    }
}

static void output_forward(const NormJob *j, int64_t first, int64_t last)
{
    BY_FUSION(output_rows, j->op->in[0].dtype, j->v.whole, j->op->attr.relu, j->op->attr.residual, j, first, last);
}

static void output_backward(const NormJob *j, int64_t first, int64_t last)
{
    BY_FUSION(grad_rows, j->op->in[0].dtype, j->v.whole, j->op->attr.relu, j->op->attr.residual, j, first, last);
}

/* ---- per channel */

/* shift = mean of up to SAMPLED_ROWS rows spread over the tensor. */
static void sample_shift(const NormJob *j, int block_first, int block_last)
{
    const ActView *v = &j->v;
    const int64_t  count = v->rows < SAMPLED_ROWS ? v->rows : SAMPLED_ROWS;
    for (int b = block_first; b < block_last; b++) {
        VecF sum = { 0 };
        for (int64_t s = 0; s < count; s++) {
            int64_t row = s * v->rows / count;
            sum += vec_load_some(j->op->in[0].dtype, j->x, act_index(v, row / v->image, row % v->image, b), act_lanes(v, b));
        }
        vec_store_f32(j->shift + 16 * b, sum / (float)count);
    }
}

static double reduce(const NormJob *j, int threads, int which, int64_t c)
{
    const int64_t channels = padded_channels(&j->v);
    double        sum = 0;
    for (int t = 0; t < threads; t++)
        sum += j->partial[(2 * t + which) * channels + c];
    return sum;
}

static void finish_forward(NormJob *j, int threads, int64_t c)
{
    const OpAttr *a = &j->op->attr;
    const float *gamma = j->buf[1], *beta = j->buf[2];
    float *run_mean = j->buf[3], *run_var = j->buf[4];
    float *mean = j->buf[j->op->n_in + 1], *invstd = j->buf[j->op->n_in + 2];
    const double n = (double)j->v.rows;
    double away = reduce(j, threads, 0, c) / n; /* mean - shift */
    double variance = reduce(j, threads, 1, c) / n - away * away;
    double m = (double)j->shift[c] + away;
    if (variance < 0)
        variance = 0;
    mean[c] = (float)m;
    invstd[c] = (float)(1.0 / sqrt(variance + (double)a->eps));
    if (n > 1 && isfinite(mean[c]) && isfinite((float)variance)) {
        double unbiased = variance * (n / (n - 1));
        run_mean[c] = (float)((1.0 - (double)a->momentum) * (double)run_mean[c] + (double)a->momentum * m);
        run_var[c] = (float)((1.0 - (double)a->momentum) * (double)run_var[c] + (double)a->momentum * unbiased);
    }
    j->shift[c] = mean[c];
    j->scale[c] = gamma[c] * invstd[c];
    j->offset[c] = beta[c];
}

/* dx = gamma invstd (dy - dbeta/n - (x - mean) invstd dgamma/n), with the sums of this call. */
static void finish_backward(NormJob *j, int threads, int64_t c)
{
    const float *gamma = j->buf[2], *invstd = j->buf[4];
    float *dgamma = j->buf[j->op->n_in + 1], *dbeta = j->buf[j->op->n_in + 2];
    const double n = (double)j->v.rows, inv = (double)invstd[c], scale = (double)gamma[c] * inv;
    double db = reduce(j, threads, 0, c), dg = reduce(j, threads, 1, c) * inv;
    bool   add = j->op->attr.accumulate;
    dgamma[c] = (add ? dgamma[c] : 0.0f) + (float)dg;
    dbeta[c] = (add ? dbeta[c] : 0.0f) + (float)db;
    j->scale[c] = (float)scale;
    j->slope[c] = (float)(-scale * inv * dg / n);
    j->offset[c] = (float)(-scale * db / n);
}

/* ---- the kernels */

static size_t norm_scratch(const CpuBackend *be, const ActView *v)
{
    size_t channels = (size_t)padded_channels(v);
    return (2 * (sizeof(double) + sizeof(float)) * (size_t)be->threads + 4 * sizeof(float)) * channels;
}

static Status norm_query(Backend *base, const OpDesc *op, OpNeeds *needs)
{
    ActView v = act_view(cpu_of(base), &op->in[0]);
    needs->scratch = norm_scratch(cpu_of(base), &v);
    return status_ok();
}

/* Sets up what both directions share; vectors in scratch start as zeros, their padding stays so. */
static NormJob norm_job(const CpuBackend *be, const OpDesc *op, void *const *buf, void *scratch)
{
    NormJob j = { .op = op, .v = act_view(be, &op->in[0]), .buf = buf, .x = buf[0], .y = buf[op->n_in] };
    int64_t channels = padded_channels(&j.v);
    memset(scratch, 0, norm_scratch(be, &j.v));
    j.partial = scratch;
    j.recent = (float *)(j.partial + 2 * be->threads * channels);
    j.shift = j.recent + 2 * be->threads * channels;
    j.scale = j.shift + channels;
    j.offset = j.scale + channels;
    j.slope = j.offset + channels;
    return j;
}

static Status batchnorm_run(Backend *base, const OpDesc *op, void *state, void *const *buf, void *scratch)
{
    (void)state;
    const CpuBackend *be = cpu_of(base);
    NormJob j = norm_job(be, op, buf, scratch);
    j.residual = op->attr.residual ? buf[5] : NULL;
    j.mask_out = op->attr.relu ? buf[op->n_in + 3] : NULL;
#pragma omp parallel num_threads(be->threads)
    {
        const int thread = omp_get_thread_num(), threads = omp_get_num_threads();
        int64_t   first, last, a, b;
        thread_share(j.v.blocks, 1, thread, threads, &a, &b);
        sample_shift(&j, (int)a, (int)b);
#pragma omp barrier
        thread_share(j.v.rows, j.v.whole ? 1 : 8, thread, threads, &first, &last);
        sum_share(&j, thread, first, last, sum_forward);
#pragma omp barrier
        for (int64_t c = 16 * a; c < 16 * b && c < j.v.c; c++)
            finish_forward(&j, threads, c);
#pragma omp barrier
        output_forward(&j, first, last);
    }
    return status_ok();
}

static Status batchnorm_grad_run(Backend *base, const OpDesc *op, void *state, void *const *buf, void *scratch)
{
    (void)state;
    const CpuBackend *be = cpu_of(base);
    NormJob j = norm_job(be, op, buf, scratch);
    j.dy = buf[1];
    j.mask_in = op->attr.relu ? buf[5] : NULL;
    j.dresidual = op->attr.residual ? buf[op->n_in + 3] : NULL;
    memcpy(j.shift, buf[3], (size_t)j.v.c * sizeof *j.shift);
#pragma omp parallel num_threads(be->threads)
    {
        const int thread = omp_get_thread_num(), threads = omp_get_num_threads();
        int64_t   first, last, a, b;
        thread_share(j.v.rows, j.v.whole ? 1 : 8, thread, threads, &first, &last);
        sum_share(&j, thread, first, last, sum_backward);
#pragma omp barrier
        thread_share(j.v.c, 1, thread, threads, &a, &b);
        for (int64_t c = a; c < b; c++)
            finish_backward(&j, threads, c);
#pragma omp barrier
        output_backward(&j, first, last);
    }
    return status_ok();
}

static Status batchnorm_infer_run(Backend *base, const OpDesc *op, void *state, void *const *buf, void *scratch)
{
    (void)state;
    const CpuBackend *be = cpu_of(base);
    const float *gamma = buf[1], *beta = buf[2], *mean = buf[3], *variance = buf[4];
    NormJob j = norm_job(be, op, buf, scratch);
    j.residual = op->attr.residual ? buf[5] : NULL;
    for (int64_t c = 0; c < j.v.c; c++) {
        j.shift[c] = mean[c];
        j.scale[c] = (float)((double)gamma[c] / sqrt((double)variance[c] + (double)op->attr.eps));
        j.offset[c] = beta[c];
    }
#pragma omp parallel num_threads(be->threads)
    {
        int64_t first, last;
        thread_share(j.v.rows, 1, omp_get_thread_num(), omp_get_num_threads(), &first, &last);
        output_forward(&j, first, last);
    }
    return status_ok();
}

const Kernel cpu_batchnorm = { norm_query, NULL, batchnorm_run, NULL, NULL };
const Kernel cpu_batchnorm_grad = { norm_query, NULL, batchnorm_grad_run, NULL, NULL };
const Kernel cpu_batchnorm_infer = { norm_query, NULL, batchnorm_infer_run, NULL, NULL };
