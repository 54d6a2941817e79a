/* pool.c - max pooling and global average pooling, both directions, in any activation layout.
 *
 * The index of a maximum is its tap within the window, row-major (row * kernel + column); the first one wins. The gradient
 * gathers: each input pixel looks at the windows that hold it, so nothing is zeroed or written twice. */
#include "cpu.h"
#include "vec.h"

#include <omp.h>

typedef struct PoolJob {
    const OpAttr *a;
    ActView x, y; /* x is the op's input or its gradient */
    const void *in;
    void       *out;
    uint8_t    *index;
} PoolJob;

/* The part of a window at offset o = out * stride - pad that lies inside [0, length): taps [*first, *last). */
static void window_part(int64_t o, int kernel, int64_t length, int *first, int *last)
{
    *first = o < 0 ? (int)-o : 0;
    *last = o + kernel > length ? (int)(length - o) : kernel;
}

ALWAYS_INLINE void max_pixel(Dtype t, const PoolJob *j, int64_t image, int64_t p, int64_t q, int block, int lanes)
{
    const int64_t h = p * j->a->stride - j->a->pad, w = q * j->a->stride - j->a->pad;
    int r0, r1, s0, s1;
    window_part(h, j->a->kernel, j->x.h, &r0, &r1);
    window_part(w, j->a->kernel, j->x.w, &s0, &s1);
    VecF best = { 0 };
    VecI tap = (VecI){ 0 } + (r0 * j->a->kernel + s0);
    for (int r = r0; r < r1; r++)
        for (int s = s0; s < s1; s++) {
            VecF x = vec_load_some(t, j->in, act_index(&j->x, image, (h + r) * j->x.w + w + s, block), lanes);
            VecI better = (x > best) | (x != x); /* NaN wins: it must not vanish */
            if (r == r0 && s == s0)
                better = (VecI){ 0 } - 1;
            best = (VecF)(((VecI)x & better) | ((VecI)best & ~better));
            tap = (((VecI){ 0 } + (r * j->a->kernel + s)) & better) | (tap & ~better);
        }
    const int64_t e = act_index(&j->y, image, p * j->y.w + q, block);
    vec_store_some(t, j->out, e, best, lanes);
    VecB taps = __builtin_convertvector(tap, VecB);
    memcpy(j->index + e, &taps, (size_t)lanes);
}

ALWAYS_INLINE void max_rows(Dtype t, bool whole, const PoolJob *j, int64_t first, int64_t last)
{
    for (int64_t row = first; row < last; row++)
        for (int b = 0; b < j->y.blocks; b++)
            for (int64_t q = 0; q < j->y.w; q++)
                max_pixel(t, j, row / j->y.h, row % j->y.h, q, b, whole ? LANES : act_lanes(&j->y, b));
}

enum { TILE = 2 };

/* 2x2 windows that tile the image, nothing left over, as UNet has them: a constant size, and each input in one window. */
static bool windows_tile(const PoolJob *j)
{
    return j->a->kernel == TILE && j->a->stride == TILE && j->a->pad == 0 && j->x.h % TILE == 0 && j->x.w % TILE == 0;
}

ALWAYS_INLINE void max_tile_rows(Dtype t, bool whole, const PoolJob *j, int64_t first, int64_t last)
{
    for (int64_t row = first; row < last; row++)
        for (int b = 0; b < j->y.blocks; b++) {
            const int lanes = whole ? LANES : act_lanes(&j->y, b);
            const int64_t image = row / j->y.h, p = row % j->y.h;
            int64_t x = act_index(&j->x, image, p * TILE * j->x.w, b), y = act_index(&j->y, image, p * j->y.w, b);
            for (int64_t q = 0; q < j->y.w; q++, x += TILE * j->x.row_stride, y += j->y.row_stride) {
                VecF best = vec_load_some(t, j->in, x, lanes);
                VecI tap = { 0 };
                for (int i = 1; i < TILE * TILE; i++) {
                    VecF v = vec_load_some(t, j->in, x + (i / TILE * j->x.w + i % TILE) * j->x.row_stride, lanes);
                    VecI better = (v > best) | (v != v);
                    best = (VecF)(((VecI)v & better) | ((VecI)best & ~better));
                    tap = (better & i) | (tap & ~better);
                }
                vec_store_some(t, j->out, y, best, lanes);
                VecB taps = __builtin_convertvector(tap, VecB);
                memcpy(j->index + y, &taps, (size_t)lanes);
            }
        }
}

