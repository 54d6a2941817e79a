/* fake_op.c - operations: which tensors fill interp.h's slots, and what shapes they must have. See fake_desc.h. */
#include "fake_desc.h"

#include <stdio.h>

#define BAD CUDNN_STATUS_BAD_PARAM

#define SLOT(name, need) { CUDNN_ATTR_OPERATION_##name, need }
#define NO_SLOT { 0, false } /* no op has a tensor as attribute 0 */
#define END { -1, false }

static const FakeSlot conv[] = { SLOT(CONVOLUTION_FORWARD_X, true), SLOT(CONVOLUTION_FORWARD_W, true),
                                 SLOT(CONVOLUTION_FORWARD_Y, true), END };
static const FakeSlot dgrad[] = { SLOT(CONVOLUTION_BWD_DATA_DY, true), SLOT(CONVOLUTION_BWD_DATA_W, true),
                                  SLOT(CONVOLUTION_BWD_DATA_DX, true), END };
static const FakeSlot wgrad[] = { SLOT(CONVOLUTION_BWD_FILTER_X, true), SLOT(CONVOLUTION_BWD_FILTER_DY, true),
                                  SLOT(CONVOLUTION_BWD_FILTER_DW, true), END };
static const FakeSlot point[] = { SLOT(POINTWISE_XDESC, true), SLOT(POINTWISE_BDESC, false), SLOT(POINTWISE_TDESC, false), NO_SLOT,
                                  SLOT(POINTWISE_YDESC, true), END };
static const FakeSlot point_backward[] = { SLOT(POINTWISE_XDESC, true),  NO_SLOT, NO_SLOT, SLOT(POINTWISE_DYDESC, true),
                                           SLOT(POINTWISE_DXDESC, true), END };
static const FakeSlot reduction[] = { SLOT(REDUCTION_XDESC, true), SLOT(REDUCTION_YDESC, true), END };
static const FakeSlot matmul[] = { SLOT(MATMUL_ADESC, true),
                                   SLOT(MATMUL_BDESC, true),
                                   SLOT(MATMUL_GEMM_M_OVERRIDE_DESC, false),
                                   SLOT(MATMUL_GEMM_N_OVERRIDE_DESC, false),
                                   SLOT(MATMUL_GEMM_K_OVERRIDE_DESC, false),
                                   SLOT(MATMUL_CDESC, true),
                                   END };
static const FakeSlot reshape[] = { SLOT(RESHAPE_XDESC, true), SLOT(RESHAPE_YDESC, true), END };
static const FakeSlot norm_training[] = { SLOT(NORM_FWD_XDESC, true),
                                          SLOT(NORM_FWD_SCALE_DESC, true),
                                          SLOT(NORM_FWD_BIAS_DESC, false),
                                          SLOT(NORM_FWD_EPSILON_DESC, true),
                                          SLOT(NORM_FWD_EXP_AVG_FACTOR_DESC, false),
                                          SLOT(NORM_FWD_INPUT_RUNNING_MEAN_DESC, false),
                                          SLOT(NORM_FWD_INPUT_RUNNING_VAR_DESC, false),
                                          NO_SLOT,
                                          NO_SLOT,
                                          SLOT(NORM_FWD_YDESC, true),
                                          SLOT(NORM_FWD_OUTPUT_RUNNING_MEAN_DESC, false),
                                          SLOT(NORM_FWD_OUTPUT_RUNNING_VAR_DESC, false),
                                          SLOT(NORM_FWD_MEAN_DESC, true),
                                          SLOT(NORM_FWD_INV_VARIANCE_DESC, true),
                                          END };
static const FakeSlot norm_inference[] = { SLOT(NORM_FWD_XDESC, true),
                                           SLOT(NORM_FWD_SCALE_DESC, true),
                                           SLOT(NORM_FWD_BIAS_DESC, false),
                                           SLOT(NORM_FWD_EPSILON_DESC, false),
                                           NO_SLOT,
                                           NO_SLOT,
                                           NO_SLOT,
                                           SLOT(NORM_FWD_MEAN_DESC, true),
                                           SLOT(NORM_FWD_INV_VARIANCE_DESC, true),
                                           SLOT(NORM_FWD_YDESC, true),
                                           END };
