/* ref_attention.c - softmax attention over spans of rows, and its gradient.
 *
 * Within a span and a head, with a = 1 / sqrt(D):  s[i][j] = a q[i] k[j],  lse[i] = log sum_j exp s[i][j],
 *   p = exp(s - lse),  z = keep / (1 - rate),  y[i] = sum_j z p[i][j] v[j]
 *   dv[j] = sum_i z p dy[i],  ds[i][j] = p (z dy[i] v[j] - dy[i] y[i]),  dq[i] = a sum_j ds k[j],  dk[j] = a sum_i ds q[i]
 * The gradient takes lse and y as they are given: that is what a backend does. */
#include "ref_ops.h"

#include "../../kernels/dropout.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* One head of one span. Elements from one row to the next: 3 W in qkv, W in y, heads in lse. */
typedef struct Head {
    int64_t first, rows, width, size, index, sequence; /* rows [first, first + rows); W; D; number of head and of span */
    int32_t rng[4];
} Head;

static Head head_at(const OpDesc *op, const double *spans, const double *rng, int64_t b, int64_t h)
{
    const int64_t width = op->in[0].dim[1] / 3;
    Head head = { .first = (int64_t)spans[2 * b], .rows = (int64_t)spans[2 * b + 1], .width = width, .size = width / op->attr.heads,
                  .index = h, .sequence = b };
    for (int i = 0; rng && i < 4; i++)
        head.rng[i] = (int32_t)rng[i];
    return head;
}

/* Start of row i of part 0 (q), 1 (k) or 2 (v) of qkv, and of y. */
static int64_t at_qkv(const Head *h, int part, int64_t i) { return ((h->first + i) * 3 + part) * h->width + h->index * h->size; }
static int64_t at_y(const Head *h, int64_t i) { return (h->first + i) * h->width + h->index * h->size; }
static int64_t at_lse(const OpDesc *op, const Head *h, int64_t i) { return (h->first + i) * op->attr.heads + h->index; }

static double dot(const double *a, const double *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

static void add_scaled(double *to, double factor, const double *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        to[i] += factor * x[i];
}

/* 0 or 1 / (1 - rate). */
static double dropout_factor(const OpDesc *op, const Head *h, int64_t i, int64_t j)
{
    const OpAttr *a = &op->attr;
    if (!(a->dropout > 0))
        return 1;
    const int64_t row = (h->sequence * a->heads + h->index) * a->seq + i;
    return dropout_keeps(h->rng, a->stream, row, a->seq, j, a->dropout) ? 1 / (1 - (double)a->dropout) : 0;
}

static void forward_row(const OpDesc *op, const Head *h, const double *qkv, int64_t i, double *y, double *lse)
{
    const double scale = 1 / sqrt((double)h->size);
    double largest = -INFINITY, sum = 0;
    for (int64_t j = 0; j < h->rows; j++)
        largest = fmax(largest, scale * dot(qkv + at_qkv(h, 0, i), qkv + at_qkv(h, 1, j), h->size));
    for (int64_t j = 0; j < h->rows; j++)
        sum += exp(scale * dot(qkv + at_qkv(h, 0, i), qkv + at_qkv(h, 1, j), h->size) - largest);
    lse[at_lse(op, h, i)] = largest + log(sum);
    for (int64_t j = 0; j < h->rows; j++) {
        const double s = scale * dot(qkv + at_qkv(h, 0, i), qkv + at_qkv(h, 1, j), h->size);
        add_scaled(y + at_y(h, i), dropout_factor(op, h, i, j) * exp(s - largest) / sum, qkv + at_qkv(h, 2, j), h->size);
    }
}

void ref_attention(const OpDesc *op, const double *const *in, double *const *out)
{
    const int64_t sequences = op->in[1].dim[0], heads = op->attr.heads;
    memset(out[0], 0, (size_t)tensor_count(&op->out[0]) * sizeof(double));
    memset(out[1], 0, (size_t)tensor_count(&op->out[1]) * sizeof(double));
#pragma omp parallel for
    for (int64_t task = 0; task < sequences * heads; task++) {
        const Head h = head_at(op, in[1], op->attr.dropout > 0 ? in[2] : NULL, task / heads, task % heads);
        for (int64_t i = 0; i < h.rows; i++)
            forward_row(op, &h, in[0], i, out[0], out[1]);
    }
}

static void gradient_row(const OpDesc *op, const Head *h, const double *const *in, int64_t i, double *dqkv)
{
    const double scale = 1 / sqrt((double)h->size), *qkv = in[0], *dy = in[2] + at_y(h, i);
    const double delta = dot(dy, in[1] + at_y(h, i), h->size);
    for (int64_t j = 0; j < h->rows; j++) {
        const double z = dropout_factor(op, h, i, j);
        const double p = exp(scale * dot(qkv + at_qkv(h, 0, i), qkv + at_qkv(h, 1, j), h->size) - in[3][at_lse(op, h, i)]);
        const double ds = p * (z * dot(dy, qkv + at_qkv(h, 2, j), h->size) - delta);
        add_scaled(dqkv + at_qkv(h, 0, i), scale * ds, qkv + at_qkv(h, 1, j), h->size);
        add_scaled(dqkv + at_qkv(h, 1, j), scale * ds, qkv + at_qkv(h, 0, i), h->size);
        add_scaled(dqkv + at_qkv(h, 2, j), z * p, dy, h->size);
    }
}

void ref_attention_grad(const OpDesc *op, const double *const *in, double *const *out)
{
    const int64_t sequences = op->in[4].dim[0], heads = op->attr.heads;
    memset(out[0], 0, (size_t)tensor_count(&op->out[0]) * sizeof(double));
#pragma omp parallel for
    for (int64_t task = 0; task < sequences * heads; task++) {
        const Head h = head_at(op, in[4], op->attr.dropout > 0 ? in[5] : NULL, task / heads, task % heads);
        for (int64_t i = 0; i < h.rows; i++)
            gradient_row(op, &h, in, i, out[0]);
    }
}

Status ref_check_spans(const OpDesc *op, const int32_t *spans)
{
    const Tensor *t = &op->in[op->kind == OP_attention ? 1 : 4];
    const int64_t rows = op->in[0].dim[0];
    char *used = calloc((size_t)rows, 1);
    if (!used)
        return status_error(STATUS_OOM, "no memory to check spans");
    Status s = status_ok();
    for (int64_t b = 0; b < t->dim[0] && s.code == STATUS_OK; b++) {
        const int64_t first = spans[2 * b], n = spans[2 * b + 1];
        if (n < 0 || n > op->attr.seq || first < 0 || first + n > rows)
            s = status_error(STATUS_NUMERIC, "%s: bad span %lld", op_names[op->kind], (long long)b);
        for (int64_t i = 0; i < n && s.code == STATUS_OK; i++)
            if (used[first + i]++)
                s = status_error(STATUS_NUMERIC, "%s: span %lld overlaps another", op_names[op->kind], (long long)b);
    }
    free(used);
    return s;
}
