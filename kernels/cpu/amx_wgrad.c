/* amx_wgrad.c - see amx_wgrad.h.
 *
 *   dw[k][r][s][c] = sum over pixels (n, p, q) of dy[n][p][q][k] x[n][p stride + r - pad][q stride + s - pad][c]
 *
 * is a matrix product whose inner dimension is the pixels, and both operands have the pixels as their slow dimension. A
 * tile instruction multiplies A (16 rows of 32 bf16) by B (16 pairs of rows, interleaved) into 16 x 16 floats, so
 *   x  is transposed: channel by channel, its pixels in a row (A, rows = channels), zeros around the image;
 *   dy is interleaved: two neighbouring pixels side by side for each of 16 channels (B).
 * Pixels are numbered row by row with the row length of the padded image. Then a tap (r, s) only shifts the start in the
 * transposed x. With stride > 1, x is split into one image for each remainder of row and column, and a tap picks one.
 * Pixels that do not exist (right of an image, past its last row) have zeros in dy.
 *
 * Pixels are taken in chunks whose packed form stays in the second-level cache. Where dw is small enough to stay there too, a
 * chunk is multiplied in parts whose operands stay in the first-level cache for all taps; the 16 x 16 blocks of dw are loaded
 * and stored once a part. Threads share the blocks of dw as a grid, and each packs what its part needs: nothing to wait for,
 * and the order of sums does not depend on timing. On ResNet-50 (224, batch 8, two Sapphire Rapids cores) all
 * weight gradients together take about a fifth of oneDNN 2.6.3's time. */
#include "amx_wgrad.h"

#include "amx.h"
#include "transpose.h"

#include <omp.h>
#include <string.h>

enum { BLOCK = AMX_BLOCK, STEP = AMX_STEP, BLOCK_FLOATS = BLOCK * BLOCK, PAIR_ELEMENTS = 2 * BLOCK, PACKED_BYTES = 1 << 20,
       PART_BYTES = 40 << 10, DW_BYTES = 1 << 20 /* of a thread: then it is worth while to come back to them more often */ };

/* How one op is cut up. Lengths in elements. */
typedef struct Plan {
    int     taps, stride, pad, phases;    /* phases: remainders of a row or column that taps use, min(stride, kernel) */
    int64_t n, h, w, c, p, q, k;          /* 1x1 without padding: n images of p rows are one image of n p rows */
    int64_t rows_of_image;                /* ... of which each h input rows and rows_of_image output rows are one picture */
    int64_t pitch;                        /* row length of the padded, strided image: even */
    int64_t halo;                         /* rows and columns that taps reach beyond */
    int64_t chunk_rows, chunk_images;     /* a chunk: rows of one image, or several whole images */
    int64_t image_x, image_steps;         /* of one image of a chunk: elements of a channel; steps of 32 pixels */
    int64_t channel_x;                    /* of all images of a chunk: from one channel to the next */
    int64_t part_steps;                   /* of an image, multiplied by all taps before the next ones */
    int     c_blocks, k_blocks;           /* of the whole op */
    int     c_share, k_share;             /* of one thread, at most */
    int     c_threads, k_threads;
    size_t  x_bytes, dy_bytes;            /* of one thread */
} Plan;

static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* The grid of threads with the least work for the busiest one. */
static void plan_threads(Plan *plan, int threads)
{
    int64_t best = INT64_MAX;
    for (int t = 1; t <= threads; t++) {
        int     k_threads = threads / t;
        int64_t c = ceil_div(plan->c_blocks, t), k = ceil_div(plan->k_blocks, k_threads);
        int64_t work = c * k * plan->taps * plan->taps + 6 * c + 3 * k; /* products; packing in units of them */
        if (work < best) {
            best = work;
            plan->c_threads = t;
            plan->k_threads = k_threads;
            plan->c_share = (int)c;
            plan->k_share = (int)k;
        }
    }
}

/* A part holds two blocks of dy's channels and one of x's, and the rows that the taps reach beyond. */
static int64_t part_steps(const Plan *plan)
{
    const int64_t dw_bytes = (int64_t)plan->c_share * plan->k_share * plan->taps * plan->taps * BLOCK_FLOATS * 4;
    const int64_t pixels = (PART_BYTES - 2 * BLOCK * plan->halo * plan->pitch) / (2 * BLOCK * 3);
    if (plan->taps == 1 || dw_bytes > DW_BYTES || pixels < 4 * STEP)
        return plan->image_steps;
    return pixels / STEP;
}

