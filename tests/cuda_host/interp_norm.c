/* interp_norm.c - normalisation forward and backward, and the sums of generated statistics; in double. See interp.h.
 *
 * One set of loops serves batch, layer and instance norm: the statistics are over the dimensions in which mean has 1,
 *   y = scale (x - mean) invstd + bias,   invstd = 1 / sqrt(biased variance + epsilon),
 *   next_mean = (1 - factor) run_mean + factor mean,   next_var the same with the unbiased variance,
 *   dbias = sum dy,   dscale = sum dy x^,   x^ = (x - mean) invstd,
 *   dx = invstd (g - mean(g) - x^ mean(g x^)),   g = scale dy, means over a group of statistics. */
#include "interp.h"

#include <math.h>
#include <string.h>

static void zero(const InterpTensor *t, double *v) { memset(v, 0, (size_t)t->count * sizeof *v); }

/* Rounds the values of a tensor once they are complete. */
static void settle(const InterpJob *job, const InterpOp *op, int slot)
{
    const InterpTensor *t = interp_tensor(job, op, slot);
    double *v = interp_value(job, op, slot);
    for (int64_t i = 0; t && i < t->count; i++)
        v[i] = interp_round(t->type, interp_compute(op, v[i]));
}

/* to[group of element i] += f_i, the groups being the elements of `group`. */
static void add_up(const InterpTensor *tx, const InterpTensor *group, const double *a, const double *b, double *to)
{
    int64_t at[INTERP_RANK] = { 0 };
    zero(group, to);
    for (int64_t i = 0; i < tx->count; i++, interp_next(tx, at))
        to[interp_broadcast(group, at, tx->rank)] += b ? a[i] * b[i] : a[i];
}

/* mean and invstd of each group, and next_mean, next_var if they are wanted; nothing is rounded yet. */
static void norm_statistics(const InterpJob *job, const InterpOp *op, double *mean, double *invstd)
{
    const InterpTensor *tx = interp_tensor(job, op, NORM_X), *tm = interp_tensor(job, op, NORM_MEAN_OUT);
    const double *x = interp_value(job, op, NORM_X), *factor = interp_value(job, op, NORM_FACTOR);
    const double epsilon = interp_value(job, op, NORM_EPSILON)[0], n = (double)tx->count / (double)tm->count;
    double *next_mean = interp_value(job, op, NORM_NEXT_MEAN), *next_var = interp_value(job, op, NORM_NEXT_VAR);
    int64_t at[INTERP_RANK] = { 0 };
    add_up(tx, tm, x, NULL, mean);
    for (int64_t g = 0; g < tm->count; g++)
        mean[g] /= n;
    zero(tm, invstd);
    for (int64_t i = 0; i < tx->count; i++, interp_next(tx, at)) {
        const int64_t g = interp_broadcast(tm, at, tx->rank);
        invstd[g] += (x[i] - mean[g]) * (x[i] - mean[g]);
    }
    for (int64_t g = 0; g < tm->count; g++) {
        const double squares = invstd[g];
        invstd[g] = 1 / sqrt(squares / n + epsilon);
        if (next_mean)
            next_mean[g] = (1 - factor[0]) * interp_value(job, op, NORM_RUN_MEAN)[g] + factor[0] * mean[g];
        if (next_var)
            next_var[g] = (1 - factor[0]) * interp_value(job, op, NORM_RUN_VAR)[g] + factor[0] * squares / (n > 1 ? n - 1 : 1);
    }
}

