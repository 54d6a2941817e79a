/* optim.c - the update: square norm of a vector and SGD with momentum, each one pass over memory. */
#include "cpu.h"

#include <omp.h>

static Status sqnorm_query(Backend *be, const OpDesc *op, OpNeeds *needs)
{
    (void)op;
    needs->scratch = (size_t)cpu_of(be)->threads * sizeof(double);
    return status_ok();
}

/* Independent sums hide the latency of the additions. */
static double square_sum(const float *restrict x, int64_t n)
{
    double  lane[32] = { 0 }, sum = 0;
    int64_t i = 0;
    for (; i + 32 <= n; i += 32)
        for (int l = 0; l < 32; l++)
            lane[l] += (double)x[i + l] * (double)x[i + l];
    for (; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    for (int l = 0; l < 32; l++)
        sum += lane[l];
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
    double sum = 0;
    for (int t = 0; t < be->threads; t++)
        sum += partial[t];
    *(float *)buf[1] += (float)sum;
    return status_ok();
}

static void sgd_range(const OpAttr *a, float lr, const float *restrict g, float *restrict w, float *restrict m, int64_t n)
{
    const float momentum = a->momentum, decay = a->weight_decay;
    if (a->nesterov)
        for (int64_t i = 0; i < n; i++) {
            float d = g[i] + decay * w[i];
            m[i] = momentum * m[i] + d;
            w[i] -= lr * (d + momentum * m[i]);
        }
    else
        for (int64_t i = 0; i < n; i++) {
            m[i] = momentum * m[i] + (g[i] + decay * w[i]);
            w[i] -= lr * m[i];
        }
}

static Status sgd_run(Backend *base, const OpDesc *op, void *state, void *const *buf, void *scratch)
{
    (void)state, (void)scratch;
    const CpuBackend *be = cpu_of(base);
    const int64_t count = cpu_physical_count(be, &op->in[0]);
    const float   lr = *(const float *)buf[1];
    const float  *g = buf[0];
    float        *w = buf[2], *m = buf[3];
#pragma omp parallel num_threads(be->threads)
    {
        int64_t first, last;
        thread_share(count, 16, omp_get_thread_num(), omp_get_num_threads(), &first, &last);
        sgd_range(&op->attr, lr, g + first, w + first, m + first, last - first);
    }
    return status_ok();
}

const Kernel cpu_sqnorm = { .query = sqnorm_query, .run = sqnorm_run };
const Kernel cpu_sgd = { .run = sgd_run };