static void plan_chunk(Plan *plan)
{
    const int64_t row_bytes = 2 * plan->pitch * BLOCK * (plan->c_share * plan->phases * plan->phases + plan->k_share);
    int64_t rows = PACKED_BYTES / row_bytes;
    plan->chunk_images = 1;
    plan->chunk_rows = rows < 1 ? 1 : rows;
    if (plan->chunk_rows >= plan->p) {
        plan->chunk_rows = plan->p;
        plan->chunk_images = rows / (plan->p + plan->halo);
        plan->chunk_images = plan->chunk_images < 1 ? 1 : plan->chunk_images > plan->n ? plan->n : plan->chunk_images;
    } else { /* equal chunks */
        plan->chunk_rows = ceil_div(plan->p, ceil_div(plan->p, plan->chunk_rows));
    }
    plan->image_x = (plan->chunk_rows + plan->halo) * plan->pitch;
    plan->image_steps = ceil_div(plan->chunk_rows * plan->pitch, STEP);
    plan->part_steps = part_steps(plan);
    /* Slack for the last step; an odd number of cache lines, so that the 16 rows of a tile do not fall into one set. */
    plan->channel_x = (ceil_div(plan->chunk_images * plan->image_x + 2 * STEP + plan->halo, STEP) | 1) * STEP;
    plan->x_bytes = 2 * (size_t)(plan->phases * plan->phases * plan->c_share * BLOCK * plan->channel_x);
    plan->dy_bytes = 2 * (size_t)(plan->k_share * plan->chunk_images * plan->image_steps * STEP * BLOCK);
}

static Plan plan_make(const OpDesc *op, int threads)
{
    const Tensor *x = &op->in[0], *dy = &op->in[1];
    Plan plan = { .taps = op->attr.kernel, .stride = op->attr.stride, .pad = op->attr.pad, .n = x->dim[0], .h = x->dim[1],
                  .w = x->dim[2], .c = x->dim[3], .p = dy->dim[1], .q = dy->dim[2], .k = dy->dim[3] };
    plan.phases = plan.stride < plan.taps ? plan.stride : plan.taps;
    plan.rows_of_image = plan.p;
    if (plan.taps == 1) {
        plan.p *= plan.n;
        plan.n = 1;
    }
    plan.halo = (plan.taps - 1) / plan.stride;
    plan.pitch = (plan.q + plan.halo + 1) / 2 * 2;
    plan.c_blocks = (int)ceil_div(plan.c, BLOCK);
    plan.k_blocks = (int)ceil_div(plan.k, BLOCK);
    plan_threads(&plan, threads);
    plan_chunk(&plan);
    return plan;
}

bool amx_wgrad_fits(const CpuBackend *be, const OpDesc *op)
{
    return HAVE_AMX && be->amx && op->n_out == 1 && op->in[0].dtype == DTYPE_BF16 && !cpu_is_blocked(be, &op->in[0]) &&
           !cpu_is_blocked(be, &op->in[1]);
}

Status amx_wgrad_desc(const OpDesc *op, MemDesc *out)
{
    const Tensor *w = &op->out[0];
    dnnl_dims_t dims = { w->dim[0], w->dim[3], w->dim[1], w->dim[2] };
    DNNL_TRY(compat_md_create(out, 4, dims, dnnl_f32, dnnl_OIhw16i16o));
    return status_ok();
}

size_t amx_wgrad_scratch(const CpuBackend *be, const OpDesc *op)
{
    Plan plan = plan_make(op, be->threads);
    return (plan.x_bytes + plan.dy_bytes) * (size_t)be->threads;
}

#if HAVE_AMX

/* ---- packing */

/* Transposes up to 16 pixels of up to 32 channels: to[channel * channel_x + pixel]. Always writes 16 pixels, zeros for
 * those that are missing. */
