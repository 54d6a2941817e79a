/* fake_check.c - what finalising checks of tensors and of the descriptors that describe an op. See fake_desc.h. */
#include "fake_desc.h"

#define BAD CUDNN_STATUS_BAD_PARAM

static int64_t elements(const FakeDesc *d, cudnnBackendAttributeName_t name) { return fake_attr(d, name)->count; }

static cudnnStatus_t check_tensor(const FakeDesc *d)
{
    const int64_t rank = elements(d, CUDNN_ATTR_TENSOR_DIMENSIONS), *dim = fake_attr(d, CUDNN_ATTR_TENSOR_DIMENSIONS)->data,
                  *stride = fake_attr(d, CUDNN_ATTR_TENSOR_STRIDES)->data;
    const bool is_virtual = fake_int(d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, false),
               by_value = fake_int(d, CUDNN_ATTR_TENSOR_IS_BY_VALUE, false);
    const cudnnDataType_t type = (cudnnDataType_t)fake_int(d, CUDNN_ATTR_TENSOR_DATA_TYPE, -1);
    const FakeDesc *ragged = fake_child(d, CUDNN_ATTR_TENSOR_RAGGED_OFFSET_DESC);
    const int64_t alignment = fake_int(d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 0);
    int64_t count = 1;
    FAKE_REQUIRE(interp_type_bits(type) > 0, CUDNN_STATUS_NOT_SUPPORTED, "tensor: data type %d", (int)type);
    FAKE_REQUIRE(rank == elements(d, CUDNN_ATTR_TENSOR_STRIDES), BAD, "tensor: %lld dimensions and %lld strides", (long long)rank,
                 (long long)elements(d, CUDNN_ATTR_TENSOR_STRIDES));
    for (int64_t i = 0; i < rank; i++) {
        FAKE_REQUIRE(dim[i] > 0 && stride[i] >= 0, BAD, "tensor: dimension %lld is %lld with stride %lld", (long long)i,
                     (long long)dim[i], (long long)stride[i]);
        count *= dim[i];
    }
    FAKE_REQUIRE(alignment > 0 && alignment * 8 % interp_type_bits(type) == 0, BAD, "tensor: alignment %lld of type %d",
                 (long long)alignment, (int)type);
    FAKE_REQUIRE(!by_value || (!is_virtual && count == 1), BAD, "tensor: by value, but virtual or of %lld numbers",
                 (long long)count);
    FAKE_REQUIRE(!ragged || ragged->type == CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE,
                 "tensor: ragged offsets are no tensor");
    if (ragged) {
        InterpTensor offsets;
        fake_tensor_read(ragged, &offsets);
        FAKE_REQUIRE((offsets.type == CUDNN_DATA_INT32 || offsets.type == CUDNN_DATA_INT64) && offsets.count == dim[0] + 1 &&
                         offsets.dim[0] == dim[0] + 1,
                     BAD, "tensor: ragged offsets must be %lld integers", (long long)dim[0] + 1);
    }
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t check_compute_type(const FakeDesc *d, cudnnBackendAttributeName_t name)
{
    const int64_t type = fake_int(d, name, -1);
    FAKE_REQUIRE(type == CUDNN_DATA_FLOAT || type == CUDNN_DATA_DOUBLE, CUDNN_STATUS_NOT_SUPPORTED, "%s: compute type %lld",
                 fake_desc_name(d->type), (long long)type);
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t check_pointwise(const FakeDesc *d)
{
    const cudnnPointwiseMode_t mode = (cudnnPointwiseMode_t)fake_int(d, CUDNN_ATTR_POINTWISE_MODE, -1);
    const int64_t type = fake_int(d, CUDNN_ATTR_POINTWISE_MATH_PREC, -1);
    FAKE_REQUIRE(interp_pointwise_inputs(mode) > 0, CUDNN_STATUS_NOT_SUPPORTED, "pointwise: mode %d", (int)mode);
    FAKE_REQUIRE(type == CUDNN_DATA_FLOAT || type == CUDNN_DATA_DOUBLE || type == CUDNN_DATA_INT32 || type == CUDNN_DATA_BOOLEAN,
                 CUDNN_STATUS_NOT_SUPPORTED, "pointwise: compute type %lld", (long long)type);
    FAKE_REQUIRE(mode != CUDNN_POINTWISE_GEN_INDEX || fake_attr(d, CUDNN_ATTR_POINTWISE_AXIS), BAD,
                 "pointwise: index without an axis");
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t check_convolution(const FakeDesc *d)
{
    static const cudnnBackendAttributeName_t lists[] = { CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES,
                                                         CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS,
                                                         CUDNN_ATTR_CONVOLUTION_POST_PADDINGS };
    const int64_t space = fake_int(d, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 0);
    FAKE_TRY(check_compute_type(d, CUDNN_ATTR_CONVOLUTION_COMP_TYPE));
    FAKE_REQUIRE(space == 2, CUDNN_STATUS_NOT_SUPPORTED, "convolution: %lld spatial dimensions", (long long)space);
    for (size_t i = 0; i < COUNT_OF(lists); i++) {
        const int64_t least = i < 2 ? 1 : 0, *v = fake_attr(d, lists[i])->data;
        FAKE_REQUIRE(elements(d, lists[i]) == space, BAD, "convolution: attribute %d with %lld elements", (int)lists[i],
                     (long long)elements(d, lists[i]));
        FAKE_REQUIRE(v[0] >= least && v[1] >= least, BAD, "convolution: attribute %d is %lld, %lld", (int)lists[i], (long long)v[0],
                     (long long)v[1]);
    }
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t check_resample(const FakeDesc *d)
{
    static const cudnnBackendAttributeName_t lists[] = { CUDNN_ATTR_RESAMPLE_WINDOW_DIMS, CUDNN_ATTR_RESAMPLE_STRIDES,
                                                         CUDNN_ATTR_RESAMPLE_PRE_PADDINGS, CUDNN_ATTR_RESAMPLE_POST_PADDINGS };
    const int64_t space = fake_int(d, CUDNN_ATTR_RESAMPLE_SPATIAL_DIMS, 0), mode = fake_int(d, CUDNN_ATTR_RESAMPLE_MODE, -1),
                  padding = fake_int(d, CUDNN_ATTR_RESAMPLE_PADDING_MODE, CUDNN_ZERO_PAD);
    bool pads = false;
    FAKE_TRY(check_compute_type(d, CUDNN_ATTR_RESAMPLE_COMP_TYPE));
    FAKE_REQUIRE(space == 2, CUDNN_STATUS_NOT_SUPPORTED, "resample: %lld spatial dimensions", (long long)space);
    FAKE_REQUIRE(mode == CUDNN_RESAMPLE_MAXPOOL || mode == CUDNN_RESAMPLE_AVGPOOL_INCLUDE_PADDING ||
                     mode == CUDNN_RESAMPLE_AVGPOOL_EXCLUDE_PADDING,
                 CUDNN_STATUS_NOT_SUPPORTED, "resample: mode %lld", (long long)mode);
    for (size_t i = 0; i < COUNT_OF(lists); i++) {
        const cudnnFraction_t *v = fake_attr(d, lists[i])->data;
        FAKE_REQUIRE(elements(d, lists[i]) == space, BAD, "resample: attribute %d with %lld elements", (int)lists[i],
                     (long long)elements(d, lists[i]));
        for (int64_t k = 0; k < space; k++) {
            FAKE_REQUIRE(v[k].denominator == 1 && v[k].numerator >= (i < 2 ? 1 : 0), CUDNN_STATUS_NOT_SUPPORTED,
                         "resample: attribute %d is %lld/%lld", (int)lists[i], (long long)v[k].numerator,
                         (long long)v[k].denominator);
            pads = pads || (i >= 2 && v[k].numerator > 0);
        }
    }
    FAKE_REQUIRE(!pads || padding == (mode == CUDNN_RESAMPLE_MAXPOOL ? CUDNN_NEG_INF_PAD : CUDNN_ZERO_PAD),
                 CUDNN_STATUS_NOT_SUPPORTED, "resample: mode %lld with padding mode %lld", (long long)mode, (long long)padding);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t fake_check(FakeDesc *d)
{
    switch (d->type) {
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR: return check_tensor(d);
    case CUDNN_BACKEND_POINTWISE_DESCRIPTOR: return check_pointwise(d);
    case CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR: return check_convolution(d);
    case CUDNN_BACKEND_MATMUL_DESCRIPTOR: return check_compute_type(d, CUDNN_ATTR_MATMUL_COMP_TYPE);
    case CUDNN_BACKEND_REDUCTION_DESCRIPTOR:
        FAKE_REQUIRE(fake_int(d, CUDNN_ATTR_REDUCTION_OPERATOR, -1) >= CUDNN_REDUCE_TENSOR_ADD &&
                         fake_int(d, CUDNN_ATTR_REDUCTION_OPERATOR, -1) <= CUDNN_REDUCE_TENSOR_NORM2,
                     CUDNN_STATUS_NOT_SUPPORTED, "reduction: operator %lld",
                     (long long)fake_int(d, CUDNN_ATTR_REDUCTION_OPERATOR, -1));
        return check_compute_type(d, CUDNN_ATTR_REDUCTION_COMP_TYPE);
    case CUDNN_BACKEND_RESAMPLE_DESCRIPTOR: return check_resample(d);
    case CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR:
        FAKE_REQUIRE(elements(d, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS) == elements(d, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS), BAD,
                     "variant pack: %lld ids and %lld pointers", (long long)elements(d, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS),
                     (long long)elements(d, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS));
        return CUDNN_STATUS_SUCCESS;
    default: return CUDNN_STATUS_SUCCESS;
    }
}

void fake_tensor_read(const FakeDesc *d, InterpTensor *out)
{
    const FakeAttr *dims = fake_attr(d, CUDNN_ATTR_TENSOR_DIMENSIONS);
    const int64_t *dim = dims->data, *stride = fake_attr(d, CUDNN_ATTR_TENSOR_STRIDES)->data;
    *out = (InterpTensor){ .type = (cudnnDataType_t)fake_int(d, CUDNN_ATTR_TENSOR_DATA_TYPE, 0),
                           .rank = (int)dims->count,
                           .count = 1,
                           .ragged = -1,
                           .uid = fake_int(d, CUDNN_ATTR_TENSOR_UNIQUE_ID, 0),
                           .alignment = fake_int(d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 1),
                           .is_virtual = fake_int(d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, false),
                           .by_value = fake_int(d, CUDNN_ATTR_TENSOR_IS_BY_VALUE, false) };
    for (int i = 0; i < out->rank; i++) {
        out->dim[i] = dim[i];
        out->stride[i] = stride[i];
        out->count *= dim[i];
    }
}
