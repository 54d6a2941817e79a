/* ops_update.c - shape rules of elementwise ops and of the update; the table in ops.h is what they hold to. */
#include "ops_rules.h"

Status infer_add(OpDesc *op)
{
    TRY(op_need_inputs(op, 2, 2));
    if (!op_same_type_and_shape(&op->in[0], &op->in[1]))
        return op_bad(op, "both inputs must have the same type and shape");
    op->n_out = 1;
    op->out[0] = op->in[0];
    return status_ok();
}

Status infer_cast(OpDesc *op)
{
    TRY(op_need_inputs(op, 1, 1));
    Dtype dtype = op->out[0].dtype;
    if (!dtype_is_float(dtype) || !dtype_is_float(op->in[0].dtype))
        return op_bad(op, "casts are between f32, bf16 and f16");
    op->n_out = 1;
    op->out[0] = op->in[0];
    op->out[0].dtype = dtype;
    return status_ok();
}

Status infer_repack(OpDesc *op)
{
    int layout = op->out[0].layout;
    if (op->n_in == 1 && op->in[0].dtype != DTYPE_F32)
        return op_bad(op, "weights are repacked from f32");
    TRY(infer_cast(op));
    op->out[0].layout = layout;
    return status_ok();
}

Status infer_zero(OpDesc *op)
{
    TRY(op_need_inputs(op, 0, 0));
    op->n_out = 1; /* out[0] is the caller's: any tensor */
    return status_ok();
}

Status infer_sqnorm(OpDesc *op)
{
    TRY(op_need_inputs(op, 1, 2));
    if (op->in[0].dtype != DTYPE_F32)
        return op_bad(op, "x must be f32");
    if (op->n_in == 2 && !op_is_vector(&op->in[1], 8))
        return op_bad(op, "control must be f32 (8)");
    op->n_out = 1;
    op->out[0] = tensor_1d(DTYPE_F32, 1);
    return status_ok();
}

Status infer_window_scale(OpDesc *op)
{
    TRY(op_need_inputs(op, 2, 2));
    if (!op_is_vector(&op->in[0], 1) || !op_is_vector(&op->in[1], 8))
        return op_bad(op, "needs scale f32 (1) and control f32 (8)");
    op->n_out = 1;
    op->out[0] = op->in[0];
    return status_ok();
}

Status infer_step_control(OpDesc *op)
{
    TRY(op_need_inputs(op, 2, 2));
    if (!op_is_vector(&op->in[0], 8) || !op_is_vector(&op->in[1], 1))
        return op_bad(op, "needs hyper f32 (8) and the square sum f32 (1)");
    op->n_out = 1;
    op->out[0] = op->in[0];
    return status_ok();
}

/* g, hyper, control, for some a table of tensors -> weights and `states` more of the same shape. */
static Status infer_optimizer(OpDesc *op, bool table, int states)
{
    TRY(op_need_inputs(op, 3 + table, 3 + table));
    const Tensor *t = &op->in[3];
    if (op->in[0].dtype != DTYPE_F32 || !op_is_vector(&op->in[1], 8) || !op_is_vector(&op->in[2], 8))
        return op_bad(op, "needs g f32, hyper f32 (8) and control f32 (8)");
    if (table && (t->rank != 1 || t->dtype != DTYPE_I32 || t->dim[0] < 2))
        return op_bad(op, "the table of tensors must be i32 (n + 1)");
    op->n_out = 1 + states;
    for (int i = 0; i < op->n_out; i++)
        op->out[i] = op->in[0];
    return status_ok();
}

Status infer_sgd(OpDesc *op)
{
    return infer_optimizer(op, false, 1);
}

Status infer_adamw(OpDesc *op)
{
    return infer_optimizer(op, false, 2);
}

Status infer_lamb(OpDesc *op)
{
    return infer_optimizer(op, true, 2);
}

Status infer_lars(OpDesc *op)
{
    return infer_optimizer(op, true, 1);
}

Status infer_restore(OpDesc *op)
{
    TRY(op_need_inputs(op, 2, 2));
    if (op->in[0].dtype != DTYPE_F32 || !op_is_vector(&op->in[1], 8))
        return op_bad(op, "needs saved f32 and control f32 (8)");
    op->n_out = 1;
    op->out[0] = op->in[0];
    return status_ok();
}