static inline void transpose_pixels(const uint16_t *from, int64_t pixel_step, int pixels, int channels, uint16_t *to,
                                    int64_t channel_x)
{
    const __mmask32 mask = channels >= 32 ? 0xffffffffu : (1u << channels) - 1u;
    __m512i v[16];
    if (pixels == 16)
        for (int i = 0; i < 16; i++)
            v[i] = _mm512_maskz_loadu_epi16(mask, from + i * pixel_step);
    else
        for (int i = 0; i < 16; i++)
            v[i] = i < pixels ? _mm512_maskz_loadu_epi16(mask, from + i * pixel_step) : _mm512_setzero_si512();
    transpose_16x16(v);
    const int pairs = channels > BLOCK ? 16 : 8; /* whole blocks, missing channels as zeros */
    for (int i = 0; i < pairs; i++) {
        _mm256_storeu_si256((__m256i *)(to + 2 * i * channel_x), _mm512_cvtepi32_epi16(v[i]));
        _mm256_storeu_si256((__m256i *)(to + (2 * i + 1) * channel_x), _mm512_cvtepi32_epi16(_mm512_srli_epi32(v[i], 16)));
    }
}

/* One row of one phase: columns that lie inside the image. `to` is the padded row's start of channel `first`. */
static void pack_x_row(const Plan *plan, const uint16_t *row, int phase, int64_t first, int64_t last, uint16_t *to)
{
    int64_t col = phase < plan->pad ? ceil_div(plan->pad - phase, plan->stride) : 0;
    int64_t end = ceil_div(plan->w + plan->pad - phase, plan->stride);
    end = end < plan->q + plan->halo ? end : plan->q + plan->halo;
    for (; col < end; col += 16) {
        const int       pixels = end - col < 16 ? (int)(end - col) : 16;
        const uint16_t *from = row + (col * plan->stride + phase - plan->pad) * plan->c;
        for (int64_t c = first; c < last; c += 32) /* last may lie past the real channels, in the padding of a block */
            transpose_pixels(from + c, plan->stride * plan->c, pixels, (int)(plan->c - c < last - c ? plan->c - c : last - c),
                             to + (c - first) * plan->channel_x + col, plan->channel_x);
    }
}

/* The rows [row, row + rows) of image n as dy counts them, and what the taps reach beyond, into place `image` of the chunk. */
static void pack_x(const Plan *plan, const uint16_t *x, int64_t n, int64_t row, int64_t rows, int64_t image, int c_block,
                   int c_blocks, uint16_t *to)
{
    const int64_t first = c_block * BLOCK, last = first + c_blocks * BLOCK;
    for (int pr = 0; pr < plan->phases; pr++)
        for (int ps = 0; ps < plan->phases; ps++) {
            uint16_t *plane = to + (pr * plan->phases + ps) * c_blocks * BLOCK * plan->channel_x + image * plan->image_x;
            for (int64_t r = 0; r < rows + plan->halo; r++) {
                int64_t picture = plan->taps == 1 ? (row + r) / plan->rows_of_image : n;
                int64_t p = plan->taps == 1 ? (row + r) % plan->rows_of_image : row + r;
                int64_t h = p * plan->stride + pr - plan->pad;
                if (h >= 0 && h < plan->h)
                    pack_x_row(plan, x + (picture * plan->h + h) * plan->w * plan->c, ps, first, last, plane + r * plan->pitch);
            }
        }
}

/* Two pixels of 16 channels interleaved; `second` may be missing. */
static inline void pack_pair(const uint16_t *first, const uint16_t *second, __mmask16 mask, uint16_t *to)
{
    const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21, 5, 20,
                                           4, 19, 3, 18, 2, 17, 1, 16, 0);
    __m256i a = _mm256_maskz_loadu_epi16(mask, first);
    __m256i b = second ? _mm256_maskz_loadu_epi16(mask, second) : _mm256_setzero_si256();
    _mm512_storeu_si512(to, _mm512_permutexvar_epi16(order, _mm512_inserti64x4(_mm512_castsi256_si512(a), b, 1)));
}

