/* gemm_f32.c - see gemm_f32.h.
 *
 * All three are sums over terms of a (rows,terms) times b (terms,columns):
 *   forward   y^T = w x^T     rows O, columns M, terms K     a rows of w      b rows of x, turned    c turned
 *   dgrad     dx = dy w       rows M, columns K, terms O     a rows of dy     b as it is
 *   wgrad     dw = dy^T x     rows O, columns K, terms M     a turned         b as it is
 * Forward is done for y^T, so that of w, most often the largest, rows are copied and never turned.
 *
 * As Goto & van de Geijn (2008) do it, with packed operands: a thread packs a chunk of x or dy that stays in its second-level
 * cache, of b in forward and wgrad, of a in dgrad; then 14 rows of a or 32 columns of b at a time come by, are packed and
 * multiplied with the whole chunk (gemm_f32_tile.h). What comes by next, w most of all, is asked for from memory meanwhile.
 * Threads divide the rows and the columns, whichever makes less to pack. Sums over the terms of one chunk stay in registers
 * and are then added to c; the order of sums depends on nothing but the terms.
 *
 * Measured on one Sapphire Rapids core whose multiply-adds reach 215 GFLOP/s: 160-200 from 128 rows on; oneDNN 2.6.3 as
 * much, but 75-95 for dgrad and, from 1024 rows on, wgrad where rows of w are multiples of 4096 bytes apart, 20-50 % less for
 * wgrad of a vocabulary. What is missing to the peak is packing (5-10 %), adding to c (2-5 %) and waiting for memory. */
#include "gemm_f32.h"

#include "gemm_f32_tile.h"
#include "transpose.h"

#include <omp.h>

#ifdef __AVX512F__
#define HAVE_GEMM 1
#else
#define HAVE_GEMM 0
#endif

/* Fewer rows of x or dy do not pay for packing w. */
enum { LEAST_ROWS = 32 };
/* A chunk takes half of the second-level cache. Its terms: where c is turned it is best added to seldom. */
enum { CHUNK_BYTES = 1200 << 10, MAX_TERMS = 512, MAX_TERMS_FORWARD = 768 };

typedef struct Plan {
    int64_t rows, columns, terms;
    bool    rows_stay;                  /* the chunk is of a (dgrad), else of b */
    int64_t chunk, chunk_terms;         /* rows or columns of a chunk, and its terms: a multiple of 16 */
    int     row_threads, column_threads;
    size_t  a_bytes, b_bytes;           /* of one thread, packed */
} Plan;

static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* The least multiple of `unit` by which `n` is cut into as many pieces as by `most`. */
static int64_t even_piece(int64_t n, int64_t most, int64_t unit)
{
    return ceil_div(ceil_div(n, ceil_div(n, most)), unit) * unit;
}

/* Rows or columns of a chunk where a thread has `share` of them. */
static int64_t chunk_of(const Plan *p, int64_t share)
{
    const int64_t unit = p->rows_stay ? TILE_HEIGHT : TILE_WIDTH;
    return even_piece(share, CHUNK_BYTES / (int64_t)sizeof(float) / p->chunk_terms / unit * unit, unit);
}

static int64_t rows_of(const Plan *p, int threads) { return ceil_div(ceil_div(p->rows, TILE_HEIGHT), threads) * TILE_HEIGHT; }
static int64_t columns_of(const Plan *p, int threads) { return ceil_div(ceil_div(p->columns, LANES), threads) * LANES; }

/* Time of the busiest thread for each term, in arbitrary units: multiply-adds, and copies into a and b. */
static double share_time(const Plan *p, int row_threads, int column_threads)
{
    const int64_t rows = rows_of(p, row_threads), columns = columns_of(p, column_threads), stay = p->rows_stay ? rows : columns;
    const int64_t chunks = ceil_div(stay, chunk_of(p, stay));
    return (double)(rows * columns) / 32 + 0.25 * (double)(p->rows_stay ? rows + columns * chunks : rows * chunks + columns);
}

