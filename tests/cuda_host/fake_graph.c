/* fake_graph.c - an operation graph compiled for interp.h: tensors found by unique id, ops put into an order in which each runs
 * after those that make its inputs. See fake_desc.h. */
#include "fake_desc.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BAD CUDNN_STATUS_BAD_PARAM

void fake_graph_free(InterpGraph *g)
{
    if (g) {
        free(g->tensor);
        free(g->op);
        free(g);
    }
}

/* ---- tensors */

static bool same_tensor(const InterpTensor *a, const InterpTensor *b)
{
    return a->type == b->type && a->rank == b->rank && memcmp(a->dim, b->dim, sizeof a->dim) == 0 &&
           memcmp(a->stride, b->stride, sizeof a->stride) == 0 && a->is_virtual == b->is_virtual && a->by_value == b->by_value &&
           a->alignment == b->alignment && a->ragged == b->ragged;
}

/* Its number, after adding it if its id is new; the graph has room for all. */
static cudnnStatus_t add_tensor(InterpGraph *g, const FakeDesc *d, int *out)
{
    const FakeDesc *ragged = fake_child(d, CUDNN_ATTR_TENSOR_RAGGED_OFFSET_DESC);
    InterpTensor t;
    int offsets = -1;
    if (ragged)
        FAKE_TRY(add_tensor(g, ragged, &offsets));
    fake_tensor_read(d, &t);
    t.ragged = offsets;
    if (ragged)
        g->tensor[offsets].read = true;
    for (int i = 0; i < g->tensors; i++)
        if (g->tensor[i].uid == t.uid) {
            FAKE_REQUIRE(same_tensor(&g->tensor[i], &t), BAD, "operation graph: two different tensors have the id %lld",
                         (long long)t.uid);
            *out = i;
            return CUDNN_STATUS_SUCCESS;
        }
    *out = g->tensors;
    g->tensor[g->tensors++] = t;
    return CUDNN_STATUS_SUCCESS;
}

/* ---- what an op's own descriptors say */

static cudnnDataType_t compute_type(const FakeDesc *d, cudnnBackendAttributeName_t name)
{
    return (cudnnDataType_t)fake_int(d, name, CUDNN_DATA_FLOAT);
}

static void read_list(const FakeDesc *d, cudnnBackendAttributeName_t name, int64_t *to)
{
    const FakeAttr *a = fake_attr(d, name);
    for (int64_t i = 0; i < a->count; i++)
        to[i] = a->type == CUDNN_TYPE_FRACTION ? ((const cudnnFraction_t *)a->data)[i].numerator : ((const int64_t *)a->data)[i];
}

/* first: the attribute ALPHA of this kind of convolution; BETA and the descriptor follow it in the enumeration. */
static void read_conv(const FakeDesc *d, cudnnBackendAttributeName_t first, InterpOp *op)
{
    const FakeDesc *c = fake_child(d, (cudnnBackendAttributeName_t)(first + 2));
    op->compute = compute_type(c, CUDNN_ATTR_CONVOLUTION_COMP_TYPE);
    op->as.conv.alpha = fake_number(d, first, 1);
    op->as.conv.beta = fake_number(d, (cudnnBackendAttributeName_t)(first + 1), 0);
    op->as.conv.flip = fake_int(c, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_CROSS_CORRELATION) == CUDNN_CONVOLUTION;
    read_list(c, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, op->as.conv.pre);
    read_list(c, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, op->as.conv.post);
    read_list(c, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, op->as.conv.stride);
    read_list(c, CUDNN_ATTR_CONVOLUTION_DILATIONS, op->as.conv.dilation);
}