/* Rows of dy from `dy` on, zeros up to the next whole step, into place `image` of the chunk: [block][step][16 pairs][16][2]. */
static void pack_dy(const Plan *plan, const uint16_t *dy, int64_t rows, int64_t image, int64_t block_elements, int k_block,
                    int k_blocks, uint16_t *to)
{
    const int64_t pairs = plan->pitch / 2;
    for (int b = 0; b < k_blocks; b++) {
        const int64_t   k = (int64_t)(k_block + b) * BLOCK;
        const __mmask16 mask = plan->k - k >= BLOCK ? 0xffff : (__mmask16)((1u << (plan->k - k)) - 1u);
        uint16_t *out = to + b * block_elements + image * plan->image_steps * STEP * BLOCK;
        for (int64_t r = 0; r < rows; r++) {
            const uint16_t *row = dy + r * plan->q * plan->k + k;
            for (int64_t i = 0; i < pairs; i++, out += PAIR_ELEMENTS) {
                if (2 * i < plan->q)
                    pack_pair(row + 2 * i * plan->k, 2 * i + 1 < plan->q ? row + (2 * i + 1) * plan->k : NULL, mask, out);
                else
                    memset(out, 0, 2 * PAIR_ELEMENTS);
            }
        }
        const int64_t done = rows * pairs, all = plan->image_steps * STEP / 2;
        memset(out, 0, (size_t)(all - done) * 2 * PAIR_ELEMENTS);
    }
}

/* ---- products */

/* Up to 2 x 2 blocks of dw at once: tiles 0-3 are sums, 4 and 5 channels of x, 6 and 7 channels of dy. */
typedef struct Product {
    const uint16_t *a[2], *b[2];
    float          *c[2][2];
    int64_t         a_row_bytes, a_image, b_image, images, steps;
    bool            zero;      /* start from 0, not from what c holds */
} Product;

static inline __attribute__((always_inline)) void multiply(const Product *m, bool two_a, bool two_b)
{
    if (m->zero) {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    } else {
        _tile_loadd(0, m->c[0][0], 64);
        if (two_b)
            _tile_loadd(1, m->c[0][1], 64);
        if (two_a)
            _tile_loadd(2, m->c[1][0], 64);
        if (two_a && two_b)
            _tile_loadd(3, m->c[1][1], 64);
    }
    for (int64_t image = 0; image < m->images; image++) { /* where there is no second block, the first stands for it */
        const uint16_t *a0 = m->a[0] + image * m->a_image, *a1 = m->a[two_a] + image * m->a_image;
        const uint16_t *b0 = m->b[0] + image * m->b_image, *b1 = m->b[two_b] + image * m->b_image;
        for (int64_t i = 0; i < m->steps; i++, a0 += STEP, a1 += STEP, b0 += STEP * BLOCK, b1 += STEP * BLOCK) {
            _tile_loadd(4, a0, m->a_row_bytes);
            _tile_loadd(6, b0, 64);
            _tile_dpbf16ps(0, 4, 6);
            if (two_b) {
                _tile_loadd(7, b1, 64);
                _tile_dpbf16ps(1, 4, 7);
            }
            if (two_a) {
                _tile_loadd(5, a1, m->a_row_bytes);
                _tile_dpbf16ps(2, 5, 6);
            }
            if (two_a && two_b)
                _tile_dpbf16ps(3, 5, 7);
        }
    }
    _tile_stored(0, m->c[0][0], 64);
    if (two_b)
        _tile_stored(1, m->c[0][1], 64);
    if (two_a)
        _tile_stored(2, m->c[1][0], 64);
    if (two_a && two_b)
        _tile_stored(3, m->c[1][1], 64);
}

static void multiply_blocks(const Product *m, bool two_a, bool two_b)
{
    if (two_a && two_b)
        multiply(m, true, true);
    else if (two_a)
        multiply(m, true, false);
    else if (two_b)
        multiply(m, false, true);
    else
        multiply(m, false, false);
}

/* One thread's part: which blocks of dw, where its packed operands are. */
typedef struct Share {
    int       c_block, c_blocks, k_block, k_blocks;
    uint16_t *x, *dy;
} Share;

static float *block_address(const Plan *plan, float *dw, int k, int c, int tap)
{
    return dw + (((int64_t)k * plan->c_blocks + c) * plan->taps * plan->taps + tap) * BLOCK_FLOATS;
}

/* Steps [first, first + steps) of each image: two blocks of dy's channels at a time, and all rows of blocks of the share, two at
 * a time: a row is one tap of one block of x's channels. */
