/* conv_narrow.c - see conv_narrow.h.
 *
 *   forward  y[p][k] = bias[k] + sum over c of x[p][c] w[k][c]
 *   dgrad    dx[p][c] = sum over k of dy[p][k] w[k][c]
 *   wgrad    dw[k][c] = sum over pixels p of dy[p][k] x[p][c], dbias[k] = sum over p of dy[p][k]
 *
 * One vector is sixteen channels of one pixel. Pixels are divided among the threads; the gradient of the weights is added up
 * in fp32 over some pixels, then in double, threads in their order: the same bits every time. */
#include "conv_narrow.h"

#include "vec_math.h"

#include <omp.h>

enum { MOST_OUTPUTS = 64, FEW_OUTPUTS = 8, GROUP = 4, SUMMED_ROWS = 64 };

typedef struct NarrowJob {
    Dtype        t;
    ActView      x;
    int          outputs;
    bool         relu;
    const void  *from, *dy;  /* x and dy, or whichever there is */
    void        *to;         /* y or dx */
    const float *w, *bias;   /* [outputs][c] */
    double      *sums;       /* wgrad: [threads][outputs][c + 1], the bias last */
} NarrowJob;

/* Slots as in conv.c: x is also dx, y also dy. */
static const Tensor *tensor_x(const OpDesc *op) { return op->kind == OP_conv2d_dgrad ? &op->out[0] : &op->in[0]; }
static const Tensor *tensor_y(const OpDesc *op)
{
    return op->kind == OP_conv2d ? &op->out[0] : op->kind == OP_conv2d_dgrad ? &op->in[0] : &op->in[1];
}

bool narrow_conv_fits(const CpuBackend *be, const OpDesc *op)
{
    const Tensor *x = tensor_x(op), *y = tensor_y(op);
    const bool    known = x->dtype == DTYPE_F32 || x->dtype == DTYPE_BF16;
    return known && op->attr.kernel == 1 && op->attr.stride == 1 && op->attr.pad == 0 && x->dim[3] % 16 == 0 &&
           y->dim[3] % 16 != 0 && y->dim[3] <= (cpu_is_blocked(be, x) ? MOST_OUTPUTS : FEW_OUTPUTS);
}

static size_t weight_count(const OpDesc *op) { return (size_t)(tensor_x(op)->dim[3] * tensor_y(op)->dim[3]); }

size_t narrow_conv_scratch(const CpuBackend *be, const OpDesc *op)
{
    if (op->kind == OP_conv2d_wgrad)
        return (size_t)be->threads * (weight_count(op) + (size_t)tensor_y(op)->dim[3]) * sizeof(double);
    return op->in[1].dtype == DTYPE_F32 ? 0 : weight_count(op) * sizeof(float);
}

static inline float load_one(Dtype t, const void *base, int64_t i)
{
    return t == DTYPE_F32 ? ((const float *)base)[i] : bf16_to_f32(((const uint16_t *)base)[i]);
}

/* ---- the loops, with the type and a number of outputs, k to k + n, as constants */

ALWAYS_INLINE void forward_row(Dtype t, int n, const NarrowJob *j, int k, int64_t row, int64_t index)
{
    VecF sum[GROUP] = { { 0 } };
    for (int b = 0; b < j->x.blocks; b++) {
        const VecF x = vec_load(t, j->from, index + b * j->x.block_stride);
        for (int i = 0; i < n; i++)
            sum[i] = vec_fma(x, vec_load_f32(j->w + (k + i) * j->x.c + 16 * b), sum[i]);
    }
    for (int i = 0; i < n; i++) {
        float y = vec_sum(sum[i]) + (j->bias ? j->bias[k + i] : 0);
        y = j->relu && y < 0 ? 0 : y;
        if (t == DTYPE_F32)
            ((float *)j->to)[row * j->outputs + k + i] = y;
        else
            ((uint16_t *)j->to)[row * j->outputs + k + i] = bf16_from_f32(y);
    }
}

