/* fake_desc.c - the store of descriptors and attributes; see fake_desc.h. */
#include "fake_desc.h"

#include <stdlib.h>
#include <string.h>

static const uint64_t ALIVE = UINT64_C(0xc0d77de5c21b7043);

static const struct { cudnnBackendDescriptorType_t type; const char *name; } types[] = {
    { CUDNN_BACKEND_POINTWISE_DESCRIPTOR, "pointwise" },
    { CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, "convolution" },
    { CUDNN_BACKEND_ENGINE_DESCRIPTOR, "engine" },
    { CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, "engine configuration" },
    { CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, "heuristics" },
    { CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, "plan" },
    { CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, "knob choice" },
    { CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, "convolution forward" },
    { CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR, "convolution backward filter" },
    { CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR, "convolution backward data" },
    { CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, "pointwise operation" },
    { CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR, "statistics" },
    { CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, "operation graph" },
    { CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, "variant pack" },
    { CUDNN_BACKEND_TENSOR_DESCRIPTOR, "tensor" },
    { CUDNN_BACKEND_MATMUL_DESCRIPTOR, "matmul" },
    { CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, "matmul operation" },
    { CUDNN_BACKEND_REDUCTION_DESCRIPTOR, "reduction" },
    { CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, "reduction operation" },
    { CUDNN_BACKEND_RESAMPLE_DESCRIPTOR, "resample" },
    { CUDNN_BACKEND_OPERATION_RESAMPLE_FWD_DESCRIPTOR, "resample forward" },
    { CUDNN_BACKEND_OPERATION_RESAMPLE_BWD_DESCRIPTOR, "resample backward" },
    { CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR, "norm forward" },
    { CUDNN_BACKEND_OPERATION_NORM_BACKWARD_DESCRIPTOR, "norm backward" },
    { CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, "reshape" },
    { CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, "device properties" },
};

const char *fake_desc_name(cudnnBackendDescriptorType_t type)
{
    for (size_t i = 0; i < COUNT_OF(types); i++)
        if (types[i].type == type)
            return types[i].name;
    return "unknown descriptor";
}

bool fake_desc_is_known(cudnnBackendDescriptorType_t type)
{
    for (size_t i = 0; i < COUNT_OF(types); i++)
        if (types[i].type == type)
            return true;
    return false;
}

FakeDesc *fake_desc_of(cudnnBackendDescriptor_t d)
{
    FakeDesc *f = d;
    return f && f->magic == ALIVE ? f : NULL;
}

FakeDesc *fake_desc_create(cudnnBackendDescriptorType_t type)
{
    FakeDesc *d = calloc(1, sizeof *d);
    if (d) {
        d->magic = ALIVE;
        d->type = type;
        d->references = 1;
    }
    return d;
}

static void attr_free(FakeAttr *a)
{
    if (a->type == CUDNN_TYPE_BACKEND_DESCRIPTOR)
        for (int64_t i = 0; i < a->count; i++)
            fake_desc_release(((FakeDesc **)a->data)[i]);
    free(a->data);
}

void fake_desc_release(FakeDesc *d)
{
    if (--d->references > 0)
        return;
    for (int i = 0; i < d->attrs; i++)
        attr_free(&d->attr[i]);
    fake_graph_free(d->graph);
    d->magic = 0;
    free(d);
}

static size_t type_bytes(cudnnBackendAttributeType_t type)
{
    switch (type) {
    case CUDNN_TYPE_BOOLEAN: return sizeof(bool);
    case CUDNN_TYPE_CHAR: return sizeof(char);
    case CUDNN_TYPE_INT64: return sizeof(int64_t);
    case CUDNN_TYPE_DOUBLE: return sizeof(double);
    case CUDNN_TYPE_HANDLE: case CUDNN_TYPE_VOID_PTR: case CUDNN_TYPE_BACKEND_DESCRIPTOR: return sizeof(void *);
    case CUDNN_TYPE_FRACTION: return sizeof(cudnnFraction_t);
    default: return sizeof(int); /* float, int32, enumerations */
    }
}

const FakeAttr *fake_attr(const FakeDesc *d, cudnnBackendAttributeName_t name)
{
    for (int i = 0; i < d->attrs; i++)
        if (d->attr[i].name == name)
            return &d->attr[i];
    return NULL;
}

