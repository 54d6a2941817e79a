/* ref_norm.c - batch normalisation (Ioffe & Szegedy 2015, algorithm 1 and section 3): training, gradient, inference.
 * Channels are independent, so each loop body is one channel; an activation is m = N H W rows of C channels. */
#include "ref_ops.h"

#include <math.h>

/* Biased mean and variance of channel c, in two passes. */
static void channel_statistics(const double *x, int64_t m, int64_t channels, int64_t c, double *mean, double *var)
{
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < m; i++)
        sum += x[i * channels + c];
    *mean = sum / (double)m;
    for (int64_t i = 0; i < m; i++) {
        double d = x[i * channels + c] - *mean;
        squares += d * d;
    }
    *var = squares / (double)m;
}

/* y = relu?(gamma (x - mean) invstd + beta + residual?) for channel c; mask (may be NULL) = y > 0 */
static void normalize_channel(const OpDesc *op, const double *const *in, int64_t c, double mean, double invstd,
                              double *y, double *mask)
{
    const int64_t channels = op->in[0].dim[3], m = tensor_count(&op->in[0]) / channels;
    for (int64_t i = c; i < m * channels; i += channels) {
        double v = in[1][c] * (in[0][i] - mean) * invstd + in[2][c];
        if (op->attr.residual)
            v += in[5][i];
        if (mask)
            mask[i] = v > 0;
        y[i] = op->attr.relu ? ref_relu(v) : v;
    }
}

void ref_batchnorm(const OpDesc *op, const double *const *in, double *const *out)
{
    const int64_t channels = op->in[0].dim[3], m = tensor_count(&op->in[0]) / channels;
    const double momentum = (double)op->attr.momentum;
    double *run_mean = (double *)in[3], *run_var = (double *)in[4]; /* in-out inputs */
#pragma omp parallel for
    for (int64_t c = 0; c < channels; c++) {
        double mean, var;
        channel_statistics(in[0], m, channels, c, &mean, &var);
        double invstd = 1 / sqrt(var + (double)op->attr.eps);
        normalize_channel(op, in, c, mean, invstd, out[0], op->attr.relu ? out[3] : NULL);
        out[1][c] = mean;
        out[2][c] = invstd;
        double unbiased = var * (double)m / (double)(m - 1); /* one element: NaN, so nothing is learnt from it */
        if (isfinite(mean) && isfinite(unbiased)) {
            run_mean[c] = (1 - momentum) * run_mean[c] + momentum * mean;
            run_var[c] = (1 - momentum) * run_var[c] + momentum * unbiased;
        }
    }
}

void ref_batchnorm_infer(const OpDesc *op, const double *const *in, double *const *out)
{
    const int64_t channels = op->in[0].dim[3];
#pragma omp parallel for
    for (int64_t c = 0; c < channels; c++)
        normalize_channel(op, in, c, in[3][c], 1 / sqrt(in[4][c] + (double)op->attr.eps), out[0], NULL);
}

/* With g = dy where the mask is set and xhat = (x - mean) invstd:
 *   dbeta = sum g,  dgamma = sum g xhat,  dx = gamma invstd (g - dbeta / m - xhat dgamma / m),  dresidual = g */
void ref_batchnorm_grad(const OpDesc *op, const double *const *in, double *const *out)
{
    const int64_t channels = op->in[0].dim[3], m = tensor_count(&op->in[0]) / channels, end = m * channels;
    const double *x = in[0], *dy = in[1], *gamma = in[2], *mean = in[3], *invstd = in[4];
    const double *mask = op->attr.relu ? in[5] : NULL;
#pragma omp parallel for
    for (int64_t c = 0; c < channels; c++) {
        double dgamma = 0, dbeta = 0;
        for (int64_t i = c; i < end; i += channels) {
            double g = mask && mask[i] == 0 ? 0 : dy[i];
            dbeta += g;
            dgamma += g * (x[i] - mean[c]) * invstd[c];
        }
        for (int64_t i = c; i < end; i += channels) {
            double g = mask && mask[i] == 0 ? 0 : dy[i], xhat = (x[i] - mean[c]) * invstd[c];
            out[0][i] = gamma[c] * invstd[c] * (g - dbeta / (double)m - xhat * dgamma / (double)m);
            if (op->attr.residual)
                out[3][i] = g;
        }
        out[1][c] = dgamma + (op->attr.accumulate ? out[1][c] : 0);
        out[2][c] = dbeta + (op->attr.accumulate ? out[2][c] : 0);
    }
}
