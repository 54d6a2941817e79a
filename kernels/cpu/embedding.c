/* embedding.c - rows picked by number: embeddings (a sum over up to three tables), gathered rows, and their gradients.
 *
 * A gradient adds rows of dy where they were picked from. Lists say for each row of the result which rows of dy belong to it,
 * in order; then the rows of the result are independent, and the bits are the same whatever the threads. */
#include "cpu.h"
#include "vec.h"

#include <omp.h>

/* -1 picks nothing; others have to be rows of the table. `what` is "id" or "row". */
static Status check_ids(const OpDesc *op, const char *what, const int32_t *ids, int64_t count, int64_t rows)
{
    for (int64_t t = 0; t < count; t++)
        if (ids[t] < -1 || ids[t] >= rows)
            return status_error(STATUS_NUMERIC, "%s: %s %d at position %lld is outside 0..%lld of a table of %lld rows (-1 = none)",
                                op_names[op->kind], what, (int)ids[t], (long long)t, (long long)rows - 1, (long long)rows);
    return status_ok();
}

/* ---- forward */

/* One row of y as the sum of n rows of tables. */
ALWAYS_INLINE void embed_row(Dtype t, const float *const *row, int n, int64_t width, void *y, int64_t start)
{
    FOR_BLOCKS(j, 0, width, lanes, {
        VecF v = vec_set(0);
        for (int k = 0; k < n; k++)
            v += vec_load_some(DTYPE_F32, row[k], j, lanes);
        vec_store_some(t, y, start + j, v, lanes);
    });
}

static Status embedding_query(Backend *be, const OpDesc *op, OpNeeds *needs)
{
    (void)be;
    return cpu_query_plain(op, needs);
}

static Status embedding_run(Backend *base, const OpDesc *op, void *state, void *const *buf, void *scratch)
{
    (void)state, (void)scratch;
    const int64_t count = op->out[0].dim[0], width = op->out[0].dim[1];
    const int     tables = op->n_in / 2;
    void         *y = buf[op->n_in];
    for (int k = 0; k < tables; k++)
        TRY(check_ids(op, "id", buf[2 * k + 1], count, op->in[2 * k].dim[0]));
#pragma omp parallel for num_threads(cpu_of(base)->threads) schedule(static)
    for (int64_t t = 0; t < count; t++) {
        const float *row[OP_MAX_IN / 2];
        int n = 0;
        for (int k = 0; k < tables; k++) {
            const int32_t id = ((const int32_t *)buf[2 * k + 1])[t];
            if (id >= 0)
                row[n++] = (const float *)buf[2 * k] + id * width;
        }
        if (op->out[0].dtype == DTYPE_F32)
            embed_row(DTYPE_F32, row, n, width, y, t * width);
        else
            embed_row(DTYPE_BF16, row, n, width, y, t * width);
    }
    return status_ok();
}

static Status gather_rows_run(Backend *base, const OpDesc *op, void *state, void *const *buf, void *scratch)
{
    (void)state, (void)scratch;
    const int64_t  count = op->out[0].dim[0];
    const size_t   bytes = tensor_bytes(&op->out[0]) / (size_t)count;
    const int32_t *ids = buf[1];
    TRY(check_ids(op, "row", ids, count, op->in[0].dim[0]));
#pragma omp parallel for num_threads(cpu_of(base)->threads) schedule(static)
    for (int64_t p = 0; p < count; p++) {
        char *y = (char *)buf[2] + (size_t)p * bytes;
        if (ids[p] < 0)
            memset(y, 0, bytes);
        else
            memcpy(y, (const char *)buf[0] + (size_t)ids[p] * bytes, bytes);
    }
    return status_ok();
}

/* ---- gradients */

enum { COLUMNS = 256, COLUMN_BLOCKS = COLUMNS / LANES }; /* of a row, summed at once: sixteen vectors stay in registers */

/* For each row r of the result: first[r], next[first[r]], ... are the rows of dy to add, ascending; -1 ends. */
typedef struct Lists { int32_t *first, *next; } Lists;

static Lists build_lists(const int32_t *ids, int64_t count, int64_t rows, void *scratch)
{
    Lists l = { scratch, (int32_t *)scratch + rows };
    for (int64_t r = 0; r < rows; r++)
        l.first[r] = -1;
    for (int64_t t = count - 1; t >= 0; t--)
        if (ids[t] >= 0) {
            l.next[t] = l.first[ids[t]];
            l.first[ids[t]] = (int32_t)t;
        }
    return l;
}

