/* gemm_f32.c - see gemm_f32.h.
 *
 * All three are sums over terms of a (rows,terms) times b (terms,columns):
 *   forward   y^T = w x^T     rows O, columns M, terms K     a rows of w      b rows of x, turned    c turned
 *   dgrad     dx = dy w       rows M, columns K, terms O     a rows of dy     b as it is
 *   wgrad     dw = dy^T x     rows O, columns K, terms M     a turned         b as it is
 * Forward is done for y^T, so that of w, most often the largest, rows are copied and never turned.
 *
 * A thread packs a chunk of b that stays in its second-level cache, then 14 rows after 14 rows of a, and multiplies each
 * with the whole chunk (gemm_f32_tile.h). Threads divide the rows and the columns, whichever makes less to pack. Sums over the
 * terms of one chunk stay in registers and are then added to c. The order of sums depends on nothing but the terms. */
#include "gemm_f32.h"

#include "gemm_f32_tile.h"
#include "transpose.h"

#include <omp.h>

#ifdef __AVX512F__
#define HAVE_GEMM 1
#else
#define HAVE_GEMM 0
#endif

/* Terms of a chunk: where c is turned it is best added to seldom. */
enum { CHUNK_BYTES = 1200 << 10, MAX_TERMS = 384, MAX_TERMS_FORWARD = 768 };

typedef struct Plan {
    int64_t rows, columns, terms;
    int64_t chunk_columns, chunk_terms; /* multiples of 32 and of 16 */
    int     row_threads, column_threads;
    size_t  a_bytes, b_bytes;           /* of one thread: 14 rows, a chunk */
} Plan;

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* The least multiple of `unit` by which `n` is cut into as many pieces as by `most`. */
static int64_t even_piece(int64_t n, int64_t most, int64_t unit)
{
    return ceil_div(ceil_div(n, ceil_div(n, most)), unit) * unit;
}

/* Columns of a chunk where a thread has `share` of them. */
static int64_t chunk_of(int64_t share, int64_t terms)
{
    return even_piece(share, CHUNK_BYTES / (int64_t)sizeof(float) / terms / TILE_WIDTH * TILE_WIDTH, TILE_WIDTH);
}

/* Time of the busiest thread for each term, in arbitrary units: multiply-adds, and copies into a and b. */
static double share_time(const Plan *p, int row_threads, int column_threads)
{
    const int64_t rows = ceil_div(ceil_div(p->rows, TILE_HEIGHT), row_threads) * TILE_HEIGHT;
    const int64_t columns = ceil_div(ceil_div(p->columns, LANES), column_threads) * LANES;
    const int64_t chunks = ceil_div(columns, chunk_of(columns, p->chunk_terms));
    return (double)(rows * columns) / 32 + 0.25 * (double)(rows * chunks + columns);
}

static Plan plan_make(const OpDesc *op, int threads)
{
    const Tensor *a = &op->in[0], *b = &op->in[1];
    Plan p = { .rows = b->dim[0], .columns = a->dim[0], .terms = a->dim[1] };
    if (op->kind == OP_linear_dgrad)
        p = (Plan){ .rows = a->dim[0], .columns = b->dim[1], .terms = b->dim[0] };
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
    p.chunk_columns = chunk_of(ceil_div(ceil_div(p.columns, LANES), p.column_threads) * LANES, p.chunk_terms);
    p.a_bytes = sizeof(float) * (size_t)(TILE_HEIGHT * p.chunk_terms);
    p.b_bytes = sizeof(float) * (size_t)(p.chunk_columns * p.chunk_terms);
    return p;
}

