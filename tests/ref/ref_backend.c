/* ref_backend.c - the reference as a backend: buffers to doubles, ref_compute, doubles to buffers. */
#include "ref_ops.h"

#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct RefBackend {
    Backend base;
    int     threads;
} RefBackend;

void ref_compute(const OpDesc *op, const double *const *in, double *const *out)
{
    static void (*const ops[OP_COUNT])(const OpDesc *, const double *const *, double *const *) = {
#define OP(name) [OP_##name] = ref_##name,
#include "../../kernels/ops.def"
#undef OP
    };
    ops[op->kind](op, in, out);
}

/* Rounding a double first to float and then to 16 bits could round twice the same way off a tie. So the step to float
 * rounds to odd: an inexact result takes the neighbour whose last bit is 1, which is never a tie for the second step
 * (Boldo & Melquiond 2008, "Emulation of FMA and correctly rounded sums"). */
static float odd_float(double d)
{
    union { float f; uint32_t u; } v;
    v.f = (float)d;
    if (isfinite(d) && isfinite(v.f) && (double)v.f != d) {
        if (fabs((double)v.f) > fabs(d))
            v.u--;
        v.u |= 1;
    }
    return v.f;
}

static uint16_t bf16_from_f64(double d) { return bf16_from_f32(odd_float(d)); }
static uint16_t f16_from_f64(double d) { return f16_from_f32(odd_float(d)); }

double ref_round(Dtype dtype, double v)
{
    switch (dtype) {
    case DTYPE_F32:  return (double)(float)v;
    case DTYPE_BF16: return (double)bf16_to_f32(bf16_from_f64(v));
    case DTYPE_F16:  return (double)f16_to_f32(f16_from_f64(v));
    default:         return v;
    }
}

void ref_load(const Tensor *t, const void *from, double *to)
{
    const int64_t n = tensor_count(t);
    for (int64_t i = 0; i < n; i++)
        switch (t->dtype) {
        case DTYPE_F32:  to[i] = (double)((const float *)from)[i]; break;
        case DTYPE_BF16: to[i] = (double)bf16_to_f32(((const uint16_t *)from)[i]); break;
        case DTYPE_F16:  to[i] = (double)f16_to_f32(((const uint16_t *)from)[i]); break;
        case DTYPE_I32:  to[i] = (double)((const int32_t *)from)[i]; break;
        case DTYPE_U8:   to[i] = (double)((const uint8_t *)from)[i]; break;
        case DTYPE_BIT:  to[i] = ((const uint8_t *)from)[i / 8] >> (i % 8) & 1; break;
        default: CHECK(!"a type that the reference knows");
        }
}

void ref_store(const Tensor *t, const double *from, void *to)
{
    const int64_t n = tensor_count(t);
    if (t->dtype == DTYPE_BIT)
        memset(to, 0, tensor_bytes(t));
    for (int64_t i = 0; i < n; i++)
        switch (t->dtype) {
        case DTYPE_F32:  ((float *)to)[i] = (float)from[i]; break;
        case DTYPE_BF16: ((uint16_t *)to)[i] = bf16_from_f64(from[i]); break;
        case DTYPE_F16:  ((uint16_t *)to)[i] = f16_from_f64(from[i]); break;
        case DTYPE_I32:  ((int32_t *)to)[i] = (int32_t)from[i]; break;
        case DTYPE_U8:   ((uint8_t *)to)[i] = (uint8_t)from[i]; break;
        case DTYPE_BIT:  ((uint8_t *)to)[i / 8] |= (uint8_t)((from[i] != 0) << (i % 8)); break;
        default: CHECK(!"a type that the reference knows");
        }
}

static Status check_labels(const OpDesc *op, const int32_t *labels)
{
    const int64_t rows = op->in[0].dim[0], classes = op->in[0].dim[1];
    for (int64_t m = 0; m < rows; m++)
        if (labels[m] < -1 || labels[m] >= classes)
            return status_error(STATUS_NUMERIC, "softmax_xent: label %d of sample %lld is outside 0..%lld (-1 = ignore)",
                                (int)labels[m], (long long)m, (long long)(classes - 1));
    return status_ok();
}

