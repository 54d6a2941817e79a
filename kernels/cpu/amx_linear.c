/* amx_linear.c - see amx_linear.h.
 *
 * All three are c (rows,columns) = a b with a sum over terms; memory holds a or its transpose, b or its transpose:
 *   forward   y = x w^T      rows M, columns O, terms K     a rows          b rows turned
 *   dgrad     dx = dy w      rows M, columns K, terms O     a rows          b pairs
 *   wgrad     dw = dy^T x    rows O, columns K, terms M     a pairs turned  b pairs          (amx_pack.h)
 *
 * Threads share the columns (and the rows where there are too few). A thread packs a chunk of b that stays in its
 * second-level cache, then strip after strip of a, and multiplies each with the whole chunk: every element of b is packed
 * once, those of a once a chunk. Packing w here costs less than keeping packed copies would: those have to be written, and
 * read again, after every update. Sums over the terms of a chunk stay in the tiles; between chunks they wait in memory. The
 * order of sums does not depend on the threads. */
#include "amx_linear.h"

#include "amx_product.h"

#include <omp.h>

enum { UNIT = 2 * AMX_BLOCK, CHUNK_BYTES = 768 << 10 };
/* Terms of a chunk: few, so that what is read of a row of w is long; many for dw, which is best written once. */
enum { MAX_TERMS = 768, MAX_TERMS_WGRAD = 3072 };

typedef struct Plan {
    int64_t rows, columns, terms;
    int64_t strip, chunk_columns, chunk_terms; /* multiples of 32 */
    int64_t row_threads, column_threads;
    bool    keep_sums;                         /* of all rows, from one chunk of terms to the next */
    size_t  a_bytes, b_bytes, sum_bytes;       /* of one thread: a strip, a chunk, sums that wait */
} Plan;

static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* The least multiple of 32 by which `n` is cut into as many pieces as by `most`. */
static int64_t even_piece(int64_t n, int64_t most)
{
    return ceil_div(ceil_div(n, ceil_div(n, most)), UNIT) * UNIT;
}

static Plan plan_make(const OpDesc *op, int threads)
{
    const Tensor *a = &op->in[0], *b = &op->in[1];
    Plan p = { .rows = a->dim[0], .columns = b->dim[0], .terms = a->dim[1], .strip = UNIT };
    if (op->kind == OP_linear_dgrad)
        p.columns = b->dim[1];
    if (op->kind == OP_linear_wgrad)
        p = (Plan){ .rows = b->dim[1], .columns = a->dim[1], .terms = a->dim[0], .strip = 4 * UNIT };
    const int64_t units = ceil_div(p.columns, UNIT);
    p.column_threads = units < threads ? units : threads;
    p.row_threads = threads / p.column_threads;
    p.chunk_terms = even_piece(p.terms, op->kind == OP_linear_wgrad ? MAX_TERMS_WGRAD : MAX_TERMS);
    const int64_t share = ceil_div(units, p.column_threads) * UNIT, most = CHUNK_BYTES / 2 / p.chunk_terms / UNIT * UNIT;
    p.chunk_columns = even_piece(share, most < share ? most : share);
    p.a_bytes = 2 * (size_t)(p.strip * p.chunk_terms);
    p.b_bytes = 2 * (size_t)(p.chunk_columns * p.chunk_terms);
    p.keep_sums = p.chunk_terms < p.terms && op->kind != OP_linear_wgrad; /* dw itself is f32 */
    p.sum_bytes = 4 * (size_t)(p.keep_sums ? ceil_div(p.rows, UNIT) * UNIT * p.chunk_columns : UNIT * UNIT);
    return p;
}

bool amx_linear_fits(const CpuBackend *be, const OpDesc *op)
{
    return HAVE_AMX && be->amx && op->in[0].dtype == DTYPE_BF16; /* w may be f32 */
}

size_t amx_linear_scratch(const CpuBackend *be, const OpDesc *op)
{
    const Plan p = plan_make(op, be->threads);
    return (p.a_bytes + p.b_bytes + p.sum_bytes) * (size_t)be->threads;
}

#if HAVE_AMX

/* One thread's part of one op. */
typedef struct Work {
    Plan            plan;
    const OpDesc   *op;
    const uint16_t *x;              /* the two inputs */
    const void     *y;              /* f32 only if it is w */
    const float    *bias;
    void           *out;
    uint16_t       *a, *b;          /* packed */
    float          *sums;           /* one block of 32 x 32, or [rows / 32][chunk_columns / 32] of them */
    int64_t         row, row_end, column, column_end;
} Work;

