/* dnn_graph.c - builds operation graphs of cuDNN's backend API; see dnn.h.
 *
 * A tensor is only recorded when it is made, and becomes a descriptor when the first operation uses it. What cuDNN does not
 * refuse is checked here: a filter with fewer channels than its image is a grouped convolution to cuDNN, and sizes that
 * do not follow from a window are read or written past their ends. */
#include "dnn_graph.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- descriptors */

Status dnn_desc_create(const CudaBackend *be, cudnnBackendDescriptorType_t type, DnnDesc *desc)
{
    *desc = NULL;
    return cuda_dnn_status(be, be->dnn->cudnnBackendCreateDescriptor(type, desc), "cudnnBackendCreateDescriptor");
}

Status dnn_desc_set(const CudaBackend *be, DnnDesc desc, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                    int64_t count, const void *values)
{
    cudnnStatus_t s = be->dnn->cudnnBackendSetAttribute(desc, name, type, count, values);
    return s == CUDNN_STATUS_SUCCESS ? status_ok() : status_context(cuda_dnn_status(be, s, "cudnnBackendSetAttribute"), "attribute %d", name);
}

Status dnn_desc_finish(const CudaBackend *be, DnnDesc desc, const char *what)
{
    cudnnStatus_t s = be->dnn->cudnnBackendFinalize(desc);
    return s == CUDNN_STATUS_SUCCESS ? status_ok() : status_context(cuda_dnn_status(be, s, "cudnnBackendFinalize"), "%s", what);
}

void dnn_desc_destroy(const CudaBackend *be, DnnDesc *desc)
{
    if (*desc)
        be->dnn->cudnnBackendDestroyDescriptor(*desc);
    *desc = NULL;
}

/* ---- the graph */

Status dnn_graph_create(CudaBackend *be, const OpDesc *op, const char *name, size_t scratch, DnnGraph **out)
{
    *out = NULL;
    DnnGraph *g = calloc(1, sizeof *g);
    if (!g)
        return status_error(STATUS_OOM, "no memory for a graph of %s", op_names[op->kind]);
    g->be = be;
    g->scratch = scratch;
    g->status = status_ok();
    g->hash = 0xcbf29ce484222325u; /* FNV-1a, 64 bits: Fowler, Noll, Vo */
    op_format(op, g->op_text, sizeof g->op_text);
    snprintf(g->name, sizeof g->name, "%s / %s", g->op_text, name);
    *out = g;
    return status_ok();
}

void dnn_graph_destroy(DnnGraph *g)
{
    if (!g)
        return;
    for (int i = g->ops; i-- > 0;)
        dnn_desc_destroy(g->be, &g->op[i]);
    for (int i = g->parts; i-- > 0;)
        dnn_desc_destroy(g->be, &g->part[i]);
    for (int i = 0; i < g->tensors; i++)
        dnn_desc_destroy(g->be, &g->tensor[i].desc);
    free(g);
}

static bool is_good(const DnnGraph *g) { return g->status.code == STATUS_OK; }

/* Keeps the first error, with the graph's name. */
static void fail(DnnGraph *g, Status s)
{
    if (is_good(g) && s.code != STATUS_OK)
        g->status = status_context(s, "%s", g->name);
}

static void refuse(DnnGraph *g, const char *format, ...) PRINTF_LIKE(2, 3);
static void refuse(DnnGraph *g, const char *format, ...)
{
    char    text[256];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    fail(g, status_error(STATUS_USAGE, "%s", text));
}

static void mix(DnnGraph *g, const void *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        g->hash = (g->hash ^ ((const unsigned char *)bytes)[i]) * 0x100000001b3u;
}

static void mix_int(DnnGraph *g, int64_t value) { mix(g, &value, sizeof value); }

Status dnn_graph_finish(DnnGraph *g, DnnDesc *out)
{
    *out = NULL;
    if (!g->ops)
        refuse(g, "a graph without operations");
    TRY(g->status);
    Status status;
    TRY_GOTO(status, dnn_desc_create(g->be, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, out), out);
    TRY_GOTO(status, dnn_desc_set(g->be, *out, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, g->ops, g->op), out);
    if (g->be->dnn_handle)
        TRY_GOTO(status, dnn_desc_set(g->be, *out, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &g->be->dnn_handle), out);
    TRY_GOTO(status, dnn_desc_finish(g->be, *out, "operation graph"), out);
out:
    if (status.code != STATUS_OK)
        dnn_desc_destroy(g->be, out);
    return status_context(status, "%s", g->name);
}

