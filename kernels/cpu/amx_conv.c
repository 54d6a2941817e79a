/* amx_conv.c - see amx_conv.h.
 *
 * One pass makes   to[n][a][b][o] = sum over taps t and channels i of from[n][a step + row(t)][b step + column(t)][i] w[t][i][o]
 * for a grid of outputs (a, b):
 *   forward          one pass, step = stride, taps at (r - pad, s - pad)
 *   dgrad, stride 1  one pass over dy, taps at (pad - r, pad - s)
 *   dgrad, stride s  s x s passes over dy, one for each remainder of row and column of dx, with the taps that reach it
 *
 * Tiles: A is 16 pixels by 32 channels, read straight from memory, B is the weights, packed by the repack of the update.
 * The 16 pixels must lie at one distance from each other, so `from` is copied into a padded picture (zeros around it, one
 * picture for each remainder where step > 1) of which one piece at a time stays in the second-level cache; pixels are then
 * numbered through row by row, and those in the padding (and past the end) are computed but not stored. Passes with one tap that
 * falls on every pixel read `from` itself: 1x1 convolutions of stride 1, and the four of an up-convolution, which take turns on
 * one piece, so that the lines they share are complete when they leave the cache. Sums over all taps and channels stay in the
 * tiles.
 * Threads form a grid over pixels and output channels; nothing is shared, the order of sums is fixed. */
#include "amx_conv.h"

#include "amx.h"

#include <omp.h>
#include <string.h>

enum { MAX_TAPS = 49, MAX_STEP = 4, MAX_PIECES = 64, PIECE_BYTES = 768 << 10 };
enum { TILE_PAIR = 2 * AMX_BLOCK, WEIGHT_BLOCK = AMX_STEP * AMX_BLOCK };

typedef struct Tap { int row, column, index; } Tap; /* place in the input relative to the output; number in the weights */

typedef struct Pass {
    int64_t images, from_h, from_w, from_c, to_h, to_w, to_c;
    int     step, base_row, base_column;     /* base: how far taps reach up and left */
    int     taps, out_step, out_row, out_column; /* output (a, b) is pixel (a out_step + out_row, ..) */
    Tap     tap[MAX_TAPS];
    int64_t rows, columns;                   /* of the grid of outputs */
    int64_t pitch, halo_rows;                /* of the padded picture, in pixels; rows beyond the outputs' */
    int64_t pixel;                           /* elements from one pixel of the picture to the next */
    int     phases;                          /* remainders of rows or columns that are used */
    int     in_blocks, out_blocks;           /* of 32 and of 16 channels */
    int64_t weight_in, weight_out;           /* elements from one block to the next */
    bool    direct;                          /* reads `from` itself */
    int64_t piece_pixels, plane;             /* pixels of one phase of a piece; elements */
    const uint16_t *from, *w;
    const float    *bias;
    uint16_t       *to;
    bool            relu;
} Pass;

static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

bool amx_conv_fits(const CpuBackend *be, const OpDesc *op)
{
    const Tensor *from = &op->in[0], *to = &op->out[0];
    return HAVE_AMX && be->amx && from->dtype == DTYPE_BF16 && op->attr.kernel <= 7 && op->attr.stride <= MAX_STEP &&
           from->dim[3] >= 16 && to->dim[3] % AMX_BLOCK == 0 && !cpu_is_blocked(be, from) && !cpu_is_blocked(be, to);
}

Status amx_conv_desc(const OpDesc *op, MemDesc *out)
{
    const Tensor *w = &op->in[1];
    dnnl_dims_t dims = { w->dim[0], w->dim[3], w->dim[1], w->dim[2] };
    DNNL_TRY(compat_md_create(out, 4, dims, dnnl_bf16, op->kind == OP_conv2d ? dnnl_OIhw16i16o2i : dnnl_OIhw16o16i2o));
    return status_ok();
}

