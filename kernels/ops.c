/* ops.c - what all ops share: names, the look-up of shape rules (ops_image.c, ops_text.c, ops_update.c), work, printing. */
#include "ops_rules.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

const char *const op_names[OP_COUNT] = {
#define OP(name) #name,
#include "ops.def"
#undef OP
};

Status op_bad(const OpDesc *op, const char *what)
{
    char text[256];
    return status_error(STATUS_USAGE, "%s: %s (%s)", op_names[op->kind], what, op_format(op, text, sizeof text));
}

Status op_need_inputs(const OpDesc *op, int low, int high)
{
    return op->n_in >= low && op->n_in <= high ? status_ok() : op_bad(op, "wrong number of inputs");
}

bool op_is_act(const Tensor *t)
{
    return t->rank == 4 && t->layout == LAYOUT_ACT && dtype_is_float(t->dtype);
}

bool op_is_matrix(const Tensor *t)
{
    return t->rank == 2 && dtype_is_float(t->dtype);
}

bool op_is_vector(const Tensor *t, int64_t n)
{
    return t->rank == 1 && t->dtype == DTYPE_F32 && t->dim[0] == n;
}

bool op_is_ids(const Tensor *t, int64_t n)
{
    return t->rank == 1 && t->dtype == DTYPE_I32 && t->dim[0] == n;
}

bool op_same_type_and_shape(const Tensor *a, const Tensor *b)
{
    return a->dtype == b->dtype && tensor_same_shape(a, b);
}

Status op_infer(OpDesc *op)
{
    CHECK(op->kind >= 0 && op->kind < OP_COUNT && op->n_in >= 0 && op->n_in <= OP_MAX_IN);
    for (int i = 0; i < op->n_in; i++)
        for (int d = 0; d < op->in[i].rank; d++)
            if (op->in[i].dim[d] < 1)
                return op_bad(op, "every dimension must be at least 1");
    static Status (*const rules[OP_COUNT])(OpDesc *) = {
#define OP(name) [OP_##name] = infer_##name,
#include "ops.def"
#undef OP
    };
    return rules[op->kind](op);
}

/* Work of one product of all heads, rows x rows x features, if every row belonged to a sequence of the full length. */
static double attention_products(const OpDesc *op)
{
    const Tensor *qkv = &op->in[0];
    return 2.0 * (double)qkv->dim[0] * (double)op->attr.seq * (double)(qkv->dim[1] / 3);
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
    case OP_pixel_xent:   return x * 5.0;
    case OP_bce_dice:     return x * 12.0;
    case OP_layernorm:    return x * (7.0 + op->attr.residual);
    case OP_layernorm_grad: return x * 11.0;
    case OP_gelu:         return x * 8.0;
    case OP_gelu_grad:    return x * 12.0;
    case OP_tanh:         return x * 8.0;
    case OP_tanh_grad:    return x * 3.0;
    case OP_embedding:    return y * (op->n_in / 2 - 1);
    case OP_embedding_grad: return x;
    case OP_attention:      return attention_products(op) * 2;
    case OP_attention_grad: return attention_products(op) * 5; /* the scores again, then dv, dp, dq, dk */
    case OP_sqnorm:       return x * 2.0;
    case OP_sgd: case OP_lars: return x * 6.0;
    case OP_adamw: case OP_lamb: return x * 14.0;
    case OP_add: case OP_relu_grad: case OP_avgpool_grad: return y;
    case OP_maxpool_grad: return x;
    default:              return 0;
    }
}

/* Bytes of a table of which only the rows picked by `picks` numbers are touched: at most so many. */
static double picked_bytes(const Tensor *table, int64_t picks)
{
    const double rows = (double)(picks < table->dim[0] ? picks : table->dim[0]);
    return (double)tensor_bytes(table) / (double)table->dim[0] * rows;
}

static double input_bytes(const OpDesc *op, int slot)
{
    const Tensor *t = &op->in[slot];
    if ((op->kind == OP_embedding && slot % 2 == 0) || (op->kind == OP_gather_rows && slot == 0))
        return picked_bytes(t, op->out[0].dim[0]);
    return (double)tensor_bytes(t) * (op_in_is_inout(op, slot) ? 2 : 1);
}

static double output_bytes(const OpDesc *op, int slot)
{
    const Tensor *t = &op->out[slot];
    if (op->kind == OP_embedding_grad && op->attr.accumulate)
        return 2 * picked_bytes(t, op->in[1].dim[0]);
    return (double)tensor_bytes(t) * (op_out_is_inout(op, slot) ? 2 : 1);
}

OpCost op_cost(const OpDesc *op)
{
    OpCost cost = { op_flops(op), 0 };
    for (int i = 0; i < op->n_in; i++)
        cost.bytes += input_bytes(op, i);
    for (int i = 0; i < op->n_out; i++)
        cost.bytes += output_bytes(op, i);
    return cost;
}

bool op_out_is_inout(const OpDesc *op, int slot)
{
    switch (op->kind) {
    case OP_conv2d_wgrad: case OP_linear_wgrad: case OP_embedding_grad: return op->attr.accumulate;
    case OP_batchnorm_grad: case OP_layernorm_grad: return op->attr.accumulate && (slot == 1 || slot == 2);
    case OP_softmax_xent: case OP_pixel_xent: case OP_bce_dice: return slot == 0;
    case OP_sqnorm: case OP_step_control: case OP_sgd: case OP_adamw: case OP_lamb: case OP_lars: case OP_restore: return true;
    default: return false;
    }
}

bool op_in_is_inout(const OpDesc *op, int slot)
{
    return op->kind == OP_batchnorm && (slot == 3 || slot == 4);
}

int op_in_place_input(const OpDesc *op, int slot, int turn)
{
    switch (op->kind) {
    case OP_add:
        return slot == 0 && turn < 2 ? turn : -1;
    case OP_relu_grad: case OP_gelu_grad: case OP_tanh_grad: case OP_dropout:
        return slot == 0 && turn == 0 ? 0 : -1;
    case OP_softmax_xent: case OP_pixel_xent: case OP_bce_dice:
        return slot == 1 && turn == 0 ? 0 : -1;
    case OP_layernorm:
        return slot == 3 && turn == 0 ? 0 : -1;
    case OP_layernorm_grad:
        return slot == 0 && turn == 0 ? 1 : -1;
    default:
        return -1;
    }
}

const char *op_format(const OpDesc *op, char *text, size_t size)
{
    size_t n = 0;
    char tensor[64];
#define PUT(...)                                                \
    do {                                                        \
        if (n < size) {                                         \
            int m_ = snprintf(text + n, size - n, __VA_ARGS__); \
            n += m_ > 0 ? (size_t)m_ : 0;                       \
        }                                                       \
    } while (0)
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