static const FakeSlot norm_backward[] = {
    SLOT(NORM_BWD_XDESC, true),       SLOT(NORM_BWD_MEAN_DESC, true),   SLOT(NORM_BWD_INV_VARIANCE_DESC, true),
    SLOT(NORM_BWD_DYDESC, true),      SLOT(NORM_BWD_SCALE_DESC, true),  SLOT(NORM_BWD_DXDESC, true),
    SLOT(NORM_BWD_DSCALE_DESC, true), SLOT(NORM_BWD_DBIAS_DESC, false), END
};
static const FakeSlot pool[] = { SLOT(RESAMPLE_FWD_XDESC, true), SLOT(RESAMPLE_FWD_YDESC, true), SLOT(RESAMPLE_FWD_IDXDESC, false),
                                 END };
static const FakeSlot pool_backward[] = { SLOT(RESAMPLE_BWD_DYDESC, true), SLOT(RESAMPLE_BWD_IDXDESC, false),
                                          SLOT(RESAMPLE_BWD_DXDESC, true), END };
static const FakeSlot genstats[] = { SLOT(GENSTATS_XDESC, true), SLOT(GENSTATS_SUMDESC, true), SLOT(GENSTATS_SQSUMDESC, true),
                                     END };

bool fake_is_op(cudnnBackendDescriptorType_t type)
{
    switch (type) {
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR: case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR: case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR: case CUDNN_BACKEND_OPERATION_RESAMPLE_FWD_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_RESAMPLE_BWD_DESCRIPTOR: case CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_NORM_BACKWARD_DESCRIPTOR: case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
        return true;
    default:
        return false;
    }
}

static cudnnPointwiseMode_t point_mode(const FakeDesc *d)
{
    return (cudnnPointwiseMode_t)fake_int(fake_child(d, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR), CUDNN_ATTR_POINTWISE_MODE,
                                          -1);
}

const FakeSlot *fake_op_slots(const FakeDesc *d, InterpKind *kind)
{
    switch (d->type) {
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR: *kind = INTERP_CONV; return conv;
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR: *kind = INTERP_CONV_DGRAD; return dgrad;
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR: *kind = INTERP_CONV_WGRAD; return wgrad;
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
        *kind = INTERP_POINTWISE;
        return interp_pointwise_is_backward(point_mode(d)) ? point_backward : point;
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR: *kind = INTERP_REDUCE; return reduction;
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR: *kind = INTERP_MATMUL; return matmul;
    case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR: *kind = INTERP_RESHAPE; return reshape;
    case CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR:
        *kind = INTERP_NORM;
        return fake_int(d, CUDNN_ATTR_OPERATION_NORM_FWD_PHASE, -1) == CUDNN_NORM_FWD_TRAINING ? norm_training : norm_inference;
    case CUDNN_BACKEND_OPERATION_NORM_BACKWARD_DESCRIPTOR: *kind = INTERP_NORM_GRAD; return norm_backward;
    case CUDNN_BACKEND_OPERATION_RESAMPLE_FWD_DESCRIPTOR: *kind = INTERP_POOL; return pool;
    case CUDNN_BACKEND_OPERATION_RESAMPLE_BWD_DESCRIPTOR: *kind = INTERP_POOL_GRAD; return pool_backward;
    case CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR: *kind = INTERP_GENSTATS; return genstats;
    default: return NULL;
    }
}

/* ---- shapes. t[slot] as in interp.h, present[slot] whether there is one. */
typedef struct OpTensors { InterpTensor t[INTERP_SLOTS]; bool present[INTERP_SLOTS]; } OpTensors;

