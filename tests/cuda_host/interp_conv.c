/* interp_conv.c - convolution, its two gradients, and matrix products; sums in double. See interp.h.
 *
 * Arrays are first turned so that channels lie together, x (N,H,W,C), y (N,P,Q,K), w (R,S,K,C), or (R,S,C,K) for the forward
 * one. Then each tap that lies inside the image is a small product of matrix and vector,
 *   y[k] += sum_c x[c] w[c,k],   dx[c] += sum_k dy[k] w[k,c],   dw[k,c] += dy[k] x[c],   h = p stride + r dilation - pre. */
#include "interp.h"

#include <string.h>

/* (A,B,C,D) to (A,C,D,B), or back: channels behind the plane and before it. */
static void channels_last(const InterpTensor *t, const double *from, double *to, bool back)
{
    const int64_t plane = t->dim[2] * t->dim[3], channels = t->dim[1];
    for (int64_t n = 0; n < t->dim[0]; n++, from += channels * plane, to += channels * plane)
        for (int64_t i = 0; i < plane; i++)
            for (int64_t c = 0; c < channels; c++)
                if (back)
                    to[c * plane + i] = from[i * channels + c];
                else
                    to[i * channels + c] = from[c * plane + i];
}

/* (K,C,R,S) to (R,S,K,C) or, with inputs_first, (R,S,C,K); or back from (R,S,K,C). The filter is turned round if asked. */
static void taps_first(const InterpTensor *t, bool flip, bool inputs_first, const double *from, double *to, bool back)
{
    const int64_t outputs = t->dim[0], inputs = t->dim[1], taps = t->dim[2] * t->dim[3];
    for (int64_t k = 0; k < outputs; k++)
        for (int64_t c = 0; c < inputs; c++)
            for (int64_t i = 0; i < taps; i++) {
                const int64_t tap = flip ? taps - 1 - i : i, at = (k * inputs + c) * taps + i;
                const int64_t turned = inputs_first ? (tap * inputs + c) * outputs + k : (tap * outputs + k) * inputs + c;
                if (back)
                    to[at] = from[turned];
                else
                    to[turned] = from[at];
            }
}

/* out[i] += sum of a[j] m[j,i] */
static void add_product(const double *a, int64_t rows, const double *m, int64_t columns, double *restrict out)
{
    for (int64_t j = 0; j < rows; j++)
        for (int64_t i = 0; i < columns; i++)
            out[i] += a[j] * m[j * columns + i];
}

/* m[j,i] += a[j] b[i] */
static void add_outer(const double *a, int64_t rows, const double *b, int64_t columns, double *restrict m)
{
    for (int64_t j = 0; j < rows; j++)
        for (int64_t i = 0; i < columns; i++)
            m[j * columns + i] += a[j] * b[i];
}

/* One pixel of y and one tap: x, y are its channels, w the tap's matrix. */
static void conv_tap(InterpKind kind, int64_t inputs, int64_t outputs, double *x, double *w, double *y)
{
    if (kind == INTERP_CONV)
        add_product(x, inputs, w, outputs, y);
    else if (kind == INTERP_CONV_DGRAD)
        add_product(y, outputs, w, inputs, x);
    else
        add_outer(y, outputs, x, inputs, w);
}

typedef struct ConvArrays { double *x, *w, *y; } ConvArrays;

static void conv_sum(const InterpOp *op, const InterpTensor *tx, const InterpTensor *tw, const InterpTensor *ty, ConvArrays a)
{
    const int64_t inputs = tx->dim[1], outputs = ty->dim[1], height = tx->dim[2], width = tx->dim[3];
    for (int64_t n = 0; n < ty->dim[0]; n++)
        for (int64_t p = 0; p < ty->dim[2]; p++)
            for (int64_t q = 0; q < ty->dim[3]; q++)
                for (int64_t r = 0; r < tw->dim[2]; r++)
                    for (int64_t s = 0; s < tw->dim[3]; s++) {
                        const int64_t h = p * op->as.conv.stride[0] + r * op->as.conv.dilation[0] - op->as.conv.pre[0];
                        const int64_t v = q * op->as.conv.stride[1] + s * op->as.conv.dilation[1] - op->as.conv.pre[1];
                        if (h >= 0 && h < height && v >= 0 && v < width)
                            conv_tap(op->kind, inputs, outputs, a.x + ((n * height + h) * width + v) * inputs,
                                     a.w + (r * tw->dim[3] + s) * inputs * outputs,
                                     a.y + ((n * ty->dim[2] + p) * ty->dim[3] + q) * outputs);
                    }
}

static void round_inputs(const InterpJob *job, const InterpOp *op, int slots)
{
    for (int slot = 0; slot < slots; slot++) {
        const InterpTensor *t = interp_tensor(job, op, slot);
        double *v = interp_value(job, op, slot);
        for (int64_t i = 0; job->rounds_inputs && t->type == CUDNN_DATA_FLOAT && i < t->count; i++)
            v[i] = interp_round_tf32(v[i]);
    }
}

