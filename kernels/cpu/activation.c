/* activation.c - gelu and tanh with their gradients: element by element over plain matrices.
 *
 * gelu is x Phi(x) with the exact normal distribution, not its tanh approximation (Hendrycks & Gimpel 2016). Outputs may lie
 * on the first input: a block is read before it is written. */
#include "cpu.h"
#include "vec_math.h"

#include <omp.h>

/* gelu, tanh: of a. Gradients: a = dy; b = x for gelu, y for tanh. */
ALWAYS_INLINE VecF activate(OpKind kind, VecF a, VecF b)
{
    VecF density;
    switch (kind) {
    case OP_gelu:
        return a * vec_normal(a, NULL);
    case OP_gelu_grad: {
        VecF cdf = vec_normal(b, &density);
        return a * vec_fma(b, density, cdf);
    }
    case OP_tanh:
        return vec_tanh(a);
    default:
        return a * (1.0f - b * b);
    }
}

ALWAYS_INLINE void activate_range(OpKind kind, Dtype t, const void *a, const void *b, void *y, int64_t first, int64_t last)
{
    for (int64_t i = first; i < last; i += LANES) {
        const int lanes = vec_lanes(last - i);
        vec_store_some(t, y, i, activate(kind, vec_load_some(t, a, i, lanes), vec_load_some(t, b, i, lanes)), lanes);
    }
}

ALWAYS_INLINE void activate_all(OpKind kind, const OpDesc *op, int threads, const void *a, const void *b, void *y)
{
    const int64_t count = tensor_count(&op->out[0]);
    const bool    f32 = op->out[0].dtype == DTYPE_F32;
#pragma omp parallel num_threads(threads)
    {
        int64_t first, last;
        thread_share(count, LANES, omp_get_thread_num(), omp_get_num_threads(), &first, &last);
        if (f32)
            activate_range(kind, DTYPE_F32, a, b, y, first, last);
        else
            activate_range(kind, DTYPE_BF16, a, b, y, first, last);
    }
}

static Status activation_query(Backend *be, const OpDesc *op, OpNeeds *needs)
{
    (void)be;
    return cpu_query_plain(op, needs);
}

static Status gelu_run(Backend *be, const OpDesc *op, void *state, void *const *buf, void *scratch)
{
    (void)state, (void)scratch;
    activate_all(OP_gelu, op, cpu_of(be)->threads, buf[0], buf[0], buf[1]);
    return status_ok();
}

static Status gelu_grad_run(Backend *be, const OpDesc *op, void *state, void *const *buf, void *scratch)
{
    (void)state, (void)scratch;
    activate_all(OP_gelu_grad, op, cpu_of(be)->threads, buf[0], buf[1], buf[2]);
    return status_ok();
}

static Status tanh_run(Backend *be, const OpDesc *op, void *state, void *const *buf, void *scratch)
{
    (void)state, (void)scratch;
    activate_all(OP_tanh, op, cpu_of(be)->threads, buf[0], buf[0], buf[1]);
    return status_ok();
}

static Status tanh_grad_run(Backend *be, const OpDesc *op, void *state, void *const *buf, void *scratch)
{
    (void)state, (void)scratch;
    activate_all(OP_tanh_grad, op, cpu_of(be)->threads, buf[0], buf[1], buf[2]);
    return status_ok();
}

const Kernel cpu_gelu = { .query = activation_query, .run = gelu_run };
const Kernel cpu_gelu_grad = { .query = activation_query, .run = gelu_grad_run };
const Kernel cpu_tanh = { .query = activation_query, .run = tanh_run };
const Kernel cpu_tanh_grad = { .query = activation_query, .run = tanh_grad_run };