/* ---- tensors */

cudnnDataType_t dnn_type(Dtype dtype)
{
    switch (dtype) {
    case DTYPE_F32:  return CUDNN_DATA_FLOAT;
    case DTYPE_BF16: return CUDNN_DATA_BFLOAT16;
    case DTYPE_F16:  return CUDNN_DATA_HALF;
    case DTYPE_I32:  return CUDNN_DATA_INT32;
    case DTYPE_U8:   return CUDNN_DATA_UINT8;
    default:         CHECK(!"no type of cuDNN");
    }
}

static DnnTensor add_tensor(DnnGraph *g, const DnnTensorRecord *t)
{
    if (!is_good(g))
        return DNN_NONE;
    if (g->tensors == DNN_MOST_TENSORS) {
        refuse(g, "more than %d tensors", DNN_MOST_TENSORS);
        return DNN_NONE;
    }
    g->tensor[g->tensors] = *t;
    mix_int(g, t->type);
    mix(g, t->dim, sizeof t->dim);
    mix(g, t->stride, sizeof t->stride);
    mix_int(g, t->by_value);
    mix_int(g, t->place.kind == DNN_VIRTUAL);
    return (DnnTensor){ g->tensors++ };
}

DnnTensor dnn_tensor(DnnGraph *g, cudnnDataType_t type, int rank, const int64_t *dim, const int64_t *stride, DnnPlace place)
{
    DnnTensorRecord t = { .type = type, .rank = rank, .place = place, .ragged = -1 };
    if (rank < 3 || rank > DNN_RANK) {
        refuse(g, "a tensor of rank %d", rank);
        return DNN_NONE;
    }
    for (int i = 0; i < rank; i++) {
        if (dim[i] < 1 || stride[i] < 1)
            refuse(g, "dimension %d of a tensor is %lld with stride %lld", i, (long long)dim[i], (long long)stride[i]);
        t.dim[i] = dim[i];
        t.stride[i] = stride[i];
    }
    return add_tensor(g, &t);
}

DnnTensor dnn_tensor_nhwc(DnnGraph *g, cudnnDataType_t type, int64_t n, int64_t c, int64_t h, int64_t w, DnnPlace place)
{
    const int64_t dim[] = { n, c, h, w }, stride[] = { c * h * w, 1, w * c, c };
    return dnn_tensor(g, type, 4, dim, stride, place);
}

DnnTensor dnn_tensor_channel(DnnGraph *g, cudnnDataType_t type, int64_t c, DnnPlace place)
{
    return dnn_tensor_nhwc(g, type, 1, c, 1, 1, place);
}

static DnnTensor scalar(DnnGraph *g, DnnTensorRecord *t)
{
    for (int i = 0; i < DNN_RANK; i++)
        t->dim[i] = t->stride[i] = 1;
    t->rank = DNN_RANK;
    t->by_value = true;
    t->ragged = -1;
    return add_tensor(g, t);
}

DnnTensor dnn_scalar(DnnGraph *g, float value)
{
    return scalar(g, &(DnnTensorRecord){ .type = CUDNN_DATA_FLOAT, .value.f32 = value });
}

DnnTensor dnn_scalar_i64(DnnGraph *g, int64_t value)
{
    return scalar(g, &(DnnTensorRecord){ .type = CUDNN_DATA_INT64, .value.i64 = value });
}

DnnTensor dnn_tensor_of(DnnGraph *g, const Tensor *t, DnnPlace place)
{
    CHECK(t->rank == 4);
    return dnn_tensor_nhwc(g, dnn_type(t->dtype), t->dim[0], cuda_pitch(t), t->dim[1], t->dim[2], place);
}

void dnn_tensor_ragged(DnnGraph *g, DnnTensor t, DnnTensor ragged)
{
    if (!is_good(g))
        return;
    CHECK(t.id >= 0 && t.id < g->tensors && ragged.id >= 0 && ragged.id < g->tensors);
    if (g->tensor[t.id].desc)
        refuse(g, "tensor %d became ragged after it was used", t.id);
    g->tensor[t.id].ragged = ragged.id;
    mix_int(g, ragged.id);
}