/* out = alpha sum + beta out. With beta 0 what out held does not matter, NaN or not. scratch: all three tensors and the output. */
void interp_conv(const InterpJob *job, const InterpOp *op)
{
    static const struct { int x, w, y; } slots[] = {
        [INTERP_CONV] = { 0, 1, 2 }, [INTERP_CONV_DGRAD] = { 2, 1, 0 }, [INTERP_CONV_WGRAD] = { 0, 2, 1 }
    };
    const int x = slots[op->kind].x, w = slots[op->kind].w, y = slots[op->kind].y;
    const InterpTensor *tx = interp_tensor(job, op, x), *tw = interp_tensor(job, op, w), *ty = interp_tensor(job, op, y),
                       *out = interp_tensor(job, op, 2);
    double *result = interp_value(job, op, 2), *sum = job->scratch;
    const ConvArrays a = { .x = sum + out->count, .w = sum + out->count + tx->count, .y = sum + out->count + tx->count + tw->count };
    round_inputs(job, op, 2);
    channels_last(tx, interp_value(job, op, x), a.x, false);
    taps_first(tw, op->as.conv.flip, op->kind == INTERP_CONV, interp_value(job, op, w), a.w, false);
    channels_last(ty, interp_value(job, op, y), a.y, false);
    memset(x == 2 ? a.x : w == 2 ? a.w : a.y, 0, (size_t)out->count * sizeof *sum);
    conv_sum(op, tx, tw, ty, a);
    if (w == 2)
        taps_first(tw, op->as.conv.flip, false, a.w, sum, true);
    else
        channels_last(out, x == 2 ? a.x : a.y, sum, true);
    for (int64_t i = 0; i < out->count; i++) {
        const double v = op->as.conv.alpha * sum[i] + (op->as.conv.beta != 0 ? op->as.conv.beta * result[i] : 0);
        result[i] = interp_round(out->type, interp_compute(op, v));
    }
}

/* ---- matmul: c (.., M, N) = a (.., M, K) b (.., K, N); leading dimensions of 1 are broadcast, and where those of a are a
 * multiple of b's, b's serve groups of them. */

/* Offset of the matrix of t that belongs to matrix `at` of c, in elements. */
static int64_t matrix_of(const InterpTensor *t, const InterpTensor *c, const int64_t *at)
{
    int64_t offset = 0;
    for (int d = 0; d < t->rank - 2; d++)
        offset = offset * t->dim[d] + at[d] * t->dim[d] / c->dim[d];
    return offset * t->dim[t->rank - 2] * t->dim[t->rank - 1];
}

/* The extent that an override gives to batch entry b, or the tensor's own. */
static int64_t extent_of(const InterpJob *job, const InterpOp *op, int slot, int64_t b, int64_t whole)
{
    const InterpTensor *t = interp_tensor(job, op, slot);
    if (!t)
        return whole;
    const int64_t n = (int64_t)interp_value(job, op, slot)[t->dim[0] > 1 ? b : 0];
    CHECK(n >= 0 && n <= whole);
    return n;
}

void interp_matmul(const InterpJob *job, const InterpOp *op)
{
    const InterpTensor *ta = interp_tensor(job, op, MATMUL_A), *tb = interp_tensor(job, op, MATMUL_B),
                       *tc = interp_tensor(job, op, MATMUL_C);
    const int64_t rows = tc->dim[tc->rank - 2], columns = tc->dim[tc->rank - 1], depth = ta->dim[ta->rank - 1];
    const double outside = tc->is_virtual ? interp_round(tc->type, op->as.matmul.padding) : interp_hole();
    int64_t at[INTERP_RANK] = { 0 };
    round_inputs(job, op, 2);
    for (int64_t matrix = 0; matrix < tc->count / (rows * columns); matrix++) {
        const double *a = interp_value(job, op, MATMUL_A) + matrix_of(ta, tc, at),
                     *b = interp_value(job, op, MATMUL_B) + matrix_of(tb, tc, at);
        double *c = interp_value(job, op, MATMUL_C) + matrix * rows * columns;
        const int64_t m = extent_of(job, op, MATMUL_M, at[0], rows), n = extent_of(job, op, MATMUL_N, at[0], columns),
                      k = extent_of(job, op, MATMUL_K, at[0], depth);
        for (int64_t i = 0; i < rows; i++) {
            for (int64_t j = 0; j < columns; j++)
                c[i * columns + j] = 0;
            for (int64_t l = 0; i < m && l < k; l++)
                for (int64_t j = 0; j < n; j++)
                    c[i * columns + j] += a[i * depth + l] * b[l * columns + j];
            for (int64_t j = 0; j < columns; j++)
                c[i * columns + j] = i < m && j < n ? interp_round(tc->type, interp_compute(op, c[i * columns + j])) : outside;
        }
        for (int d = tc->rank - 3; d >= 0 && ++at[d] == tc->dim[d]; d--)
            at[d] = 0;
    }
}
