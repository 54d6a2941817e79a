/* ops_text.c - shape rules of ops on matrices and text; the table in ops.h is what they hold to. */
#include "ops_rules.h"

Status infer_linear(OpDesc *op)
{
    TRY(op_need_inputs(op, 2, 3));
    const Tensor *x = &op->in[0], *w = &op->in[1];
    if (!op_is_matrix(x) || !op_is_matrix(w) || x->dtype != w->dtype || x->dim[1] != w->dim[1])
        return op_bad(op, "needs x (M,K) and w (O,K) of the same type");
    if (op->n_in == 3 && !op_is_vector(&op->in[2], w->dim[0]))
        return op_bad(op, "the bias must be f32 (O)");
    op->n_out = 1;
    op->out[0] = tensor_2d(x->dtype, x->dim[0], w->dim[0]);
    return status_ok();
}

Status infer_linear_dgrad(OpDesc *op)
{
    TRY(op_need_inputs(op, 2, 2));
    const Tensor *dy = &op->in[0], *w = &op->in[1];
    if (!op_is_matrix(dy) || !op_is_matrix(w) || dy->dtype != w->dtype || dy->dim[1] != w->dim[0])
        return op_bad(op, "needs dy (M,O) and w (O,K) of the same type");
    op->n_out = 1;
    op->out[0] = tensor_2d(dy->dtype, dy->dim[0], w->dim[1]);
    return status_ok();
}

Status infer_linear_wgrad(OpDesc *op)
{
    TRY(op_need_inputs(op, 2, 2));
    const Tensor *x = &op->in[0], *dy = &op->in[1];
    if (!op_is_matrix(x) || !op_is_matrix(dy) || x->dtype != dy->dtype || x->dim[0] != dy->dim[0])
        return op_bad(op, "needs x (M,K) and dy (M,O) of the same type");
    op->n_out = op->n_out == 2 ? 2 : 1;
    op->out[0] = tensor_2d(DTYPE_F32, dy->dim[1], x->dim[1]);
    op->out[1] = tensor_1d(DTYPE_F32, dy->dim[1]);
    return status_ok();
}

Status infer_softmax_xent(OpDesc *op)
{
    TRY(op_need_inputs(op, 3, 3));
    const Tensor *x = &op->in[0], *labels = &op->in[1];
    if (!op_is_matrix(x))
        return op_bad(op, "the logits must be a matrix");
    if (labels->rank != 1 || labels->dtype != DTYPE_I32 || labels->dim[0] != x->dim[0])
        return op_bad(op, "the labels must be i32 (M)");
    if (!op_is_vector(&op->in[2], 1))
        return op_bad(op, "the scale must be f32 (1)");
    op->n_out = op->n_out == 2 ? 2 : 1;
    op->out[0] = tensor_1d(DTYPE_F32, 4);
    op->out[1] = *x;
    return status_ok();
}

Status infer_embedding(OpDesc *op)
{
    if (op->n_in != 2 && op->n_in != 4 && op->n_in != 6)
        return op_bad(op, "needs one to three pairs of table and ids");
    const int64_t rows = op->in[1].dim[0], width = op->in[0].dim[1];
    for (int i = 0; i < op->n_in; i += 2)
        if (op->in[i].rank != 2 || op->in[i].dtype != DTYPE_F32 || op->in[i].dim[1] != width || !op_is_ids(&op->in[i + 1], rows))
            return op_bad(op, "needs tables f32 (V,W) of one width and ids i32 (T) of one length");
    op->n_out = 1;
    op->out[0] = tensor_2d(dtype_is_float(op->out[0].dtype) ? op->out[0].dtype : DTYPE_F32, rows, width);
    return status_ok();
}

Status infer_embedding_grad(OpDesc *op)
{
    TRY(op_need_inputs(op, 2, 2));
    const Tensor *dy = &op->in[0];
    if (!op_is_matrix(dy) || !op_is_ids(&op->in[1], dy->dim[0]) || op->attr.rows < 1)
        return op_bad(op, "needs dy (T,W), ids i32 (T) and the table's rows");
    op->n_out = 1;
    op->out[0] = tensor_2d(DTYPE_F32, op->attr.rows, dy->dim[1]);
    return status_ok();
}

static Status infer_rows(OpDesc *op, int64_t rows)
{
    TRY(op_need_inputs(op, 2, 2));
    const Tensor *x = &op->in[0], *ids = &op->in[1];
    if (!op_is_matrix(x) || ids->rank != 1 || ids->dtype != DTYPE_I32)
        return op_bad(op, "needs a matrix and rows i32 (P)");
    op->n_out = 1;
    op->out[0] = tensor_2d(x->dtype, rows, x->dim[1]);
    return status_ok();
}

Status infer_gather_rows(OpDesc *op)
{
    return infer_rows(op, op->in[1].dim[0]);
}

Status infer_gather_rows_grad(OpDesc *op)
{
    if (op->attr.rows < 1 || op->in[0].dim[0] != op->in[1].dim[0])
        return op_bad(op, "needs dy (P,W), rows i32 (P) and the number of rows of dx");
    return infer_rows(op, op->attr.rows);
}

/* 0 <= p < 1, and the generator's numbers where p > 0. */
static Status check_dropout(const OpDesc *op, int rng_slot)
{
    if (!(op->attr.dropout >= 0 && op->attr.dropout < 1))
        return op_bad(op, "dropout must be at least 0 and below 1");
    if (op->attr.dropout > 0 && !op_is_ids(&op->in[rng_slot], 4))
        return op_bad(op, "rng must be i32 (4)");
    return status_ok();
}