/* The largest power of two up to 16 that divides the tensor's offset; buffers begin at multiples of 16 at least. */
static int64_t alignment(const DnnPlace *place)
{
    int64_t a = 16;
    while (place->kind != DNN_VIRTUAL && place->offset % (size_t)a)
        a /= 2;
    return a;
}

static Status describe(DnnGraph *g, int id)
{
    DnnTensorRecord *t = &g->tensor[id];
    const int64_t    uid = id + 1, align = alignment(&t->place);
    const bool       is_virtual = t->place.kind == DNN_VIRTUAL && !t->by_value;
    TRY(dnn_desc_create(g->be, CUDNN_BACKEND_TENSOR_DESCRIPTOR, &t->desc));
    TRY(dnn_desc_set(g->be, t->desc, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &t->type));
    TRY(dnn_desc_set(g->be, t->desc, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, t->rank, t->dim));
    TRY(dnn_desc_set(g->be, t->desc, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, t->rank, t->stride));
    TRY(dnn_desc_set(g->be, t->desc, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &uid));
    TRY(dnn_desc_set(g->be, t->desc, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &align));
    TRY(dnn_desc_set(g->be, t->desc, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual));
    TRY(dnn_desc_set(g->be, t->desc, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &t->by_value));
    if (t->ragged >= 0)
        TRY(dnn_desc_set(g->be, t->desc, CUDNN_ATTR_TENSOR_RAGGED_OFFSET_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                         &g->tensor[t->ragged].desc));
    mix_int(g, align);
    return dnn_desc_finish(g->be, t->desc, "tensor");
}

/* The descriptor of a tensor, made if it is its first use. Without cuDNN there is none, and none is needed. */
static DnnDesc desc_of(DnnGraph *g, DnnTensor t)
{
    if (!is_good(g) || !g->be->dnn)
        return NULL;
    DnnTensorRecord *r = &g->tensor[t.id];
    r->used = true;
    if (!r->desc && r->ragged >= 0)
        desc_of(g, (DnnTensor){ r->ragged });
    if (!r->desc && is_good(g))
        fail(g, describe(g, t.id));
    return r->desc;
}

/* ---- operations: begin, set, finish; with the sticky error every step does nothing after a mistake */

/* A descriptor that operations refer to, or an operation; NULL after an error. */
static DnnDesc begin(DnnGraph *g, cudnnBackendDescriptorType_t type, DnnDesc *list, int *count, int most)
{
    mix_int(g, type);
    if (!is_good(g))
        return NULL;
    if (*count == most) {
        refuse(g, "more than %d operations", most);
        return NULL;
    }
    if (g->be->dnn)
        fail(g, dnn_desc_create(g->be, type, &list[*count]));
    return is_good(g) ? list[(*count)++] : NULL;
}

static DnnDesc begin_part(DnnGraph *g, cudnnBackendDescriptorType_t type) { return begin(g, type, g->part, &g->parts, DNN_MOST_PARTS); }
static DnnDesc begin_op(DnnGraph *g, cudnnBackendDescriptorType_t type) { return begin(g, type, g->op, &g->ops, DNN_MOST_OPS); }

static size_t attribute_size(cudnnBackendAttributeType_t type)
{
    switch (type) {
    case CUDNN_TYPE_BOOLEAN:  return sizeof(bool);
    case CUDNN_TYPE_INT64:    return sizeof(int64_t);
    case CUDNN_TYPE_FLOAT:    return sizeof(float);
    case CUDNN_TYPE_DOUBLE:   return sizeof(double);
    case CUDNN_TYPE_FRACTION: return sizeof(cudnnFraction_t);
    default:                  return sizeof(int); /* the enums */
    }
}

static void set(DnnGraph *g, DnnDesc desc, int name, cudnnBackendAttributeType_t type, int64_t count, const void *values)
{
    mix_int(g, name);
    mix(g, values, attribute_size(type) * (size_t)count);
    if (is_good(g) && desc)
        fail(g, dnn_desc_set(g->be, desc, (cudnnBackendAttributeName_t)name, type, count, values));
}

