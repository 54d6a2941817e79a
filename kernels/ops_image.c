/* ops_image.c - shape rules of ops on images; the table in ops.h is what they hold to. */
#include "ops_rules.h"

/* Output length of a window of size k, stride s, padding p on both sides; < 1 means the window does not fit. */
static int64_t window_out(int64_t length, int k, int s, int p)
{
    return length + 2 * p < k ? 0 : (length + 2 * p - k) / s + 1;
}

static Status check_window(const OpDesc *op, int64_t h, int64_t w)
{
    const OpAttr *a = &op->attr;
    if (a->kernel < 1 || a->stride < 1 || a->pad < 0 || a->pad >= a->kernel)
        return op_bad(op, "needs kernel >= 1, stride >= 1, 0 <= pad < kernel");
    if (window_out(h, a->kernel, a->stride, a->pad) < 1 || window_out(w, a->kernel, a->stride, a->pad) < 1)
        return op_bad(op, "the window is larger than the padded input");
    return status_ok();
}

/* The shape of the windowed op's output for an input (n, h, w). */
static Tensor window_tensor(const OpDesc *op, Dtype dtype, int64_t n, int64_t h, int64_t w, int64_t c)
{
    const OpAttr *a = &op->attr;
    return tensor_act(dtype, n, window_out(h, a->kernel, a->stride, a->pad), window_out(w, a->kernel, a->stride, a->pad), c);
}

Status infer_normalize_u8(OpDesc *op)
{
    TRY(op_need_inputs(op, 1, 1));
    const Tensor *x = &op->in[0];
    if (x->rank != 4 || x->dtype != DTYPE_U8 || x->dim[3] > 4)
        return op_bad(op, "the image must be u8 (N,H,W,C) with C <= 4");
    op->n_out = 1;
    Dtype dtype = dtype_is_float(op->out[0].dtype) ? op->out[0].dtype : DTYPE_F32;
    op->out[0] = tensor_act(dtype, x->dim[0], x->dim[1], x->dim[2], x->dim[3]);
    return status_ok();
}

Status infer_conv2d(OpDesc *op)
{
    TRY(op_need_inputs(op, 2, 3));
    const Tensor *x = &op->in[0], *w = &op->in[1];
    if (!op_is_act(x) || w->rank != 4 || w->dtype != x->dtype)
        return op_bad(op, "needs x act and w (K,R,R,C) of the same type");
    if (w->dim[1] != op->attr.kernel || w->dim[2] != op->attr.kernel || w->dim[3] != x->dim[3])
        return op_bad(op, "the weights do not fit the kernel size or the input's channels");
    if (op->n_in == 3 && !op_is_vector(&op->in[2], w->dim[0]))
        return op_bad(op, "the bias must be f32 (K)");
    TRY(check_window(op, x->dim[1], x->dim[2]));
    op->n_out = 1;
    op->out[0] = window_tensor(op, x->dtype, x->dim[0], x->dim[1], x->dim[2], w->dim[0]);
    return status_ok();
}

Status infer_conv2d_dgrad(OpDesc *op)
{
    TRY(op_need_inputs(op, 2, 2));
    const Tensor *dy = &op->in[0], *w = &op->in[1];
    if (!op_is_act(dy) || w->rank != 4 || w->dtype != dy->dtype)
        return op_bad(op, "needs dy act and w (K,R,R,C) of the same type");
    TRY(check_window(op, op->attr.in_h, op->attr.in_w));
    Tensor expect = window_tensor(op, dy->dtype, dy->dim[0], op->attr.in_h, op->attr.in_w, w->dim[0]);
    if (!tensor_same_shape(&expect, dy) || w->dim[1] != op->attr.kernel || w->dim[2] != op->attr.kernel)
        return op_bad(op, "dy, weights, in_h and in_w do not belong to one convolution");
    op->n_out = 1;
    op->out[0] = tensor_act(dy->dtype, dy->dim[0], op->attr.in_h, op->attr.in_w, w->dim[3]);
    return status_ok();
}

