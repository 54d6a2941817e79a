/* ref_loss.c - softmax cross-entropy, the squared norm, and the SGD update: what is done once per step. */
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

void ref_sqnorm(const OpDesc *op, const double *const *in, double *const *out)
{
    double sum = 0;
    for (int64_t i = 0; i < tensor_count(&op->in[0]); i++)
        sum += in[0][i] * in[0][i];
    out[0][0] += sum;
}

/* torch.optim.SGD with dampening 0; hyper[0] is the learning rate. */
void ref_sgd(const OpDesc *op, const double *const *in, double *const *out)
{
    const double lr = in[1][0], momentum = (double)op->attr.momentum, decay = (double)op->attr.weight_decay;
    double *w = out[0], *velocity = out[1];
    for (int64_t i = 0; i < tensor_count(&op->in[0]); i++) {
        double g = in[0][i] + decay * w[i];
        velocity[i] = momentum * velocity[i] + g;
        w[i] -= lr * (op->attr.nesterov ? g + momentum * velocity[i] : velocity[i]);
    }
}
