/* optim.c - the update: square norm, loss scale and clipping, the optimisers that treat every element alike. Each is one
 * pass over memory; those that need a norm of each tensor first are in optim_layerwise.c. */
#include "optim.h"

#include <math.h>
#include <omp.h>
#include <string.h>

static Status sqnorm_query(Backend *be, const OpDesc *op, OpNeeds *needs)
{
    (void)op;
    needs->scratch = (size_t)cpu_of(be)->threads * sizeof(double);
    return status_ok();
}

typedef double EightDoubles __attribute__((vector_size(64)));
typedef float  EightFloats __attribute__((vector_size(32)));

/* Four parts of x side by side: sums that do not wait for each other hide the latency of the additions, and as many streams
 * of reads keep more of memory busy than one (1.35 times its bandwidth on two cores). */
static double square_sum(const float *x, int64_t n)
{
    enum { STREAMS = 4, WIDTH = 8 };
    const int64_t part = n / STREAMS / WIDTH * WIDTH;
    EightDoubles  lane[STREAMS] = { { 0 } };
    double        sum = 0;
    for (int64_t i = 0; i < part; i += WIDTH)
        for (int k = 0; k < STREAMS; k++) {
            EightFloats f;
            memcpy(&f, x + k * part + i, sizeof f);
            EightDoubles d = __builtin_convertvector(f, EightDoubles);
            lane[k] += d * d;
        }
    for (int64_t i = STREAMS * part; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    for (int k = 0; k < STREAMS; k++)
        for (int l = 0; l < WIDTH; l++)
            sum += lane[k][l];
    return sum;
}

static Status sqnorm_run(Backend *base, const OpDesc *op, void *state, void *const *buf, void *scratch)
{
    (void)state;
    const CpuBackend *be = cpu_of(base);
    const int64_t count = cpu_physical_count(be, &op->in[0]);
    const float  *x = buf[0];
    double       *partial = scratch;
    for (int t = 0; t < be->threads; t++)
        partial[t] = 0;
#pragma omp parallel num_threads(be->threads)
    {
        int64_t first, last;
        thread_share(count, 16, omp_get_thread_num(), omp_get_num_threads(), &first, &last);
        partial[omp_get_thread_num()] = square_sum(x + first, last - first);
    }
    double sum = 0, scale = op->n_in == 2 ? (double)((const float *)buf[1])[CONTROL_SCALE] : 1;
    for (int t = 0; t < be->threads; t++)
        sum += partial[t];
    *(float *)buf[op->n_in] += (float)(sum / (scale * scale));
    return status_ok();
}

static Status window_scale_run(Backend *be, const OpDesc *op, void *state, void *const *buf, void *scratch)
{
    (void)be, (void)op, (void)state, (void)scratch;
    *(float *)buf[2] = *(const float *)buf[0] * ((const float *)buf[1])[CONTROL_SCALE];
    return status_ok();
}

/* The loss scale for the next window. */
static float next_scale(const float *hyper, float *control, bool skip)
{
    const float scale = control[CONTROL_SCALE];
    if (skip)
        return fmaxf(scale * hyper[HYPER_BACKOFF], hyper[HYPER_LEAST_SCALE]);
    if (hyper[HYPER_INTERVAL] <= 0 || control[CONTROL_FINITE] < hyper[HYPER_INTERVAL])
        return scale;
    control[CONTROL_FINITE] = 0;
    return fminf(scale * hyper[HYPER_GROWTH], hyper[HYPER_LARGEST_SCALE]);
}

static Status step_control_run(Backend *be, const OpDesc *op, void *state, void *const *buf, void *scratch)
{
    (void)be, (void)op, (void)state, (void)scratch;
    const float *hyper = buf[0], sum = *(const float *)buf[1];
    float       *control = buf[2];
    const bool   finite = isfinite(sum), skip = hyper[HYPER_INTERVAL] > 0 && !finite;
    const double clip = hyper[HYPER_MAX_NORM] > 0 ? (double)hyper[HYPER_MAX_NORM] / (sqrt((double)sum) + 1e-6) : 1;
    control[CONTROL_UNSCALE] = 1 / control[CONTROL_SCALE];
    control[CONTROL_CLIP] = skip || clip > 1 ? 1 : (float)clip;
    control[CONTROL_SKIP] = skip;
    control[CONTROL_FINITE] = finite ? control[CONTROL_FINITE] + 1 : 0;
    control[CONTROL_SKIPPED] += skip;
    control[CONTROL_DONE] += !skip;
    control[CONTROL_SKIPPED_IN_ROW] = skip ? control[CONTROL_SKIPPED_IN_ROW] + 1 : 0;
    control[CONTROL_SCALE] = next_scale(hyper, control, skip);
    return status_ok();
}

static void sgd_range(const OpAttr *a, float scale, float lr, const float *restrict g, float *restrict w, float *restrict m,
                      int64_t n)
{
    const float momentum = a->momentum, decay = a->weight_decay;
    if (a->nesterov)
        for (int64_t i = 0; i < n; i++) {
            float d = g[i] * scale + decay * w[i];
            m[i] = momentum * m[i] + d;
            w[i] -= lr * (d + momentum * m[i]);
        }
    else
        for (int64_t i = 0; i < n; i++) {
            m[i] = momentum * m[i] + (g[i] * scale + decay * w[i]);
            w[i] -= lr * m[i];
        }
}

static Status sgd_run(Backend *base, const OpDesc *op, void *state, void *const *buf, void *scratch)
{
    (void)state, (void)scratch;
    const CpuBackend *be = cpu_of(base);
    const int64_t count = cpu_physical_count(be, &op->in[0]);
    const float   lr = *(const float *)buf[1], *control = buf[2], *g = buf[0];
    float        *w = buf[3], *m = buf[4];
    if (control[CONTROL_SKIP] != 0)
        return status_ok();
#pragma omp parallel num_threads(be->threads)
    {
        int64_t first, last;
        thread_share(count, 16, omp_get_thread_num(), omp_get_num_threads(), &first, &last);
        sgd_range(&op->attr, gradient_scale(control), lr, g + first, w + first, m + first, last - first);
    }
    return status_ok();
}

static void adamw_range(const Adam *a, float lr, const float *restrict g, float *restrict w, float *restrict m,
                        float *restrict v, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        w[i] -= lr * (adam_direction(a, g[i], &m[i], &v[i]) + a->weight_decay * w[i]);
}

static Status adamw_run(Backend *base, const OpDesc *op, void *state, void *const *buf, void *scratch)
{
    (void)state, (void)scratch;
    const CpuBackend *be = cpu_of(base);
    const int64_t count = cpu_physical_count(be, &op->in[0]);
    const float   lr = *(const float *)buf[1], *control = buf[2], *g = buf[0];
    float        *w = buf[3], *m = buf[4], *v = buf[5];
    if (control[CONTROL_SKIP] != 0)
        return status_ok();
    const Adam adam = adam_of(&op->attr, control);
#pragma omp parallel num_threads(be->threads)
    {
        int64_t first, last;
        thread_share(count, 16, omp_get_thread_num(), omp_get_num_threads(), &first, &last);
        adamw_range(&adam, lr, g + first, w + first, m + first, v + first, last - first);
    }
    return status_ok();
}

static Status restore_run(Backend *base, const OpDesc *op, void *state, void *const *buf, void *scratch)
{
    (void)state, (void)scratch;
    if (((const float *)buf[1])[CONTROL_SKIP] != 0)
        memcpy(buf[2], buf[0], cpu_tensor_bytes(cpu_of(base), &op->out[0]));
    return status_ok();
}

const Kernel cpu_sqnorm = { .query = sqnorm_query, .run = sqnorm_run };
const Kernel cpu_window_scale = { .run = window_scale_run };
const Kernel cpu_step_control = { .run = step_control_run };
const Kernel cpu_sgd = { .run = sgd_run };
const Kernel cpu_adamw = { .run = adamw_run };
const Kernel cpu_restore = { .run = restore_run };