void interp_norm(const InterpJob *job, const InterpOp *op)
{
    const int in_mean = op->as.norm.training ? NORM_MEAN_OUT : NORM_MEAN_IN,
              in_std = op->as.norm.training ? NORM_INVSTD_OUT : NORM_INVSTD_IN;
    const InterpTensor *tx = interp_tensor(job, op, NORM_X), *ty = interp_tensor(job, op, NORM_Y),
                       *tm = interp_tensor(job, op, in_mean), *ts = interp_tensor(job, op, NORM_SCALE),
                       *tb = interp_tensor(job, op, NORM_BIAS);
    const double *x = interp_value(job, op, NORM_X), *scale = interp_value(job, op, NORM_SCALE),
                 *bias = interp_value(job, op, NORM_BIAS);
    double *mean = interp_value(job, op, in_mean), *invstd = interp_value(job, op, in_std), *y = interp_value(job, op, NORM_Y);
    int64_t at[INTERP_RANK] = { 0 };
    if (op->as.norm.training)
        norm_statistics(job, op, mean, invstd);
    for (int64_t i = 0; i < tx->count; i++, interp_next(tx, at)) {
        const int64_t g = interp_broadcast(tm, at, tx->rank);
        double v = scale[interp_broadcast(ts, at, tx->rank)] * ((x[i] - mean[g]) * invstd[g]) +
                   (tb ? bias[interp_broadcast(tb, at, tx->rank)] : 0);
        y[i] = interp_round(ty->type, interp_compute(op, v));
    }
    for (int slot = NORM_NEXT_MEAN; slot <= NORM_INVSTD_OUT; slot++)
        settle(job, op, slot);
}

void interp_norm_grad(const InterpJob *job, const InterpOp *op)
{
    const InterpTensor *tx = interp_tensor(job, op, GRAD_X), *tm = interp_tensor(job, op, GRAD_MEAN),
                       *ts = interp_tensor(job, op, GRAD_SCALE), *td = interp_tensor(job, op, GRAD_DX);
    const double *x = interp_value(job, op, GRAD_X), *mean = interp_value(job, op, GRAD_MEAN),
                 *invstd = interp_value(job, op, GRAD_INVSTD), *dy = interp_value(job, op, GRAD_DY),
                 *scale = interp_value(job, op, GRAD_SCALE);
    const double n = (double)tx->count / (double)tm->count;
    double *dx = interp_value(job, op, GRAD_DX), *normal = job->scratch, *sum_g = normal + tx->count, *sum_gx = sum_g + tm->count;
    int64_t at[INTERP_RANK] = { 0 };
    for (int64_t i = 0; i < tx->count; i++, interp_next(tx, at)) {
        const int64_t g = interp_broadcast(tm, at, tx->rank);
        normal[i] = (x[i] - mean[g]) * invstd[g];
        dx[i] = scale[interp_broadcast(ts, at, tx->rank)] * dy[i];
    }
    add_up(tx, interp_tensor(job, op, GRAD_DSCALE), dy, normal, interp_value(job, op, GRAD_DSCALE));
    if (interp_tensor(job, op, GRAD_DBIAS))
        add_up(tx, interp_tensor(job, op, GRAD_DBIAS), dy, NULL, interp_value(job, op, GRAD_DBIAS));
    add_up(tx, tm, dx, NULL, sum_g);
    add_up(tx, tm, dx, normal, sum_gx);
    for (int64_t i = 0; i < tx->count; i++, interp_next(tx, at)) {
        const int64_t g = interp_broadcast(tm, at, tx->rank);
        dx[i] = interp_round(td->type, interp_compute(op, invstd[g] * (dx[i] - sum_g[g] / n - normal[i] * sum_gx[g] / n)));
    }
    settle(job, op, GRAD_DSCALE);
    settle(job, op, GRAD_DBIAS);
}

void interp_genstats(const InterpJob *job, const InterpOp *op)
{
    const InterpTensor *tx = interp_tensor(job, op, 0);
    const double *x = interp_value(job, op, 0);
    add_up(tx, interp_tensor(job, op, 1), x, NULL, interp_value(job, op, 1));
    add_up(tx, interp_tensor(job, op, 2), x, x, interp_value(job, op, 2));
    settle(job, op, 1);
    settle(job, op, 2);
}
