/* ref_text.c - the ops of a Transformer that are not attention: layer normalisation, gelu, tanh, dropout, embeddings, gathered
 * rows, and their gradients. A matrix is M rows of K features. */
#include "ref_ops.h"

#include "../../kernels/dropout.h"

#include <math.h>

/* What dropout multiplies element (row, j) of an M x K matrix by; rng: the four numbers as doubles, NULL without dropout. */
static double keep_factor(const OpDesc *op, const double *rng, int64_t row, int64_t j)
{
    const float p = op->attr.dropout;
    if (!rng || p <= 0)
        return 1;
    const int32_t numbers[4] = { (int32_t)rng[0], (int32_t)rng[1], (int32_t)rng[2], (int32_t)rng[3] };
    return dropout_keeps(numbers, op->attr.stream, row, op->in[0].dim[1], j, p) ? 1 / (1 - (double)p) : 0;
}

void ref_dropout(const OpDesc *op, const double *const *in, double *const *out)
{
    const int64_t k = op->in[0].dim[1];
    for (int64_t i = 0; i < tensor_count(&op->in[0]); i++)
        out[0][i] = in[0][i] * keep_factor(op, in[1], i / k, i % k);
}

/* x factor + residual as it is stored: what is normalised, and what the gradient sees. In the short types product and sum are
 * each rounded to f32 first, as ops.h says: with p = 0.1 every ninth x comes so close to a tie that less would not tell
 * which way it goes. f32 stays unrounded, for finite differences. */
static double stored_sum(Dtype t, double x, double factor, double residual)
{
    if (t == DTYPE_F32)
        return x * factor + residual;
    const double product = ref_round(DTYPE_F32, x * ref_round(DTYPE_F32, factor));
    return ref_round(t, ref_round(DTYPE_F32, product + residual));
}

/* Biased mean and variance of a row, in two passes. */
void ref_layernorm(const OpDesc *op, const double *const *in, double *const *out)
{
    const int64_t rows = op->in[0].dim[0], k = op->in[0].dim[1];
    const double *rng = op->attr.dropout > 0 ? in[4] : NULL;
    for (int64_t m = 0; m < rows; m++) {
        const double *s = in[0] + m * k;
        if (op->attr.residual) {
            for (int64_t i = m * k; i < (m + 1) * k; i++)
                out[3][i] = stored_sum(op->in[0].dtype, in[0][i], keep_factor(op, rng, m, i - m * k), in[3][i]);
            s = out[3] + m * k;
        }
        double mean = 0, var = 0;
        for (int64_t j = 0; j < k; j++)
            mean += s[j] / (double)k;
        for (int64_t j = 0; j < k; j++)
            var += (s[j] - mean) * (s[j] - mean) / (double)k;
        const double invstd = 1 / sqrt(var + (double)op->attr.eps);
        for (int64_t j = 0; j < k; j++)
            out[0][m * k + j] = in[1][j] * (s[j] - mean) * invstd + in[2][j];
        out[1][m] = mean;
        out[2][m] = invstd;
    }
}

/* With g = dy gamma, n = (sum - mean) invstd and means over a row:
 *   dbeta = sum dy,  dgamma = sum dy n  (over rows),  d = invstd (g - mean(g) - n mean(g n)) */
void ref_layernorm_grad(const OpDesc *op, const double *const *in, double *const *out)
{
    const int64_t rows = op->in[0].dim[0], k = op->in[0].dim[1];
    const double *s = in[0], *dy = in[1], *gamma = in[2], *rng = op->attr.dropout > 0 ? in[5] : NULL;
    for (int64_t j = 0; j < k && !op->attr.accumulate; j++)
        out[1][j] = out[2][j] = 0;
    for (int64_t m = 0; m < rows; m++) {
        const double mean = in[3][m], invstd = in[4][m];
        double g_mean = 0, product_mean = 0;
        for (int64_t j = 0; j < k; j++) {
            const double g = dy[m * k + j] * gamma[j], n = (s[m * k + j] - mean) * invstd;
            g_mean += g / (double)k;
            product_mean += g * n / (double)k;
            out[1][j] += dy[m * k + j] * n;
            out[2][j] += dy[m * k + j];
        }
        for (int64_t j = 0; j < k; j++) {
            const int64_t i = m * k + j;
            const double d = invstd * (dy[i] * gamma[j] - g_mean - (s[i] - mean) * invstd * product_mean);
            out[0][i] = d * keep_factor(op, rng, m, j);
            if (rng)
                out[3][i] = d;
        }
    }
}

