/* ref_pool.c - max pooling (padding never wins, the first maximum does) and global average pooling, with gradients. */
#include "ref_ops.h"

/* op_infer's pad < kernel means that every window holds at least one pixel of the image. */
static void maxpool_at(const OpDesc *op, const double *x, int64_t n, int64_t p, int64_t q, int64_t c, double *best, double *index)
{
    const Tensor *tx = &op->in[0];
    const OpAttr *a = &op->attr;
    bool found = false;
    for (int r = 0; r < a->kernel; r++)
        for (int s = 0; s < a->kernel; s++) {
            int64_t h = p * a->stride + r - a->pad, w = q * a->stride + s - a->pad;
            if (h < 0 || h >= tx->dim[1] || w < 0 || w >= tx->dim[2])
                continue;
            double v = x[ref_at(tx, n, h, w, c)];
            if (!found || v > *best) {
                *best = v;
                *index = r * a->kernel + s;
                found = true;
            }
        }
}

void ref_maxpool(const OpDesc *op, const double *const *in, double *const *out)
{
    const Tensor *y = &op->out[0];
#pragma omp parallel for collapse(2)
    for (int64_t n = 0; n < y->dim[0]; n++)
        for (int64_t p = 0; p < y->dim[1]; p++)
            for (int64_t q = 0; q < y->dim[2]; q++)
                for (int64_t c = 0; c < y->dim[3]; c++) {
                    int64_t i = ref_at(y, n, p, q, c);
                    maxpool_at(op, in[0], n, p, q, c, &out[0][i], &out[1][i]);
                }
}

void ref_maxpool_grad(const OpDesc *op, const double *const *in, double *const *out)
{
    const Tensor *dy = &op->in[0], *dx = &op->out[0];
    const OpAttr *a = &op->attr;
    for (int64_t i = 0; i < tensor_count(dx); i++)
        out[0][i] = 0;
#pragma omp parallel for
    for (int64_t n = 0; n < dy->dim[0]; n++) /* windows overlap: only images are independent */
        for (int64_t p = 0; p < dy->dim[1]; p++)
            for (int64_t q = 0; q < dy->dim[2]; q++)
                for (int64_t c = 0; c < dy->dim[3]; c++) {
                    int64_t i = ref_at(dy, n, p, q, c);
                    int place = (int)in[1][i];
                    int64_t h = p * a->stride + place / a->kernel - a->pad, w = q * a->stride + place % a->kernel - a->pad;
                    CHECK(h >= 0 && h < dx->dim[1] && w >= 0 && w < dx->dim[2]);
                    out[0][ref_at(dx, n, h, w, c)] += in[0][i];
                }
}

void ref_avgpool(const OpDesc *op, const double *const *in, double *const *out)
{
    const Tensor *x = &op->in[0];
    const int64_t channels = x->dim[3], pixels = x->dim[1] * x->dim[2];
#pragma omp parallel for
    for (int64_t n = 0; n < x->dim[0]; n++)
        for (int64_t c = 0; c < channels; c++) {
            double sum = 0;
            for (int64_t i = 0; i < pixels; i++)
                sum += in[0][(n * pixels + i) * channels + c];
            out[0][n * channels + c] = sum / (double)pixels;
        }
}

void ref_avgpool_grad(const OpDesc *op, const double *const *in, double *const *out)
{
    const Tensor *dx = &op->out[0];
    const int64_t channels = dx->dim[3], pixels = dx->dim[1] * dx->dim[2];
#pragma omp parallel for
    for (int64_t n = 0; n < dx->dim[0]; n++)
        for (int64_t i = 0; i < pixels; i++)
            for (int64_t c = 0; c < channels; c++)
                out[0][(n * pixels + i) * channels + c] = in[0][n * channels + c] / (double)pixels;
}