/* Sizes that follow from the taps. */
static void pass_measure(Pass *p)
{
    int last_row = 0, last_column = 0;
    p->base_row = p->base_column = 0;
    for (int t = 0; t < p->taps; t++) {
        p->base_row = p->base_row > -p->tap[t].row ? p->base_row : -p->tap[t].row;
        p->base_column = p->base_column > -p->tap[t].column ? p->base_column : -p->tap[t].column;
        last_row = last_row > p->tap[t].row ? last_row : p->tap[t].row;
        last_column = last_column > p->tap[t].column ? last_column : p->tap[t].column;
    }
    const int high = last_row + p->base_row > last_column + p->base_column ? last_row + p->base_row : last_column + p->base_column;
    p->phases = high + 1 < p->step ? high + 1 : p->step;
    p->halo_rows = (last_row + p->base_row) / p->step;
    p->pitch = p->columns + (last_column + p->base_column) / p->step;
    p->in_blocks = (int)ceil_div(p->from_c, AMX_STEP);
    p->out_blocks = (int)(p->to_c / AMX_BLOCK);
    p->direct = high == 0 && p->step == 1 && p->taps == 1 && p->rows == p->from_h && p->columns == p->from_w &&
                p->from_c % AMX_STEP == 0;
    /* An odd number of cache lines a pixel: the 16 rows of a tile then do not fall into one set. */
    p->pixel = p->direct ? p->from_c : (p->in_blocks | 1) * AMX_STEP;
    if (p->direct) { /* all images as one row of pixels */
        p->columns *= p->images * p->rows;
        p->images = p->rows = 1;
        p->pitch = p->columns;
    }
    const int64_t phases = p->phases * p->phases, row = p->pitch * p->pixel * 2 * phases;
    int64_t least = p->direct ? 1 : (1 + p->halo_rows) * p->pitch;
    p->piece_pixels = p->direct ? PIECE_BYTES / (2 * p->pixel) / TILE_PAIR * TILE_PAIR : PIECE_BYTES / row * p->pitch;
    p->piece_pixels = p->piece_pixels < TILE_PAIR && p->direct ? TILE_PAIR : p->piece_pixels > least ? p->piece_pixels : least;
    p->plane = (p->direct ? TILE_PAIR : p->piece_pixels + 2 * TILE_PAIR) * p->pixel; /* the last tile reads beyond */
}

static void pass_forward(const OpDesc *op, Pass *p)
{
    const OpAttr *a = &op->attr;
    p->step = a->stride;
    p->out_step = 1;
    p->rows = p->to_h;
    p->columns = p->to_w;
    p->taps = a->kernel * a->kernel;
    for (int t = 0; t < p->taps; t++)
        p->tap[t] = (Tap){ t / a->kernel - a->pad, t % a->kernel - a->pad, t };
    p->weight_in = p->taps * WEIGHT_BLOCK;
    p->weight_out = ceil_div(p->from_c, AMX_STEP) * p->weight_in;
    pass_measure(p);
}

/* dx rows h = a stride + row and columns likewise: dy row is (h + pad - r) / stride where that divides. */
static void pass_dgrad(const OpDesc *op, int row, int column, Pass *p)
{
    const OpAttr *a = &op->attr;
    p->step = 1;
    p->out_step = a->stride;
    p->out_row = row;
    p->out_column = column;
    p->rows = ceil_div(p->to_h - row, a->stride);
    p->columns = ceil_div(p->to_w - column, a->stride);
    p->taps = 0;
    for (int t = 0; t < a->kernel * a->kernel; t++) {
        const int r = row + a->pad - t / a->kernel, s = column + a->pad - t % a->kernel;
        if (r % a->stride == 0 && s % a->stride == 0)
            p->tap[p->taps++] = (Tap){ r / a->stride, s / a->stride, t };
    }
    p->weight_out = a->kernel * a->kernel * WEIGHT_BLOCK;
    p->weight_in = p->to_c / AMX_BLOCK * p->weight_out;
    pass_measure(p);
}

/* How many passes an op has, and the k-th of them. */
static int pass_count(const OpDesc *op) { return op->kind == OP_conv2d ? 1 : op->attr.stride * op->attr.stride; }

