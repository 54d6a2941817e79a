/* interp_pool.c - resampling as pooling: maximum with the place of it in its window, and averages; two spatial dimensions.
 * See interp.h. The place is counted row by row from 0; of equal maxima the first wins. */
#include "interp.h"

#include <math.h>
#include <string.h>

typedef struct Window {
    int64_t h, w, rows, columns, in_h, in_w, inside;
} Window; /* may reach outside; inside: pixels that lie in the image */

static Window window_at(const InterpOp *op, const InterpTensor *tx, int64_t p, int64_t q)
{
    Window v = { .h = p * op->as.pool.stride[0] - op->as.pool.pre[0], .w = q * op->as.pool.stride[1] - op->as.pool.pre[1],
                 .rows = op->as.pool.window[0], .columns = op->as.pool.window[1], .in_h = tx->dim[2], .in_w = tx->dim[3] };
    for (int64_t r = 0; r < v.rows; r++)
        for (int64_t s = 0; s < v.columns; s++)
            v.inside += v.h + r >= 0 && v.h + r < v.in_h && v.w + s >= 0 && v.w + s < v.in_w;
    return v;
}

/* Offset in the plane of place `i` of the window, -1 outside the image. */
static int64_t window_place(const Window *v, int64_t i)
{
    const int64_t h = v->h + i / v->columns, w = v->w + i % v->columns;
    return h >= 0 && h < v->in_h && w >= 0 && w < v->in_w ? h * v->in_w + w : -1;
}

static int64_t window_count(const InterpOp *op, const Window *v)
{
    return op->as.pool.mode == CUDNN_RESAMPLE_AVGPOOL_EXCLUDE_PADDING ? v->inside : v->rows * v->columns;
}

static int64_t window_largest(const InterpOp *op, const Window *v, const double *x)
{
    int64_t best = -1;
    for (int64_t i = 0; i < v->rows * v->columns; i++) {
        const int64_t at = window_place(v, i), top = best < 0 ? -1 : window_place(v, best);
        if (at >= 0 && (best < 0 || x[at] > x[top] || (op->as.pool.keeps_nan && isnan(x[at]) && !isnan(x[top]))))
            best = i;
    }
    CHECK(best >= 0); /* a window that lies in the padding alone */
    return best;
}

void interp_pool(const InterpJob *job, const InterpOp *op)
{
    const InterpTensor *tx = interp_tensor(job, op, POOL_X), *ty = interp_tensor(job, op, POOL_Y),
                       *ti = interp_tensor(job, op, POOL_INDEX);
    double *y = interp_value(job, op, POOL_Y), *index = interp_value(job, op, POOL_INDEX);
    int64_t at[INTERP_RANK] = { 0 };
    for (int64_t i = 0; i < ty->count; i++, interp_next(ty, at)) {
        const double *x = interp_value(job, op, POOL_X) + (at[0] * tx->dim[1] + at[1]) * tx->dim[2] * tx->dim[3];
        const Window v = window_at(op, tx, at[2], at[3]);
        if (op->as.pool.mode == CUDNN_RESAMPLE_MAXPOOL) {
            const int64_t best = window_largest(op, &v, x);
            y[i] = interp_round(ty->type, x[window_place(&v, best)]);
            if (index)
                index[i] = interp_round(ti->type, (double)best);
            continue;
        }
        double sum = 0;
        for (int64_t k = 0; k < v.rows * v.columns; k++)
            sum += window_place(&v, k) >= 0 ? x[window_place(&v, k)] : 0;
        y[i] = interp_round(ty->type, interp_compute(op, sum / (double)window_count(op, &v)));
    }
}

void interp_pool_grad(const InterpJob *job, const InterpOp *op)
{
    const InterpTensor *ty = interp_tensor(job, op, POOLG_DY), *tx = interp_tensor(job, op, POOLG_DX);
    const double *dy = interp_value(job, op, POOLG_DY), *index = interp_value(job, op, POOLG_INDEX);
    double *all = interp_value(job, op, POOLG_DX);
    int64_t at[INTERP_RANK] = { 0 };
    memset(all, 0, (size_t)tx->count * sizeof *all);
    for (int64_t i = 0; i < ty->count; i++, interp_next(ty, at)) {
        double *dx = all + (at[0] * tx->dim[1] + at[1]) * tx->dim[2] * tx->dim[3];
        const Window v = window_at(op, tx, at[2], at[3]);
        if (op->as.pool.mode == CUDNN_RESAMPLE_MAXPOOL) {
            const int64_t place =
                index[i] >= 0 && index[i] < (double)(v.rows * v.columns) ? window_place(&v, (int64_t)index[i]) : -1;
            CHECK(place >= 0); /* an index that is not of this pooling */
            dx[place] += dy[i];
            continue;
        }
        for (int64_t k = 0; k < v.rows * v.columns; k++)
            if (window_place(&v, k) >= 0)
                dx[window_place(&v, k)] += dy[i] / (double)window_count(op, &v);
    }
    for (int64_t i = 0; i < tx->count; i++)
        all[i] = interp_round(tx->type, interp_compute(op, all[i]));
}
