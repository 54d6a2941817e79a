/* peaks.c - the ceilings of this machine as the suite's own backend reaches them: the floors of cells refer to these.
 *
 * The peak of a type is the best rate of a large matrix product and of a large 3x3 convolution: on CPUs the latter often
 * comes closer to what the vector units can do. */
#include "cell.h"
#include "interrupt.h"

#include <stdlib.h>
#include <string.h>

enum { GEMM = 2048, CONV_BATCH = 8, CONV_SIZE = 28, CONV_CHANNELS = 256, MIN_REPEATS = 4 };
static const double MIN_SECONDS = 0.6; /* long enough to see the clock at its highest */
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
static Status best_rate(Backend *be, OpDesc *op, double work, double *rate)
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
    const double begin = clock_seconds();
    for (int i = 0; i < MIN_REPEATS || clock_seconds() - begin < MIN_SECONDS; i++) {
        TRY_GOTO(status, interrupt_check(), out);
        double start = clock_seconds();
        TRY_GOTO(status, kernel->run(be, op, state, buffer, scratch), out);
        TRY_GOTO(status, backend_sync(be), out);
        double r = work / (clock_seconds() - start);
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

static Status arithmetic_peak(Backend *be, Dtype dtype, double *rate)
{
    OpDesc gemm = { .kind = OP_linear, .n_in = 2, .in = { tensor_2d(dtype, GEMM, GEMM), tensor_2d(dtype, GEMM, GEMM) } };
    OpDesc conv = { .kind = OP_conv2d, .n_in = 2, .attr = { .kernel = 3, .stride = 1, .pad = 1 },
                    .in = { tensor_act(dtype, CONV_BATCH, CONV_SIZE, CONV_SIZE, CONV_CHANNELS),
                            tensor_4d(dtype, CONV_CHANNELS, 3, 3, CONV_CHANNELS) } };
    double gemm_rate, conv_rate;
    TRY(op_infer(&gemm));
    TRY(op_infer(&conv));
    TRY(best_rate(be, &gemm, op_cost(&gemm).flops, &gemm_rate));
    TRY(best_rate(be, &conv, op_cost(&conv).flops, &conv_rate));
    *rate = gemm_rate > conv_rate ? gemm_rate : conv_rate;
    return status_ok();
}

Status peaks_measure(const MeasureOptions *options, Peaks *out)
{
    Backend *be = NULL;
    BackendInfo info;
    memset(out, 0, sizeof *out);
    TRY(backend_open(options->device, &options->backend, &be));
    backend_describe(be, &info);
    Status status = arithmetic_peak(be, DTYPE_F32, &out->f32_flops);
    if (status.code == STATUS_OK && info.fast_bf16)
        status = arithmetic_peak(be, DTYPE_BF16, &out->bf16_flops);
    if (status.code == STATUS_OK) {
        OpDesc op = { .kind = OP_add, .n_in = 2, .in = { tensor_1d(DTYPE_F32, COPY_FLOATS), tensor_1d(DTYPE_F32, COPY_FLOATS) } };
        status = op_infer(&op);
        if (status.code == STATUS_OK)
            status = best_rate(be, &op, op_cost(&op).bytes, &out->copy_bytes);
    }
    backend_close(be);
    return status;
}
