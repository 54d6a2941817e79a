/* ops.c - shape rules and work of every op; the table in ops.h is what these functions hold to. */
#include "ops.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

const char *const op_names[OP_COUNT] = {
#define OP(name) #name,
#include "ops.def"
#undef OP
};

static Status bad(const OpDesc *op, const char *what)
{
    char text[256];
    return status_error(STATUS_USAGE, "%s: %s (%s)", op_names[op->kind], what, op_format(op, text, sizeof text));
}

static bool is_act(const Tensor *t)
{
    return t->rank == 4 && t->layout == LAYOUT_ACT && (t->dtype == DTYPE_F32 || t->dtype == DTYPE_BF16);
}

static bool is_matrix(const Tensor *t)
{
    return t->rank == 2 && (t->dtype == DTYPE_F32 || t->dtype == DTYPE_BF16);
}

static bool is_vector(const Tensor *t, int64_t n)
{
    return t->rank == 1 && t->dtype == DTYPE_F32 && t->dim[0] == n;
}

static bool same_type_and_shape(const Tensor *a, const Tensor *b)
{
    return a->dtype == b->dtype && tensor_same_shape(a, b);
}

/* Output length of a window of size k, stride s, padding p on both sides; < 1 means the window does not fit. */
static int64_t window_out(int64_t length, int k, int s, int p)
{
    return length + 2 * p < k ? 0 : (length + 2 * p - k) / s + 1;
}

static Status check_window(const OpDesc *op, int64_t h, int64_t w)
{
    const OpAttr *a = &op->attr;
    if (a->kernel < 1 || a->stride < 1 || a->pad < 0 || a->pad >= a->kernel)
        return bad(op, "needs kernel >= 1, stride >= 1, 0 <= pad < kernel");
    if (window_out(h, a->kernel, a->stride, a->pad) < 1 || window_out(w, a->kernel, a->stride, a->pad) < 1)
        return bad(op, "the window is larger than the padded input");
    return status_ok();
}

/* The shape of the windowed op's output for an input (n, h, w). */
static Tensor window_tensor(const OpDesc *op, Dtype dtype, int64_t n, int64_t h, int64_t w, int64_t c)
{
    const OpAttr *a = &op->attr;
    return tensor_act(dtype, n, window_out(h, a->kernel, a->stride, a->pad), window_out(w, a->kernel, a->stride, a->pad), c);
}

static Status need_inputs(const OpDesc *op, int low, int high)
{
    return op->n_in >= low && op->n_in <= high ? status_ok() : bad(op, "wrong number of inputs");
}

static Status infer_normalize_u8(OpDesc *op)
{
    TRY(need_inputs(op, 1, 1));
    const Tensor *x = &op->in[0];
    if (x->rank != 4 || x->dtype != DTYPE_U8 || x->dim[3] > 4)
        return bad(op, "the image must be u8 (N,H,W,C) with C <= 4");
    op->n_out = 1;
    Dtype dtype = op->out[0].dtype == DTYPE_BF16 ? DTYPE_BF16 : DTYPE_F32;
    op->out[0] = tensor_act(dtype, x->dim[0], x->dim[1], x->dim[2], x->dim[3]);
    return status_ok();
}

static Status infer_conv2d(OpDesc *op)
{
    TRY(need_inputs(op, 2, 3));
    const Tensor *x = &op->in[0], *w = &op->in[1];
    if (!is_act(x) || w->rank != 4 || w->dtype != x->dtype)
        return bad(op, "needs x act and w (K,R,R,C) of the same type");
    if (w->dim[1] != op->attr.kernel || w->dim[2] != op->attr.kernel || w->dim[3] != x->dim[3])
        return bad(op, "the weights do not fit the kernel size or the input's channels");
    if (op->n_in == 3 && !is_vector(&op->in[2], w->dim[0]))
        return bad(op, "the bias must be f32 (K)");
    TRY(check_window(op, x->dim[1], x->dim[2]));
    op->n_out = 1;
    op->out[0] = window_tensor(op, x->dtype, x->dim[0], x->dim[1], x->dim[2], w->dim[0]);
    return status_ok();
}