/* Keeps a copy, instead of what there was. */
cudnnStatus_t fake_desc_keep(FakeDesc *d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
                             const void *data)
{
    FakeAttr *a = (FakeAttr *)fake_attr(d, name);
    void *copy = malloc((size_t)count * type_bytes(type) + 1);
    FAKE_REQUIRE(copy, CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED, "out of memory for an attribute");
    memcpy(copy, data, (size_t)count * type_bytes(type));
    for (int64_t i = 0; type == CUDNN_TYPE_BACKEND_DESCRIPTOR && i < count; i++)
        ((FakeDesc **)copy)[i]->references++;
    if (a)
        attr_free(a);
    else {
        CHECK(d->attrs < FAKE_ATTRS);
        a = &d->attr[d->attrs++];
    }
    *a = (FakeAttr){ .name = name, .type = type, .count = count, .data = copy };
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t check_children(const FakeDesc *d, int name, int64_t count, cudnnBackendDescriptor_t const *child)
{
    for (int64_t i = 0; i < count; i++) {
        const FakeDesc *c = fake_desc_of(child[i]);
        FAKE_REQUIRE(c, CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "%s: attribute %d is no descriptor", fake_desc_name(d->type), name);
        FAKE_REQUIRE(c->finalized, CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "%s: attribute %d is a %s that is not finalized",
                     fake_desc_name(d->type), name, fake_desc_name(c->type));
    }
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t fake_desc_set(FakeDesc *d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
                            const void *data)
{
    const FakeRule *rule = fake_rule(d->type, name);
    const char *who = fake_desc_name(d->type);
    FAKE_REQUIRE(!d->finalized, CUDNN_STATUS_NOT_INITIALIZED, "%s: attribute %d set after it was finalized", who, (int)name);
    FAKE_REQUIRE(rule && !rule->answer, CUDNN_STATUS_NOT_SUPPORTED, "%s: has no attribute %d that can be set", who, (int)name);
    FAKE_REQUIRE(type == rule->type || type == rule->other, CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE,
                 "%s: attribute %d has type %d, not %d", who, (int)name, (int)rule->type, (int)type);
    FAKE_REQUIRE(count >= rule->least && count <= rule->most, CUDNN_STATUS_BAD_PARAM, "%s: attribute %d with %lld elements", who,
                 (int)name, (long long)count);
    FAKE_REQUIRE(data, CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "%s: attribute %d from NULL", who, (int)name);
    if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR)
        FAKE_TRY(check_children(d, (int)name, count, data));
    return fake_desc_keep(d, name, type, count, data);
}

cudnnStatus_t fake_desc_check_needed(const FakeDesc *d)
{
    int count;
    const FakeRule *rule = fake_rules(&count);
    for (int i = 0; i < count; i++)
        FAKE_REQUIRE(rule[i].owner != d->type || !rule[i].needed || fake_attr(d, rule[i].name), CUDNN_STATUS_BAD_PARAM,
                     "%s: attribute %d is not set", fake_desc_name(d->type), (int)rule[i].name);
    return CUDNN_STATUS_SUCCESS;
}

/* What the caller's own descriptor learns: everything of `from`, as if it had been made by hand. */
static cudnnStatus_t copy_into(FakeDesc *to, const FakeDesc *from)
{
    FAKE_REQUIRE(to && to->type == from->type, CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE, "answer goes into no descriptor of type %s",
                 fake_desc_name(from->type));
    for (int i = 0; i < from->attrs; i++)
        FAKE_TRY(fake_desc_keep(to, from->attr[i].name, from->attr[i].type, from->attr[i].count, from->attr[i].data));
    to->engine = from->engine;
    to->finalized = true;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t fake_desc_get(const FakeDesc *d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t room,
                            int64_t *count, void *data)
{
    const FakeRule *rule = fake_rule(d->type, name);
    const FakeAttr *a = fake_attr(d, name);
    const char *who = fake_desc_name(d->type);
    int64_t ignored;
    count = count ? count : &ignored;
    FAKE_REQUIRE(d->finalized, CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "%s: attribute %d read before it was finalized", who,
                 (int)name);
    FAKE_REQUIRE(rule, CUDNN_STATUS_BAD_PARAM, "%s: has no attribute %d", who, (int)name);
    FAKE_REQUIRE(type == rule->type || type == rule->other, CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE,
                 "%s: attribute %d has type %d, not %d", who, (int)name, (int)rule->type, (int)type);
    FAKE_REQUIRE(room == 0 || data, CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "%s: attribute %d into NULL", who, (int)name);
    if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS)
        return fake_engine_results(d, room, count, data);
    FAKE_REQUIRE(a || rule->answer, CUDNN_STATUS_BAD_PARAM, "%s: attribute %d was not set", who, (int)name);
    FAKE_REQUIRE(!a || a->type == type, CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE, "%s: attribute %d was set as type %d", who,
                 (int)name, (int)(a ? a->type : 0));
    *count = a ? a->count : 0;
    const int64_t n = room < *count ? room : *count;
    if (n > 0 && type != CUDNN_TYPE_BACKEND_DESCRIPTOR)
        memcpy(data, a->data, (size_t)n * type_bytes(type));
    for (int64_t i = 0; type == CUDNN_TYPE_BACKEND_DESCRIPTOR && i < n; i++)
        FAKE_TRY(copy_into(fake_desc_of(((cudnnBackendDescriptor_t *)data)[i]), ((FakeDesc **)a->data)[i]));
    return CUDNN_STATUS_SUCCESS;
}

int64_t fake_int(const FakeDesc *d, cudnnBackendAttributeName_t name, int64_t otherwise)
{
    const FakeAttr *a = fake_attr(d, name);
    if (!a)
        return otherwise;
    switch (type_bytes(a->type)) {
    case sizeof(bool): return *(const bool *)a->data;
    case sizeof(int): return *(const int *)a->data;
    default: return *(const int64_t *)a->data;
    }
}

double fake_number(const FakeDesc *d, cudnnBackendAttributeName_t name, double otherwise)
{
    const FakeAttr *a = fake_attr(d, name);
    if (!a)
        return otherwise;
    return a->type == CUDNN_TYPE_FLOAT ? (double)*(const float *)a->data : *(const double *)a->data;
}

FakeDesc *fake_child(const FakeDesc *d, cudnnBackendAttributeName_t name)
{
    const FakeAttr *a = fake_attr(d, name);
    return a ? *(FakeDesc **)a->data : NULL;
}