/* A block of c: rows [row, ..), at most `height` and `width` of them exist. */
typedef struct Block { int64_t row, column, height, width; } Block;

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

static void pack_a(const Work *w, int64_t row, int64_t rows, int64_t term, int64_t terms)
{
    const int64_t steps = ceil_div(terms, AMX_STEP), length = w->op->in[w->op->kind == OP_linear_wgrad].dim[1];
    if (w->op->kind == OP_linear_wgrad)
        amx_pack_pairs((const uint16_t *)w->y + term * length + row, length, terms, rows, steps, true, w->a, steps * AMX_TILE);
    else
        amx_pack_rows(w->x + row * length + term, length, rows, terms, ceil_div(rows, AMX_BLOCK), false, w->a);
}

static void pack_b(const Work *w, int64_t column, int64_t columns, int64_t term, int64_t terms)
{
    const int64_t steps = ceil_div(terms, AMX_STEP), blocks = ceil_div(columns, AMX_BLOCK);
    const int64_t length = w->plan.columns, all = w->plan.terms;
    const bool    wide = w->op->in[1].dtype == DTYPE_F32;
    if (w->op->kind == OP_linear_wgrad)
        amx_pack_pairs(w->x + term * length + column, length, terms, columns, steps, false, w->b, steps * AMX_TILE);
    else if (w->op->kind == OP_linear && wide)
        amx_pack_rows_of((const float *)w->y + column * all + term, true, all, columns, terms, blocks, true, w->b);
    else if (w->op->kind == OP_linear)
        amx_pack_rows((const uint16_t *)w->y + column * all + term, all, columns, terms, blocks, true, w->b);
    else if (wide)
        amx_pack_pairs_of((const float *)w->y + term * length + column, true, length, terms, columns, steps, false, w->b,
                          steps * AMX_TILE);
    else
        amx_pack_pairs((const uint16_t *)w->y + term * length + column, length, terms, columns, steps, false, w->b,
                       steps * AMX_TILE);
}

/* Sums (height, width) to y or dx. */
static void store_bf16(const Work *w, const Block *k, const float *sums)
{
    const bool      two = k->width > AMX_BLOCK;
    const __mmask16 mask0 = two ? 0xffff : (__mmask16)((1u << k->width) - 1u);
    const __mmask16 mask1 = two ? (__mmask16)((1u << (k->width - AMX_BLOCK)) - 1u) : 0;
    const __m512    bias0 = w->bias ? _mm512_maskz_loadu_ps(mask0, w->bias + k->column) : _mm512_setzero_ps();
    const __m512    bias1 = w->bias ? _mm512_maskz_loadu_ps(mask1, w->bias + k->column + AMX_BLOCK) : _mm512_setzero_ps();
    uint16_t       *to = (uint16_t *)w->out + k->row * w->plan.columns + k->column;
    for (int64_t i = 0; i < k->height; i++, to += w->plan.columns, sums += UNIT) {
        const __m512 low = _mm512_add_ps(_mm512_load_ps(sums), bias0);
        const __m512 high = _mm512_add_ps(_mm512_load_ps(sums + AMX_BLOCK), bias1);
        _mm512_mask_storeu_epi16(to, mask0 | (__mmask32)mask1 << 16, (__m512i)_mm512_cvtne2ps_pbh(high, low));
    }
}

/* Sums to dw, or added to it. Whole lines go past the caches: dw is read again after the whole backward pass only. */
static void store_f32(const Work *w, const Block *k, const float *sums, bool add)
{
    const bool      two = k->width > AMX_BLOCK;
    const __mmask16 mask0 = two ? 0xffff : (__mmask16)((1u << k->width) - 1u);
    const __mmask16 mask1 = two ? (__mmask16)((1u << (k->width - AMX_BLOCK)) - 1u) : 0;
    float          *to = (float *)w->out + k->row * w->plan.columns + k->column;
    const bool      lines = k->width == UNIT && w->plan.columns % AMX_BLOCK == 0 && (uintptr_t)to % 64 == 0;
    for (int64_t i = 0; i < k->height; i++, to += w->plan.columns, sums += UNIT) {
        __m512 low = _mm512_load_ps(sums), high = _mm512_load_ps(sums + AMX_BLOCK);
        if (add) {
            low = _mm512_add_ps(low, _mm512_maskz_loadu_ps(mask0, to));
            high = _mm512_add_ps(high, _mm512_maskz_loadu_ps(mask1, to + AMX_BLOCK));
        }
        if (lines) {
            _mm512_stream_ps(to, low);
            _mm512_stream_ps(to + AMX_BLOCK, high);
        } else {
            _mm512_mask_storeu_ps(to, mask0, low);
            _mm512_mask_storeu_ps(to + AMX_BLOCK, mask1, high);
        }
    }
}