bool gemm_f32_fits(const OpDesc *op)
{
    return HAVE_GEMM && op->in[0].dtype == DTYPE_F32;
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

/* A tile of c, and how its sums get there. */
typedef struct Tile { int64_t row, column; int height, width; bool add, last; } Tile;

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

/* Rows [row, row + height) of a, terms from `term` on: [terms / 16][14][16]. */
static void pack_a(const Work *w, int64_t row, int height, int64_t term, int64_t terms)
{
    if (w->kind == OP_linear_wgrad) {
        const float *from = w->from_a + term * w->a_length + row;
        for (int64_t t = 0; t < terms; t += LANES)
            turn_block(from + t * w->a_length, w->a_length, terms - t, height, w->a + t * TILE_HEIGHT, LANES);
        return;
    }
    for (int i = 0; i < height; i++) {
        const float *from = w->from_a + (row + i) * w->a_length + term;
        float       *to = w->a + i * LANES;
        int64_t      t = 0;
        for (; t + LANES <= terms; t += LANES, to += TILE_GROUP)
            _mm512_storeu_ps(to, _mm512_loadu_ps(from + t));
        if (t < terms)
            _mm512_storeu_ps(to, _mm512_maskz_loadu_ps(mask_of(terms - t), from + t));
    }
}

/* Vectors of the panel of b that begins at column j of `columns`. */
static int panel_vectors(int64_t columns, int64_t j) { return columns - j > LANES ? TILE_VECTORS : 1; }

/* A chunk of b: panels of 32 columns, or 16 at the end, [terms][32] each. */
static void pack_b_turned(const Work *w, int64_t column, int64_t columns, int64_t term, int64_t terms)
{
    for (int64_t j = 0; j < columns; j += LANES) {
        const int64_t panel = j / TILE_WIDTH * TILE_WIDTH, pitch = panel_vectors(columns, panel) * LANES;
        for (int64_t t = 0; t < terms; t += LANES)
            turn_block(w->from_b + (column + j) * w->b_length + term + t, w->b_length, columns - j, terms - t,
                       w->b + panel * terms + t * pitch + j % TILE_WIDTH, pitch);
    }
}

static void pack_b_rows(const Work *w, int64_t column, int64_t columns, int64_t term, int64_t terms)
{
    const int64_t whole = columns / TILE_WIDTH * TILE_WIDTH, rest = columns - whole, pitch = panel_vectors(columns, whole) * LANES;
    for (int64_t t = 0; t < terms; t++) {
        const float *from = w->from_b + (term + t) * w->b_length + column, *end = from + whole;
        float       *to = w->b + t * TILE_WIDTH;
        for (; from < end; from += TILE_WIDTH, to += terms * TILE_WIDTH) {
            _mm512_storeu_ps(to, _mm512_loadu_ps(from));
            _mm512_storeu_ps(to + LANES, _mm512_loadu_ps(from + LANES));
        }
        for (int64_t j = 0; j < rest; j += LANES)
            _mm512_storeu_ps(w->b + whole * terms + t * pitch + j, _mm512_maskz_loadu_ps(mask_of(rest - j), from + j));
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

/* `rows` times `columns` elements from `first` on, within `groups` groups of terms. */
static Ahead ahead_make(const float *first, int64_t rows, int64_t columns, int64_t length, int64_t groups)
{
    const int64_t lines = ceil_div(columns * (int64_t)sizeof(float) + 63, 64);
    Ahead h = { .line = (const char *)first, .rows = rows, .left = lines, .row_lines = lines };
    h.skip = (length * (int64_t)sizeof(float)) - lines * 64;
    h.rate = (int)ceil_div(rows * lines, groups);
    return h;
}

/* The rows of a after `row`. */
static Ahead ahead_a(const Work *w, int64_t row, int64_t term, int64_t terms, int64_t groups)
{
    const int64_t height = least(TILE_HEIGHT, w->row_end - row);
    if (height <= 0)
        return (Ahead){ 0 };
    return w->kind == OP_linear_wgrad ? ahead_make(w->from_a + term * w->a_length + row, terms, height, w->a_length, groups)
                                      : ahead_make(w->from_a + row * w->a_length + term, height, terms, w->a_length, groups);
}

/* A chunk of b, or of the terms and columns that exist of it. */
typedef struct Chunk { int64_t column, columns, term, terms; } Chunk;

static Chunk chunk_at(const Work *w, int64_t column, int64_t term)
{
    const Plan *p = &w->plan;
    return (Chunk){ column, least(p->chunk_columns, w->column_end - column), term, least(p->chunk_terms, p->terms - term) };
}

/* Asks for a tile of c, which lies in rows of `c_length`. */
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

/* All rows of the thread with a packed chunk of b; the next one is asked for on the way. */
static void multiply_chunk(const Work *w, Chunk c, Chunk next)
{
    _Alignas(64) float sums[TILE_HEIGHT * TILE_WIDTH];
    const int64_t panels = ceil_div(w->row_end - w->row, TILE_HEIGHT), groups = ceil_div(c.columns, TILE_WIDTH) * ceil_div(c.terms, LANES);
    Ahead ahead[2] = { { 0 }, { 0 } };
    if (w->kind != OP_linear && next.columns > 0)
        ahead[1] = ahead_make(w->from_b + next.term * w->b_length + next.column, next.terms, next.columns, w->b_length, panels * groups);
    for (int64_t row = w->row; row < w->row_end; row += TILE_HEIGHT) {
        Tile k = { .row = row, .height = (int)least(TILE_HEIGHT, w->row_end - row), .add = w->accumulate || c.term > 0,
                   .last = c.term + c.terms == w->plan.terms };
        pack_a(w, row, k.height, c.term, c.terms);
        ahead[0] = ahead_a(w, row + TILE_HEIGHT, c.term, c.terms, groups);
        for (int64_t j = 0; j < c.columns; j += TILE_WIDTH) {
            k.column = c.column + j;
            k.width = (int)least(TILE_WIDTH, c.columns - j);
            ahead_c(w, &k);
            tile_multiply(k.height, panel_vectors(c.columns, j), c.terms, w->a, w->b + j * c.terms, sums, ahead);
            if (w->kind == OP_linear)
                store_turned(w, &k, sums);
            else
                store_rows(w, &k, sums);
        }
    }
}

static void run_share(const Work *w)
{
    const Plan *p = &w->plan;
    if (w->row >= w->row_end || w->column >= w->column_end)
        return;
    for (Chunk c = chunk_at(w, w->column, 0), next; c.columns > 0; c = next) {
        const bool last = c.term + c.terms == p->terms;
        next = chunk_at(w, last ? c.column + c.columns : c.column, last ? 0 : c.term + c.terms);
        if (w->kind == OP_linear)
            pack_b_turned(w, c.column, c.columns, c.term, c.terms);
        else
            pack_b_rows(w, c.column, c.columns, c.term, c.terms);
        multiply_chunk(w, c, next);
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