static Status infer_conv2d_dgrad(OpDesc *op)
{
    TRY(need_inputs(op, 2, 2));
    const Tensor *dy = &op->in[0], *w = &op->in[1];
    if (!is_act(dy) || w->rank != 4 || w->dtype != dy->dtype)
        return bad(op, "needs dy act and w (K,R,R,C) of the same type");
    TRY(check_window(op, op->attr.in_h, op->attr.in_w));
    Tensor expect = window_tensor(op, dy->dtype, dy->dim[0], op->attr.in_h, op->attr.in_w, w->dim[0]);
    if (!tensor_same_shape(&expect, dy) || w->dim[1] != op->attr.kernel || w->dim[2] != op->attr.kernel)
        return bad(op, "dy, weights, in_h and in_w do not belong to one convolution");
    op->n_out = 1;
    op->out[0] = tensor_act(dy->dtype, dy->dim[0], op->attr.in_h, op->attr.in_w, w->dim[3]);
    return status_ok();
}

static Status infer_conv2d_wgrad(OpDesc *op)
{
    TRY(need_inputs(op, 2, 2));
    const Tensor *x = &op->in[0], *dy = &op->in[1];
    if (!is_act(x) || !is_act(dy) || x->dtype != dy->dtype)
        return bad(op, "needs x act and dy act of the same type");
    TRY(check_window(op, x->dim[1], x->dim[2]));
    Tensor expect = window_tensor(op, dy->dtype, x->dim[0], x->dim[1], x->dim[2], dy->dim[3]);
    if (!tensor_same_shape(&expect, dy))
        return bad(op, "x and dy do not belong to one convolution");
    op->n_out = op->n_out == 2 ? 2 : 1;
    int k = op->attr.kernel;
    op->out[0] = tensor_4d(DTYPE_F32, dy->dim[3], k, k, x->dim[3]);
    op->out[1] = tensor_1d(DTYPE_F32, dy->dim[3]);
    return status_ok();
}

static Status infer_relu_grad(OpDesc *op)
{
    TRY(need_inputs(op, 2, 2));
    if (!same_type_and_shape(&op->in[0], &op->in[1]))
        return bad(op, "dy and y must have the same type and shape");
    op->n_out = 1;
    op->out[0] = op->in[0];
    return status_ok();
}

/* x, then `vectors` f32 (C), then the residual if there is one. */
static Status check_norm_inputs(const OpDesc *op, int first_vector, int vectors, int residual_slot)
{
    const Tensor *x = &op->in[0];
    if (!is_act(x))
        return bad(op, "x must be an f32 or bf16 act");
    for (int i = first_vector; i < first_vector + vectors; i++)
        if (!is_vector(&op->in[i], x->dim[3]))
            return bad(op, "scale, shift and statistics must be f32 (C)");
    if (residual_slot >= 0 && !same_type_and_shape(&op->in[residual_slot], x))
        return bad(op, "the residual must have the type and shape of x");
    return status_ok();
}

static Tensor mask_of(const Tensor *x)
{
    Tensor mask = *x;
    mask.dtype = DTYPE_BIT;
    return mask;
}

static Status infer_batchnorm(OpDesc *op)
{
    int n = 5 + op->attr.residual;
    TRY(need_inputs(op, n, n));
    TRY(check_norm_inputs(op, 1, 4, op->attr.residual ? 5 : -1));
    const Tensor *x = &op->in[0];
    op->n_out = 3 + op->attr.relu;
    op->out[0] = *x;
    op->out[1] = op->out[2] = tensor_1d(DTYPE_F32, x->dim[3]);
    op->out[3] = mask_of(x);
    return status_ok();
}

static Status infer_batchnorm_grad(OpDesc *op)
{
    int n = 5 + op->attr.relu;
    TRY(need_inputs(op, n, n));
    TRY(check_norm_inputs(op, 2, 3, 1));
    const Tensor *x = &op->in[0];
    if (op->attr.relu && (op->in[5].dtype != DTYPE_BIT || !tensor_same_shape(&op->in[5], x)))
        return bad(op, "the mask must be bits of the shape of x");
    op->n_out = 3 + op->attr.residual;
    op->out[0] = op->out[3] = *x;
    op->out[1] = op->out[2] = tensor_1d(DTYPE_F32, x->dim[3]);
    return status_ok();
}