static void set_part(DnnGraph *g, DnnDesc op, int name, DnnDesc part)
{
    if (is_good(g) && op)
        fail(g, dnn_desc_set(g->be, op, (cudnnBackendAttributeName_t)name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &part));
}

static void set_tensor(DnnGraph *g, DnnDesc op, int name, DnnTensor t)
{
    mix_int(g, name);
    mix_int(g, t.id);
    if (t.id < 0 || !is_good(g))
        return;
    CHECK(t.id < g->tensors);
    set_part(g, op, name, desc_of(g, t));
}

static void finish(DnnGraph *g, DnnDesc desc, const char *what)
{
    if (is_good(g) && desc)
        fail(g, dnn_desc_finish(g->be, desc, what));
}

static const cudnnDataType_t compute_f32 = CUDNN_DATA_FLOAT;

/* The record of a tensor that an operation cannot do without; NULL after an error. */
static const DnnTensorRecord *need(DnnGraph *g, DnnTensor t, const char *what)
{
    if (is_good(g) && (t.id < 0 || t.id >= g->tensors))
        refuse(g, "%s is missing", what);
    return is_good(g) ? &g->tensor[t.id] : NULL;
}

/* ---- convolution */

/* x (N,C,H,W), w (K,C,R,S), y (N,K,P,Q) belong together; x is also dx, and so on. */
static void check_conv(DnnGraph *g, DnnTensor tx, DnnTensor tw, DnnTensor ty, int pad, int stride)
{
    const DnnTensorRecord *x = need(g, tx, "x"), *w = need(g, tw, "w"), *y = need(g, ty, "y");
    if (!is_good(g))
        return;
    if (pad < 0 || stride < 1)
        refuse(g, "padding %d, stride %d", pad, stride);
    else if (x->dim[1] != w->dim[1] || w->dim[0] != y->dim[1] || x->dim[0] != y->dim[0])
        refuse(g, "a convolution of %lld images of %lld channels by %lld filters of %lld channels to %lld images of %lld channels",
               (long long)x->dim[0], (long long)x->dim[1], (long long)w->dim[0], (long long)w->dim[1], (long long)y->dim[0],
               (long long)y->dim[1]);
    for (int i = 2; i < 4 && is_good(g); i++)
        if (x->dim[i] + 2 * pad < w->dim[i] || (x->dim[i] + 2 * pad - w->dim[i]) / stride + 1 != y->dim[i])
            refuse(g, "a convolution of size %lld by %lld, padding %d, stride %d, to %lld", (long long)x->dim[i],
                   (long long)w->dim[i], pad, stride, (long long)y->dim[i]);
}

