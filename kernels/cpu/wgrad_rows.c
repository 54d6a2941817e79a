/* wgrad_rows.c - see wgrad_rows.h.
 *
 *   dw[k][r][s][c] = sum over pixels (n, p, q) of dy[n][p][q][k] x[n][p + r - 1][q + s - 1][c]
 *
 * Sixteen k are a vector of dy, c is one float of x spread over a vector: along a row of pixels, three taps of eight channels
 * stay in 24 registers, and each pixel is one load and 24 multiply-adds whose other factor comes straight from the
 * first-level cache. Threads share the 16 x 16 blocks of dw, so nothing has to be added up between them and the order of sums
 * is fixed. On one Sapphire Rapids core 1.1 to 1.5 times as fast as oneDNN 2.6.3 on images of 128 and 256 pixels, as fast on 64,
 * and slower on smaller ones. */
#include "wgrad_rows.h"

#include <omp.h>
#include <string.h>

#ifdef __AVX512F__
#include <immintrin.h>
#define HAVE_ROWS 1
#else
#define HAVE_ROWS 0
#endif

enum { BLOCK = 16, TAPS = 3, HALF = 8, LEAST_WIDTH = 96, RUN_PIXELS = 128, GROUP_PIXELS = 512 };

bool wgrad_rows_fits(const CpuBackend *be, const OpDesc *op)
{
    const Tensor *x = &op->in[0], *dy = &op->in[1];
    return HAVE_ROWS && op->n_out == 1 && x->dtype == DTYPE_F32 && op->attr.kernel == TAPS && op->attr.stride == 1 &&
           op->attr.pad == 1 && x->dim[2] >= LEAST_WIDTH && cpu_is_blocked(be, x) && cpu_is_blocked(be, dy);
}

#if HAVE_ROWS

/* One pixel: taps [first, last) of its row. Neighbours share x: not knowing that, the compiler leaves it in memory, where
 * multiply-adds read it for nothing, and keeps the sums in registers. */
static inline __attribute__((always_inline)) void add_pixel(const float *x, __m512 dy, int first, int last, __m512 sum[TAPS][HALF])
{
    __asm__("" : "+r"(x));
    for (int s = first; s < last; s++)
        for (int c = 0; c < HALF; c++)
            sum[s][c] = _mm512_fmadd_ps(_mm512_set1_ps(x[(s - 1) * BLOCK + c]), dy, sum[s][c]);
}

/* Pixels [first, last) of a row of w for eight channels: dw[s][c][k], c of 16. The row is added up by itself: short sums, and sums
 * of sums, lose less. */
static void add_row(const float *restrict x, const float *restrict dy, int64_t w, int64_t first, int64_t last, float *restrict dw)
{
    __m512 sum[TAPS][HALF];
    for (int s = 0; s < TAPS; s++)
        for (int c = 0; c < HALF; c++)
            sum[s][c] = _mm512_setzero_ps();
    if (first == 0) /* to its left is padding */
        add_pixel(x, _mm512_loadu_ps(dy), 1, TAPS, sum);
    for (int64_t q = first ? first : 1; q < (last < w ? last : w - 1); q++)
        add_pixel(x + q * BLOCK, _mm512_loadu_ps(dy + q * BLOCK), 0, TAPS, sum);
    if (last == w)
        add_pixel(x + (w - 1) * BLOCK, _mm512_loadu_ps(dy + (w - 1) * BLOCK), 0, TAPS - 1, sum);
    for (int s = 0; s < TAPS; s++)
        for (int c = 0; c < HALF; c++)
            _mm512_storeu_ps(dw + (s * BLOCK + c) * BLOCK, _mm512_add_ps(_mm512_loadu_ps(dw + (s * BLOCK + c) * BLOCK), sum[s][c]));
}

/* Rows [first, last) of one block of x and one of dy, both at row 0, into one block of dw: [r][s][c][k]. So few pixels at a
 * time that the three rows of x under the taps stay in the first-level cache. */
static void add_rows(const float *x, const float *dy, int64_t h, int64_t w, int64_t first, int64_t last, float *dw)
{
    for (int64_t q = 0; q < w; q += RUN_PIXELS)
        for (int64_t p = first; p < last; p++)
            for (int r = 0; r < TAPS; r++) {
                if (p + r - 1 < 0 || p + r - 1 >= h)
                    continue;
                for (int half = 0; half < BLOCK; half += HALF)
                    add_row(x + (p + r - 1) * w * BLOCK + half, dy + p * w * BLOCK, w, q, q + RUN_PIXELS < w ? q + RUN_PIXELS : w,
                            dw + (r * TAPS * BLOCK + half) * BLOCK);
            }
}

void wgrad_rows_run(const CpuBackend *be, const OpDesc *op, const float *x, const float *dy, float *dw)
{
    const ActView vx = act_view(be, &op->in[0]), vy = act_view(be, &op->in[1]);
    const int64_t size = TAPS * TAPS * BLOCK * BLOCK, group = GROUP_PIXELS / vx.w > 1 ? GROUP_PIXELS / vx.w : 1;
#pragma omp parallel num_threads(be->threads)
    {
        int64_t first, last;
        thread_share((int64_t)vx.blocks * vy.blocks, 1, omp_get_thread_num(), omp_get_num_threads(), &first, &last);
        if (!op->attr.accumulate)
            memset(dw + first * size, 0, (size_t)((last - first) * size) * sizeof *dw);
        for (int64_t n = 0; n < vx.n; n++)
            for (int64_t p = 0; p < vx.h; p += group) /* few rows for all blocks: x and dy stay in the second-level cache */
                for (int64_t b = first; b < last; b++)
                    add_rows(x + act_index(&vx, n, 0, (int)(b % vx.blocks)), dy + act_index(&vy, n, 0, (int)(b / vx.blocks)), vx.h,
                             vx.w, p, p + group < vx.h ? p + group : vx.h, dw + b * size);
    }
}

#else

void wgrad_rows_run(const CpuBackend *be, const OpDesc *op, const float *x, const float *dy, float *dw)
{
    (void)be, (void)op, (void)x, (void)dy, (void)dw;
    CHECK(!"this build has no AVX-512 code");
}

#endif
