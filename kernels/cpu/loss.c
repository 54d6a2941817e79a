/* loss.c - softmax cross-entropy with its gradient and the step's metrics.
 *
 * p = softmax(logits) by the usual shift with the row's maximum; everything of a row in double, since a row is short
 * compared with the net and the loss is what people look at. Rows are independent; the metrics are added in row order. */
#include "cpu.h"

#include <math.h>

typedef struct RowResult { double loss; int hit, counted; } RowResult;

static RowResult softmax_row(const float *restrict x, int64_t classes, int32_t label, float scale, float *restrict dx)
{
    RowResult result = { 0, 0, 0 };
    if (label < 0) {
        for (int64_t c = 0; dx && c < classes; c++)
            dx[c] = 0;
        return result;
    }
    int64_t best = 0;
    for (int64_t c = 1; c < classes; c++)
        best = x[c] > x[best] ? c : best;
    const float largest = x[best];
    double sum = 0;
    for (int64_t c = 0; c < classes; c++)
        sum += exp((double)x[c] - (double)largest);
    if (dx) {
        for (int64_t c = 0; c < classes; c++)
            dx[c] = (float)((double)scale * exp((double)x[c] - (double)largest) / sum);
        dx[label] = (float)((double)scale * (exp((double)x[label] - (double)largest) / sum - 1.0));
    }
    result.loss = log(sum) - ((double)x[label] - (double)largest);
    result.hit = best == label;
    result.counted = 1;
    return result;
}

static Status softmax_xent_query(Backend *be, const OpDesc *op, OpNeeds *needs)
{
    (void)be;
    needs->scratch = (size_t)op->in[0].dim[0] * sizeof(RowResult);
    return status_ok();
}

static Status softmax_xent_run(Backend *base, const OpDesc *op, void *state, void *const *buf, void *scratch)
{
    (void)state;
    const int64_t rows = op->in[0].dim[0], classes = op->in[0].dim[1];
    const float  *x = buf[0];
    const int32_t *labels = buf[1];
    const float   scale = *(const float *)buf[2];
    float     *metrics = buf[3], *dx = op->n_out == 2 ? buf[4] : NULL;
    RowResult *results = scratch;
    for (int64_t m = 0; m < rows; m++)
        if (labels[m] < -1 || labels[m] >= classes)
            return status_error(STATUS_NUMERIC, "softmax_xent: label %d of sample %lld is outside 0..%lld", (int)labels[m],
                                (long long)m, (long long)classes - 1);
#pragma omp parallel for num_threads(cpu_of(base)->threads) schedule(static)
    for (int64_t m = 0; m < rows; m++)
        results[m] = softmax_row(x + m * classes, classes, labels[m], scale, dx ? dx + m * classes : NULL);
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