static DnnDesc conv_part(DnnGraph *g, int pad, int stride)
{
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    const int64_t two = 2, pads[] = { pad, pad }, strides[] = { stride, stride }, dilations[] = { 1, 1 };
    DnnDesc d = begin_part(g, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    set(g, d, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &two);
    set(g, d, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute_f32);
    set(g, d, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
    set(g, d, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, pads);
    set(g, d, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, pads);
    set(g, d, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, strides);
    set(g, d, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, dilations);
    finish(g, d, "convolution");
    return d;
}

static void conv(DnnGraph *g, DnnConv kind, DnnTensor x, DnnTensor w, DnnTensor y, int pad, int stride, float beta)
{
    static const struct { cudnnBackendDescriptorType_t type; int alpha, beta, part, w, x, y; } names[] = {
        [DNN_CONV_FORWARD] = { CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y },
        [DNN_CONV_DGRAD] = { CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY },
        [DNN_CONV_WGRAD] = { CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY },
    };
    const float alpha = 1.0f;
    check_conv(g, x, w, y, pad, stride);
    DnnDesc part = conv_part(g, pad, stride), op = begin_op(g, names[kind].type);
    set(g, op, names[kind].alpha, CUDNN_TYPE_FLOAT, 1, &alpha);
    set(g, op, names[kind].beta, CUDNN_TYPE_FLOAT, 1, &beta);
    set_part(g, op, names[kind].part, part);
    set_tensor(g, op, names[kind].w, w);
    set_tensor(g, op, names[kind].x, x);
    set_tensor(g, op, names[kind].y, y);
    finish(g, op, "convolution");
}

void dnn_conv(DnnGraph *g, DnnConv kind, DnnTensor x, DnnTensor w, DnnTensor y, int pad, int stride)
{
    conv(g, kind, x, w, y, pad, stride, 0.0f);
}

void dnn_conv_accumulate(DnnGraph *g, DnnConv kind, DnnTensor x, DnnTensor w, DnnTensor y, int pad, int stride)
{
    conv(g, kind, x, w, y, pad, stride, 1.0f);
}

/* ---- pointwise, reduction, matrix product, reshape */

static bool is_logical(cudnnPointwiseMode_t mode)
{
    return mode >= CUDNN_POINTWISE_LOGICAL_AND && mode <= CUDNN_POINTWISE_LOGICAL_NOT;
}

static bool is_comparison(cudnnPointwiseMode_t mode)
{
    return mode >= CUDNN_POINTWISE_CMP_EQ && mode <= CUDNN_POINTWISE_CMP_LE;
}

/* Type that the operation computes in. Engines know comparisons of floats as f32 ones, those of indices as boolean ones. */
static cudnnDataType_t pointwise_compute(const DnnGraph *g, cudnnPointwiseMode_t mode, DnnTensor x)
{
    if (mode == CUDNN_POINTWISE_GEN_INDEX)
        return CUDNN_DATA_INT32;
    const bool indices = x.id >= 0 && g->tensor[x.id].type == CUDNN_DATA_INT32;
    return is_logical(mode) || (is_comparison(mode) && indices) ? CUDNN_DATA_BOOLEAN : CUDNN_DATA_FLOAT;
}

static DnnDesc pointwise_part(DnnGraph *g, cudnnPointwiseMode_t mode, DnnTensor x, int axis)
{
    const cudnnDataType_t compute = pointwise_compute(g, mode, x);
    const int64_t axis64 = axis;
    DnnDesc d = begin_part(g, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    set(g, d, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    set(g, d, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &compute);
    if (axis >= 0)
        set(g, d, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &axis64);
    finish(g, d, "pointwise");
    return d;
}

/* Every input has y's dimensions, or 1 where it is spread. */
static void check_spread(DnnGraph *g, DnnTensor tin, DnnTensor ty)
{
    const DnnTensorRecord *y = need(g, ty, "the output"), *in = tin.id < 0 || !is_good(g) ? NULL : need(g, tin, "an input");
    if (!y || !in || in->by_value)
        return;
    bool fits = in->rank == y->rank;
    for (int i = 0; fits && i < y->rank; i++)
        fits = in->dim[i] == y->dim[i] || in->dim[i] == 1;
    if (!fits)
        refuse(g, "tensor %d does not spread to the shape of tensor %d", tin.id, ty.id);
}

static void pointwise(DnnGraph *g, cudnnPointwiseMode_t mode, int axis, DnnTensor x, DnnTensor b, DnnTensor mask, DnnTensor y)
{
    need(g, x, "x");
    check_spread(g, x, y);
    check_spread(g, b, y);
    check_spread(g, mask, y);
    DnnDesc part = pointwise_part(g, mode, x, axis), op = begin_op(g, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    set_part(g, op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, part);
    set_tensor(g, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    set_tensor(g, op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b);
    set_tensor(g, op, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, mask);
    set_tensor(g, op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    finish(g, op, "pointwise operation");
}

void dnn_pointwise(DnnGraph *g, cudnnPointwiseMode_t mode, DnnTensor x, DnnTensor b, DnnTensor y)
{
    pointwise(g, mode, -1, x, b, DNN_NONE, y);
}

void dnn_pointwise_select(DnnGraph *g, DnnTensor x, DnnTensor b, DnnTensor mask, DnnTensor y)
{
    need(g, mask, "the mask");
    pointwise(g, CUDNN_POINTWISE_BINARY_SELECT, -1, x, b, mask, y);
}

void dnn_pointwise_index(DnnGraph *g, int axis, DnnTensor like, DnnTensor y)
{
    pointwise(g, CUDNN_POINTWISE_GEN_INDEX, axis, like, DNN_NONE, DNN_NONE, y);
}

void dnn_pointwise_backward(DnnGraph *g, cudnnPointwiseMode_t mode, DnnTensor dy, DnnTensor x, DnnTensor dx)
{
    need(g, dy, "dy");
    check_spread(g, dy, dx);
    check_spread(g, x, dx);
    DnnDesc part = pointwise_part(g, mode, x, -1), op = begin_op(g, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    set_part(g, op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, part);
    set_tensor(g, op, CUDNN_ATTR_OPERATION_POINTWISE_DYDESC, dy);
    set_tensor(g, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    set_tensor(g, op, CUDNN_ATTR_OPERATION_POINTWISE_DXDESC, dx);
    finish(g, op, "pointwise operation");
}

void dnn_reduce(DnnGraph *g, cudnnReduceTensorOp_t mode, DnnTensor x, DnnTensor y)
{
    const DnnTensorRecord *from = need(g, x, "x"), *to = need(g, y, "y");
    for (int i = 0; is_good(g) && i < to->rank; i++)
        if (to->rank != from->rank || (to->dim[i] != 1 && to->dim[i] != from->dim[i]))
            refuse(g, "dimension %d of a reduction goes from %lld to %lld", i, (long long)from->dim[i], (long long)to->dim[i]);
    DnnDesc part = begin_part(g, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    set(g, part, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &mode);
    set(g, part, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute_f32);
    finish(g, part, "reduction");
    DnnDesc op = begin_op(g, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    set_part(g, op, CUDNN_ATTR_OPERATION_REDUCTION_DESC, part);
    set_tensor(g, op, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
    set_tensor(g, op, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
    finish(g, op, "reduction operation");
}

/* c (..., M, N) = a (..., M, K) b (..., K, N). */
static void check_matmul(DnnGraph *g, DnnTensor ta, DnnTensor tb, DnnTensor tc)
{
    const DnnTensorRecord *a = need(g, ta, "a"), *b = need(g, tb, "b"), *c = need(g, tc, "c");
    if (!is_good(g))
        return;
    const int r = c->rank;
    if (a->rank != r || b->rank != r || a->dim[r - 2] != c->dim[r - 2] || a->dim[r - 1] != b->dim[r - 2] || b->dim[r - 1] != c->dim[r - 1])
        refuse(g, "a matrix product whose sizes do not agree");
}

void dnn_matmul(DnnGraph *g, DnnTensor a, DnnTensor b, DnnTensor c, DnnTensor m, DnnTensor n, DnnTensor k)
{
    const double zero = 0.0;
    check_matmul(g, a, b, c);
    DnnDesc part = begin_part(g, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    set(g, part, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute_f32);
    if (m.id >= 0 || n.id >= 0 || k.id >= 0)
        set(g, part, CUDNN_ATTR_MATMUL_PADDING_VALUE, CUDNN_TYPE_DOUBLE, 1, &zero);
    finish(g, part, "matrix product");
    DnnDesc op = begin_op(g, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    set_part(g, op, CUDNN_ATTR_OPERATION_MATMUL_DESC, part);
    set_tensor(g, op, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
    set_tensor(g, op, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
    set_tensor(g, op, CUDNN_ATTR_OPERATION_MATMUL_CDESC, c);
    set_tensor(g, op, CUDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC, m);
    set_tensor(g, op, CUDNN_ATTR_OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC, n);
    set_tensor(g, op, CUDNN_ATTR_OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC, k);
    finish(g, op, "matrix product");
}

void dnn_reshape(DnnGraph *g, DnnTensor x, DnnTensor y)
{
    need(g, x, "x");
    need(g, y, "y");
    DnnDesc op = begin_op(g, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    set_tensor(g, op, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
    set_tensor(g, op, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
    finish(g, op, "reshape");
}

/* ---- normalisation */

void dnn_norm_forward(DnnGraph *g, cudnnBackendNormMode_t mode, cudnnBackendNormFwdPhase_t phase, const DnnNorm *n)
{
    need(g, n->x, "x");
    check_spread(g, n->scale, n->x);
    check_spread(g, n->bias, n->x);
    DnnDesc op = begin_op(g, CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR);
    set(g, op, CUDNN_ATTR_OPERATION_NORM_FWD_MODE, CUDNN_TYPE_NORM_MODE, 1, &mode);
    set(g, op, CUDNN_ATTR_OPERATION_NORM_FWD_PHASE, CUDNN_TYPE_NORM_FWD_PHASE, 1, &phase);
    set_tensor(g, op, CUDNN_ATTR_OPERATION_NORM_FWD_XDESC, n->x);
    set_tensor(g, op, CUDNN_ATTR_OPERATION_NORM_FWD_MEAN_DESC, n->mean);
    set_tensor(g, op, CUDNN_ATTR_OPERATION_NORM_FWD_INV_VARIANCE_DESC, n->invstd);
    set_tensor(g, op, CUDNN_ATTR_OPERATION_NORM_FWD_SCALE_DESC, n->scale);
    set_tensor(g, op, CUDNN_ATTR_OPERATION_NORM_FWD_BIAS_DESC, n->bias);
    set_tensor(g, op, CUDNN_ATTR_OPERATION_NORM_FWD_EPSILON_DESC, n->eps);
    set_tensor(g, op, CUDNN_ATTR_OPERATION_NORM_FWD_EXP_AVG_FACTOR_DESC, n->momentum);
    set_tensor(g, op, CUDNN_ATTR_OPERATION_NORM_FWD_INPUT_RUNNING_MEAN_DESC, n->run_mean);
    set_tensor(g, op, CUDNN_ATTR_OPERATION_NORM_FWD_INPUT_RUNNING_VAR_DESC, n->run_var);
    set_tensor(g, op, CUDNN_ATTR_OPERATION_NORM_FWD_OUTPUT_RUNNING_MEAN_DESC, n->next_mean);
    set_tensor(g, op, CUDNN_ATTR_OPERATION_NORM_FWD_OUTPUT_RUNNING_VAR_DESC, n->next_var);
    set_tensor(g, op, CUDNN_ATTR_OPERATION_NORM_FWD_YDESC, n->y);
    finish(g, op, "normalisation");
}

void dnn_norm_backward(DnnGraph *g, cudnnBackendNormMode_t mode, const DnnNormGrad *n)
{
    need(g, n->x, "x");
    check_spread(g, n->scale, n->x);
    check_spread(g, n->dy, n->x);
    DnnDesc op = begin_op(g, CUDNN_BACKEND_OPERATION_NORM_BACKWARD_DESCRIPTOR);
    set(g, op, CUDNN_ATTR_OPERATION_NORM_BWD_MODE, CUDNN_TYPE_NORM_MODE, 1, &mode);
    set_tensor(g, op, CUDNN_ATTR_OPERATION_NORM_BWD_XDESC, n->x);
    set_tensor(g, op, CUDNN_ATTR_OPERATION_NORM_BWD_MEAN_DESC, n->mean);
    set_tensor(g, op, CUDNN_ATTR_OPERATION_NORM_BWD_INV_VARIANCE_DESC, n->invstd);
    set_tensor(g, op, CUDNN_ATTR_OPERATION_NORM_BWD_DYDESC, n->dy);
    set_tensor(g, op, CUDNN_ATTR_OPERATION_NORM_BWD_SCALE_DESC, n->scale);
    set_tensor(g, op, CUDNN_ATTR_OPERATION_NORM_BWD_DSCALE_DESC, n->dscale);
    set_tensor(g, op, CUDNN_ATTR_OPERATION_NORM_BWD_DBIAS_DESC, n->dbias);
    set_tensor(g, op, CUDNN_ATTR_OPERATION_NORM_BWD_DXDESC, n->dx);
    finish(g, op, "gradient of a normalisation");
}

/* ---- pooling */

static void check_pool(DnnGraph *g, const DnnPool *p, DnnTensor tx, DnnTensor ty, DnnTensor tindex)
{
    const DnnTensorRecord *x = need(g, tx, "x"), *y = need(g, ty, "y");
    for (int i = 2; i < 4 && is_good(g); i++)
        if ((x->dim[i] + 2 * p->pad - p->window) / p->stride + 1 != y->dim[i] || x->dim[1] != y->dim[1] || x->dim[0] != y->dim[0])
            refuse(g, "pooling %lld by window %d, padding %d, stride %d to %lld", (long long)x->dim[i], p->window, p->pad,
                   p->stride, (long long)y->dim[i]);
    check_spread(g, tindex, ty);
}

static DnnDesc pool_part(DnnGraph *g, const DnnPool *p)
{
    const int64_t two = 2;
    const cudnnPaddingMode_t edge = p->mode == CUDNN_RESAMPLE_MAXPOOL ? CUDNN_NEG_INF_PAD : CUDNN_ZERO_PAD;
    const cudnnNanPropagation_t nan = CUDNN_PROPAGATE_NAN;
    const cudnnFraction_t windows[] = { { p->window, 1 }, { p->window, 1 } }, pads[] = { { p->pad, 1 }, { p->pad, 1 } },
                          strides[] = { { p->stride, 1 }, { p->stride, 1 } };
    DnnDesc d = begin_part(g, CUDNN_BACKEND_RESAMPLE_DESCRIPTOR);
    set(g, d, CUDNN_ATTR_RESAMPLE_MODE, CUDNN_TYPE_RESAMPLE_MODE, 1, &p->mode);
    set(g, d, CUDNN_ATTR_RESAMPLE_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute_f32);
    set(g, d, CUDNN_ATTR_RESAMPLE_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &two);
    set(g, d, CUDNN_ATTR_RESAMPLE_PADDING_MODE, CUDNN_TYPE_PADDING_MODE, 1, &edge);
    set(g, d, CUDNN_ATTR_RESAMPLE_NAN_PROPAGATION, CUDNN_TYPE_NAN_PROPOGATION, 1, &nan);
    set(g, d, CUDNN_ATTR_RESAMPLE_WINDOW_DIMS, CUDNN_TYPE_FRACTION, 2, windows);
    set(g, d, CUDNN_ATTR_RESAMPLE_PRE_PADDINGS, CUDNN_TYPE_FRACTION, 2, pads);
    set(g, d, CUDNN_ATTR_RESAMPLE_POST_PADDINGS, CUDNN_TYPE_FRACTION, 2, pads);
    set(g, d, CUDNN_ATTR_RESAMPLE_STRIDES, CUDNN_TYPE_FRACTION, 2, strides);
    finish(g, d, "pooling");
    return d;
}

void dnn_pool_forward(DnnGraph *g, const DnnPool *p, DnnTensor x, DnnTensor y, DnnTensor index)
{
    check_pool(g, p, x, y, index);
    DnnDesc part = pool_part(g, p), op = begin_op(g, CUDNN_BACKEND_OPERATION_RESAMPLE_FWD_DESCRIPTOR);
    set_part(g, op, CUDNN_ATTR_OPERATION_RESAMPLE_FWD_DESC, part);
    set_tensor(g, op, CUDNN_ATTR_OPERATION_RESAMPLE_FWD_XDESC, x);
    set_tensor(g, op, CUDNN_ATTR_OPERATION_RESAMPLE_FWD_YDESC, y);
    set_tensor(g, op, CUDNN_ATTR_OPERATION_RESAMPLE_FWD_IDXDESC, index);
    finish(g, op, "pooling operation");
}

void dnn_pool_backward(DnnGraph *g, const DnnPool *p, DnnTensor dx, DnnTensor dy, DnnTensor index)
{
    if (p->mode == CUDNN_RESAMPLE_MAXPOOL)
        need(g, index, "the index"); /* without it, cuDNN 9.19 crashes */
    check_pool(g, p, dx, dy, index);
    DnnDesc part = pool_part(g, p), op = begin_op(g, CUDNN_BACKEND_OPERATION_RESAMPLE_BWD_DESCRIPTOR);
    set_part(g, op, CUDNN_ATTR_OPERATION_RESAMPLE_BWD_DESC, part);
    set_tensor(g, op, CUDNN_ATTR_OPERATION_RESAMPLE_BWD_DXDESC, dx);
    set_tensor(g, op, CUDNN_ATTR_OPERATION_RESAMPLE_BWD_DYDESC, dy);
    set_tensor(g, op, CUDNN_ATTR_OPERATION_RESAMPLE_BWD_IDXDESC, index);
    finish(g, op, "gradient of pooling");
}