static Pass pass_make(const OpDesc *op, int k)
{
    const Tensor *from = &op->in[0], *to = &op->out[0];
    Pass p = { .images = from->dim[0], .from_h = from->dim[1], .from_w = from->dim[2], .from_c = from->dim[3], .to_h = to->dim[1],
               .to_w = to->dim[2], .to_c = to->dim[3], .relu = op->kind == OP_conv2d && op->attr.relu };
    if (op->kind == OP_conv2d)
        pass_forward(op, &p);
    else
        pass_dgrad(op, k / op->attr.stride, k % op->attr.stride, &p);
    return p;
}

/* Bytes of one thread: the padded picture, then each of its pixels' place in the output. */
static size_t picture_bytes(const Pass *p) { return ((size_t)(p->phases * p->phases * p->plane) * 2 + 63) / 64 * 64; }
static int64_t place_count(const Pass *p) { return p->piece_pixels + (MAX_PIECES + 1) * TILE_PAIR; }
static size_t thread_bytes(const Pass *p) { return picture_bytes(p) + (size_t)(place_count(p) * 8 + 63) / 64 * 64; }

size_t amx_conv_scratch(const CpuBackend *be, const OpDesc *op)
{
    size_t most = 0;
    for (int k = 0; k < pass_count(op); k++) {
        const Pass p = pass_make(op, k);
        most = thread_bytes(&p) > most ? thread_bytes(&p) : most;
    }
    return most * (size_t)be->threads;
}

#if HAVE_AMX

/* ---- the padded picture */

/* Some rows of outputs of one image. */
typedef struct Piece {
    int64_t image, row, rows;
    int64_t first, count;   /* first pixel in the picture; pixels to compute */
    int64_t place;          /* where its entries of places[] start */
} Piece;

typedef struct Chunk {
    Piece     piece[MAX_PIECES];
    int       pieces;
    uint16_t *picture;
    int64_t  *places;       /* element index in `to` of each computed pixel, -1: in the padding */
} Chunk;

static inline void copy_pixel(const uint16_t *from, uint16_t *to, int64_t channels)
{
    for (int64_t c = 0; c < channels; c += AMX_STEP) {
        const __mmask32 mask = channels - c >= AMX_STEP ? 0xffffffffu : (1u << (channels - c)) - 1u;
        _mm512_storeu_si512(to + c, _mm512_maskz_loadu_epi16(mask, from + c));
    }
}

static void zero_pixels(const Pass *p, uint16_t *to, int64_t pixels)
{
    memset(to, 0, (size_t)(pixels * p->pixel) * 2);
}

/* One row of one phase of the picture from input row h. */
static void copy_row(const Pass *p, int64_t image, int64_t h, int phase, uint16_t *to)
{
    if (h < 0 || h >= p->from_h) {
        zero_pixels(p, to, p->pitch);
        return;
    }
    const uint16_t *row = p->from + (image * p->from_h + h) * p->from_w * p->from_c;
    for (int64_t c = 0; c < p->pitch; c++) {
        const int64_t w = c * p->step + phase - p->base_column;
        if (w >= 0 && w < p->from_w)
            copy_pixel(row + w * p->from_c, to + c * p->pixel, p->from_c);
        else
            zero_pixels(p, to + c * p->pixel, 1);
    }
}

static void copy_piece(const Pass *p, const Piece *piece, uint16_t *picture)
{
    for (int pr = 0; pr < p->phases; pr++)
        for (int pc = 0; pc < p->phases; pc++) {
            uint16_t *plane = picture + (pr * p->phases + pc) * p->plane + piece->first * p->pixel;
            for (int64_t r = 0; r < piece->rows + p->halo_rows; r++)
                copy_row(p, piece->image, (piece->row + r) * p->step + pr - p->base_row, pc, plane + r * p->pitch * p->pixel);
        }
}