static Plan plan_make(const OpDesc *op, int threads)
{
    const Tensor *a = &op->in[0], *b = &op->in[1];
    Plan p = { .rows = b->dim[0], .columns = a->dim[0], .terms = a->dim[1] };
    if (op->kind == OP_linear_dgrad)
        p = (Plan){ .rows = a->dim[0], .columns = b->dim[1], .terms = b->dim[0], .rows_stay = true };
    if (op->kind == OP_linear_wgrad)
        p = (Plan){ .rows = b->dim[1], .columns = a->dim[1], .terms = a->dim[0] };
    p.chunk_terms = even_piece(p.terms, op->kind == OP_linear ? MAX_TERMS_FORWARD : MAX_TERMS, LANES);
    p.row_threads = 1;
    p.column_threads = threads;
    for (int r = 2; r <= threads; r++)
        if (share_time(&p, r, threads / r) < share_time(&p, p.row_threads, p.column_threads)) {
            p.row_threads = r;
            p.column_threads = threads / r;
        }
    p.chunk = chunk_of(&p, p.rows_stay ? rows_of(&p, p.row_threads) : columns_of(&p, p.column_threads));
    p.a_bytes = sizeof(float) * (size_t)((p.rows_stay ? p.chunk : TILE_HEIGHT) * p.chunk_terms);
    p.b_bytes = sizeof(float) * (size_t)((p.rows_stay ? TILE_WIDTH : p.chunk) * p.chunk_terms);
    return p;
}

bool gemm_f32_fits(const OpDesc *op)
{
    const bool many = op->kind == OP_linear_wgrad || op->in[0].dim[0] >= LEAST_ROWS;
    return HAVE_GEMM && op->in[0].dtype == DTYPE_F32 && many;
}

size_t gemm_f32_scratch(const CpuBackend *be, const OpDesc *op)
{
    const Plan p = plan_make(op, be->threads);
    return (p.a_bytes + p.b_bytes) * (size_t)be->threads;
}

#if HAVE_GEMM

/* One thread's part of one op. */
typedef struct Work {
    Plan         plan;
    OpKind       kind;
    bool         accumulate;
    const float *from_a, *from_b;
    int64_t      a_length, b_length; /* elements from one row to the next */
    const float *bias;               /* [rows] or NULL */
    float       *c;
    int64_t      c_length;
    float       *a, *b;              /* packed */
    int64_t      row, row_end, column, column_end;
} Work;

/* Some terms of some rows and columns: a chunk with what it is multiplied with. */
typedef struct Part { int64_t row, row_end, column, column_end, term, terms; } Part;

/* A tile of c, and how its sums get there. */
typedef struct Tile { int64_t row, column; int height, width; bool add, last; } Tile;

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

static __mmask16 mask_of(int64_t n) { return (__mmask16)(n >= LANES ? 0xffff : n <= 0 ? 0 : (1u << n) - 1u); }

/* Turns 16 rows of `from`, as far as they exist: row i, column j goes to to[j * pitch + i]. */
static void turn_block(const float *from, int64_t length, int64_t rows, int64_t columns, float *to, int64_t pitch)
{
    __m512i v[LANES];
    for (int i = 0; i < LANES; i++)
        v[i] = _mm512_maskz_loadu_epi32(i < rows ? mask_of(columns) : 0, from + (i < rows ? i : 0) * length);
    transpose_16x16(v);
    for (int j = 0; j < LANES && j < columns; j++)
        _mm512_storeu_si512(to + j * pitch, v[j]);
}

/* Up to 14 rows of a from `row` on: [terms / 16][14][16]. */
static void pack_a(const Work *w, const Part *p, int64_t row, float *a)
{
    const int64_t height = least(TILE_HEIGHT, p->row_end - row);
    if (w->kind == OP_linear_wgrad) {
        const float *from = w->from_a + p->term * w->a_length + row;
        for (int64_t t = 0; t < p->terms; t += LANES)
            turn_block(from + t * w->a_length, w->a_length, p->terms - t, height, a + t * TILE_HEIGHT, LANES);
        return;
    }
    for (int64_t i = 0; i < height; i++) {
        const float *from = w->from_a + (row + i) * w->a_length + p->term;
        float       *to = a + i * LANES;
        int64_t      t = 0;
        for (; t + LANES <= p->terms; t += LANES, to += TILE_GROUP)
            _mm512_storeu_ps(to, _mm512_loadu_ps(from + t));
        if (t < p->terms)
            _mm512_storeu_ps(to, _mm512_maskz_loadu_ps(mask_of(p->terms - t), from + t));
    }
}

/* Vectors of the panel of b from `column` on. */
static int panel_vectors(const Part *p, int64_t column) { return p->column_end - column > LANES ? TILE_VECTORS : 1; }