/* Calls body for the rows [first, last), with `row` and its `index` in x. */
#define FOR_ROWS(v, first, last, row, index, body)                                                        \
    for (int64_t row = (first), within_ = row % (v)->image, image_ = row / (v)->image; row < (last); row++) { \
        const int64_t index = act_index((v), image_, within_, 0);                                         \
        body                                                                                              \
        if (++within_ == (v)->image)                                                                      \
            within_ = 0, image_++;                                                                        \
    }

ALWAYS_INLINE void forward_rows(Dtype t, int n, const NarrowJob *j, int k, int64_t first, int64_t last)
{
    FOR_ROWS(&j->x, first, last, row, index, { forward_row(t, n, j, k, row, index); })
}

/* All outputs at once (k is 0): dx is written once. */
ALWAYS_INLINE void dgrad_rows(Dtype t, int n, const NarrowJob *j, int64_t first, int64_t last)
{
    for (int b = 0; b < j->x.blocks; b++)
        FOR_ROWS(&j->x, first, last, row, index, {
            VecF sum = { 0 };
            for (int k = 0; k < n; k++)
                sum = vec_fma(vec_set(load_one(t, j->dy, row * n + k)), vec_load_f32(j->w + k * j->x.c + 16 * b), sum);
            vec_store(t, j->to, index + b * j->x.block_stride, sum);
        })
}

ALWAYS_INLINE void wgrad_rows(Dtype t, int n, const NarrowJob *j, int k, int64_t first, int64_t last, double *sums)
{
    const int64_t width = j->x.c + 1;
    for (int b = 0; b < j->x.blocks; b++) {
        VecF sum[GROUP] = { { 0 } };
        FOR_ROWS(&j->x, first, last, row, index, {
            const VecF x = vec_load(t, j->from, index + b * j->x.block_stride);
            for (int i = 0; i < n; i++)
                sum[i] = vec_fma(vec_set(load_one(t, j->dy, row * j->outputs + k + i)), x, sum[i]);
        })
        for (int i = 0; i < n; i++)
            for (int l = 0; l < LANES; l++)
                sums[(k + i) * width + 16 * b + l] += (double)sum[i][l];
    }
    for (int i = 0; i < n; i++) {
        float bias = 0;
        for (int64_t row = first; row < last; row++)
            bias += load_one(t, j->dy, row * j->outputs + k + i);
        sums[(k + i) * width + j->x.c] += (double)bias;
    }
}

/* Outputs in groups of four, two or one. */
#define FOR_GROUPS(function, t, j, ...)                                         \
    for (int k_ = 0; k_ < (j)->outputs;) {                                      \
        const int left_ = (j)->outputs - k_, n_ = left_ >= GROUP ? GROUP : left_ >= 2 ? 2 : 1; \
        if (n_ == GROUP)                                                        \
            function(t, GROUP, j, k_, __VA_ARGS__);                             \
        else if (n_ == 2)                                                       \
            function(t, 2, j, k_, __VA_ARGS__);                                 \
        else                                                                    \
            function(t, 1, j, k_, __VA_ARGS__);                                 \
        k_ += n_;                                                               \
    }

static void forward_share(const NarrowJob *j, int64_t first, int64_t last)
{
    for (int64_t row = first; row < last; row += SUMMED_ROWS) { /* so few that the groups find x in the cache */
        const int64_t end = row + SUMMED_ROWS < last ? row + SUMMED_ROWS : last;
        if (j->t == DTYPE_F32)
            FOR_GROUPS(forward_rows, DTYPE_F32, j, row, end)
        else
            FOR_GROUPS(forward_rows, DTYPE_BF16, j, row, end)
    }
}