static void find_places(const Pass *p, const Piece *piece, int64_t *places)
{
    int64_t i = 0;
    for (int64_t a = 0; a < piece->rows; a++)
        for (int64_t b = 0; b < p->pitch && i < piece->count; b++, i++) {
            const int64_t h = (piece->row + a) * p->out_step + p->out_row, w = b * p->out_step + p->out_column;
            places[i] = b < p->columns ? ((piece->image * p->to_h + h) * p->to_w + w) * p->to_c : -1;
        }
    for (int64_t end = ceil_div(piece->count, TILE_PAIR) * TILE_PAIR; i < end; i++)
        places[i] = -1;
}

/* ---- products */

/* 32 pixels by 32 output channels: tiles 0-3 are sums, 4 and 5 pixels, 6 and 7 weights. */
static inline __attribute__((always_inline)) void multiply(const Pass *p, const uint16_t *a, const int64_t *shift,
                                                           const uint16_t *w, bool two_a, bool two_b, float *sums)
{
    const int64_t row = 2 * p->pixel, second = AMX_BLOCK * p->pixel;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int i = 0; i < p->in_blocks; i++)
        for (int t = 0; t < p->taps; t++) {
            const uint16_t *x = a + shift[t] + i * AMX_STEP;
            const uint16_t *b = w + i * p->weight_in + p->tap[t].index * WEIGHT_BLOCK;
            _tile_loadd(4, x, row);
            _tile_loadd(6, b, 64);
            _tile_dpbf16ps(0, 4, 6);
            if (two_b) {
                _tile_loadd(7, b + p->weight_out, 64);
                _tile_dpbf16ps(1, 4, 7);
            }
            if (two_a) {
                _tile_loadd(5, x + second, row);
                _tile_dpbf16ps(2, 5, 6);
            }
            if (two_a && two_b)
                _tile_dpbf16ps(3, 5, 7);
        }
    _tile_stored(0, sums, 128);
    if (two_b)
        _tile_stored(1, sums + AMX_BLOCK, 128);
    if (two_a)
        _tile_stored(2, sums + AMX_BLOCK * 32, 128);
    if (two_a && two_b)
        _tile_stored(3, sums + AMX_BLOCK * 32 + AMX_BLOCK, 128);
}

/* Bias, ReLU (NaN passes), rounding to bf16. */
static inline void store_sums(const Pass *p, const float *sums, const int64_t *places, int pixels, int64_t channel, bool two_b)
{
    const __m512 zero = _mm512_setzero_ps();
    const __m512 bias0 = p->bias ? _mm512_loadu_ps(p->bias + channel) : zero;
    const __m512 bias1 = p->bias && two_b ? _mm512_loadu_ps(p->bias + channel + AMX_BLOCK) : zero;
    for (int m = 0; m < pixels; m++) {
        if (places[m] < 0)
            continue;
        uint16_t *to = p->to + places[m] + channel;
        __m512    y0 = _mm512_add_ps(_mm512_load_ps(sums + 32 * m), bias0);
        y0 = p->relu ? _mm512_max_ps(zero, y0) : y0;
        if (two_b) {
            __m512 y1 = _mm512_add_ps(_mm512_load_ps(sums + 32 * m + AMX_BLOCK), bias1);
            y1 = p->relu ? _mm512_max_ps(zero, y1) : y1;
            _mm512_storeu_si512(to, (__m512i)_mm512_cvtne2ps_pbh(y1, y0));
        } else {
            _mm256_storeu_si256((__m256i *)to, (__m256i)_mm512_cvtneps_pbh(y0));
        }
    }
}

static void multiply_piece(const Pass *p, const Piece *piece, const uint16_t *picture, const int64_t *places, const int64_t *shift,
                           int block, bool two_b)
{
    _Alignas(64) float sums[TILE_PAIR * 32];
    const uint16_t *w = p->w + block * p->weight_out;
    for (int64_t m = 0; m < piece->count; m += TILE_PAIR) {
        const uint16_t *a = picture + (piece->first + m) * p->pixel;
        const bool two_a = piece->count - m > AMX_BLOCK;
        if (two_a && two_b)
            multiply(p, a, shift, w, true, true, sums);
        else if (two_a)
            multiply(p, a, shift, w, true, false, sums);
        else if (two_b)
            multiply(p, a, shift, w, false, true, sums);
        else
            multiply(p, a, shift, w, false, false, sums);
        store_sums(p, sums, places + m, two_a ? TILE_PAIR : AMX_BLOCK, (int64_t)block * AMX_BLOCK, two_b);
    }
}

