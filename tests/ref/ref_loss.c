/* ref_loss.c - softmax cross-entropy. */
#include "ref_ops.h"

#include <math.h>

static int64_t first_largest(const double *row, int64_t count)
{
    int64_t best = 0;
    for (int64_t c = 1; c < count; c++)
        if (row[c] > row[best])
            best = c;
    return best;
}

/* The maximum is taken out before exp, so that no logit overflows: log p[c] = x[c] - max - log sum exp(x - max). */
void ref_softmax_xent(const OpDesc *op, const double *const *in, double *const *out)
{
    const int64_t rows = op->in[0].dim[0], classes = op->in[0].dim[1];
    const double scale = in[2][0];
    for (int64_t m = 0; m < rows; m++) {
        const double *x = in[0] + m * classes;
        const int64_t label = (int64_t)in[1][m], top = first_largest(x, classes);
        CHECK(label >= -1 && label < classes);
        double sum = 0;
        for (int64_t c = 0; c < classes; c++)
            sum += exp(x[c] - x[top]);
        for (int64_t c = 0; c < classes && op->n_out == 2; c++)
            out[1][m * classes + c] = label < 0 ? 0 : scale * (exp(x[c] - x[top]) / sum - (c == label));
        if (label < 0)
            continue;
        out[0][0] -= x[label] - x[top] - log(sum);
        out[0][1] += top == label;
        out[0][2] += 1;
    }
}