static const char *text_of(const InterpTensor *t, char *text, size_t size)
{
    int n = 0;
    for (int i = 0; i < t->rank && n < (int)size - 24; i++)
        n += snprintf(text + n, size - (size_t)n, "%s%lld", i ? "x" : "", (long long)t->dim[i]);
    return text;
}

static cudnnStatus_t shape_error(const FakeDesc *d, const InterpTensor *a, const InterpTensor *b, const char *what)
{
    char first[128] = "", second[128] = "";
    return fake_error(BAD, "%s: %s: %s against %s", fake_desc_name(d->type), what, text_of(a, first, sizeof first),
                      text_of(b, second, sizeof second));
}

static bool same_dims(const InterpTensor *a, const InterpTensor *b)
{
    bool same = a->rank == b->rank;
    for (int i = 0; same && i < a->rank; i++)
        same = a->dim[i] == b->dim[i];
    return same;
}

/* Every dimension of `from` is that of `to` or 1; from dimension `first` on. */
static bool broadcasts(const InterpTensor *from, const InterpTensor *to)
{
    bool fits = from->rank == to->rank;
    for (int i = 0; fits && i < to->rank; i++)
        fits = from->dim[i] == to->dim[i] || from->dim[i] == 1;
    return fits;
}

static FakeDesc *described_by(const FakeDesc *d, cudnnBackendAttributeName_t name, cudnnBackendDescriptorType_t type)
{
    FakeDesc *c = fake_child(d, name);
    return c && c->type == type ? c : NULL;
}