static void multiply_chunk(const Pass *p, const Chunk *c, const uint16_t *picture, int first_block, int last_block)
{
    int64_t shift[MAX_TAPS];
    for (int t = 0; t < p->taps; t++) {
        const int r = p->tap[t].row + p->base_row, s = p->tap[t].column + p->base_column;
        shift[t] = (r % p->step * p->phases + s % p->step) * p->plane + (r / p->step * p->pitch + s / p->step) * p->pixel;
    }
    for (int b = first_block; b < last_block; b += 2)
        for (int i = 0; i < c->pieces; i++)
            multiply_piece(p, &c->piece[i], picture, c->places + c->piece[i].place, shift, b, b + 1 < last_block);
}

/* ---- one thread's share: rows [first, last) of all images' rows of outputs, some blocks of output channels */

static void run_padded(const Pass *p, Chunk *c, int64_t first, int64_t last, int first_block, int last_block)
{
    for (int64_t g = first; g < last;) {
        int64_t pixels = 0, places = 0;
        c->pieces = 0;
        while (g < last && c->pieces < MAX_PIECES) {
            const int64_t row = g % p->rows, left = p->rows - row < last - g ? p->rows - row : last - g;
            int64_t rows = (p->piece_pixels - pixels) / p->pitch - p->halo_rows;
            rows = rows < left ? rows : left;
            if (rows < 1)
                break;
            Piece *piece = &c->piece[c->pieces++];
            *piece = (Piece){ g / p->rows, row, rows, pixels, rows * p->pitch, places };
            copy_piece(p, piece, c->picture);
            find_places(p, piece, c->places + places);
            pixels += (rows + p->halo_rows) * p->pitch;
            places += ceil_div(piece->count, TILE_PAIR) * TILE_PAIR;
            g += rows;
        }
        multiply_chunk(p, c, c->picture, first_block, last_block);
    }
}

/* Places of the pixels from m on, numbered through all images, up to `count`; then -1. */
static void find_direct_places(const Pass *p, int64_t m, int64_t count, int64_t *places)
{
    int64_t row = m / p->from_w, column = m % p->from_w; /* row: of all images, each from_h of to_h / out_step */
    for (int64_t i = 0; i < count; i++) {
        const int64_t h = row / p->from_h * p->to_h + row % p->from_h * p->out_step + p->out_row;
        places[i] = (h * p->to_w + column * p->out_step + p->out_column) * p->to_c;
        if (++column == p->from_w)
            column = 0, row++;
    }
    for (int64_t i = count; i < ceil_div(count, TILE_PAIR) * TILE_PAIR; i++)
        places[i] = -1;
}

/* Direct passes: pixels [first, last) of all images. The last, incomplete tile is read from a copy. */
static void run_direct(const Pass *p, Chunk *c, int64_t first, int64_t last, int first_block, int last_block)
{
    c->pieces = 1;
    for (int64_t m = first; m < last;) {
        const int64_t left = last - m, whole = left / TILE_PAIR * TILE_PAIR;
        const int64_t count = whole == 0 ? left : whole < p->piece_pixels ? whole : p->piece_pixels;
        const uint16_t *picture = p->from + m * p->pixel;
        if (whole == 0) {
            memcpy(c->picture, picture, (size_t)(left * p->pixel) * 2);
            picture = c->picture;
        }
        c->piece[0] = (Piece){ .count = count };
        find_direct_places(p, m, count, c->places);
        multiply_chunk(p, c, picture, first_block, last_block);
        m += count;
    }
}