Status infer_conv2d_wgrad(OpDesc *op)
{
    TRY(op_need_inputs(op, 2, 2));
    const Tensor *x = &op->in[0], *dy = &op->in[1];
    if (!op_is_act(x) || !op_is_act(dy) || x->dtype != dy->dtype)
        return op_bad(op, "needs x act and dy act of the same type");
    TRY(check_window(op, x->dim[1], x->dim[2]));
    Tensor expect = window_tensor(op, dy->dtype, x->dim[0], x->dim[1], x->dim[2], dy->dim[3]);
    if (!tensor_same_shape(&expect, dy))
        return op_bad(op, "x and dy do not belong to one convolution");
    op->n_out = op->n_out == 2 ? 2 : 1;
    int k = op->attr.kernel;
    op->out[0] = tensor_4d(DTYPE_F32, dy->dim[3], k, k, x->dim[3]);
    op->out[1] = tensor_1d(DTYPE_F32, dy->dim[3]);
    return status_ok();
}

Status infer_relu_grad(OpDesc *op)
{
    TRY(op_need_inputs(op, 2, 2));
    if (!op_same_type_and_shape(&op->in[0], &op->in[1]))
        return op_bad(op, "dy and y must have the same type and shape");
    op->n_out = 1;
    op->out[0] = op->in[0];
    return status_ok();
}

/* x, then `vectors` f32 (C), then the residual if there is one. */
static Status check_norm_inputs(const OpDesc *op, int first_vector, int vectors, int residual_slot)
{
    const Tensor *x = &op->in[0];
    if (!op_is_act(x))
        return op_bad(op, "x must be an f32 or bf16 act");
    for (int i = first_vector; i < first_vector + vectors; i++)
        if (!op_is_vector(&op->in[i], x->dim[3]))
            return op_bad(op, "scale, shift and statistics must be f32 (C)");
    if (residual_slot >= 0 && !op_same_type_and_shape(&op->in[residual_slot], x))
        return op_bad(op, "the residual must have the type and shape of x");
    return status_ok();
}

static Tensor mask_of(const Tensor *x)
{
    Tensor mask = *x;
    mask.dtype = DTYPE_BIT;
    return mask;
}

Status infer_batchnorm(OpDesc *op)
{
    int n = 5 + op->attr.residual;
    TRY(op_need_inputs(op, n, n));
    TRY(check_norm_inputs(op, 1, 4, op->attr.residual ? 5 : -1));
    const Tensor *x = &op->in[0];
    op->n_out = 3 + op->attr.relu;
    op->out[0] = *x;
    op->out[1] = op->out[2] = tensor_1d(DTYPE_F32, x->dim[3]);
    op->out[3] = mask_of(x);
    return status_ok();
}

Status infer_batchnorm_grad(OpDesc *op)
{
    int n = 5 + op->attr.relu;
    TRY(op_need_inputs(op, n, n));
    TRY(check_norm_inputs(op, 2, 3, 1));
    const Tensor *x = &op->in[0];
    if (op->attr.relu && (op->in[5].dtype != DTYPE_BIT || !tensor_same_shape(&op->in[5], x)))
        return op_bad(op, "the mask must be bits of the shape of x");
    op->n_out = 3 + op->attr.residual;
    op->out[0] = op->out[3] = *x;
    op->out[1] = op->out[2] = tensor_1d(DTYPE_F32, x->dim[3]);
    return status_ok();
}

Status infer_batchnorm_infer(OpDesc *op)
{
    int n = 5 + op->attr.residual;
    TRY(op_need_inputs(op, n, n));
    TRY(check_norm_inputs(op, 1, 4, op->attr.residual ? 5 : -1));
    op->n_out = 1;
    op->out[0] = op->in[0];
    return status_ok();
}

Status infer_maxpool(OpDesc *op)
{
    TRY(op_need_inputs(op, 1, 1));
    const Tensor *x = &op->in[0];
    if (!op_is_act(x) || op->attr.kernel > 15)
        return op_bad(op, "x must be an f32 or bf16 act and the kernel at most 15");
    TRY(check_window(op, x->dim[1], x->dim[2]));
    op->n_out = 2;
    op->out[0] = window_tensor(op, x->dtype, x->dim[0], x->dim[1], x->dim[2], x->dim[3]);
    op->out[1] = op->out[0];
    op->out[1].dtype = DTYPE_U8;
    return status_ok();
}

