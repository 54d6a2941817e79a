/* attention.c - attention over spans of rows: checks the spans, shares heads among threads, zeroes rows in no span. */
#include "attention.h"

#include "amx.h"

#include <math.h>
#include <omp.h>
#include <string.h>

static bool is_gradient(const OpDesc *op) { return op->kind == OP_attention_grad; }
static int  spans_slot(const OpDesc *op) { return is_gradient(op) ? 4 : 1; }
static bool on_tiles(const CpuBackend *be, const OpDesc *op) { return HAVE_AMX && be->amx && op->in[0].dtype == DTYPE_BF16; }

static int64_t head_size(const OpDesc *op) { return op->in[0].dim[1] / (3 * op->attr.heads); }

/* A mark for each row, then what the threads need. */
static size_t marks_bytes(const OpDesc *op) { return ((size_t)op->in[0].dim[0] + 63) / 64 * 64; }

static size_t thread_bytes(const CpuBackend *be, const OpDesc *op)
{
    const int64_t rows = op->attr.seq < op->in[0].dim[0] ? op->attr.seq : op->in[0].dim[0];
    return on_tiles(be, op) ? attention_amx_scratch(rows, head_size(op), is_gradient(op))
                            : attention_vec_scratch(rows, head_size(op), is_gradient(op));
}

static Status attention_query(Backend *base, const OpDesc *op, OpNeeds *needs)
{
    const CpuBackend *be = cpu_of(base);
    if (op->in[0].dtype != DTYPE_F32 && op->in[0].dtype != DTYPE_BF16)
        return cpu_unsupported(op_names[op->kind], op->in[0].dtype);
    needs->scratch = marks_bytes(op) + thread_bytes(be, op) * (size_t)be->threads;
    return status_ok();
}

/* Marks the rows of all spans. */
static Status check_spans(const OpDesc *op, const int32_t *spans, unsigned char *marks)
{
    const int64_t rows = op->in[0].dim[0], sequences = op->in[spans_slot(op)].dim[0];
    memset(marks, 0, (size_t)rows);
    for (int64_t b = 0; b < sequences; b++) {
        const int64_t first = spans[2 * b], n = spans[2 * b + 1];
        if (first < 0 || n < 0 || first + n > rows || n > op->attr.seq)
            return status_error(STATUS_NUMERIC, "%s: span %lld is rows %lld to %lld: must lie in 0..%lld and be at most %lld long",
                                op_names[op->kind], (long long)b, (long long)first, (long long)(first + n), (long long)rows,
                                (long long)op->attr.seq);
        if (n && memchr(marks + first, 1, (size_t)n))
            return status_error(STATUS_NUMERIC, "%s: span %lld lies over another", op_names[op->kind], (long long)b);
        memset(marks + first, 1, (size_t)n);
    }
    return status_ok();
}

static void zero_row(const OpDesc *op, void *const *out, int64_t row)
{
    for (int i = 0; i < op->n_out; i++) {
        const size_t bytes = (size_t)op->out[i].dim[1] * (size_t)dtype_bits(op->out[i].dtype) / 8;
        memset((char *)out[i] + (size_t)row * bytes, 0, bytes);
    }
}

/* Element i of a tensor. */
static void *at(const OpDesc *op, void *address, int64_t i)
{
    return (char *)address + (size_t)i * (size_t)dtype_bits(op->in[0].dtype) / 8;
}

static AttentionHead head_make(const OpDesc *op, void *const *buf, const DropoutVec *dropout, int64_t b, int64_t head)
{
    const int32_t *span = (const int32_t *)buf[spans_slot(op)] + 2 * b;
    const int64_t  size = head_size(op), width = size * op->attr.heads;
    const int64_t  y = span[0] * width + head * size, qkv = y + 2 * span[0] * width, lse = span[0] * op->attr.heads + head;
    void *const   *out = buf + op->n_in;
    AttentionHead  h = { .type = op->in[0].dtype, .rows = span[1], .size = size, .qkv_row = 3 * width, .y_row = width,
                         .lse_row = op->attr.heads, .scale = (float)(1 / sqrt((double)size)), .q = at(op, buf[0], qkv),
                         .k = at(op, buf[0], qkv + width), .v = at(op, buf[0], qkv + 2 * width), .dropout = dropout,
                         .mask_row = (b * op->attr.heads + head) * op->attr.seq };
    if (is_gradient(op)) {
        h.y_made = at(op, buf[1], y);
        h.dy = at(op, buf[2], y);
        h.lse = (float *)buf[3] + lse;
        h.dq = at(op, out[0], qkv);
        h.dk = at(op, out[0], qkv + width);
        h.dv = at(op, out[0], qkv + 2 * width);
    } else {
        h.y = at(op, out[0], y);
        h.lse = (float *)out[1] + lse;
    }
    return h;
}

static void run_head(const AttentionHead *h, bool gradient, bool tiles, void *scratch)
{
    if (gradient)
        (tiles ? attention_amx_backward : attention_vec_backward)(h, scratch);
    else
        (tiles ? attention_amx_forward : attention_vec_forward)(h, scratch);
}

static Status attention_run(Backend *base, const OpDesc *op, void *state, void *const *buf, void *scratch)
{
    (void)state;
    const CpuBackend *be = cpu_of(base);
    const int64_t rows = op->in[0].dim[0], tasks = op->in[spans_slot(op)].dim[0] * op->attr.heads;
    const bool    drops = op->attr.dropout > 0, tiles = on_tiles(be, op);
    const size_t  bytes = thread_bytes(be, op);
    unsigned char *marks = scratch;
    TRY(check_spans(op, buf[spans_slot(op)], marks));
    DropoutVec dropout;
    if (drops)
        dropout = dropout_vec(buf[spans_slot(op) + 1], op->attr.stream, op->attr.seq, op->attr.dropout);
#pragma omp parallel num_threads(be->threads)
    {
        char *own = (char *)scratch + marks_bytes(op) + bytes * (size_t)omp_get_thread_num();
        if (tiles)
            amx_configure();
#pragma omp for schedule(static) nowait
        for (int64_t row = 0; row < rows; row++)
            if (!marks[row])
                zero_row(op, buf + op->n_in, row);
#pragma omp for schedule(dynamic) nowait
        for (int64_t task = 0; task < tasks; task++) {
            const AttentionHead h = head_make(op, buf, drops ? &dropout : NULL, task / op->attr.heads, task % op->attr.heads);
            if (h.rows)
                run_head(&h, is_gradient(op), tiles, own);
        }
        if (tiles)
            amx_release();
    }
    return status_ok();
}

const Kernel cpu_attention = { .query = attention_query, .run = attention_run };
const Kernel cpu_attention_grad = { .query = attention_query, .run = attention_run };