/* Numbers of rows of a table. */
static Status check_ids(const OpDesc *op, const int32_t *ids, int64_t count, int64_t rows)
{
    for (int64_t i = 0; i < count; i++)
        if (ids[i] < -1 || ids[i] >= rows)
            return status_error(STATUS_NUMERIC, "%s: number %d at position %lld is outside 0..%lld (-1 = none)", op_names[op->kind],
                                (int)ids[i], (long long)i, (long long)(rows - 1));
    return status_ok();
}

static Status check_all_ids(const OpDesc *op, void *const *buf)
{
    if (op->kind == OP_embedding)
        for (int k = 0; k < op->n_in; k += 2)
            TRY(check_ids(op, buf[k + 1], op->in[k + 1].dim[0], op->in[k].dim[0]));
    if (op->kind == OP_gather_rows)
        TRY(check_ids(op, buf[1], op->in[1].dim[0], op->in[0].dim[0]));
    if (op->kind == OP_embedding_grad || op->kind == OP_gather_rows_grad)
        TRY(check_ids(op, buf[1], op->in[1].dim[0], op->out[0].dim[0]));
    return status_ok();
}

static Status check_table(const OpDesc *op, const int32_t *table)
{
    const int64_t count = tensor_count(&op->in[0]);
    for (int64_t i = 0; i + 1 < op->in[3].dim[0]; i++)
        if (table[i] < 0 || table[i] > table[i + 1] || table[i + 1] > count)
            return status_error(STATUS_NUMERIC, "%s: tensor %lld of the table is %d..%d of %lld elements", op_names[op->kind],
                                (long long)i, (int)table[i], (int)table[i + 1], (long long)count);
    return status_ok();
}

/* u8 labels of pixels, 255 = ignore. */
static Status check_pixel_labels(const OpDesc *op, const uint8_t *labels)
{
    const int64_t h = op->in[1].dim[1], w = op->in[1].dim[2];
    const int classes = op->kind == OP_bce_dice ? 2 : (int)op->in[0].dim[3];
    for (int64_t i = 0; i < tensor_count(&op->in[1]); i++)
        if (labels[i] >= classes && labels[i] != 255)
            return status_error(STATUS_NUMERIC, "%s: label %d of image %lld at row %lld, column %lld is outside 0..%d (255 = ignore)",
                                op_names[op->kind], labels[i], (long long)(i / (h * w)), (long long)(i / w % h), (long long)(i % w),
                                classes - 1);
    return status_ok();
}

/* Carves one array of doubles a slot out of a single allocation; in[] and out[] get their addresses. */
static Status carve(const OpDesc *op, double **all, double **in, double **out)
{
    int64_t total = 0, at = 0;
    for (int i = 0; i < op->n_in; i++)
        total += tensor_count(&op->in[i]);
    for (int i = 0; i < op->n_out; i++)
        total += tensor_count(&op->out[i]);
    *all = malloc((size_t)total * sizeof **all);
    if (!*all)
        return status_error(STATUS_OOM, "ref %s: %lld bytes for double copies cannot be had", op_names[op->kind],
                            (long long)total * (long long)sizeof **all);
    for (int i = 0; i < op->n_in; at += tensor_count(&op->in[i++]))
        in[i] = *all + at;
    for (int i = 0; i < op->n_out; at += tensor_count(&op->out[i++]))
        out[i] = *all + at;
    return status_ok();
}