static Status infer_batchnorm_infer(OpDesc *op)
{
    int n = 5 + op->attr.residual;
    TRY(need_inputs(op, n, n));
    TRY(check_norm_inputs(op, 1, 4, op->attr.residual ? 5 : -1));
    op->n_out = 1;
    op->out[0] = op->in[0];
    return status_ok();
}

static Status infer_maxpool(OpDesc *op)
{
    TRY(need_inputs(op, 1, 1));
    const Tensor *x = &op->in[0];
    if (!is_act(x) || op->attr.kernel > 15)
        return bad(op, "x must be an f32 or bf16 act and the kernel at most 15");
    TRY(check_window(op, x->dim[1], x->dim[2]));
    op->n_out = 2;
    op->out[0] = window_tensor(op, x->dtype, x->dim[0], x->dim[1], x->dim[2], x->dim[3]);
    op->out[1] = op->out[0];
    op->out[1].dtype = DTYPE_U8;
    return status_ok();
}

static Status infer_maxpool_grad(OpDesc *op)
{
    TRY(need_inputs(op, 2, 2));
    const Tensor *dy = &op->in[0], *index = &op->in[1];
    if (!is_act(dy) || index->dtype != DTYPE_U8 || !tensor_same_shape(dy, index))
        return bad(op, "needs dy act and its u8 index");
    TRY(check_window(op, op->attr.in_h, op->attr.in_w));
    op->n_out = 1;
    op->out[0] = tensor_act(dy->dtype, dy->dim[0], op->attr.in_h, op->attr.in_w, dy->dim[3]);
    Tensor expect = window_tensor(op, dy->dtype, dy->dim[0], op->attr.in_h, op->attr.in_w, dy->dim[3]);
    return tensor_same_shape(&expect, dy) ? status_ok() : bad(op, "dy does not belong to in_h and in_w");
}

static Status infer_avgpool(OpDesc *op)
{
    TRY(need_inputs(op, 1, 1));
    if (!is_act(&op->in[0]))
        return bad(op, "x must be an f32 or bf16 act");
    op->n_out = 1;
    op->out[0] = tensor_2d(op->in[0].dtype, op->in[0].dim[0], op->in[0].dim[3]);
    return status_ok();
}

static Status infer_avgpool_grad(OpDesc *op)
{
    TRY(need_inputs(op, 1, 1));
    const Tensor *dy = &op->in[0];
    if (!is_matrix(dy) || op->attr.in_h < 1 || op->attr.in_w < 1)
        return bad(op, "needs dy (N,C) and the input's in_h and in_w");
    op->n_out = 1;
    op->out[0] = tensor_act(dy->dtype, dy->dim[0], op->attr.in_h, op->attr.in_w, dy->dim[1]);
    return status_ok();
}

static Status infer_linear(OpDesc *op)
{
    TRY(need_inputs(op, 2, 3));
    const Tensor *x = &op->in[0], *w = &op->in[1];
    if (!is_matrix(x) || !is_matrix(w) || x->dtype != w->dtype || x->dim[1] != w->dim[1])
        return bad(op, "needs x (M,K) and w (O,K) of the same type");
    if (op->n_in == 3 && !is_vector(&op->in[2], w->dim[0]))
        return bad(op, "the bias must be f32 (O)");
    op->n_out = 1;
    op->out[0] = tensor_2d(x->dtype, x->dim[0], w->dim[0]);
    return status_ok();
}

static Status infer_linear_dgrad(OpDesc *op)
{
    TRY(need_inputs(op, 2, 2));
    const Tensor *dy = &op->in[0], *w = &op->in[1];
    if (!is_matrix(dy) || !is_matrix(w) || dy->dtype != w->dtype || dy->dim[1] != w->dim[0])
        return bad(op, "needs dy (M,O) and w (O,K) of the same type");
    op->n_out = 1;
    op->out[0] = tensor_2d(dy->dtype, dy->dim[0], w->dim[1]);
    return status_ok();
}