static void read_pointwise(const FakeDesc *d, InterpOp *op)
{
    const FakeDesc *p = fake_child(d, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
    op->compute = compute_type(p, CUDNN_ATTR_POINTWISE_MATH_PREC);
    op->as.point.mode = (cudnnPointwiseMode_t)fake_int(p, CUDNN_ATTR_POINTWISE_MODE, -1);
    op->as.point.alpha1 = fake_number(d, CUDNN_ATTR_OPERATION_POINTWISE_ALPHA1, 1);
    op->as.point.alpha2 = fake_number(d, CUDNN_ATTR_OPERATION_POINTWISE_ALPHA2, 1);
    op->as.point.lower = fake_number(p, CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP, 0);
    op->as.point.upper = fake_number(p, CUDNN_ATTR_POINTWISE_RELU_UPPER_CLIP, INFINITY);
    op->as.point.slope = fake_number(p, CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP_SLOPE, 0);
    op->as.point.elu = fake_number(p, CUDNN_ATTR_POINTWISE_ELU_ALPHA, 1);
    op->as.point.softplus = fake_number(p, CUDNN_ATTR_POINTWISE_SOFTPLUS_BETA, 1);
    op->as.point.swish = fake_number(p, CUDNN_ATTR_POINTWISE_SWISH_BETA, 1);
    op->as.point.axis = (int)fake_int(p, CUDNN_ATTR_POINTWISE_AXIS, 0);
    op->as.point.keeps_nan = fake_int(p, CUDNN_ATTR_POINTWISE_NAN_PROPAGATION, CUDNN_NOT_PROPAGATE_NAN) == CUDNN_PROPAGATE_NAN;
}

static void read_pool(const FakeDesc *d, cudnnBackendAttributeName_t name, InterpOp *op)
{
    const FakeDesc *r = fake_child(d, name);
    op->compute = compute_type(r, CUDNN_ATTR_RESAMPLE_COMP_TYPE);
    op->as.pool.mode = (cudnnResampleMode_t)fake_int(r, CUDNN_ATTR_RESAMPLE_MODE, -1);
    op->as.pool.keeps_nan = fake_int(r, CUDNN_ATTR_RESAMPLE_NAN_PROPAGATION, CUDNN_NOT_PROPAGATE_NAN) == CUDNN_PROPAGATE_NAN;
    read_list(r, CUDNN_ATTR_RESAMPLE_WINDOW_DIMS, op->as.pool.window);
    read_list(r, CUDNN_ATTR_RESAMPLE_PRE_PADDINGS, op->as.pool.pre);
    read_list(r, CUDNN_ATTR_RESAMPLE_STRIDES, op->as.pool.stride);
}

static void read_op(const FakeDesc *d, InterpOp *op)
{
    op->compute = CUDNN_DATA_FLOAT;
    switch (op->kind) {
    case INTERP_CONV: read_conv(d, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, op); break;
    case INTERP_CONV_DGRAD: read_conv(d, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, op); break;
    case INTERP_CONV_WGRAD: read_conv(d, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, op); break;
    case INTERP_POINTWISE: read_pointwise(d, op); break;
    case INTERP_REDUCE:
        op->compute = compute_type(fake_child(d, CUDNN_ATTR_OPERATION_REDUCTION_DESC), CUDNN_ATTR_REDUCTION_COMP_TYPE);
        op->as.reduce.mode =
            (cudnnReduceTensorOp_t)fake_int(fake_child(d, CUDNN_ATTR_OPERATION_REDUCTION_DESC), CUDNN_ATTR_REDUCTION_OPERATOR, 0);
        break;
    case INTERP_MATMUL:
        op->compute = compute_type(fake_child(d, CUDNN_ATTR_OPERATION_MATMUL_DESC), CUDNN_ATTR_MATMUL_COMP_TYPE);
        op->as.matmul.padding = fake_number(fake_child(d, CUDNN_ATTR_OPERATION_MATMUL_DESC), CUDNN_ATTR_MATMUL_PADDING_VALUE, 0);
        break;
    case INTERP_NORM: op->as.norm.training = fake_int(d, CUDNN_ATTR_OPERATION_NORM_FWD_PHASE, -1) == CUDNN_NORM_FWD_TRAINING; break;
    case INTERP_POOL: read_pool(d, CUDNN_ATTR_OPERATION_RESAMPLE_FWD_DESC, op); break;
    case INTERP_POOL_GRAD: read_pool(d, CUDNN_ATTR_OPERATION_RESAMPLE_BWD_DESC, op); break;
    default: break;
    }
}

static cudnnStatus_t add_op(InterpGraph *g, const FakeDesc *d)
{
    InterpOp *op = &g->op[g->ops++];
    const FakeSlot *slots = fake_op_slots(d, &op->kind);
    for (int i = 0; i < INTERP_SLOTS; i++)
        op->slot[i] = -1;
    read_op(d, op);
    for (int i = 0; slots[i].name >= 0; i++) {
        const FakeDesc *t = slots[i].name ? fake_child(d, (cudnnBackendAttributeName_t)slots[i].name) : NULL;
        if (!t)
            continue;
        FAKE_TRY(add_tensor(g, t, &op->slot[i]));
        InterpTensor *tensor = &g->tensor[op->slot[i]];
        if (i < interp_inputs[op->kind]) {
            tensor->read = true;
            continue;
        }
        FAKE_REQUIRE(!tensor->written, BAD, "operation graph: two ops write tensor %lld", (long long)tensor->uid);
        FAKE_REQUIRE(!tensor->by_value, BAD, "operation graph: tensor %lld is written, but given by value", (long long)tensor->uid);
        FAKE_REQUIRE(tensor->is_virtual || interp_offsets_differ(tensor), BAD, "operation graph: elements of output %lld overlap",
                     (long long)tensor->uid);
        tensor->written = true;
        if (op->kind <= INTERP_CONV_WGRAD && op->as.conv.beta != 0)
            tensor->read = true;
    }
    return CUDNN_STATUS_SUCCESS;
}

/* ---- order */

static bool writes(const InterpOp *op, int tensor)
{
    for (int i = interp_inputs[op->kind]; i < INTERP_SLOTS; i++)
        if (op->slot[i] == tensor)
            return true;
    return false;
}

/* Does op read what one of ops first.. writes? */
static bool waits(const InterpGraph *g, const InterpOp *op, int first)
{
    for (int i = 0; i < interp_inputs[op->kind]; i++)
        for (int k = first; op->slot[i] >= 0 && k < g->ops; k++)
            if (writes(&g->op[k], op->slot[i]))
                return true;
    return false;
}

static cudnnStatus_t sort_ops(InterpGraph *g)
{
    for (int done = 0; done < g->ops; done++) {
        int next = done;
        while (next < g->ops && waits(g, &g->op[next], done))
            next++;
        FAKE_REQUIRE(next < g->ops, BAD, "operation graph: its ops wait for each other");
        InterpOp op = g->op[next];
        memmove(&g->op[done + 1], &g->op[done], (size_t)(next - done) * sizeof op);
        g->op[done] = op;
    }
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t check_virtual(const InterpGraph *g)
{
    for (int i = 0; i < g->tensors; i++)
        FAKE_REQUIRE(!g->tensor[i].is_virtual || (g->tensor[i].written && g->tensor[i].read), BAD,
                     "operation graph: virtual tensor %lld is %s", (long long)g->tensor[i].uid,
                     g->tensor[i].written ? "never read" : "never written");
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t compile(InterpGraph *g, FakeDesc *const *op, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        FAKE_REQUIRE(fake_is_op(op[i]->type), CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE, "operation graph: a %s is no op",
                     fake_desc_name(op[i]->type));
        FAKE_TRY(add_op(g, op[i]));
    }
    FAKE_TRY(sort_ops(g));
    return check_virtual(g);
}

cudnnStatus_t fake_graph_compile(FakeDesc *d)
{
    const FakeAttr *ops = fake_attr(d, CUDNN_ATTR_OPERATIONGRAPH_OPS);
    InterpGraph *g = calloc(1, sizeof *g);
    if (g) {
        g->tensor = calloc((size_t)ops->count * 2 * INTERP_SLOTS, sizeof *g->tensor);
        g->op = calloc((size_t)ops->count, sizeof *g->op);
    }
    cudnnStatus_t s = g && g->tensor && g->op
                          ? compile(g, ops->data, ops->count)
                          : fake_error(CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED, "out of memory for an operation graph");
    if (s != CUDNN_STATUS_SUCCESS) {
        fake_graph_free(g);
        return s;
    }
    d->graph = g;
    const int64_t engines = FAKE_CUDNN_ENGINES;
    return fake_desc_keep(d, CUDNN_ATTR_OPERATIONGRAPH_ENGINE_GLOBAL_COUNT, CUDNN_TYPE_INT64, 1, &engines);
}