static void dgrad_share(const NarrowJob *j, int64_t first, int64_t last)
{
    for (int64_t row = first; row < last; row += SUMMED_ROWS) {
        const int64_t end = row + SUMMED_ROWS < last ? row + SUMMED_ROWS : last;
        if (j->outputs == 1 && j->t == DTYPE_F32)
            dgrad_rows(DTYPE_F32, 1, j, row, end);
        else if (j->outputs == 1)
            dgrad_rows(DTYPE_BF16, 1, j, row, end);
        else if (j->outputs == 2 && j->t == DTYPE_F32)
            dgrad_rows(DTYPE_F32, 2, j, row, end);
        else if (j->outputs == 2)
            dgrad_rows(DTYPE_BF16, 2, j, row, end);
        else
            dgrad_rows(j->t, j->outputs, j, row, end);
    }
}

static void wgrad_share(const NarrowJob *j, int thread, int64_t first, int64_t last)
{
    double *sums = j->sums + thread * j->outputs * (j->x.c + 1);
    memset(sums, 0, (size_t)(j->outputs * (j->x.c + 1)) * sizeof *sums);
    for (int64_t row = first; row < last; row += SUMMED_ROWS) {
        const int64_t end = row + SUMMED_ROWS < last ? row + SUMMED_ROWS : last;
        if (j->t == DTYPE_F32)
            FOR_GROUPS(wgrad_rows, DTYPE_F32, j, row, end, sums)
        else
            FOR_GROUPS(wgrad_rows, DTYPE_BF16, j, row, end, sums)
    }
}

static void reduce_wgrad(const NarrowJob *j, const OpDesc *op, int threads, float *dw, float *dbias)
{
    const int64_t width = j->x.c + 1;
    for (int64_t i = 0; i < j->outputs * width; i++) {
        const int64_t k = i / width, c = i % width;
        float        *to = c < j->x.c ? &dw[k * j->x.c + c] : dbias ? &dbias[k] : NULL;
        double        sum = 0;
        for (int thread = 0; thread < threads; thread++)
            sum += j->sums[thread * j->outputs * width + i];
        if (to)
            *to = (op->attr.accumulate ? *to : 0) + (float)sum;
    }
}

static NarrowJob job_make(const CpuBackend *be, const OpDesc *op, void *const *buf, void *scratch)
{
    NarrowJob j = { .t = tensor_x(op)->dtype, .x = act_view(be, tensor_x(op)), .outputs = (int)tensor_y(op)->dim[3],
                    .relu = op->attr.relu };
    if (op->kind == OP_conv2d_wgrad) {
        j.from = buf[0];
        j.dy = buf[1];
        j.sums = scratch;
        return j;
    }
    j.from = j.dy = buf[0];
    j.to = buf[op->n_in];
    j.bias = op->n_in == 3 ? buf[2] : NULL;
    j.w = j.t == DTYPE_F32 ? buf[1] : scratch;
    for (size_t i = 0; j.t != DTYPE_F32 && i < weight_count(op); i++)
        ((float *)scratch)[i] = load_one(j.t, buf[1], (int64_t)i);
    return j;
}

void narrow_conv_run(const CpuBackend *be, const OpDesc *op, void *const *buf, void *scratch)
{
    const NarrowJob j = job_make(be, op, buf, scratch);
    int             threads = 1;
#pragma omp parallel num_threads(be->threads)
    {
        int64_t first, last;
        thread_share(j.x.rows, 1, omp_get_thread_num(), omp_get_num_threads(), &first, &last);
        if (omp_get_thread_num() == 0)
            threads = omp_get_num_threads();
        if (op->kind == OP_conv2d)
            forward_share(&j, first, last);
        else if (op->kind == OP_conv2d_dgrad)
            dgrad_share(&j, first, last);
        else
            wgrad_share(&j, omp_get_thread_num(), first, last);
    }
    if (op->kind == OP_conv2d_wgrad)
        reduce_wgrad(&j, op, threads, buf[2], op->n_out == 2 ? buf[3] : NULL);
}