static Status ref_run(Backend *be, const OpDesc *op, void *state, void *const *buf, void *scratch)
{
    (void)state, (void)scratch;
    if (op->kind == OP_softmax_xent)
        TRY(check_labels(op, buf[1]));
    if (op->kind == OP_lamb || op->kind == OP_lars)
        TRY(check_table(op, buf[3]));
    if (op->kind == OP_pixel_xent || op->kind == OP_bce_dice)
        TRY(check_pixel_labels(op, buf[1]));
    TRY(check_all_ids(op, buf));
    if (op->kind == OP_attention || op->kind == OP_attention_grad)
        TRY(ref_check_spans(op, buf[op->kind == OP_attention ? 1 : 4]));
    double *all = NULL, *in[OP_MAX_IN] = { NULL }, *out[OP_MAX_OUT] = { NULL };
    TRY(carve(op, &all, in, out));
    for (int i = 0; i < op->n_in; i++)
        ref_load(&op->in[i], buf[i], in[i]);
    for (int i = 0; i < op->n_out; i++) {
        if (op_out_is_inout(op, i))
            ref_load(&op->out[i], buf[op->n_in + i], out[i]);
        else
            for (int64_t j = 0; j < tensor_count(&op->out[i]); j++)
                out[i][j] = (double)NAN; /* an element that the op forgets shows */
    }
    const int threads_before = omp_get_max_threads();
    omp_set_num_threads(((RefBackend *)be)->threads);
    ref_compute(op, (const double *const *)in, out);
    omp_set_num_threads(threads_before);
    for (int i = 0; i < op->n_in; i++)
        if (op_in_is_inout(op, i))
            ref_store(&op->in[i], in[i], buf[i]);
    for (int i = 0; i < op->n_out; i++)
        ref_store(&op->out[i], out[i], buf[op->n_in + i]);
    free(all);
    return status_ok();
}

static Status ref_open(const BackendOptions *options, Backend **out)
{
    *out = NULL;
    const int threads = options ? options->threads : 0;
    if (threads < 0)
        return status_error(STATUS_USAGE, "threads is %d: must be 1 or more, or 0 for all cores", threads);
    RefBackend *ref = malloc(sizeof *ref);
    if (!ref)
        return status_error(STATUS_OOM, "no memory for the reference backend");
    ref->base.vtable = &ref_backend;
    ref->threads = threads ? threads : omp_get_num_procs();
    *out = &ref->base;
    return status_ok();
}

static void ref_close(Backend *be) { free(be); }

static void ref_describe(Backend *be, BackendInfo *info)
{
    memset(info, 0, sizeof *info);
    snprintf(info->name, sizeof info->name, "reference");
    snprintf(info->library, sizeof info->library, "float64 loops");
    info->threads = ((RefBackend *)be)->threads;
    info->memory_bytes = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
    info->fast_bf16 = info->fast_fp16 = true; /* as fast as anything else here: such nets can be verified everywhere */
}

static Status ref_alloc(Backend *be, size_t bytes, void **address)
{
    (void)be;
    *address = NULL;
    if (bytes > SIZE_MAX - 64 || !(*address = aligned_alloc(64, bytes ? (bytes + 63) / 64 * 64 : 64)))
        return status_error(STATUS_OOM, "ref: %zu bytes cannot be had", bytes);
    return status_ok();
}

static void ref_free(Backend *be, void *address)
{
    (void)be;
    free(address);
}

static size_t ref_bytes(Backend *be, const Tensor *t)
{
    (void)be;
    CHECK(t->layout == LAYOUT_PLAIN || t->layout == LAYOUT_ACT);
    return tensor_bytes(t);
}

static Status ref_copy(Backend *be, const Tensor *t, void *to, const void *from)
{
    if (t->dtype == DTYPE_BIT)
        return status_error(STATUS_UNSUPPORTED, "bit tensors stay on their backend");
    memcpy(to, from, ref_bytes(be, t));
    return status_ok();
}

static Status ref_download(Backend *be, const Tensor *t, const void *device, void *host)
{
    return ref_copy(be, t, host, device);
}

static Status ref_sync(Backend *be)
{
    (void)be;
    return status_ok();
}

static const Kernel ref_kernel = { .run = ref_run };

static const Kernel *const ref_kernels[OP_COUNT] = {
#define OP(name) [OP_##name] = &ref_kernel,
#include "../../kernels/ops.def"
#undef OP
};

const BackendVtable ref_backend = {
    .name = "ref", .open = ref_open, .close = ref_close, .describe = ref_describe, .alloc = ref_alloc, .free = ref_free,
    .bytes = ref_bytes, .upload = ref_copy, .download = ref_download, .sync = ref_sync, .kernels = ref_kernels,
};