static double normal_cdf(double x) { return 0.5 * erfc(-x * 0.70710678118654752440); }
static double normal_density(double x) { return 0.39894228040143267794 * exp(-0.5 * x * x); }

void ref_gelu(const OpDesc *op, const double *const *in, double *const *out)
{
    for (int64_t i = 0; i < tensor_count(&op->in[0]); i++)
        out[0][i] = in[0][i] * normal_cdf(in[0][i]);
}

void ref_gelu_grad(const OpDesc *op, const double *const *in, double *const *out)
{
    for (int64_t i = 0; i < tensor_count(&op->in[0]); i++) {
        const double x = in[1][i];
        out[0][i] = in[0][i] * (normal_cdf(x) + x * normal_density(x));
    }
}

void ref_tanh(const OpDesc *op, const double *const *in, double *const *out)
{
    for (int64_t i = 0; i < tensor_count(&op->in[0]); i++)
        out[0][i] = tanh(in[0][i]);
}

void ref_tanh_grad(const OpDesc *op, const double *const *in, double *const *out)
{
    for (int64_t i = 0; i < tensor_count(&op->in[0]); i++)
        out[0][i] = in[0][i] * (1 - in[1][i] * in[1][i]);
}

/* y[t] += table[ids[t]], row by row. */
static void add_picked(const Tensor *table_shape, const double *table, const double *ids, int64_t count, double *y)
{
    const int64_t width = table_shape->dim[1];
    for (int64_t t = 0; t < count; t++) {
        const int64_t id = (int64_t)ids[t];
        CHECK(id >= -1 && id < table_shape->dim[0]);
        for (int64_t j = 0; j < width && id >= 0; j++)
            y[t * width + j] += table[id * width + j];
    }
}

/* to[ids[t]] += dy[t], row by row. */
static void add_scattered(const Tensor *to_shape, const double *dy, const double *ids, int64_t count, double *to)
{
    const int64_t width = to_shape->dim[1];
    for (int64_t t = 0; t < count; t++) {
        const int64_t id = (int64_t)ids[t];
        CHECK(id >= -1 && id < to_shape->dim[0]);
        for (int64_t j = 0; j < width && id >= 0; j++)
            to[id * width + j] += dy[t * width + j];
    }
}

void ref_embedding(const OpDesc *op, const double *const *in, double *const *out)
{
    ref_zero(op, in, out);
    for (int k = 0; k < op->n_in; k += 2)
        add_picked(&op->in[k], in[k], in[k + 1], op->out[0].dim[0], out[0]);
}

void ref_embedding_grad(const OpDesc *op, const double *const *in, double *const *out)
{
    if (!op->attr.accumulate)
        ref_zero(op, in, out);
    add_scattered(&op->out[0], in[0], in[1], op->in[1].dim[0], out[0]);
}

void ref_gather_rows(const OpDesc *op, const double *const *in, double *const *out)
{
    ref_zero(op, in, out);
    add_picked(&op->in[0], in[0], in[1], op->out[0].dim[0], out[0]);
}

void ref_gather_rows_grad(const OpDesc *op, const double *const *in, double *const *out)
{
    ref_zero(op, in, out);
    add_scattered(&op->out[0], in[0], in[1], op->in[1].dim[0], out[0]);
}