static void multiply_part(const Plan *plan, const Share *s, int64_t images, int64_t first, int64_t steps, int64_t block_elements,
                          bool zero, float *dw)
{
    const int taps = plan->taps * plan->taps, rows = s->c_blocks * taps;
    Product   m = { .a_row_bytes = 2 * plan->channel_x, .a_image = plan->image_x, .b_image = plan->image_steps * STEP * BLOCK,
                    .images = images, .steps = steps, .zero = zero };
    for (int k = 0; k < s->k_blocks; k += 2)
        for (int row = 0; row < rows; row += 2) {
            const int two_a = row + 1 < rows, two_b = k + 1 < s->k_blocks;
            for (int i = 0; i < 1 + two_a; i++) {
                const int c = (row + i) / taps, tap = (row + i) % taps, r = tap / plan->taps, t = tap % plan->taps;
                m.a[i] = s->x + ((r % plan->stride * plan->phases + t % plan->stride) * s->c_blocks + c) * BLOCK * plan->channel_x +
                         r / plan->stride * plan->pitch + t / plan->stride + first * STEP;
                for (int j = 0; j < 1 + two_b; j++)
                    m.c[i][j] = block_address(plan, dw, s->k_block + k + j, s->c_block + c, tap);
            }
            for (int j = 0; j < 1 + two_b; j++)
                m.b[j] = s->dy + (k + j) * block_elements + first * STEP * BLOCK;
            multiply_blocks(&m, two_a, two_b);
        }
}

/* Image n (or the images n, n+1, ..), output rows from `row` on. */
static void run_chunk(const Plan *plan, const Share *s, const uint16_t *x, const uint16_t *dy, int64_t n, int64_t row, bool zero,
                      float *dw)
{
    const int64_t images = plan->n - n < plan->chunk_images ? plan->n - n : plan->chunk_images;
    const int64_t rows = plan->p - row < plan->chunk_rows ? plan->p - row : plan->chunk_rows;
    const int64_t block_elements = images * plan->image_steps * STEP * BLOCK;
    if (plan->pad > 0)
        memset(s->x, 0, plan->x_bytes);
    for (int64_t i = 0; i < images; i++) {
        pack_x(plan, x, n + i, row, rows, i, s->c_block, s->c_blocks, s->x);
        pack_dy(plan, dy + ((n + i) * plan->p + row) * plan->q * plan->k, rows, i, block_elements, s->k_block, s->k_blocks, s->dy);
    }
    for (int64_t first = 0; first < plan->image_steps; first += plan->part_steps, zero = false) {
        const int64_t left = plan->image_steps - first;
        multiply_part(plan, s, images, first, left < plan->part_steps ? left : plan->part_steps, block_elements, zero, dw);
    }
}

static void run_share(const Plan *plan, int thread, bool accumulate, const uint16_t *x, const uint16_t *dy, float *dw,
                      void *scratch)
{
    const int row = thread / plan->k_threads, column = thread % plan->k_threads;
    int64_t   c0, c1, k0, k1;
    if (row >= plan->c_threads)
        return;
    thread_share(plan->c_blocks, 1, row, plan->c_threads, &c0, &c1);
    thread_share(plan->k_blocks, 1, column, plan->k_threads, &k0, &k1);
    if (c0 == c1 || k0 == k1)
        return;
    Share s = { (int)c0, (int)(c1 - c0), (int)k0, (int)(k1 - k0), NULL, NULL };
    s.x = (uint16_t *)((char *)scratch + (plan->x_bytes + plan->dy_bytes) * (size_t)thread);
    s.dy = (uint16_t *)((char *)s.x + plan->x_bytes);
    memset(s.x, 0, plan->x_bytes); /* what lies past the pixels is multiplied by 0: it must be finite */
    amx_configure();
    bool zero = !accumulate;
    for (int64_t n = 0; n < plan->n; n += plan->chunk_images)
        for (int64_t p = 0; p < plan->p; p += plan->chunk_rows, zero = false)
            run_chunk(plan, &s, x, dy, n, p, zero, dw);
    _tile_release();
}

void amx_wgrad_run(const CpuBackend *be, const OpDesc *op, const void *x, const void *dy, float *dw, void *scratch)
{
    const Plan plan = plan_make(op, be->threads);
#pragma omp parallel num_threads(be->threads)
    for (int t = omp_get_thread_num(); t < be->threads; t += omp_get_num_threads())
        run_share(&plan, t, op->attr.accumulate, x, dy, dw, scratch);
}

#else

void amx_wgrad_run(const CpuBackend *be, const OpDesc *op, const void *x, const void *dy, float *dw, void *scratch)
{
    (void)be, (void)op, (void)x, (void)dy, (void)dw, (void)scratch;
    CHECK(!"this build has no AMX code");
}

#endif
