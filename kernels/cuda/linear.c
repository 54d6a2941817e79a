/* linear.c - fully connected layers as cuBLASLt matrix products; see matmul.h.
 *
 *   y (M,O) = x (M,K) w (O,K)^T + bias;   dx (M,K) = dy (M,O) w (O,K);   dw (O,K) = dy (M,O)^T x (M,K),   dbias (O) = sum over rows of dy
 *
 * In column-major terms, as cuBLASLt reads the same memory:
 *
 *   y  (O,M) = w^T (O,K) x  (K,M)      A = w,  stored (K,O), transposed;  B = x,  stored (K,M)
 *   dx (K,M) = w   (K,O) dy (O,M)      A = w,  stored (K,O);              B = dy, stored (O,M)
 *   dw (K,O) = x   (K,M) dy^T (M,O)    A = x,  stored (K,M);              B = dy, stored (O,M), transposed
 *
 * Biases: parameters are f32, but a product with a 16-bit result takes only a 16-bit bias, so it is rounded first (as
 * torch.autocast does). A bias gradient comes with the product, whose result is f32 then, like the gradient. Where the library has no
 * algorithm with that epilogue, own kernels do it after the product.
 * GELU stays an op of its own: cuBLASLt's epilogue is the tanh approximation, BERT's GELU is by erf. */
#include "columns.h"
#include "linear_edge.h"
#include "matmul.h"

#include <stdlib.h>

typedef struct LinearState { LtPlan *product; bool epilogue; } LinearState;

/* M, K, O of the three ops. */
typedef struct LinearSize { int64_t m, k, o; } LinearSize;

static LinearSize size_of(const OpDesc *op)
{
    const Tensor *a = &op->in[0], *b = &op->in[1];
    if (op->kind == OP_linear_wgrad)
        return (LinearSize){ a->dim[0], a->dim[1], b->dim[1] };
    return (LinearSize){ a->dim[0], b->dim[1], b->dim[0] };
}

static bool has_vector(const OpDesc *op) { return op->kind == OP_linear_wgrad ? op->n_out == 2 : op->n_in == 3; }

static LtCall call_of(const OpDesc *op)
{
    const LinearSize s = size_of(op);
    LtCall           c = { .in = op->in[0].dtype, .out = op->out[0].dtype };
    switch (op->kind) {
    case OP_linear:
        c.m = s.o, c.n = s.m, c.k = s.k;
        c.trans_a = true;
        c.lda = s.k, c.ldb = s.k, c.ldd = s.o;
        break;
    case OP_linear_dgrad:
        c.m = s.k, c.n = s.m, c.k = s.o;
        c.lda = s.k, c.ldb = s.o, c.ldd = s.k;
        break;
    default:
        c.m = s.k, c.n = s.o, c.k = s.m;
        c.trans_b = true;
        c.lda = s.k, c.ldb = s.o, c.ldd = s.k;
        c.accumulate = op->attr.accumulate;
        break;
    }
    if (has_vector(op))
        c.epilogue = op->kind == OP_linear ? LT_BIAS : LT_BIAS_GRADIENT;
    return c;
}

/* Before the workspace: the rounded bias, or the bias gradient before it is added, or what columns_sum needs. */
static size_t edge_bytes(const OpDesc *op)
{
    if (!has_vector(op))
        return 0;
    size_t bytes = (size_t)size_of(op).o * sizeof(float);
    if (op->kind == OP_linear_wgrad) {
        const Columns c = columns_of(&op->in[1]);
        bytes = columns_scratch(&c) > bytes ? columns_scratch(&c) : bytes;
    }
    return bytes;
}

static Status linear_query(Backend *base, const OpDesc *op, OpNeeds *needs)
{
    for (int i = 0; i < op->n_in; i++)
        needs->in_layout[i] = LAYOUT_PLAIN;
    for (int i = 0; i < op->n_out; i++)
        needs->out_layout[i] = LAYOUT_PLAIN;
    needs->scratch = edge_bytes(op) + LT_WORKSPACE_ALIGN + lt_workspace(cuda_of(base)); /* scratch itself is 64-byte aligned */
    return status_ok();
}

