/* activation.c - gelu and tanh with their gradients: element by element over plain matrices.
 *
 * gelu is x Phi(x) with the exact normal distribution, not its tanh approximation (Hendrycks & Gimpel 2016). Outputs may lie
 * on the first input: a block is read before it is written. */
#include "cpu.h"
#include "vec_math.h"

#include <omp.h>

/* x Phi(x) = max(x, 0) - |x| Phi(-|x|), which keeps its accuracy where x is far below 0. */
ALWAYS_INLINE VecF gelu(VecF x)
{
    VecF z = vec_abs(x);
    return vec_fma(-z, vec_normal_tail(z, NULL), vec_max(vec_set(0), x));
}

/* Phi(x) + x phi(x) */
ALWAYS_INLINE VecF gelu_slope(VecF x)
{
    VecF density, tail = vec_normal_tail(vec_abs(x), &density);
    return vec_fma(x, density, vec_select(x > 0.0f, 1.0f - tail, tail));
}

/* gelu, tanh: of a. Gradients: a = dy; b = x for gelu, y for tanh. */
ALWAYS_INLINE VecF activate(OpKind kind, VecF a, VecF b)
{
    switch (kind) {
    case OP_gelu:      return gelu(a);
    case OP_gelu_grad: return a * gelu_slope(b);
    case OP_tanh:      return vec_tanh(a);
    default:           return a * (1.0f - b * b);
    }
}

ALWAYS_INLINE void activate_range(OpKind kind, Dtype t, const void *a, const void *b, void *y, int64_t first, int64_t last)
{
    FOR_BLOCKS(i, first, last, lanes, {
        vec_store_some(t, y, i, activate(kind, vec_load_some(t, a, i, lanes), vec_load_some(t, b, i, lanes)), lanes);
    });
}

/* The types and kinds as constants, inside the parallel region: what is outlined for it would not see them. */
static void activate_share(const OpDesc *op, const void *a, const void *b, void *y, int64_t first, int64_t last)
{
    const bool f32 = op->out[0].dtype == DTYPE_F32;
#define EITHER_TYPE(kind) \
    f32 ? activate_range(kind, DTYPE_F32, a, b, y, first, last) : activate_range(kind, DTYPE_BF16, a, b, y, first, last)
    switch (op->kind) {
    case OP_gelu:      EITHER_TYPE(OP_gelu); break;
    case OP_gelu_grad: EITHER_TYPE(OP_gelu_grad); break;
    case OP_tanh:      EITHER_TYPE(OP_tanh); break;
    default:           EITHER_TYPE(OP_tanh_grad); break;
    }
#undef EITHER_TYPE
}

static Status activation_run(Backend *base, const OpDesc *op, void *state, void *const *buf, void *scratch)
{
    (void)state, (void)scratch;
    const int64_t count = tensor_count(&op->out[0]);
#pragma omp parallel num_threads(cpu_of(base)->threads)
    {
        int64_t first, last;
        thread_share(count, LANES, omp_get_thread_num(), omp_get_num_threads(), &first, &last);
        activate_share(op, buf[0], buf[op->n_in - 1], buf[op->n_in], first, last);
    }
    return status_ok();
}

static Status activation_query(Backend *be, const OpDesc *op, OpNeeds *needs)
{
    (void)be;
    return cpu_query_plain(op, needs);
}

const Kernel cpu_gelu = { .query = activation_query, .run = activation_run };
const Kernel cpu_gelu_grad = { .query = activation_query, .run = activation_run };
const Kernel cpu_tanh = { .query = activation_query, .run = activation_run };
const Kernel cpu_tanh_grad = { .query = activation_query, .run = activation_run };
