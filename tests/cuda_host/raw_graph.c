/* raw_graph.c - see raw_graph.h. */
#include "raw_graph.h"

#include <stdio.h>
#include <string.h>

RawGraph raw_begin(const CudnnApi *api) { return (RawGraph){ .api = api, .status = CUDNN_STATUS_SUCCESS }; }

void raw_end(RawGraph *g)
{
    for (int i = g->descs - 1; i >= 0; i--)
        g->api->cudnnBackendDestroyDescriptor(g->desc[i]);
    g->descs = 0;
}

static void note(RawGraph *g, cudnnStatus_t status, const char *what)
{
    if (status == CUDNN_STATUS_SUCCESS)
        return;
    char words[400] = "";
    g->status = status;
    g->api->cudnnGetLastErrorString(words, sizeof words);
    snprintf(g->words, sizeof g->words, "%s: %s: %s", what, g->api->cudnnGetErrorString(status), words);
}

Desc raw_create(RawGraph *g, cudnnBackendDescriptorType_t type)
{
    Desc d = NULL;
    if (g->status != CUDNN_STATUS_SUCCESS)
        return NULL;
    CHECK(g->descs < RAW_DESCS);
    note(g, g->api->cudnnBackendCreateDescriptor(type, &d), "create");
    if (d)
        g->desc[g->descs++] = d;
    return d;
}

void raw_set(RawGraph *g, Desc d, int name, cudnnBackendAttributeType_t type, int64_t count, const void *data)
{
    char what[32];
    snprintf(what, sizeof what, "attribute %d", name);
    if (g->status == CUDNN_STATUS_SUCCESS)
        note(g, g->api->cudnnBackendSetAttribute(d, (cudnnBackendAttributeName_t)name, type, count, data), what);
}