static void linear_release(void *state)
{
    LinearState *s = state;
    if (!s)
        return;
    lt_plan_destroy(s->product);
    free(s);
}

static Status linear_prepare(Backend *base, const OpDesc *op, void **state)
{
    CudaBackend *be = cuda_of(base);
    char         name[256];
    LtCall       call = call_of(op);
    *state = NULL;
    TRY(cuda_need_device(be));
    LinearState *s = calloc(1, sizeof *s);
    if (!s)
        return status_error(STATUS_OOM, "no memory for a linear layer");
    op_format(op, name, sizeof name);
    s->epilogue = call.epilogue != LT_PLAIN;
    Status status = lt_plan_create(be, &call, name, &s->product);
    if (status.code == STATUS_UNSUPPORTED && s->epilogue) {
        call.epilogue = LT_PLAIN;
        s->epilogue = false;
        status = lt_plan_create(be, &call, name, &s->product);
    }
    if (status.code == STATUS_OK)
        *state = s;
    else
        linear_release(s);
    return status;
}

/* Operands of the product. The vector: the rounded bias, or where the bias gradient goes: a place of its own if it has to be added. */
static LtPlaces places_of(const OpDesc *op, const LinearState *s, void *const *buf, void *scratch)
{
    const uintptr_t after_edge = (uintptr_t)scratch + edge_bytes(op);
    LtPlaces        at = { .d = buf[op->n_in] };
    at.workspace = (void *)((after_edge + LT_WORKSPACE_ALIGN - 1) / LT_WORKSPACE_ALIGN * LT_WORKSPACE_ALIGN);
    at.a = op->kind == OP_linear_wgrad ? buf[0] : buf[1];
    at.b = op->kind == OP_linear_wgrad ? buf[1] : buf[0];
    if (s->epilogue && op->kind == OP_linear)
        at.vector = op->out[0].dtype == DTYPE_F32 ? buf[2] : scratch;
    else if (s->epilogue)
        at.vector = op->attr.accumulate ? scratch : buf[op->n_in + 1];
    return at;
}

static Status linear_tune(Backend *base, const OpDesc *op, void *state, void *const *buf, void *scratch)
{
    const LinearState *s = state;
    const LtPlaces     at = places_of(op, s, buf, scratch);
    return lt_plan_tune(cuda_of(base), s->product, &at);
}

static Status linear_run(Backend *base, const OpDesc *op, void *state, void *const *buf, void *scratch)
{
    const LinearState *s = state;
    const Tensor      *y = &op->out[0];
    const LtPlaces     at = places_of(op, s, buf, scratch);
    if (op->kind == OP_linear && s->epilogue && y->dtype != DTYPE_F32)
        TRY(linear_round_bias(base, y->dtype, buf[2], at.vector, y->dim[1]));
    TRY(lt_plan_run(cuda_of(base), s->product, &at));
    if (!has_vector(op))
        return status_ok();
    if (op->kind == OP_linear)
        return s->epilogue ? status_ok() : linear_add_bias(base, y->dtype, buf[3], buf[2], y->dim[0], y->dim[1]);
    float *dbias = buf[op->n_in + 1];
    if (s->epilogue)
        return op->attr.accumulate ? linear_add_vector(base, dbias, at.vector, op->out[1].dim[0]) : status_ok();
    const Columns c = columns_of(&op->in[1]);
    return columns_sum(base, &c, buf[1], dbias, op->attr.accumulate, scratch);
}

const Kernel cuda_linear = { linear_query, linear_prepare, linear_run, linear_release, linear_tune };
const Kernel cuda_linear_dgrad = { linear_query, linear_prepare, linear_run, linear_release, linear_tune };
const Kernel cuda_linear_wgrad = { linear_query, linear_prepare, linear_run, linear_release, linear_tune };
