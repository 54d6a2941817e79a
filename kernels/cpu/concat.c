/* concat.c - channels of two activations side by side (UNet's skips), and the gradient, which cuts them apart again.
 *
 * Both are the same copy between a whole and its two parts, only in the other direction. Channels that lie in a row on both
 * sides make a strip: all of a part in nhwc, one block of sixteen (or what the two cuts leave of it) in nChw16c. A strip
 * is copied pixel by pixel, or in one go where the pixels, too, lie side by side. */
#include "cpu.h"

#include <omp.h>
#include <string.h>

enum { RUN_ROWS = 64, LINE = 64 }; /* rows for which one strip after the other is copied; bytes */

/* One side of a strip, in bytes: its first channel in row 0, the step from row to row and from image to image. */
typedef struct Side { size_t start, row, image; } Side;

typedef struct Strip { Side whole, part; size_t bytes; } Strip;

/* Channels that lie in a row from channel c on. */
static int64_t channels_in_row(const CpuBackend *be, const Tensor *t, int64_t c)
{
    return cpu_is_blocked(be, t) ? 16 - c % 16 : t->dim[3] - c;
}

static Side side_of(const ActView *v, int64_t channel, size_t size)
{
    const int64_t start = channel / 16 * v->block_stride + channel % 16;
    return (Side){ (size_t)start * size, (size_t)v->row_stride * size, (size_t)v->image_stride * size };
}

static inline void copy_strip(const char *restrict from, size_t from_step, char *restrict to, size_t to_step, size_t bytes,
                              int64_t rows)
{
    if (from_step == bytes && to_step == bytes) {
        memcpy(to, from, bytes * (size_t)rows);
        return;
    }
    for (int64_t r = 0; r < rows; r++, from += from_step, to += to_step) {
        size_t i = 0;
        for (; i + LINE <= bytes; i += LINE)
            memcpy(to + i, from + i, LINE); /* of constant length: a register or two */
        if (i < bytes)
            memcpy(to + i, from + i, bytes - i);
    }
}

/* Rows [first, last) of the part whose channels start at `offset` of the whole. */
static void copy_part(const CpuBackend *be, const Tensor *whole, const Tensor *part, int64_t offset, bool join, char *whole_data,
                      char *part_data, int64_t first, int64_t last)
{
    const ActView w = act_view(be, whole), p = act_view(be, part);
    const size_t  size = (size_t)dtype_bits(whole->dtype) / 8;
    const int64_t run = cpu_is_blocked(be, whole) && cpu_is_blocked(be, part) ? w.image : RUN_ROWS;
    for (int64_t row = first, rows; row < last; row += rows) {
        const int64_t image = row / w.image, within = row % w.image;
        rows = w.image - within < last - row ? w.image - within : last - row;
        rows = rows < run ? rows : run;
        for (int64_t c = 0, n; c < p.c; c += n) {
            const int64_t in_whole = channels_in_row(be, whole, offset + c), in_part = channels_in_row(be, part, c);
            n = in_whole < in_part ? in_whole : in_part;
            n = n < p.c - c ? n : p.c - c;
            const Side a = side_of(&w, offset + c, size), b = side_of(&p, c, size);
            char *at = whole_data + a.start + (size_t)image * a.image + (size_t)within * a.row;
            char *bt = part_data + b.start + (size_t)image * b.image + (size_t)within * b.row;
            if (join)
                copy_strip(bt, b.row, at, a.row, (size_t)n * size, rows);
            else
                copy_strip(at, a.row, bt, b.row, (size_t)n * size, rows);
        }
    }
}

static void run_parts(const CpuBackend *be, const Tensor *whole, const Tensor *parts, bool join, void *whole_data,
                      void *const *part_data)
{
    const int64_t rows = whole->dim[0] * whole->dim[1] * whole->dim[2];
#pragma omp parallel num_threads(be->threads)
    {
        int64_t first, last;
        thread_share(rows, 1, omp_get_thread_num(), omp_get_num_threads(), &first, &last);
        copy_part(be, whole, &parts[0], 0, join, whole_data, part_data[0], first, last);
        copy_part(be, whole, &parts[1], parts[0].dim[3], join, whole_data, part_data[1], first, last);
    }
}

static Status concat_run(Backend *be, const OpDesc *op, void *state, void *const *buf, void *scratch)
{
    (void)state, (void)scratch;
    run_parts(cpu_of(be), &op->out[0], op->in, true, buf[2], buf);
    return status_ok();
}

static Status concat_grad_run(Backend *be, const OpDesc *op, void *state, void *const *buf, void *scratch)
{
    (void)state, (void)scratch;
    run_parts(cpu_of(be), &op->in[0], op->out, false, buf[0], buf + 1);
    return status_ok();
}

static Status concat_query(Backend *be, const OpDesc *op, OpNeeds *needs)
{
    (void)be, (void)needs;
    Dtype t = op->in[0].dtype;
    return t == DTYPE_F32 || t == DTYPE_BF16 ? status_ok() : cpu_unsupported(op_names[op->kind], t);
}

const Kernel cpu_concat = { .query = concat_query, .run = concat_run };
const Kernel cpu_concat_grad = { .query = concat_query, .run = concat_grad_run };