void raw_set_desc(RawGraph *g, Desc d, int name, Desc value)
{
    if (value)
        raw_set(g, d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

void raw_set_int(RawGraph *g, Desc d, int name, cudnnBackendAttributeType_t type, int64_t value)
{
    const bool flag = value != 0;
    const int enumeration = (int)value;
    raw_set(g, d, name, type, 1,
            type == CUDNN_TYPE_INT64     ? (const void *)&value
            : type == CUDNN_TYPE_BOOLEAN ? (const void *)&flag
                                         : (const void *)&enumeration);
}

void raw_set_real(RawGraph *g, Desc d, int name, cudnnBackendAttributeType_t type, double value)
{
    const float narrow = (float)value;
    raw_set(g, d, name, type, 1, type == CUDNN_TYPE_FLOAT ? (const void *)&narrow : (const void *)&value);
}

void raw_finalize(RawGraph *g, Desc d, const char *what)
{
    if (g->status == CUDNN_STATUS_SUCCESS)
        note(g, g->api->cudnnBackendFinalize(d), what);
}

void raw_add(RawGraph *g, Desc op, const char *what)
{
    raw_finalize(g, op, what);
    CHECK(g->ops < RAW_OPS);
    g->op[g->ops++] = op;
}

void raw_finish(RawGraph *g)
{
    g->graph = raw_create(g, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    raw_set(g, g->graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, g->ops, g->op);
    raw_finalize(g, g->graph, "operation graph");
}

/* ---- tensors */

static void fill_strides(RawTensor *t)
{
    if (t->nhwc) {
        t->stride[1] = 1;
        t->stride[3] = t->dim[1];
        t->stride[2] = t->dim[1] * t->dim[3];
        t->stride[0] = t->stride[2] * t->dim[2];
        return;
    }
    int64_t step = 1;
    for (int i = t->rank - 1; i >= 0; i--) {
        t->stride[i] = step;
        step *= t->dim[i];
    }
}

Desc raw_tensor(RawGraph *g, RawTensor t)
{
    Desc d = raw_create(g, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    if (t.stride[0] == 0)
        fill_strides(&t);
    raw_set_int(g, d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, t.type);
    raw_set(g, d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, t.rank, t.dim);
    raw_set(g, d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, t.rank, t.stride);
    raw_set_int(g, d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, t.uid);
    raw_set_int(g, d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, t.alignment ? t.alignment : 16);
    raw_set_int(g, d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, t.is_virtual);
    raw_set_int(g, d, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, t.by_value);
    raw_set_desc(g, d, CUDNN_ATTR_TENSOR_RAGGED_OFFSET_DESC, t.ragged);
    raw_finalize(g, d, "tensor");
    return d;
}

Desc raw_nhwc(RawGraph *g, int64_t uid, cudnnDataType_t type, int64_t n, int64_t c, int64_t h, int64_t w)
{
    return raw_tensor(g, (RawTensor){ .uid = uid, .type = type, .rank = 4, .dim = { n, c, h, w }, .nhwc = true });
}

Desc raw_virtual_nhwc(RawGraph *g, int64_t uid, cudnnDataType_t type, int64_t n, int64_t c, int64_t h, int64_t w)
{
    return raw_tensor(g,
                      (RawTensor){ .uid = uid, .type = type, .rank = 4, .dim = { n, c, h, w }, .nhwc = true, .is_virtual = true });
}

Desc raw_scalar(RawGraph *g, int64_t uid, cudnnDataType_t type)
{
    return raw_tensor(g, (RawTensor){ .uid = uid, .type = type, .rank = 4, .dim = { 1, 1, 1, 1 }, .by_value = true });
}

/* ---- ops */

void raw_conv(RawGraph *g, RawConvKind kind, Desc x, Desc w, Desc y, RawConv c)
{
    static const struct { cudnnBackendDescriptorType_t type; int alpha, x, w, y;
    } kinds[] = {
        { CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y },
        { CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY },
        { CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY },
    };
    const cudnnBackendAttributeType_t real = c.in_double ? CUDNN_TYPE_DOUBLE : CUDNN_TYPE_FLOAT;
    Desc d = raw_create(g, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    for (int i = 0; i < 2; i++) {
        c.stride[i] += c.stride[i] == 0;
        c.dilation[i] += c.dilation[i] == 0;
    }
    raw_set_int(g, d, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 2);
    raw_set_int(g, d, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
    raw_set_int(g, d, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE,
                c.flip ? CUDNN_CONVOLUTION : CUDNN_CROSS_CORRELATION);
    raw_set(g, d, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, c.pre);
    raw_set(g, d, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, c.post);
    raw_set(g, d, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, c.stride);
    raw_set(g, d, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, c.dilation);
    raw_finalize(g, d, "convolution");
    Desc op = raw_create(g, kinds[kind].type);
    raw_set_real(g, op, kinds[kind].alpha, real, c.alpha == 0 ? 1 : c.alpha);
    raw_set_real(g, op, kinds[kind].alpha + 1, real, c.beta);
    raw_set_desc(g, op, kinds[kind].alpha + 2, d);
    raw_set_desc(g, op, kinds[kind].x, x);
    raw_set_desc(g, op, kinds[kind].w, w);
    raw_set_desc(g, op, kinds[kind].y, y);
    raw_add(g, op, "convolution op");
}

static Desc point_desc(RawGraph *g, cudnnPointwiseMode_t mode, RawPoint p)
{
    Desc d = raw_create(g, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    raw_set_int(g, d, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, mode);
    raw_set_int(g, d, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, p.compute);
    if (mode == CUDNN_POINTWISE_GEN_INDEX)
        raw_set_int(g, d, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, p.axis);
    if (p.clipped) {
        raw_set_real(g, d, CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP, CUDNN_TYPE_DOUBLE, p.lower);
        raw_set_real(g, d, CUDNN_ATTR_POINTWISE_RELU_UPPER_CLIP, CUDNN_TYPE_DOUBLE, p.upper);
        raw_set_real(g, d, CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP_SLOPE, CUDNN_TYPE_DOUBLE, p.slope);
    }
    if (p.keeps_nan)
        raw_set_int(g, d, CUDNN_ATTR_POINTWISE_NAN_PROPAGATION, CUDNN_TYPE_NAN_PROPOGATION, CUDNN_PROPAGATE_NAN);
    raw_finalize(g, d, "pointwise");
    return d;
}

void raw_point_as(RawGraph *g, cudnnPointwiseMode_t mode, Desc x, Desc b, Desc t, Desc y, RawPoint p)
{
    Desc d = point_desc(g, mode, p), op = raw_create(g, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    raw_set_desc(g, op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, d);
    raw_set_desc(g, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    raw_set_desc(g, op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b);
    raw_set_desc(g, op, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, t);
    raw_set_desc(g, op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    if (p.scaled) {
        raw_set_real(g, op, CUDNN_ATTR_OPERATION_POINTWISE_ALPHA1, CUDNN_TYPE_FLOAT, p.alpha1);
        raw_set_real(g, op, CUDNN_ATTR_OPERATION_POINTWISE_ALPHA2, CUDNN_TYPE_FLOAT, p.alpha2);
    }
    raw_add(g, op, "pointwise op");
}

void raw_point(RawGraph *g, cudnnPointwiseMode_t mode, Desc x, Desc b, Desc t, Desc y)
{
    raw_point_as(g, mode, x, b, t, y, (RawPoint){ .compute = CUDNN_DATA_FLOAT });
}

void raw_point_backward(RawGraph *g, cudnnPointwiseMode_t mode, Desc dy, Desc x, Desc dx)
{
    Desc d = point_desc(g, mode, (RawPoint){ .compute = CUDNN_DATA_FLOAT }),
         op = raw_create(g, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    raw_set_desc(g, op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, d);
    raw_set_desc(g, op, CUDNN_ATTR_OPERATION_POINTWISE_DYDESC, dy);
    raw_set_desc(g, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    raw_set_desc(g, op, CUDNN_ATTR_OPERATION_POINTWISE_DXDESC, dx);
    raw_add(g, op, "pointwise backward op");
}

void raw_reduce(RawGraph *g, cudnnReduceTensorOp_t mode, Desc x, Desc y)
{
    Desc d = raw_create(g, CUDNN_BACKEND_REDUCTION_DESCRIPTOR), op = raw_create(g, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    raw_set_int(g, d, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, mode);
    raw_set_int(g, d, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
    raw_finalize(g, d, "reduction");
    raw_set_desc(g, op, CUDNN_ATTR_OPERATION_REDUCTION_DESC, d);
    raw_set_desc(g, op, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
    raw_set_desc(g, op, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
    raw_add(g, op, "reduction op");
}

void raw_matmul(RawGraph *g, Desc a, Desc b, Desc c, Desc m, Desc n, Desc k)
{
    Desc d = raw_create(g, CUDNN_BACKEND_MATMUL_DESCRIPTOR), op = raw_create(g, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    raw_set_int(g, d, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
    raw_finalize(g, d, "matmul");
    raw_set_desc(g, op, CUDNN_ATTR_OPERATION_MATMUL_DESC, d);
    raw_set_desc(g, op, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
    raw_set_desc(g, op, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
    raw_set_desc(g, op, CUDNN_ATTR_OPERATION_MATMUL_CDESC, c);
    raw_set_desc(g, op, CUDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC, m);
    raw_set_desc(g, op, CUDNN_ATTR_OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC, n);
    raw_set_desc(g, op, CUDNN_ATTR_OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC, k);
    raw_add(g, op, "matmul op");
}

void raw_reshape(RawGraph *g, Desc x, Desc y)
{
    Desc op = raw_create(g, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    raw_set_desc(g, op, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
    raw_set_desc(g, op, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
    raw_add(g, op, "reshape op");
}

void raw_norm(RawGraph *g, cudnnBackendNormMode_t mode, cudnnBackendNormFwdPhase_t phase, RawNorm n)
{
    Desc op = raw_create(g, CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR);
    raw_set_int(g, op, CUDNN_ATTR_OPERATION_NORM_FWD_MODE, CUDNN_TYPE_NORM_MODE, mode);
    raw_set_int(g, op, CUDNN_ATTR_OPERATION_NORM_FWD_PHASE, CUDNN_TYPE_NORM_FWD_PHASE, phase);
    raw_set_desc(g, op, CUDNN_ATTR_OPERATION_NORM_FWD_XDESC, n.x);
    raw_set_desc(g, op, CUDNN_ATTR_OPERATION_NORM_FWD_MEAN_DESC, n.mean);
    raw_set_desc(g, op, CUDNN_ATTR_OPERATION_NORM_FWD_INV_VARIANCE_DESC, n.invstd);
    raw_set_desc(g, op, CUDNN_ATTR_OPERATION_NORM_FWD_SCALE_DESC, n.scale);
    raw_set_desc(g, op, CUDNN_ATTR_OPERATION_NORM_FWD_BIAS_DESC, n.bias);
    raw_set_desc(g, op, CUDNN_ATTR_OPERATION_NORM_FWD_EPSILON_DESC, n.epsilon);
    raw_set_desc(g, op, CUDNN_ATTR_OPERATION_NORM_FWD_EXP_AVG_FACTOR_DESC, n.factor);
    raw_set_desc(g, op, CUDNN_ATTR_OPERATION_NORM_FWD_INPUT_RUNNING_MEAN_DESC, n.run_mean);
    raw_set_desc(g, op, CUDNN_ATTR_OPERATION_NORM_FWD_INPUT_RUNNING_VAR_DESC, n.run_var);
    raw_set_desc(g, op, CUDNN_ATTR_OPERATION_NORM_FWD_OUTPUT_RUNNING_MEAN_DESC, n.next_mean);
    raw_set_desc(g, op, CUDNN_ATTR_OPERATION_NORM_FWD_OUTPUT_RUNNING_VAR_DESC, n.next_var);
    raw_set_desc(g, op, CUDNN_ATTR_OPERATION_NORM_FWD_YDESC, n.y);
    raw_add(g, op, "norm op");
}

void raw_norm_backward(RawGraph *g, cudnnBackendNormMode_t mode, RawNormGrad n)
{
    Desc op = raw_create(g, CUDNN_BACKEND_OPERATION_NORM_BACKWARD_DESCRIPTOR);
    raw_set_int(g, op, CUDNN_ATTR_OPERATION_NORM_BWD_MODE, CUDNN_TYPE_NORM_MODE, mode);
    raw_set_desc(g, op, CUDNN_ATTR_OPERATION_NORM_BWD_XDESC, n.x);
    raw_set_desc(g, op, CUDNN_ATTR_OPERATION_NORM_BWD_MEAN_DESC, n.mean);
    raw_set_desc(g, op, CUDNN_ATTR_OPERATION_NORM_BWD_INV_VARIANCE_DESC, n.invstd);
    raw_set_desc(g, op, CUDNN_ATTR_OPERATION_NORM_BWD_DYDESC, n.dy);
    raw_set_desc(g, op, CUDNN_ATTR_OPERATION_NORM_BWD_SCALE_DESC, n.scale);
    raw_set_desc(g, op, CUDNN_ATTR_OPERATION_NORM_BWD_DSCALE_DESC, n.dscale);
    raw_set_desc(g, op, CUDNN_ATTR_OPERATION_NORM_BWD_DBIAS_DESC, n.dbias);
    raw_set_desc(g, op, CUDNN_ATTR_OPERATION_NORM_BWD_DXDESC, n.dx);
    raw_add(g, op, "norm backward op");
}

static Desc pool_desc(RawGraph *g, RawPool p)
{
    const cudnnFraction_t window[2] = { { p.window, 1 }, { p.window, 1 } }, pre[2] = { { p.pre, 1 }, { p.pre, 1 } },
                          post[2] = { { p.post, 1 }, { p.post, 1 } }, stride[2] = { { p.stride, 1 }, { p.stride, 1 } };
    Desc d = raw_create(g, CUDNN_BACKEND_RESAMPLE_DESCRIPTOR);
    raw_set_int(g, d, CUDNN_ATTR_RESAMPLE_MODE, CUDNN_TYPE_RESAMPLE_MODE, p.mode);
    raw_set_int(g, d, CUDNN_ATTR_RESAMPLE_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
    raw_set_int(g, d, CUDNN_ATTR_RESAMPLE_SPATIAL_DIMS, CUDNN_TYPE_INT64, 2);
    raw_set_int(g, d, CUDNN_ATTR_RESAMPLE_PADDING_MODE, CUDNN_TYPE_PADDING_MODE,
                p.mode == CUDNN_RESAMPLE_MAXPOOL ? CUDNN_NEG_INF_PAD : CUDNN_ZERO_PAD);
    raw_set_int(g, d, CUDNN_ATTR_RESAMPLE_NAN_PROPAGATION, CUDNN_TYPE_NAN_PROPOGATION, p.keeps_nan);
    raw_set(g, d, CUDNN_ATTR_RESAMPLE_WINDOW_DIMS, CUDNN_TYPE_FRACTION, 2, window);
    raw_set(g, d, CUDNN_ATTR_RESAMPLE_PRE_PADDINGS, CUDNN_TYPE_FRACTION, 2, pre);
    raw_set(g, d, CUDNN_ATTR_RESAMPLE_POST_PADDINGS, CUDNN_TYPE_FRACTION, 2, post);
    raw_set(g, d, CUDNN_ATTR_RESAMPLE_STRIDES, CUDNN_TYPE_FRACTION, 2, stride);
    raw_finalize(g, d, "resample");
    return d;
}

void raw_pool(RawGraph *g, RawPool p, Desc x, Desc y, Desc index)
{
    Desc d = pool_desc(g, p), op = raw_create(g, CUDNN_BACKEND_OPERATION_RESAMPLE_FWD_DESCRIPTOR);
    raw_set_desc(g, op, CUDNN_ATTR_OPERATION_RESAMPLE_FWD_DESC, d);
    raw_set_desc(g, op, CUDNN_ATTR_OPERATION_RESAMPLE_FWD_XDESC, x);
    raw_set_desc(g, op, CUDNN_ATTR_OPERATION_RESAMPLE_FWD_YDESC, y);
    raw_set_desc(g, op, CUDNN_ATTR_OPERATION_RESAMPLE_FWD_IDXDESC, index);
    raw_add(g, op, "resample op");
}

void raw_pool_backward(RawGraph *g, RawPool p, Desc dx, Desc dy, Desc index)
{
    Desc d = pool_desc(g, p), op = raw_create(g, CUDNN_BACKEND_OPERATION_RESAMPLE_BWD_DESCRIPTOR);
    raw_set_desc(g, op, CUDNN_ATTR_OPERATION_RESAMPLE_BWD_DESC, d);
    raw_set_desc(g, op, CUDNN_ATTR_OPERATION_RESAMPLE_BWD_DXDESC, dx);
    raw_set_desc(g, op, CUDNN_ATTR_OPERATION_RESAMPLE_BWD_DYDESC, dy);
    raw_set_desc(g, op, CUDNN_ATTR_OPERATION_RESAMPLE_BWD_IDXDESC, index);
    raw_add(g, op, "resample backward op");
}

void raw_genstats(RawGraph *g, Desc x, Desc sum, Desc squares)
{
    Desc op = raw_create(g, CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR);
    raw_set_int(g, op, CUDNN_ATTR_OPERATION_GENSTATS_MODE, CUDNN_TYPE_GENSTATS_MODE, CUDNN_GENSTATS_SUM_SQSUM);
    raw_set_int(g, op, CUDNN_ATTR_OPERATION_GENSTATS_MATH_PREC, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
    raw_set_desc(g, op, CUDNN_ATTR_OPERATION_GENSTATS_XDESC, x);
    raw_set_desc(g, op, CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC, sum);
    raw_set_desc(g, op, CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC, squares);
    raw_add(g, op, "statistics op");
}
