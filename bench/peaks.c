/* peaks.c - the ceilings of this machine as the suite's own backend reaches them: the floors of cells refer to these.
 *
 * The peak of a type is the best rate of a large matrix product and of a large 3x3 convolution: on CPUs the latter often
 * comes closer to what the vector units can do. GPUs get larger ones, several in a row, so that launching and waiting do not count,
 * and less time: what is measured is over in milliseconds. */
#include "cell.h"
#include "interrupt.h"

#include <stdlib.h>
#include <string.h>

enum { CONV_SIZE = 28, CONV_CHANNELS = 256, MIN_REPEATS = 4 };

typedef struct Effort { int64_t gemm, conv_batch; int in_a_row; double seconds; } Effort;
static const Effort on_cpu = { 2048, 8, 1, 0.6 }, on_gpu = { 8192, 256, 8, 0.2 }; /* long enough to see the clock at its highest */
static const int64_t COPY_FLOATS = 64 << 20; /* 256 MiB each way: beyond most caches */

/* Values near 1 in either float type (0x3f80 is 1.0 in bf16): zeros would draw less power than real data. */
static Status fill(Backend *be, const Tensor *t, void *device)
{
    size_t words = tensor_bytes(t) / sizeof(uint16_t);
    uint16_t *host = malloc(words * sizeof *host);
    if (!host)
        return status_error(STATUS_OOM, "out of memory for measuring the peaks");
    for (size_t i = 0; i < words; i++)
        host[i] = (uint16_t)(0x3f80 + i % 13);
    Status status = backend_upload(be, t, device, host);
    free(host);
    return status;
}

/* Best rate of `work` per second over the repeats: a ceiling is what was reached, not what is usual. */
static Status best_rate(Backend *be, const Effort *effort, OpDesc *op, double work, double *rate)
{
    void *buffer[OP_MAX_IN + OP_MAX_OUT] = { NULL }, *state = NULL, *scratch = NULL;
    const Kernel *kernel = be->vtable->kernels[op->kind];
    OpNeeds needs;
    Status status;
    *rate = 0;
    TRY_GOTO(status, backend_query(be, op, &needs), out);
    for (int i = 0; i < op->n_in + op->n_out; i++) {
        Tensor *t = i < op->n_in ? &op->in[i] : &op->out[i - op->n_in];
        int wish = i < op->n_in ? needs.in_layout[i] : needs.out_layout[i - op->n_in];
        if (wish != LAYOUT_ANY)
            t->layout = wish;
        TRY_GOTO(status, backend_alloc(be, backend_bytes(be, t), &buffer[i]), out);
        TRY_GOTO(status, fill(be, t, buffer[i]), out);
    }
    if (needs.scratch)
        TRY_GOTO(status, backend_alloc(be, needs.scratch, &scratch), out);
    if (kernel->prepare)
        TRY_GOTO(status, kernel->prepare(be, op, &state), out);
    if (kernel->tune)
        TRY_GOTO(status, kernel->tune(be, op, state, buffer, scratch), out);
    const double begin = clock_seconds();
    for (int i = 0; i < MIN_REPEATS || clock_seconds() - begin < effort->seconds; i++) {
        TRY_GOTO(status, interrupt_check(), out);
        double start = clock_seconds();
        for (int k = 0; k < effort->in_a_row; k++)
            TRY_GOTO(status, kernel->run(be, op, state, buffer, scratch), out);
        TRY_GOTO(status, backend_sync(be), out);
        double r = work * effort->in_a_row / (clock_seconds() - start);
        if (i > 0 && r > *rate) /* the first run is warm-up */
            *rate = r;
    }
out:
    if (state && kernel->release)
        kernel->release(state);
    backend_free(be, scratch);
    for (int i = 0; i < OP_MAX_IN + OP_MAX_OUT; i++)
        backend_free(be, buffer[i]);
    return status;
}