static cudnnStatus_t check_conv(const FakeDesc *d, InterpKind kind, const OpTensors *o)
{
    const cudnnBackendAttributeName_t name = kind == INTERP_CONV ? CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC
                                           : kind == INTERP_CONV_DGRAD ? CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC
                                                                       : CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC;
    const InterpTensor *x = &o->t[kind == INTERP_CONV_DGRAD ? 2 : 0], *w = &o->t[kind == INTERP_CONV_WGRAD ? 2 : 1],
                       *y = &o->t[kind == INTERP_CONV ? 2 : kind == INTERP_CONV_DGRAD ? 0 : 1];
    const FakeDesc *c = described_by(d, name, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    FAKE_REQUIRE(c, CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE, "%s: no convolution descriptor", fake_desc_name(d->type));
    FAKE_REQUIRE(x->rank == 4 && w->rank == 4 && y->rank == 4, BAD, "%s: tensors of %d, %d and %d dimensions",
                 fake_desc_name(d->type), x->rank, w->rank, y->rank);
    const int64_t *pre = fake_attr(c, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS)->data,
                  *post = fake_attr(c, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS)->data,
                  *stride = fake_attr(c, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES)->data,
                  *dilation = fake_attr(c, CUDNN_ATTR_CONVOLUTION_DILATIONS)->data;
    if (x->dim[1] != w->dim[1] || y->dim[1] != w->dim[0] || x->dim[0] != y->dim[0])
        return shape_error(d, x, w,
                           "channels of image and filter differ (grouped convolutions are refused), or those of output, or images");
    for (int i = 0; i < 2; i++) {
        const int64_t room = x->dim[2 + i] + pre[i] + post[i] - dilation[i] * (w->dim[2 + i] - 1) - 1;
        if (room < 0 || y->dim[2 + i] != room / stride[i] + 1)
            return shape_error(d, x, y, "output size");
    }
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t check_point(const FakeDesc *d, const OpTensors *o)
{
    const FakeDesc *p = described_by(d, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    const int inputs = interp_pointwise_inputs(point_mode(d));
    const InterpTensor *y = &o->t[POINT_Y];
    FAKE_REQUIRE(o->present[POINT_B] == (inputs >= 2) && o->present[POINT_T] == (inputs == 3), BAD,
                 "pointwise: mode %d takes %d inputs", (int)point_mode(d), inputs);
    for (int slot = POINT_X; slot <= POINT_DY; slot++)
        if (o->present[slot] && !broadcasts(&o->t[slot], y))
            return shape_error(d, &o->t[slot], y, "shapes do not broadcast");
    FAKE_REQUIRE(point_mode(d) != CUDNN_POINTWISE_GEN_INDEX ||
                     (fake_int(p, CUDNN_ATTR_POINTWISE_AXIS, -1) >= 0 && fake_int(p, CUDNN_ATTR_POINTWISE_AXIS, -1) < y->rank),
                 BAD, "pointwise: index along axis %lld of %d", (long long)fake_int(p, CUDNN_ATTR_POINTWISE_AXIS, -1), y->rank);
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t check_matmul(const FakeDesc *d, const OpTensors *o)
{
    const InterpTensor *a = &o->t[MATMUL_A], *b = &o->t[MATMUL_B], *c = &o->t[MATMUL_C];
    const int r = c->rank;
    FAKE_REQUIRE(described_by(d, CUDNN_ATTR_OPERATION_MATMUL_DESC, CUDNN_BACKEND_MATMUL_DESCRIPTOR),
                 CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE, "matmul: no matmul descriptor");
    FAKE_REQUIRE(r >= 2 && a->rank == r && b->rank == r, BAD, "matmul: tensors of %d, %d and %d dimensions", a->rank, b->rank, r);
    if (a->dim[r - 1] != b->dim[r - 2] || a->dim[r - 2] != c->dim[r - 2] || b->dim[r - 1] != c->dim[r - 1])
        return shape_error(d, a, b, "matrices do not fit");
    for (int i = 0; i < r - 2; i++)
        if (c->dim[i] % a->dim[i] != 0 || c->dim[i] % b->dim[i] != 0 || (a->dim[i] != c->dim[i] && b->dim[i] != c->dim[i]))
            return shape_error(d, a, c, "batch dimensions do not fit");
    for (int slot = MATMUL_M; slot <= MATMUL_K; slot++)
        if (o->present[slot] && (o->t[slot].type != CUDNN_DATA_INT32 || (o->t[slot].count != 1 && o->t[slot].count != c->dim[0]) ||
                                 o->t[slot].dim[0] != o->t[slot].count))
            return shape_error(d, &o->t[slot], c, "an override must hold one INT32 for each batch entry");
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t check_reduction(const FakeDesc *d, const OpTensors *o)
{
    FAKE_REQUIRE(described_by(d, CUDNN_ATTR_OPERATION_REDUCTION_DESC, CUDNN_BACKEND_REDUCTION_DESCRIPTOR),
                 CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE, "reduction: no reduction descriptor");
    return broadcasts(&o->t[1], &o->t[0]) ? CUDNN_STATUS_SUCCESS : shape_error(d, &o->t[0], &o->t[1], "shapes do not reduce");
}

/* Every element of y must lie where x has one. */
static cudnnStatus_t check_reshape(const FakeDesc *d, const OpTensors *o)
{
    const InterpTensor *x = &o->t[0], *y = &o->t[1];
    if (x->count != y->count || interp_extent(x) != interp_extent(y) || !interp_offsets_differ(x) || !interp_offsets_differ(y))
        return shape_error(d, x, y, "not the same memory");
    return CUDNN_STATUS_SUCCESS;
}

/* Statistics and their like are over groups of x; those of one kind have one shape. */
static cudnnStatus_t check_groups(const FakeDesc *d, const OpTensors *o, int x, const int *group, int count)
{
    int first = -1;
    for (int i = 0; i < count; i++) {
        if (!o->present[group[i]])
            continue;
        if (!broadcasts(&o->t[group[i]], &o->t[x]))
            return shape_error(d, &o->t[x], &o->t[group[i]], "statistics or scales do not fit");
        if (first >= 0 && !same_dims(&o->t[group[i]], &o->t[first]))
            return shape_error(d, &o->t[first], &o->t[group[i]], "statistics or scales differ in shape");
        first = group[i];
    }
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t check_norm(const FakeDesc *d, const OpTensors *o, bool training)
{
    static const int stats[] = { NORM_MEAN_IN,  NORM_INVSTD_IN, NORM_MEAN_OUT,  NORM_INVSTD_OUT,
                                 NORM_RUN_MEAN, NORM_RUN_VAR,   NORM_NEXT_MEAN, NORM_NEXT_VAR };
    static const int scales[] = { NORM_SCALE, NORM_BIAS };
    const int64_t mode = fake_int(d, CUDNN_ATTR_OPERATION_NORM_FWD_MODE, -1);
    const bool running = o->present[NORM_RUN_MEAN];
    FAKE_REQUIRE(mode == CUDNN_BATCH_NORM || mode == CUDNN_LAYER_NORM || mode == CUDNN_INSTANCE_NORM, CUDNN_STATUS_NOT_SUPPORTED,
                 "norm forward: mode %lld", (long long)mode);
    if (!same_dims(&o->t[NORM_X], &o->t[NORM_Y]))
        return shape_error(d, &o->t[NORM_X], &o->t[NORM_Y], "x and y differ");
    FAKE_REQUIRE(!training || (o->present[NORM_RUN_VAR] == running && o->present[NORM_NEXT_MEAN] == running &&
                               o->present[NORM_NEXT_VAR] == running && o->present[NORM_FACTOR] == running),
                 BAD, "norm forward: some of the running statistics and their factor are missing");
    for (int slot = NORM_EPSILON; slot <= NORM_FACTOR; slot++)
        FAKE_REQUIRE(!o->present[slot] || o->t[slot].by_value, BAD, "norm forward: epsilon and factor are given by value");
    FAKE_TRY(check_groups(d, o, NORM_X, scales, 2));
    return check_groups(d, o, NORM_X, stats, COUNT_OF(stats));
}

static cudnnStatus_t check_norm_backward(const FakeDesc *d, const OpTensors *o)
{
    static const int stats[] = { GRAD_MEAN, GRAD_INVSTD }, scales[] = { GRAD_SCALE, GRAD_DSCALE, GRAD_DBIAS };
    const int64_t mode = fake_int(d, CUDNN_ATTR_OPERATION_NORM_BWD_MODE, -1);
    FAKE_REQUIRE(mode == CUDNN_BATCH_NORM || mode == CUDNN_LAYER_NORM || mode == CUDNN_INSTANCE_NORM, CUDNN_STATUS_NOT_SUPPORTED,
                 "norm backward: mode %lld", (long long)mode);
    if (!same_dims(&o->t[GRAD_X], &o->t[GRAD_DY]) || !same_dims(&o->t[GRAD_X], &o->t[GRAD_DX]))
        return shape_error(d, &o->t[GRAD_X], &o->t[GRAD_DY], "x, dy and dx differ");
    FAKE_TRY(check_groups(d, o, GRAD_X, scales, COUNT_OF(scales)));
    return check_groups(d, o, GRAD_X, stats, COUNT_OF(stats));
}

static cudnnStatus_t check_pool(const FakeDesc *d, const OpTensors *o, bool backward)
{
    const FakeDesc *r = described_by(d, backward ? CUDNN_ATTR_OPERATION_RESAMPLE_BWD_DESC : CUDNN_ATTR_OPERATION_RESAMPLE_FWD_DESC,
                                     CUDNN_BACKEND_RESAMPLE_DESCRIPTOR);
    const int index = backward ? POOLG_INDEX : POOL_INDEX;
    const InterpTensor *x = &o->t[backward ? POOLG_DX : POOL_X], *y = &o->t[backward ? POOLG_DY : POOL_Y];
    FAKE_REQUIRE(r, CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE, "%s: no resample descriptor", fake_desc_name(d->type));
    const bool largest = fake_int(r, CUDNN_ATTR_RESAMPLE_MODE, -1) == CUDNN_RESAMPLE_MAXPOOL;
    const cudnnFraction_t *window = fake_attr(r, CUDNN_ATTR_RESAMPLE_WINDOW_DIMS)->data,
                          *stride = fake_attr(r, CUDNN_ATTR_RESAMPLE_STRIDES)->data,
                          *pre = fake_attr(r, CUDNN_ATTR_RESAMPLE_PRE_PADDINGS)->data,
                          *post = fake_attr(r, CUDNN_ATTR_RESAMPLE_POST_PADDINGS)->data;
    FAKE_REQUIRE(x->rank == 4 && y->rank == 4 && x->dim[0] == y->dim[0] && x->dim[1] == y->dim[1], BAD,
                 "%s: images or channels differ", fake_desc_name(d->type));
    for (int i = 0; i < 2; i++) {
        const int64_t room = x->dim[2 + i] + pre[i].numerator + post[i].numerator - window[i].numerator;
        if (room < 0 || y->dim[2 + i] != room / stride[i].numerator + 1)
            return shape_error(d, x, y, "output size");
    }
    FAKE_REQUIRE(!o->present[index] || largest, BAD, "%s: an average has no index", fake_desc_name(d->type));
    FAKE_REQUIRE(!backward || !largest || o->present[index], CUDNN_STATUS_NOT_SUPPORTED,
                 "resample backward: a maximum needs its index");
    FAKE_REQUIRE(!o->present[index] || (o->t[index].type == CUDNN_DATA_INT8 && same_dims(&o->t[index], y)), BAD,
                 "%s: the index must be INT8 in the shape of the output", fake_desc_name(d->type));
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t check_genstats(const FakeDesc *d, const OpTensors *o)
{
    static const int sums[] = { 1, 2 };
    return check_groups(d, o, 0, sums, 2);
}

static cudnnStatus_t read_tensors(const FakeDesc *d, const FakeSlot *slots, OpTensors *out)
{
    for (int i = 0; slots[i].name >= 0; i++) {
        const FakeDesc *t = slots[i].name ? fake_child(d, (cudnnBackendAttributeName_t)slots[i].name) : NULL;
        FAKE_REQUIRE(t || !slots[i].needed, BAD, "%s: tensor %d is not set", fake_desc_name(d->type), slots[i].name);
        FAKE_REQUIRE(!t || t->type == CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE,
                     "%s: attribute %d is a %s, no tensor", fake_desc_name(d->type), slots[i].name,
                     t ? fake_desc_name(t->type) : "");
        out->present[i] = t != NULL;
        if (t)
            fake_tensor_read(t, &out->t[i]);
    }
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t fake_check_op(FakeDesc *d)
{
    InterpKind kind = INTERP_CONV;
    OpTensors o = { .present = { false } };
    FAKE_REQUIRE(d->type != CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR ||
                 described_by(d, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, CUDNN_BACKEND_POINTWISE_DESCRIPTOR),
                 CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE, "pointwise operation: no pointwise descriptor");
    FAKE_TRY(read_tensors(d, fake_op_slots(d, &kind), &o));
    switch (kind) {
    case INTERP_CONV: case INTERP_CONV_DGRAD: case INTERP_CONV_WGRAD: return check_conv(d, kind, &o);
    case INTERP_POINTWISE: return check_point(d, &o);
    case INTERP_REDUCE: return check_reduction(d, &o);
    case INTERP_MATMUL: return check_matmul(d, &o);
    case INTERP_RESHAPE: return check_reshape(d, &o);
    case INTERP_NORM: return check_norm(d, &o, fake_int(d, CUDNN_ATTR_OPERATION_NORM_FWD_PHASE, -1) == CUDNN_NORM_FWD_TRAINING);
    case INTERP_NORM_GRAD: return check_norm_backward(d, &o);
    case INTERP_POOL: return check_pool(d, &o, false);
    case INTERP_POOL_GRAD: return check_pool(d, &o, true);
    case INTERP_GENSTATS: return check_genstats(d, &o);
    default: return CUDNN_STATUS_SUCCESS;
    }
}