/* Up to 32 columns of b from `column` on: [terms][32], or [terms][16] where there are no more. */
static void pack_b(const Work *w, const Part *p, int64_t column, float *b)
{
    const int64_t width = least(TILE_WIDTH, p->column_end - column), pitch = panel_vectors(p, column) * LANES;
    if (w->kind == OP_linear) {
        for (int64_t j = 0; j < width; j += LANES)
            for (int64_t t = 0; t < p->terms; t += LANES)
                turn_block(w->from_b + (column + j) * w->b_length + p->term + t, w->b_length, width - j, p->terms - t, b + t * pitch + j,
                           pitch);
        return;
    }
    const float *from = w->from_b + p->term * w->b_length + column;
    for (int64_t t = 0; t < p->terms; t++, from += w->b_length, b += pitch) {
        _mm512_storeu_ps(b, _mm512_maskz_loadu_ps(mask_of(width), from));
        if (width > LANES)
            _mm512_storeu_ps(b + LANES, _mm512_maskz_loadu_ps(mask_of(width - LANES), from + LANES));
    }
}

/* dx, dw: sums [14][32] to c, or added to it. */
static void store_rows(const Work *w, const Tile *k, const float *sums)
{
    float *to = w->c + k->row * w->c_length + k->column;
    for (int i = 0; i < k->height; i++, to += w->c_length, sums += TILE_WIDTH)
        for (int j = 0; j < k->width; j += LANES) {
            const __mmask16 mask = mask_of(k->width - j);
            __m512          v = _mm512_load_ps(sums + j);
            if (k->add)
                v = _mm512_add_ps(v, _mm512_maskz_loadu_ps(mask, to + j));
            _mm512_mask_storeu_ps(to + j, mask, v);
        }
}

/* y: the tile turned. */
static void store_turned(const Work *w, const Tile *k, const float *sums)
{
    const __mmask16 mask = mask_of(k->height);
    const __m512    bias = w->bias && k->last ? _mm512_maskz_loadu_ps(mask, w->bias + k->row) : _mm512_setzero_ps();
    for (int j = 0; j < k->width; j += LANES) {
        __m512i v[LANES];
        for (int i = 0; i < TILE_HEIGHT; i++)
            v[i] = _mm512_load_si512(sums + i * TILE_WIDTH + j);
        v[14] = v[15] = _mm512_setzero_si512();
        transpose_16x16(v);
        for (int l = 0; l < LANES && j + l < k->width; l++) {
            float *to = w->c + (k->column + j + l) * w->c_length + k->row;
            __m512 y = _mm512_add_ps(_mm512_castsi512_ps(v[l]), bias);
            if (k->add)
                y = _mm512_add_ps(y, _mm512_maskz_loadu_ps(mask, to));
            _mm512_mask_storeu_ps(to, mask, y);
        }
    }
}

/* Asks for a tile of c. */
static void ahead_c(const Work *w, const Tile *k)
{
    const bool   turned = w->kind == OP_linear;
    const float *line = w->c + (turned ? k->column * w->c_length + k->row : k->row * w->c_length + k->column);
    const int    rows = turned ? k->width : k->height, columns = turned ? k->height : k->width;
    for (int i = 0; i < rows; i++, line += w->c_length) {
        __builtin_prefetch(line, 1);
        __builtin_prefetch(line + columns - 1, 1);
    }
}

/* `rows` times `columns` elements from `first` on, while `groups` groups of terms are multiplied. */
static Ahead ahead_make(const float *first, int64_t rows, int64_t columns, int64_t length, int64_t groups)
{
    const int64_t lines = ceil_div(columns * (int64_t)sizeof(float) + 63, 64);
    return (Ahead){ .line = (const char *)first, .rows = rows, .left = lines, .row_lines = lines,
                    .skip = length * (int64_t)sizeof(float) - lines * 64, .rate = (int)ceil_div(rows * lines, groups) };
}

/* What pack_a will read for `row`, pack_b for `column`. */
static Ahead ahead_a(const Work *w, const Part *p, int64_t row, int64_t groups)
{
    const int64_t height = least(TILE_HEIGHT, p->row_end - row);
    if (height <= 0)
        return (Ahead){ 0 };
    return w->kind == OP_linear_wgrad ? ahead_make(w->from_a + p->term * w->a_length + row, p->terms, height, w->a_length, groups)
                                      : ahead_make(w->from_a + row * w->a_length + p->term, height, p->terms, w->a_length, groups);
}

static Ahead ahead_b(const Work *w, const Part *p, int64_t column, int64_t groups)
{
    const int64_t width = least(TILE_WIDTH, p->column_end - column);
    return width <= 0 ? (Ahead){ 0 } : ahead_make(w->from_b + p->term * w->b_length + column, p->terms, width, w->b_length, groups);
}