static Status arithmetic_peak(Backend *be, const Effort *effort, Dtype dtype, double *rate)
{
    const Tensor square = tensor_2d(dtype, effort->gemm, effort->gemm);
    OpDesc gemm = { .kind = OP_linear, .n_in = 2, .in = { square, square } };
    OpDesc conv = { .kind = OP_conv2d, .n_in = 2, .attr = { .kernel = 3, .stride = 1, .pad = 1 },
                    .in = { tensor_act(dtype, effort->conv_batch, CONV_SIZE, CONV_SIZE, CONV_CHANNELS),
                            tensor_4d(dtype, CONV_CHANNELS, 3, 3, CONV_CHANNELS) } };
    double gemm_rate, conv_rate;
    TRY(op_infer(&gemm));
    TRY(op_infer(&conv));
    TRY(best_rate(be, effort, &gemm, op_cost(&gemm).flops, &gemm_rate));
    TRY(best_rate(be, effort, &conv, op_cost(&conv).flops, &conv_rate));
    *rate = gemm_rate > conv_rate ? gemm_rate : conv_rate;
    return status_ok();
}

static Status copy_peak(Backend *be, const Effort *effort, double *rate)
{
    OpDesc op = { .kind = OP_add, .n_in = 2, .in = { tensor_1d(DTYPE_F32, COPY_FLOATS), tensor_1d(DTYPE_F32, COPY_FLOATS) } };
    TRY(op_infer(&op));
    return best_rate(be, effort, &op, op_cost(&op).bytes, rate);
}

/* TF32 needs a backend of its own. */
static Status tf32_peak(const MeasureOptions *options, const Effort *effort, double *rate)
{
    const BackendOptions opened = backend_options_for(options, AMP_TF32);
    Backend *be = NULL;
    TRY(backend_open(options->device, &opened, &be));
    Status status = arithmetic_peak(be, effort, DTYPE_F32, rate);
    backend_close(be);
    return status;
}

Status peaks_measure(const MeasureOptions *options, Peaks *out)
{
    Backend *be = NULL;
    BackendInfo info;
    Status status;
    memset(out, 0, sizeof *out);
    TRY(backend_open(options->device, &options->backend, &be));
    backend_describe(be, &info);
    const Effort *effort = info.is_gpu ? &on_gpu : &on_cpu;
    TRY_GOTO(status, arithmetic_peak(be, effort, DTYPE_F32, &out->f32_flops), out);
    if (info.fast_bf16)
        TRY_GOTO(status, arithmetic_peak(be, effort, DTYPE_BF16, &out->bf16_flops), out);
    if (info.fast_fp16)
        TRY_GOTO(status, arithmetic_peak(be, effort, DTYPE_F16, &out->f16_flops), out);
    status = copy_peak(be, effort, &out->copy_bytes);
out:
    backend_close(be);
    if (status.code == STATUS_OK && info.fast_tf32)
        status = tf32_peak(options, effort, &out->tf32_flops);
    return status;
}

static json_t *rate_or_null(double rate) { return rate > 0 ? json_real(rate) : json_null(); }

json_t *peaks_json(const Peaks *p)
{
    return json_pack("{s:o,s:o,s:o,s:o,s:o}", "f32_flops", rate_or_null(p->f32_flops), "bf16_flops", rate_or_null(p->bf16_flops), "f16_flops",
                     rate_or_null(p->f16_flops), "tf32_flops", rate_or_null(p->tf32_flops), "copy_bytes_per_s", rate_or_null(p->copy_bytes));
}

static double rate_of(const json_t *object, const char *name) { return json_number_value(json_object_get(object, name)); }

Peaks peaks_from_json(const json_t *object)
{
    return (Peaks){ .f32_flops = rate_of(object, "f32_flops"), .bf16_flops = rate_of(object, "bf16_flops"),
                    .f16_flops = rate_of(object, "f16_flops"), .tf32_flops = rate_of(object, "tf32_flops"),
                    .copy_bytes = rate_of(object, "copy_bytes_per_s") };
}