/* Rows of outputs, each of which alone writes its tile of the gradient. */
ALWAYS_INLINE void max_grad_tile_rows(Dtype t, bool whole, const PoolJob *j, int64_t first, int64_t last)
{
    for (int64_t row = first; row < last; row++)
        for (int b = 0; b < j->y.blocks; b++) {
            const int lanes = whole ? LANES : act_lanes(&j->y, b);
            const int64_t image = row / j->y.h, p = row % j->y.h;
            int64_t x = act_index(&j->x, image, p * TILE * j->x.w, b), y = act_index(&j->y, image, p * j->y.w, b);
            for (int64_t q = 0; q < j->y.w; q++, x += TILE * j->x.row_stride, y += j->y.row_stride) {
                const VecI dy = (VecI)vec_load_some(t, j->in, y, lanes);
                VecB taps = { 0 };
                memcpy(&taps, j->index + y, (size_t)lanes);
                const VecI tap = __builtin_convertvector(taps, VecI);
                for (int i = 0; i < TILE * TILE; i++)
                    vec_store_some(t, j->out, x + (i / TILE * j->x.w + i % TILE) * j->x.row_stride, (VecF)(dy & (tap == i)), lanes);
            }
        }
}

/* Outputs whose window holds input i: [*first, *last). */
static void outputs_of(int64_t i, const OpAttr *a, int64_t outputs, int64_t *first, int64_t *last)
{
    int64_t low = i + a->pad - a->kernel + 1;
    *first = low <= 0 ? 0 : (low + a->stride - 1) / a->stride;
    *last = (i + a->pad) / a->stride + 1;
    *last = *last < outputs ? *last : outputs;
}

/* The output windows that hold one input pixel: rows x columns of them, the first at element `e`, where the pixel is tap
 * `tap`. The next column is column_step further and its tap `stride` lower, rows likewise. */
typedef struct Holders { int64_t e, column_step, row_step; int rows, columns, tap, column_tap, row_tap; } Holders;

ALWAYS_INLINE VecF max_grad_pixel(Dtype t, const PoolJob *j, const Holders *o, int64_t block, int lanes)
{
    VecF dx = { 0 };
    for (int p = 0; p < o->rows; p++)
        for (int q = 0; q < o->columns; q++) {
            const int64_t e = o->e + p * o->row_step + q * o->column_step + block;
            VecB taps = { 0 };
            memcpy(&taps, j->index + e, (size_t)lanes);
            VecI here = __builtin_convertvector(taps, VecI) == o->tap - p * o->row_tap - q * o->column_tap;
            dx += (VecF)((VecI)vec_load_some(t, j->in, e, lanes) & here);
        }
    return dx;
}

ALWAYS_INLINE void max_grad_rows(Dtype t, bool whole, const PoolJob *j, int64_t first, int64_t last)
{
    const OpAttr *a = j->a;
    Holders o = { .column_step = j->y.row_stride, .row_step = j->y.w * j->y.row_stride, .column_tap = a->stride,
                  .row_tap = a->stride * a->kernel };
    for (int64_t row = first; row < last; row++) {
        const int64_t image = row / j->x.h, h = row % j->x.h;
        int64_t p0, p1, q0, q1;
        outputs_of(h, a, j->y.h, &p0, &p1);
        o.rows = (int)(p1 - p0);
        for (int64_t w = 0; w < j->x.w; w++) {
            outputs_of(w, a, j->y.w, &q0, &q1);
            o.columns = (int)(q1 - q0);
            o.e = act_index(&j->y, image, p0 * j->y.w + q0, 0);
            o.tap = (int)((h + a->pad - p0 * a->stride) * a->kernel + w + a->pad - q0 * a->stride);
            const int64_t e = act_index(&j->x, image, h * j->x.w + w, 0);
            for (int b = 0; b < j->x.blocks; b++) {
                const int lanes = whole ? LANES : act_lanes(&j->x, b);
                VecF dx = max_grad_pixel(t, j, &o, b * j->y.block_stride, lanes);
                vec_store_some(t, j->out, e + b * j->x.block_stride, dx, lanes);
            }
        }
    }
}