static void run_zero(const Pass *p, int64_t first, int64_t last)
{
    for (int64_t g = first; g < last; g++) {
        const int64_t h = g % p->rows * p->out_step + p->out_row;
        uint16_t *row = p->to + (g / p->rows * p->to_h + h) * p->to_w * p->to_c;
        for (int64_t w = p->out_column; w < p->to_w; w += p->out_step)
            memset(row + w * p->to_c, 0, (size_t)p->to_c * 2);
    }
}

/* Threads in the direction of pixels: the grid in which a thread reads least, all of its pixels and its part of the
 * weights, among those with the fewest products for the busiest thread. */
static int pixel_threads(const Pass *p, int threads)
{
    const int64_t units = p->direct ? ceil_div(p->columns, TILE_PAIR) : p->images * p->rows;
    const int64_t pairs = ceil_div(p->out_blocks, 2);
    const double  pixels = (double)(p->images * p->rows * p->columns) * (double)p->from_c;
    const double  weights = (double)p->from_c * (double)p->to_c * p->taps;
    int    best = 1;
    double least = 0;
    for (int t = 1; t <= threads; t++) {
        if (threads % t)
            continue;
        const double work = (double)ceil_div(units, t) * (double)ceil_div(pairs, threads / t) / ((double)units * (double)pairs);
        const double read = pixels / t + weights / (threads / t);
        const double cost = work * (1 + 0.5 * read / (pixels + weights));
        if (t == 1 || cost < least) {
            least = cost;
            best = t;
        }
    }
    return best;
}

/* Some passes over the same pixels: one after the other, direct ones piece by piece in turns. */
static void run_share(const Pass *passes, int count, int thread, int threads, void *scratch)
{
    const Pass *p = &passes[0];
    const int   across = pixel_threads(p, threads), down = threads / across;
    int64_t     first, last, b0, b1;
    Chunk       c;
    thread_share(p->direct ? p->columns : p->images * p->rows, p->direct ? TILE_PAIR : 1, thread / down, across, &first, &last);
    thread_share(p->out_blocks, 2, thread % down, down, &b0, &b1);
    if (p->taps == 0) {
        if (thread % down == 0)
            run_zero(p, first, last);
        return;
    }
    if (b0 == b1)
        return;
    c.picture = scratch;
    c.places = (int64_t *)((char *)scratch + picture_bytes(p));
    if (!p->direct) {
        run_padded(p, &c, first, last, (int)b0, (int)b1);
        return;
    }
    for (int64_t m = first; m < last; m += p->piece_pixels)
        for (int k = 0; k < count; k++)
            run_direct(&passes[k], &c, m, m + p->piece_pixels < last ? m + p->piece_pixels : last, (int)b0, (int)b1);
}

/* The next passes that run_share takes at once: direct ones are alike but for their tap. */
static int passes_in_turns(const Pass *passes, int count)
{
    int n = 1;
    while (passes[0].direct && n < count && passes[n].direct)
        n++;
    return n;
}

void amx_conv_run(const CpuBackend *be, const OpDesc *op, void *const *buf, void *scratch)
{
    const int    count = pass_count(op);
    const size_t bytes = amx_conv_scratch(be, op) / (size_t)be->threads;
    Pass         passes[MAX_STEP * MAX_STEP];
    for (int k = 0; k < count; k++) {
        passes[k] = pass_make(op, k);
        passes[k].from = buf[0];
        passes[k].w = buf[1];
        passes[k].bias = op->n_in == 3 ? buf[2] : NULL;
        passes[k].to = buf[op->n_in];
    }
#pragma omp parallel num_threads(be->threads)
    {
        amx_configure();
        for (int t = omp_get_thread_num(); t < be->threads; t += omp_get_num_threads())
            for (int k = 0, n; k < count; k += n) {
                n = passes_in_turns(passes + k, count - k);
                run_share(passes + k, n, t, be->threads, (char *)scratch + bytes * (size_t)t);
            }
        _tile_release();
    }
}

#else

void amx_conv_run(const CpuBackend *be, const OpDesc *op, void *const *buf, void *scratch)
{
    (void)be, (void)op, (void)buf, (void)scratch;
    CHECK(!"this build has no AMX code");
}

#endif