/* 32 rows of c, packed at `a`, with a packed chunk of b. Is the chunk the first, the last of the terms? */
static void multiply_rows(const Work *w, Block k, const uint16_t *a, int64_t columns, int64_t steps, bool first, bool last)
{
    const bool       keep = w->plan.keep_sums, wgrad = w->op->kind == OP_linear_wgrad;
    const int64_t    step = steps * AMX_TILE, start = k.column;
    const AmxProduct m = { .terms = steps, .a_step = step, .b_step = step, .pitch = UNIT, .add = keep && !first };
    for (int64_t j = 0; j < columns; j += UNIT) {
        float *sums = keep ? w->sums + (k.row - w->row) * w->plan.chunk_columns + j * UNIT : w->sums;
        k.column = start + j;
        k.width = least(UNIT, columns - j);
        amx_multiply(&m, a, w->b + j / AMX_BLOCK * step, sums, k.height > AMX_BLOCK, k.width > AMX_BLOCK);
        if (wgrad)
            store_f32(w, &k, sums, w->op->attr.accumulate || !first);
        else if (last)
            store_bf16(w, &k, sums);
    }
}

/* All rows of the thread with a packed chunk of b. */
static void multiply_chunk(const Work *w, int64_t column, int64_t columns, int64_t term, int64_t terms)
{
    const int64_t steps = ceil_div(terms, AMX_STEP);
    for (int64_t row = w->row; row < w->row_end; row += w->plan.strip) {
        const int64_t rows = least(w->plan.strip, w->row_end - row);
        pack_a(w, row, rows, term, terms);
        for (int64_t i = 0; i < rows; i += UNIT)
            multiply_rows(w, (Block){ row + i, column, least(UNIT, rows - i), 0 }, w->a + i / AMX_BLOCK * steps * AMX_TILE, columns,
                          steps, term == 0, term + terms == w->plan.terms);
    }
}

static void run_share(const Work *w)
{
    const Plan *p = &w->plan;
    for (int64_t column = w->column; column < w->column_end; column += p->chunk_columns)
        for (int64_t term = 0; term < p->terms; term += p->chunk_terms) {
            const int64_t columns = least(p->chunk_columns, w->column_end - column), terms = least(p->chunk_terms, p->terms - term);
            pack_b(w, column, columns, term, terms);
            multiply_chunk(w, column, columns, term, terms);
        }
}

void amx_linear_run(const CpuBackend *be, const OpDesc *op, void *const *buf, void *scratch)
{
    const Plan   plan = plan_make(op, be->threads);
    const size_t bytes = plan.a_bytes + plan.b_bytes + plan.sum_bytes;
#pragma omp parallel num_threads(be->threads)
    {
        amx_configure();
        for (int t = omp_get_thread_num(); t < plan.row_threads * plan.column_threads; t += omp_get_num_threads()) {
            char *own = (char *)scratch + bytes * (size_t)t;
            Work  w = { .plan = plan, .op = op, .x = buf[0], .y = buf[1], .bias = op->n_in == 3 ? buf[2] : NULL,
                        .out = buf[op->n_in], .a = (uint16_t *)own, .b = (uint16_t *)(own + plan.a_bytes),
                        .sums = (float *)(own + plan.a_bytes + plan.b_bytes) };
            thread_share(plan.rows, UNIT, (int)(t / plan.column_threads), (int)plan.row_threads, &w.row, &w.row_end);
            thread_share(plan.columns, UNIT, (int)(t % plan.column_threads), (int)plan.column_threads, &w.column, &w.column_end);
            run_share(&w);
        }
        amx_release();
        _mm_sfence(); /* lines written past the caches are seen by whoever comes after */
    }
}

#else

void amx_linear_run(const CpuBackend *be, const OpDesc *op, void *const *buf, void *scratch)
{
    (void)be, (void)op, (void)buf, (void)scratch;
    CHECK(!"this build has no AMX code");
}

#endif