/* Runs `rows(type, whole, job, first, last)` on every thread with type and whole as constants. */
#define POOL_PARALLEL(be, job, count, rows, t)                                               \
    _Pragma("omp parallel num_threads((be)->threads)")                                       \
    {                                                                                        \
        int64_t first_, last_;                                                               \
        thread_share((count), 1, omp_get_thread_num(), omp_get_num_threads(), &first_, &last_); \
        if ((t) == DTYPE_F32 && (job).x.whole)                                               \
            rows(DTYPE_F32, true, &(job), first_, last_);                                    \
        else if ((job).x.whole)                                                              \
            rows(DTYPE_BF16, true, &(job), first_, last_);                                   \
        else                                                                                 \
            rows((t), false, &(job), first_, last_);                                         \
    }

static Status maxpool_run(Backend *base, const OpDesc *op, void *state, void *const *buf, void *scratch)
{
    (void)state, (void)scratch;
    const CpuBackend *be = cpu_of(base);
    PoolJob j = { &op->attr, act_view(be, &op->in[0]), act_view(be, &op->out[0]), buf[0], buf[1], buf[2] };
    if (windows_tile(&j))
        POOL_PARALLEL(be, j, j.y.n * j.y.h, max_tile_rows, op->in[0].dtype)
    else
        POOL_PARALLEL(be, j, j.y.n * j.y.h, max_rows, op->in[0].dtype)
    return status_ok();
}

static Status maxpool_grad_run(Backend *base, const OpDesc *op, void *state, void *const *buf, void *scratch)
{
    (void)state, (void)scratch;
    const CpuBackend *be = cpu_of(base);
    PoolJob j = { &op->attr, act_view(be, &op->out[0]), act_view(be, &op->in[0]), buf[0], buf[2], buf[1] };
    if (windows_tile(&j))
        POOL_PARALLEL(be, j, j.y.n * j.y.h, max_grad_tile_rows, op->in[0].dtype)
    else
        POOL_PARALLEL(be, j, j.x.n * j.x.h, max_grad_rows, op->in[0].dtype)
    return status_ok();
}

/* One job item is one channel block of one image: y (N,C) is plain. */
ALWAYS_INLINE void avg_rows(Dtype t, bool whole, const PoolJob *j, int64_t first, int64_t last)
{
    for (int64_t item = first; item < last; item++) {
        const int64_t image = item / j->x.blocks;
        const int     b = (int)(item % j->x.blocks), lanes = whole ? LANES : act_lanes(&j->x, b);
        VecF sum = { 0 };
        for (int64_t row = 0; row < j->x.image; row++)
            sum += vec_load_some(t, j->in, act_index(&j->x, image, row, b), lanes);
        vec_store_some(t, j->out, image * j->x.c + 16 * (int64_t)b, sum / (float)j->x.image, lanes);
    }
}

ALWAYS_INLINE void avg_grad_rows(Dtype t, bool whole, const PoolJob *j, int64_t first, int64_t last)
{
    for (int64_t item = first; item < last; item++) {
        const int64_t image = item / j->x.blocks;
        const int     b = (int)(item % j->x.blocks), lanes = whole ? LANES : act_lanes(&j->x, b);
        VecF dx = vec_load_some(t, j->in, image * j->x.c + 16 * (int64_t)b, lanes) / (float)j->x.image;
        for (int64_t row = 0; row < j->x.image; row++)
            vec_store_some(t, j->out, act_index(&j->x, image, row, b), dx, lanes);
    }
}

static Status avgpool_run(Backend *base, const OpDesc *op, void *state, void *const *buf, void *scratch)
{
    (void)state, (void)scratch;
    const CpuBackend *be = cpu_of(base);
    PoolJob j = { .a = &op->attr, .x = act_view(be, &op->in[0]), .in = buf[0], .out = buf[1] };
    POOL_PARALLEL(be, j, j.x.n * j.x.blocks, avg_rows, op->in[0].dtype)
    return status_ok();
}

static Status avgpool_grad_run(Backend *base, const OpDesc *op, void *state, void *const *buf, void *scratch)
{
    (void)state, (void)scratch;
    const CpuBackend *be = cpu_of(base);
    PoolJob j = { .a = &op->attr, .x = act_view(be, &op->out[0]), .in = buf[0], .out = buf[1] };
    POOL_PARALLEL(be, j, j.x.n * j.x.blocks, avg_grad_rows, op->in[0].dtype)
    return status_ok();
}

const Kernel cpu_maxpool = { .run = maxpool_run };
const Kernel cpu_maxpool_grad = { .run = maxpool_grad_run };
const Kernel cpu_avgpool = { .run = avgpool_run };
const Kernel cpu_avgpool_grad = { .run = avgpool_grad_run };