Status infer_maxpool_grad(OpDesc *op)
{
    TRY(op_need_inputs(op, 2, 2));
    const Tensor *dy = &op->in[0], *index = &op->in[1];
    if (!op_is_act(dy) || index->dtype != DTYPE_U8 || !tensor_same_shape(dy, index))
        return op_bad(op, "needs dy act and its u8 index");
    TRY(check_window(op, op->attr.in_h, op->attr.in_w));
    op->n_out = 1;
    op->out[0] = tensor_act(dy->dtype, dy->dim[0], op->attr.in_h, op->attr.in_w, dy->dim[3]);
    Tensor expect = window_tensor(op, dy->dtype, dy->dim[0], op->attr.in_h, op->attr.in_w, dy->dim[3]);
    return tensor_same_shape(&expect, dy) ? status_ok() : op_bad(op, "dy does not belong to in_h and in_w");
}

Status infer_avgpool(OpDesc *op)
{
    TRY(op_need_inputs(op, 1, 1));
    if (!op_is_act(&op->in[0]))
        return op_bad(op, "x must be an f32 or bf16 act");
    op->n_out = 1;
    op->out[0] = tensor_2d(op->in[0].dtype, op->in[0].dim[0], op->in[0].dim[3]);
    return status_ok();
}

Status infer_avgpool_grad(OpDesc *op)
{
    TRY(op_need_inputs(op, 1, 1));
    const Tensor *dy = &op->in[0];
    if (!op_is_matrix(dy) || op->attr.in_h < 1 || op->attr.in_w < 1)
        return op_bad(op, "needs dy (N,C) and the input's in_h and in_w");
    op->n_out = 1;
    op->out[0] = tensor_act(dy->dtype, dy->dim[0], op->attr.in_h, op->attr.in_w, dy->dim[1]);
    return status_ok();
}

Status infer_concat(OpDesc *op)
{
    TRY(op_need_inputs(op, 2, 2));
    const Tensor *a = &op->in[0], *b = &op->in[1];
    if (!op_is_act(a) || !op_is_act(b) || a->dtype != b->dtype || a->dim[0] != b->dim[0] || a->dim[1] != b->dim[1]
        || a->dim[2] != b->dim[2])
        return op_bad(op, "needs two acts of one type that differ in channels only");
    op->n_out = 1;
    op->out[0] = *a;
    op->out[0].dim[3] += b->dim[3];
    return status_ok();
}

Status infer_concat_grad(OpDesc *op)
{
    TRY(op_need_inputs(op, 1, 1));
    const Tensor *dy = &op->in[0];
    if (!op_is_act(dy) || op->attr.channels < 1 || op->attr.channels >= dy->dim[3])
        return op_bad(op, "needs dy act with more channels than the first part has");
    op->n_out = 2;
    op->out[0] = op->out[1] = *dy;
    op->out[0].dim[3] = op->attr.channels;
    op->out[1].dim[3] = dy->dim[3] - op->attr.channels;
    return status_ok();
}

/* Logits act (N,H,W,C), labels u8 (N,H,W), scale (1) -> metrics [, dlogits]. */
static Status infer_pixel_loss(OpDesc *op, int64_t metrics)
{
    TRY(op_need_inputs(op, 3, 3));
    const Tensor *x = &op->in[0], *t = &op->in[1];
    if (!op_is_act(x))
        return op_bad(op, "the logits must be an act");
    if (t->rank != 3 || t->dtype != DTYPE_U8 || t->dim[0] != x->dim[0] || t->dim[1] != x->dim[1] || t->dim[2] != x->dim[2])
        return op_bad(op, "the labels must be u8 (N,H,W) of the logits");
    if (!op_is_vector(&op->in[2], 1))
        return op_bad(op, "the scale must be f32 (1)");
    op->n_out = op->n_out == 2 ? 2 : 1;
    op->out[0] = tensor_1d(DTYPE_F32, metrics);
    op->out[1] = *x;
    return status_ok();
}

Status infer_pixel_xent(OpDesc *op)
{
    enum { MAX_CLASSES = 64 };
    if (op->n_in && (op->in[0].dim[3] < 2 || op->in[0].dim[3] > MAX_CLASSES))
        return op_bad(op, "needs logits of 2 to 64 classes");
    return infer_pixel_loss(op, 5 + 3 * op->in[0].dim[3]);
}

Status infer_bce_dice(OpDesc *op)
{
    if (op->n_in && op->in[0].dim[3] != 1)
        return op_bad(op, "needs logits of one channel");
    return infer_pixel_loss(op, 8);
}