static void multiply_tile(const Work *w, const Part *p, int64_t row, int64_t column, const float *a, const float *b, Ahead *ahead)
{
    _Alignas(64) float sums[TILE_HEIGHT * TILE_WIDTH];
    const Tile k = { .row = row, .column = column, .height = (int)least(TILE_HEIGHT, p->row_end - row),
                     .width = (int)least(TILE_WIDTH, p->column_end - column), .add = w->accumulate || p->term > 0,
                     .last = p->term + p->terms == w->plan.terms };
    ahead_c(w, &k);
    tile_multiply(k.height, panel_vectors(p, column), p->terms, a, b, sums, ahead);
    if (w->kind == OP_linear)
        store_turned(w, &k, sums);
    else
        store_rows(w, &k, sums);
}

/* The columns of b stay packed, the rows of a come by. */
static void multiply_columns(const Work *w, const Part *p)
{
    const int64_t groups = ceil_div(p->column_end - p->column, TILE_WIDTH) * ceil_div(p->terms, LANES);
    for (int64_t j = p->column; j < p->column_end; j += TILE_WIDTH)
        pack_b(w, p, j, w->b + (j - p->column) * p->terms);
    for (int64_t i = p->row; i < p->row_end; i += TILE_HEIGHT) {
        Ahead ahead = ahead_a(w, p, i + TILE_HEIGHT, groups);
        pack_a(w, p, i, w->a);
        for (int64_t j = p->column; j < p->column_end; j += TILE_WIDTH)
            multiply_tile(w, p, i, j, w->a, w->b + (j - p->column) * p->terms, &ahead);
    }
}

/* The rows of a stay packed, the columns of b come by. */
static void multiply_rows(const Work *w, const Part *p)
{
    const int64_t steps = ceil_div(p->terms, LANES), groups = ceil_div(p->row_end - p->row, TILE_HEIGHT) * steps;
    for (int64_t i = p->row; i < p->row_end; i += TILE_HEIGHT)
        pack_a(w, p, i, w->a + (i - p->row) * steps * LANES);
    for (int64_t j = p->column; j < p->column_end; j += TILE_WIDTH) {
        Ahead ahead = ahead_b(w, p, j + TILE_WIDTH, groups);
        pack_b(w, p, j, w->b);
        for (int64_t i = p->row; i < p->row_end; i += TILE_HEIGHT)
            multiply_tile(w, p, i, j, w->a + (i - p->row) * steps * LANES, w->b, &ahead);
    }
}

static void run_share(const Work *w)
{
    const Plan   *p = &w->plan;
    const int64_t first = p->rows_stay ? w->row : w->column, end = p->rows_stay ? w->row_end : w->column_end;
    for (int64_t i = first; i < end; i += p->chunk)
        for (int64_t term = 0; term < p->terms; term += p->chunk_terms) {
            Part part = { w->row, w->row_end, w->column, w->column_end, term, least(p->chunk_terms, p->terms - term) };
            if (p->rows_stay) {
                part.row = i;
                part.row_end = least(i + p->chunk, end);
                multiply_rows(w, &part);
            } else {
                part.column = i;
                part.column_end = least(i + p->chunk, end);
                multiply_columns(w, &part);
            }
        }
}

void gemm_f32_run(const CpuBackend *be, const OpDesc *op, void *const *buf, void *scratch)
{
    const Plan   p = plan_make(op, be->threads);
    const bool   wgrad = op->kind == OP_linear_wgrad, forward = op->kind == OP_linear;
    const size_t bytes = p.a_bytes + p.b_bytes;
    const int    a = forward || wgrad, b = !a;
#pragma omp parallel num_threads(be->threads)
    for (int t = omp_get_thread_num(); t < p.row_threads * p.column_threads; t += omp_get_num_threads()) {
        char *own = (char *)scratch + bytes * (size_t)t;
        Work  w = { .plan = p, .kind = op->kind, .accumulate = wgrad && op->attr.accumulate, .from_a = buf[a],
                    .from_b = buf[b], .a_length = op->in[a].dim[1], .b_length = op->in[b].dim[1],
                    .bias = forward && op->n_in == 3 ? buf[2] : NULL, .c = buf[op->n_in], .c_length = op->out[0].dim[1],
                    .a = (float *)own, .b = (float *)(own + p.a_bytes) };
        thread_share(p.rows, TILE_HEIGHT, t / p.column_threads, p.row_threads, &w.row, &w.row_end);
        thread_share(p.columns, LANES, t % p.column_threads, p.column_threads, &w.column, &w.column_end);
        run_share(&w);
    }
}

#else

void gemm_f32_run(const CpuBackend *be, const OpDesc *op, void *const *buf, void *scratch)
{
    (void)be, (void)op, (void)buf, (void)scratch;
    CHECK(!"this build has no AVX-512 code");
}

#endif