typedef struct Scatter {
    Lists lists;
    Dtype dtype, dtype_out;
    int64_t     width;
    const void *dy;         /* (T, width) */
    void       *out;        /* (rows, width) */
} Scatter;

/* COLUMNS columns of one row of out, from element i = row start + column on, and of the rows of dy from list element `at` on. */
ALWAYS_INLINE void add_whole(Dtype t, Dtype t_out, const Scatter *s, int32_t at, int64_t column, int64_t i)
{
    VecF sum[COLUMN_BLOCKS];
    for (int b = 0; b < COLUMN_BLOCKS; b++)
        sum[b] = vec_load(t_out, s->out, i + LANES * b);
    for (; at >= 0; at = s->lists.next[at])
        for (int b = 0; b < COLUMN_BLOCKS; b++)
            sum[b] += vec_load(t, s->dy, at * s->width + column + LANES * b);
    for (int b = 0; b < COLUMN_BLOCKS; b++)
        vec_store(t_out, s->out, i + LANES * b, sum[b]);
}

/* The same for n < COLUMNS columns. */
ALWAYS_INLINE void add_rest(Dtype t, Dtype t_out, const Scatter *s, int32_t first, int64_t column, int64_t i, int64_t n)
{
    FOR_BLOCKS(j, 0, n, lanes, {
        VecF sum = vec_load_some(t_out, s->out, i + j, lanes);
        for (int32_t at = first; at >= 0; at = s->lists.next[at])
            sum += vec_load_some(t, s->dy, at * s->width + column + j, lanes);
        vec_store_some(t_out, s->out, i + j, sum, lanes);
    });
}

/* Adds the sum of dy over r's list to n columns of row r, from `column` on. */
ALWAYS_INLINE void add_columns_of(Dtype t, Dtype t_out, const Scatter *s, int64_t r, int64_t column, int64_t n)
{
    const int64_t i = r * s->width + column;
    const int32_t first = s->lists.first[r];
    if (n == COLUMNS)
        add_whole(t, t_out, s, first, column, i);
    else
        add_rest(t, t_out, s, first, column, i, n);
}

static void add_columns(const Scatter *s, int64_t r, int64_t column, int64_t n)
{
    if (s->dtype == DTYPE_F32)
        add_columns_of(DTYPE_F32, DTYPE_F32, s, r, column, n);
    else if (s->dtype_out == DTYPE_F32)
        add_columns_of(DTYPE_BF16, DTYPE_F32, s, r, column, n);
    else
        add_columns_of(DTYPE_BF16, DTYPE_BF16, s, r, column, n);
}

/* Large pieces, which the C library writes past the caches. */
static void zero_all(void *out, size_t bytes, int threads)
{
#pragma omp parallel num_threads(threads)
    {
        int64_t first, last;
        thread_share((int64_t)bytes, 64, omp_get_thread_num(), omp_get_num_threads(), &first, &last);
        memset((char *)out + first, 0, (size_t)(last - first));
    }
}

/* embedding_grad and gather_rows_grad. */
static Status scatter_run(Backend *base, const OpDesc *op, void *state, void *const *buf, void *scratch)
{
    (void)state;
    const int     threads = cpu_of(base)->threads;
    const Tensor *to = &op->out[0];
    const int64_t rows = to->dim[0], width = to->dim[1];
    TRY(check_ids(op, op->kind == OP_embedding_grad ? "id" : "row", buf[1], op->in[1].dim[0], rows));
    const Scatter s = { build_lists(buf[1], op->in[1].dim[0], rows, scratch), op->in[0].dtype, to->dtype, width, buf[0], buf[2] };
    if (!op->attr.accumulate)
        zero_all(buf[2], tensor_bytes(to), threads);
#pragma omp parallel for collapse(2) num_threads(threads) schedule(static)
    for (int64_t r = 0; r < rows; r++)
        for (int64_t column = 0; column < width; column += COLUMNS)
            if (s.lists.first[r] >= 0)
                add_columns(&s, r, column, width - column < COLUMNS ? width - column : COLUMNS);
    return status_ok();
}

static Status lists_query(Backend *be, const OpDesc *op, OpNeeds *needs)
{
    (void)be;
    needs->scratch = (size_t)(op->out[0].dim[0] + op->in[1].dim[0]) * sizeof(int32_t);
    return cpu_query_plain(op, needs);
}

const Kernel cpu_embedding = { .query = embedding_query, .run = embedding_run };
const Kernel cpu_embedding_grad = { .query = lists_query, .run = scatter_run };
const Kernel cpu_gather_rows = { .query = embedding_query, .run = gather_rows_run };
const Kernel cpu_gather_rows_grad = { .query = lists_query, .run = scatter_run };
