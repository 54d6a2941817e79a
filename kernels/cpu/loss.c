/* loss.c - softmax cross-entropy with its gradient and the step's metrics.
 *
 * p = softmax(logits) by the usual shift with the row's maximum. A row may be a vocabulary of tens of thousands: exponentials are
 * taken sixteen at a time in fp32 and added in double, so that a loss near zero, log(1 + little), keeps its digits.
 * Rows are independent; the metrics are added in row order. dlogits may lie on the logits: what a row needs
 * of them is read before its place is written. */
#include "cpu.h"
#include "vec_math.h"

typedef struct RowResult { double loss; int hit, counted; } RowResult;

typedef double VecD __attribute__((vector_size(64)));

/* Lanes l and l + 8 of v in lane l of two vectors. */
typedef struct TwoVecD { VecD low, high; } TwoVecD;

ALWAYS_INLINE TwoVecD widen(VecF v)
{
#ifdef __AVX512F__
    const __m256d low = _mm512_castpd512_pd256((__m512d)v), high = _mm512_extractf64x4_pd((__m512d)v, 1);
    return (TwoVecD){ (VecD)_mm512_cvtps_pd((__m256)low), (VecD)_mm512_cvtps_pd((__m256)high) };
#else
    typedef float Half __attribute__((vector_size(32)));
    Half half[2];
    memcpy(half, &v, sizeof v);
    return (TwoVecD){ __builtin_convertvector(half[0], VecD), __builtin_convertvector(half[1], VecD) };
#endif
}

typedef struct LossJob {
    int64_t classes;
    const void    *x;
    const int32_t *labels;
    float          scale;
    void          *dx; /* NULL: only the metrics */
} LossJob;

/* The largest logit of a row; NaN is passed over here and caught by the sum. */
ALWAYS_INLINE float row_largest(Dtype t, const void *x, int64_t start, int64_t n)
{
    VecF    best[4];
    int64_t c = 0;
    float   lane[LANES], largest = -INFINITY;
    for (int b = 0; b < 4; b++)
        best[b] = vec_set(-INFINITY);
    for (; c + 4 * LANES <= n; c += 4 * LANES)
        for (int b = 0; b < 4; b++)
            best[b] = vec_max(vec_load(t, x, start + c + LANES * b), best[b]);
    for (; c + LANES <= n; c += LANES)
        best[0] = vec_max(vec_load(t, x, start + c), best[0]);
    vec_store_f32(lane, vec_max(vec_max(best[0], best[1]), vec_max(best[2], best[3])));
    for (int l = 0; l < LANES; l++)
        largest = lane[l] > largest ? lane[l] : largest;
    for (; c < n; c++) {
        const float f = element_load(t, x, start + c);
        largest = f > largest ? f : largest;
    }
    return largest;
}

/* Sum of e^(x - largest) over a row. */
ALWAYS_INLINE double row_sum(Dtype t, const void *x, int64_t start, int64_t n, float largest)
{
    VecD low = { 0 }, high = { 0 };
    FOR_BLOCKS(c, start, start + n, lanes, {
        VecF e = vec_exp(vec_load_some(t, x, c, lanes) - largest);
        TwoVecD d = widen(lanes == LANES ? e : vec_keep(e, (1u << lanes) - 1));
        low += d.low;
        high += d.high;
    });
    double total = 0;
    for (int l = 0; l < LANES / 2; l++)
        total += low[l] + high[l];
    return total;
}

/* dx = factor e^(x - largest) */
ALWAYS_INLINE void row_gradient(Dtype t, const void *x, void *dx, int64_t start, int64_t n, float largest, float factor)
{
    FOR_BLOCKS(c, start, start + n, lanes, {
        vec_store_some(t, dx, c, factor * vec_exp(vec_load_some(t, x, c, lanes) - largest), lanes);
    });
}

ALWAYS_INLINE void zero_row(Dtype t, void *dx, int64_t start, int64_t n)
{
    const size_t size = (size_t)dtype_bits(t) / 8;
    memset((char *)dx + (size_t)start * size, 0, (size_t)n * size);
}

/* The label's logit is the row's largest, and the first of its equals. */
ALWAYS_INLINE bool is_hit(Dtype t, const void *x, int64_t start, int32_t label, float largest)
{
    if (element_load(t, x, start + label) != largest)
        return false;
    int before = 0;
    for (int32_t c = 0; c < label; c++) /* to the end: a loop without an exit can be vectorised */
        before |= element_load(t, x, start + c) == largest;
    return !before;
}

ALWAYS_INLINE RowResult softmax_row(Dtype t, const LossJob *j, int64_t row)
{
    const int64_t n = j->classes, start = row * n;
    const int32_t label = j->labels[row];
    if (label < 0) {
        if (j->dx)
            zero_row(t, j->dx, start, n);
        return (RowResult){ 0, 0, 0 };
    }
    const float  largest = row_largest(t, j->x, start, n);
    const double sum = row_sum(t, j->x, start, n, largest);
    const double shifted = (double)element_load(t, j->x, start + label) - (double)largest;
    const RowResult result = { log(sum) - shifted, is_hit(t, j->x, start, label, largest), 1 };
    if (j->dx) {
        row_gradient(t, j->x, j->dx, start, n, largest, (float)((double)j->scale / sum));
        element_store(t, j->dx, start + label, (float)((double)j->scale * (exp(shifted) / sum - 1.0)));
    }
    return result;
}

static Status softmax_xent_query(Backend *be, const OpDesc *op, OpNeeds *needs)
{
    (void)be;
    needs->scratch = (size_t)op->in[0].dim[0] * sizeof(RowResult);
    return cpu_query_plain(op, needs);
}

static Status softmax_xent_run(Backend *base, const OpDesc *op, void *state, void *const *buf, void *scratch)
{
    (void)state;
    const int64_t rows = op->in[0].dim[0], classes = op->in[0].dim[1];
    const bool    f32 = op->in[0].dtype == DTYPE_F32;
    const LossJob job = { classes, buf[0], buf[1], *(const float *)buf[2], op->n_out == 2 ? buf[4] : NULL };
    float     *metrics = buf[3];
    RowResult *results = scratch;
    for (int64_t m = 0; m < rows; m++)
        if (job.labels[m] < -1 || job.labels[m] >= classes)
            return status_error(STATUS_NUMERIC, "softmax_xent: label %d of sample %lld is outside 0..%lld", (int)job.labels[m],
                                (long long)m, (long long)classes - 1);
#pragma omp parallel for num_threads(cpu_of(base)->threads) schedule(static)
    for (int64_t m = 0; m < rows; m++)
        results[m] = f32 ? softmax_row(DTYPE_F32, &job, m) : softmax_row(DTYPE_BF16, &job, m);
    double loss = 0;
    int    hits = 0, counted = 0;
    for (int64_t m = 0; m < rows; m++) {
        loss += results[m].loss;
        hits += results[m].hit;
        counted += results[m].counted;
    }
    metrics[0] += (float)loss;
    metrics[1] += (float)hits;
    metrics[2] += (float)counted;
    return status_ok();
}

const Kernel cpu_softmax_xent = { .query = softmax_xent_query, .run = softmax_xent_run };
