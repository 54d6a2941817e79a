/* ref_conv.c - convolution and its two gradients, straight from the definition
 *   y(n,p,q,k) = sum over r,s,c of x(n, p stride + r - pad, q stride + s - pad, c) w(k,r,s,c),
 * x being zero outside the image. */
#include "ref_ops.h"

static bool inside(int64_t h, int64_t w, const Tensor *image)
{
    return h >= 0 && h < image->dim[1] && w >= 0 && w < image->dim[2];
}

static double conv_at(const OpDesc *op, const double *const *in, int64_t n, int64_t p, int64_t q, int64_t k)
{
    const Tensor *x = &op->in[0], *w = &op->in[1];
    const OpAttr *a = &op->attr;
    double sum = op->n_in == 3 ? in[2][k] : 0;
    for (int r = 0; r < a->kernel; r++)
        for (int s = 0; s < a->kernel; s++) {
            int64_t h = p * a->stride + r - a->pad, v = q * a->stride + s - a->pad;
            if (!inside(h, v, x))
                continue;
            const double *px = in[0] + ref_at(x, n, h, v, 0), *pw = in[1] + ref_at(w, k, r, s, 0);
            for (int64_t c = 0; c < x->dim[3]; c++)
                sum += px[c] * pw[c];
        }
    return a->relu ? ref_relu(sum) : sum;
}

void ref_conv2d(const OpDesc *op, const double *const *in, double *const *out)
{
    const Tensor *y = &op->out[0];
#pragma omp parallel for collapse(2)
    for (int64_t n = 0; n < y->dim[0]; n++)
        for (int64_t p = 0; p < y->dim[1]; p++)
            for (int64_t q = 0; q < y->dim[2]; q++)
                for (int64_t k = 0; k < y->dim[3]; k++)
                    out[0][ref_at(y, n, p, q, k)] = conv_at(op, in, n, p, q, k);
}

/* All channels of dx at one pixel: every (p, r) with p stride + r - pad = h, and the same for q, s, v. */
static void dgrad_pixel(const OpDesc *op, const double *dy, const double *w, int64_t n, int64_t h, int64_t v, double *dx)
{
    const Tensor *ty = &op->in[0], *tw = &op->in[1];
    const OpAttr *a = &op->attr;
    const int64_t channels = tw->dim[3];
    for (int64_t c = 0; c < channels; c++)
        dx[c] = 0;
    for (int r = 0; r < a->kernel; r++)
        for (int s = 0; s < a->kernel; s++) {
            int64_t p = h + a->pad - r, q = v + a->pad - s;
            if (p % a->stride || q % a->stride || !inside(p / a->stride, q / a->stride, ty))
                continue;
            for (int64_t k = 0; k < ty->dim[3]; k++) {
                double g = dy[ref_at(ty, n, p / a->stride, q / a->stride, k)];
                const double *pw = w + ref_at(tw, k, r, s, 0);
                for (int64_t c = 0; c < channels; c++)
                    dx[c] += g * pw[c];
            }
        }
}

void ref_conv2d_dgrad(const OpDesc *op, const double *const *in, double *const *out)
{
    const Tensor *x = &op->out[0];
#pragma omp parallel for collapse(2)
    for (int64_t n = 0; n < x->dim[0]; n++)
        for (int64_t h = 0; h < x->dim[1]; h++)
            for (int64_t w = 0; w < x->dim[2]; w++)
                dgrad_pixel(op, in[0], in[1], n, h, w, out[0] + ref_at(x, n, h, w, 0));
}

/* dw(k,r,s,:) += sum over n,p,q of dy(n,p,q,k) x(n, p stride + r - pad, q stride + s - pad, :) */
static void wgrad_tap(const OpDesc *op, const double *x, const double *dy, int64_t k, int r, int s, double *dw)
{
    const Tensor *tx = &op->in[0], *ty = &op->in[1];
    const OpAttr *a = &op->attr;
    for (int64_t n = 0; n < ty->dim[0]; n++)
        for (int64_t p = 0; p < ty->dim[1]; p++)
            for (int64_t q = 0; q < ty->dim[2]; q++) {
                int64_t h = p * a->stride + r - a->pad, v = q * a->stride + s - a->pad;
                if (!inside(h, v, tx))
                    continue;
                double g = dy[ref_at(ty, n, p, q, k)];
                const double *px = x + ref_at(tx, n, h, v, 0);
                for (int64_t c = 0; c < tx->dim[3]; c++)
                    dw[c] += g * px[c];
            }
}

void ref_conv2d_wgrad(const OpDesc *op, const double *const *in, double *const *out)
{
    const Tensor *dy = &op->in[1], *dw = &op->out[0];
    const int64_t filters = dw->dim[0], pixels = tensor_count(dy) / filters;
    if (!op->attr.accumulate) {
        for (int64_t i = 0; i < tensor_count(dw); i++)
            out[0][i] = 0;
        for (int64_t k = 0; k < filters && op->n_out == 2; k++)
            out[1][k] = 0;
    }
#pragma omp parallel for
    for (int64_t k = 0; k < filters; k++) {
        for (int r = 0; r < op->attr.kernel; r++)
            for (int s = 0; s < op->attr.kernel; s++)
                wgrad_tap(op, in[0], in[1], k, r, s, out[0] + ref_at(dw, k, r, s, 0));
        for (int64_t i = 0; i < pixels && op->n_out == 2; i++)
            out[1][k] += in[1][i * filters + k];
    }
}