static Status infer_linear_wgrad(OpDesc *op)
{
    TRY(need_inputs(op, 2, 2));
    const Tensor *x = &op->in[0], *dy = &op->in[1];
    if (!is_matrix(x) || !is_matrix(dy) || x->dtype != dy->dtype || x->dim[0] != dy->dim[0])
        return bad(op, "needs x (M,K) and dy (M,O) of the same type");
    op->n_out = op->n_out == 2 ? 2 : 1;
    op->out[0] = tensor_2d(DTYPE_F32, dy->dim[1], x->dim[1]);
    op->out[1] = tensor_1d(DTYPE_F32, dy->dim[1]);
    return status_ok();
}

static Status infer_softmax_xent(OpDesc *op)
{
    TRY(need_inputs(op, 3, 3));
    const Tensor *x = &op->in[0], *labels = &op->in[1];
    if (x->rank != 2 || x->dtype != DTYPE_F32)
        return bad(op, "the logits must be f32 (M,C)");
    if (labels->rank != 1 || labels->dtype != DTYPE_I32 || labels->dim[0] != x->dim[0])
        return bad(op, "the labels must be i32 (M)");
    if (!is_vector(&op->in[2], 1))
        return bad(op, "the scale must be f32 (1)");
    op->n_out = op->n_out == 2 ? 2 : 1;
    op->out[0] = tensor_1d(DTYPE_F32, 4);
    op->out[1] = *x;
    return status_ok();
}

static Status infer_add(OpDesc *op)
{
    TRY(need_inputs(op, 2, 2));
    if (!same_type_and_shape(&op->in[0], &op->in[1]))
        return bad(op, "both inputs must have the same type and shape");
    op->n_out = 1;
    op->out[0] = op->in[0];
    return status_ok();
}

static Status infer_cast(OpDesc *op)
{
    TRY(need_inputs(op, 1, 1));
    Dtype dtype = op->out[0].dtype;
    if ((dtype != DTYPE_F32 && dtype != DTYPE_BF16) || (op->in[0].dtype != DTYPE_F32 && op->in[0].dtype != DTYPE_BF16))
        return bad(op, "casts are between f32 and bf16");
    op->n_out = 1;
    op->out[0] = op->in[0];
    op->out[0].dtype = dtype;
    return status_ok();
}

static Status infer_repack(OpDesc *op)
{
    int layout = op->out[0].layout;
    if (op->n_in == 1 && op->in[0].dtype != DTYPE_F32)
        return bad(op, "weights are repacked from f32");
    TRY(infer_cast(op));
    op->out[0].layout = layout;
    return status_ok();
}

static Status infer_zero(OpDesc *op)
{
    TRY(need_inputs(op, 0, 0));
    op->n_out = 1; /* out[0] is the caller's: any tensor */
    return status_ok();
}

static Status infer_sqnorm(OpDesc *op)
{
    TRY(need_inputs(op, 1, 1));
    if (op->in[0].dtype != DTYPE_F32)
        return bad(op, "x must be f32");
    op->n_out = 1;
    op->out[0] = tensor_1d(DTYPE_F32, 1);
    return status_ok();
}

static Status infer_sgd(OpDesc *op)
{
    TRY(need_inputs(op, 2, 2));
    if (op->in[0].dtype != DTYPE_F32 || !is_vector(&op->in[1], 4))
        return bad(op, "needs g f32 and hyper f32 (4)");
    op->n_out = 2;
    op->out[0] = op->out[1] = op->in[0];
    return status_ok();
}

Status op_infer(OpDesc *op)
{
    CHECK(op->kind >= 0 && op->kind < OP_COUNT && op->n_in >= 0 && op->n_in <= OP_MAX_IN);
    for (int i = 0; i < op->n_in; i++)
        for (int d = 0; d < op->in[i].rank; d++)
            if (op->in[i].dim[d] < 1)
                return bad(op, "every dimension must be at least 1");
    static Status (*const rules[OP_COUNT])(OpDesc *) = {
#define OP(name) [OP_##name] = infer_##name,
#include "ops.def"
#undef OP
    };
    return rules[op->kind](op);
}