Status infer_layernorm(OpDesc *op)
{
    const bool drops = op->attr.dropout > 0;
    const int  n = 3 + op->attr.residual + drops;
    TRY(op_need_inputs(op, n, n));
    const Tensor *x = &op->in[0];
    if (!op_is_matrix(x) || !op_is_vector(&op->in[1], x->dim[1]) || !op_is_vector(&op->in[2], x->dim[1]))
        return op_bad(op, "needs x (M,K), gamma (K), beta (K)");
    if (op->attr.residual && !op_same_type_and_shape(&op->in[3], x))
        return op_bad(op, "the residual must have the type and shape of x");
    if (drops && !op->attr.residual)
        return op_bad(op, "dropout comes with a residual only");
    TRY(check_dropout(op, n - 1));
    op->n_out = 3 + op->attr.residual;
    op->out[0] = op->out[3] = *x;
    op->out[1] = op->out[2] = tensor_1d(DTYPE_F32, x->dim[0]);
    return status_ok();
}

Status infer_layernorm_grad(OpDesc *op)
{
    const bool drops = op->attr.dropout > 0;
    const int  n = 5 + drops;
    TRY(op_need_inputs(op, n, n));
    const Tensor *x = &op->in[0];
    if (!op_is_matrix(x) || !op_same_type_and_shape(x, &op->in[1]) || !op_is_vector(&op->in[2], x->dim[1])
        || !op_is_vector(&op->in[3], x->dim[0]) || !op_is_vector(&op->in[4], x->dim[0]))
        return op_bad(op, "needs sum (M,K), dy (M,K), gamma (K), mean (M), invstd (M)");
    TRY(check_dropout(op, n - 1));
    op->n_out = 3 + drops;
    op->out[0] = op->out[3] = *x;
    op->out[1] = op->out[2] = tensor_1d(DTYPE_F32, x->dim[1]);
    return status_ok();
}

static Status infer_same(OpDesc *op, int n_in)
{
    TRY(op_need_inputs(op, n_in, n_in));
    if (!op_is_matrix(&op->in[0]) || (n_in == 2 && !op_same_type_and_shape(&op->in[0], &op->in[1])))
        return op_bad(op, "needs matrices of one type and shape");
    op->n_out = 1;
    op->out[0] = op->in[0];
    return status_ok();
}

Status infer_gelu(OpDesc *op)
{
    return infer_same(op, 1);
}

Status infer_gelu_grad(OpDesc *op)
{
    return infer_same(op, 2);
}

Status infer_tanh(OpDesc *op)
{
    return infer_same(op, 1);
}

Status infer_tanh_grad(OpDesc *op)
{
    return infer_same(op, 2);
}

Status infer_dropout(OpDesc *op)
{
    TRY(op_need_inputs(op, 2, 2));
    if (!op_is_matrix(&op->in[0]) || !op_is_ids(&op->in[1], 4))
        return op_bad(op, "needs x (M,K) and rng i32 (4)");
    TRY(check_dropout(op, 1));
    op->n_out = 1;
    op->out[0] = op->in[0];
    return status_ok();
}

/* qkv (T,3W), spans i32 (B,2) in slot `spans`, then rng if there is dropout. */
static Status check_attention(const OpDesc *op, int spans)
{
    const bool    drops = op->attr.dropout > 0;
    const Tensor *qkv = &op->in[0], *s = &op->in[spans];
    TRY(op_need_inputs(op, spans + 1 + drops, spans + 1 + drops));
    if (!op_is_matrix(qkv) || op->attr.heads < 1 || qkv->dim[1] % (3 * (int64_t)op->attr.heads))
        return op_bad(op, "needs qkv (T,3W) with W a multiple of the heads");
    if (s->rank != 2 || s->dtype != DTYPE_I32 || s->dim[1] != 2 || op->attr.seq < 1)
        return op_bad(op, "needs spans i32 (B,2) and the longest sequence");
    return check_dropout(op, spans + 1);
}

Status infer_attention(OpDesc *op)
{
    TRY(check_attention(op, 1));
    const Tensor *qkv = &op->in[0];
    op->n_out = 2;
    op->out[0] = tensor_2d(qkv->dtype, qkv->dim[0], qkv->dim[1] / 3);
    op->out[1] = tensor_2d(DTYPE_F32, qkv->dim[0], op->attr.heads);
    return status_ok();
}

Status infer_attention_grad(OpDesc *op)
{
    TRY(check_attention(op, 4));
    const Tensor *qkv = &op->in[0], *y = &op->in[1], *lse = &op->in[3];
    if (y->rank != 2 || y->dtype != qkv->dtype || y->dim[0] != qkv->dim[0] || 3 * y->dim[1] != qkv->dim[1]
        || !op_same_type_and_shape(y, &op->in[2]))
        return op_bad(op, "y and dy must be (T,W) of the type of qkv");
    if (lse->rank != 2 || lse->dtype != DTYPE_F32 || lse->dim[0] != qkv->dim[0] || lse->dim[1] != op->attr.heads)
        return op_bad(op, "lse must be f32 (T,heads)");
    op->n_out = 1;
    op->out[0] = *qkv;
    return status_ok();
}