/* Floating point operations; see op_cost. */
static double op_flops(const OpDesc *op)
{
    double x = (double)tensor_count(&op->in[0]);
    double y = op->n_out ? (double)tensor_count(&op->out[0]) : 0;
    const int k = op->attr.kernel;
    switch (op->kind) {
    case OP_conv2d:       return y * (2.0 * k * k * (double)op->in[0].dim[3]);
    case OP_conv2d_dgrad: return x * (2.0 * k * k * (double)op->out[0].dim[3]);
    case OP_conv2d_wgrad: return (double)tensor_count(&op->in[1]) * (2.0 * k * k * (double)op->in[0].dim[3]);
    case OP_linear:       return y * 2.0 * (double)op->in[0].dim[1];
    case OP_linear_dgrad: return y * 2.0 * (double)op->in[0].dim[1];
    case OP_linear_wgrad: return y * 2.0 * (double)op->in[0].dim[0];
    case OP_batchnorm:    return x * (7.0 + op->attr.residual + op->attr.relu); /* sum, square sum (3), scale, shift */
    case OP_batchnorm_grad:  return x * (9.0 + op->attr.relu);
    case OP_batchnorm_infer: return x * (2.0 + op->attr.residual + op->attr.relu);
    case OP_normalize_u8: return y * 2.0;
    case OP_maxpool:      return y * k * k;
    case OP_avgpool:      return x;
    case OP_softmax_xent: return x * 5.0;
    case OP_sqnorm:       return x * 2.0;
    case OP_sgd:          return x * 6.0;
    case OP_add: case OP_relu_grad: case OP_avgpool_grad: return y;
    case OP_maxpool_grad: return x;
    default:              return 0;
    }
}

OpCost op_cost(const OpDesc *op)
{
    OpCost cost = { op_flops(op), 0 };
    for (int i = 0; i < op->n_in; i++)
        cost.bytes += (double)tensor_bytes(&op->in[i]) * (op_in_is_inout(op, i) ? 2 : 1);
    for (int i = 0; i < op->n_out; i++)
        cost.bytes += (double)tensor_bytes(&op->out[i]) * (op_out_is_inout(op, i) ? 2 : 1);
    return cost;
}

bool op_out_is_inout(const OpDesc *op, int slot)
{
    switch (op->kind) {
    case OP_conv2d_wgrad: case OP_linear_wgrad: return op->attr.accumulate;
    case OP_batchnorm_grad: return op->attr.accumulate && (slot == 1 || slot == 2);
    case OP_softmax_xent:   return slot == 0;
    case OP_sqnorm: case OP_sgd: return true;
    default: return false;
    }
}

bool op_in_is_inout(const OpDesc *op, int slot)
{
    return op->kind == OP_batchnorm && (slot == 3 || slot == 4);
}

const char *op_format(const OpDesc *op, char *text, size_t size)
{
    size_t n = 0;
    char tensor[64];
#define PUT(...) do { if (n < size) { int m_ = snprintf(text + n, size - n, __VA_ARGS__); n += m_ > 0 ? (size_t)m_ : 0; } } while (0)
    PUT("%s", op_names[op->kind]);
    for (int i = 0; i < op->n_in; i++)
        PUT(" %s", tensor_format(&op->in[i], tensor, sizeof tensor));
    for (int i = 0; i < op->n_out && op->out[i].rank; i++)
        PUT("%s %s", i ? "" : " ->", tensor_format(&op->out[i], tensor, sizeof tensor));
    if (op->attr.kernel)
        PUT(" k%d s%d p%d", op->attr.kernel, op->attr.stride, op->attr.pad);
    if (op->attr.residual)
        PUT(" +add");
    if (op->attr.relu)
        PUT(" +relu");
    if (op->attr.accumulate)
        PUT(" +=");
#undef PUT
    return text;
}
