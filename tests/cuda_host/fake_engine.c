/* fake_engine.c - heuristics, engines, plans, and the execution of a plan with a variant pack. See fake_desc.h. */
#include "fake.h"
#include "fake_desc.h"

#include <stdlib.h>
#include <string.h>

#define BAD CUDNN_STATUS_BAD_PARAM

/* ---- engines */

/* f32 inputs of products: the only ones that an engine may round. */
static bool has_f32_products(const InterpGraph *g)
{
    for (int i = 0; i < g->ops; i++)
        if (g->op[i].kind <= INTERP_CONV_WGRAD || g->op[i].kind == INTERP_MATMUL)
            for (int k = 0; k < 2; k++)
                if (g->tensor[g->op[i].slot[k]].type == CUDNN_DATA_FLOAT)
                    return true;
    return false;
}

static FakeDesc *graph_of(const FakeDesc *d, cudnnBackendAttributeName_t name)
{
    FakeDesc *g = fake_child(d, name);
    return g && g->type == CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR ? g : NULL;
}

/* Which of bits 0..count-1 are set, as the enumerations that they stand for. */
static cudnnStatus_t keep_notes(FakeDesc *d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, unsigned bits,
                                int count)
{
    int note[32], n = 0;
    for (int i = 0; i < count; i++)
        if (bits >> i & 1)
            note[n++] = i;
    return fake_desc_keep(d, name, type, n, note);
}

static cudnnStatus_t finalize_engine(FakeDesc *d)
{
    const FakeDesc *graph = graph_of(d, CUDNN_ATTR_ENGINE_OPERATION_GRAPH);
    int count;
    const FakeCudnnEngine *engine = fake_engines(&count);
    const int64_t index = fake_int(d, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, -1);
    FAKE_REQUIRE(graph, CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE, "engine: no operation graph");
    for (int i = 0; i < count; i++)
        if (engine[i].index == index) {
            d->engine = engine[i];
            if (!has_f32_products(graph->graph))
                d->engine.notes &= ~(1u << CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS);
            FAKE_TRY(keep_notes(d, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, d->engine.notes,
                                CUDNN_NUMERICAL_NOTE_TYPE_COUNT));
            return keep_notes(d, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE, d->engine.behaviour,
                              CUDNN_BEHAVIOR_NOTE_TYPE_COUNT);
        }
    return fake_error(CUDNN_STATUS_NOT_SUPPORTED, "engine: there is no engine %lld for this graph", (long long)index);
}

static cudnnStatus_t finalize_config(FakeDesc *d)
{
    const FakeDesc *engine = fake_child(d, CUDNN_ATTR_ENGINECFG_ENGINE);
    FAKE_REQUIRE(engine->type == CUDNN_BACKEND_ENGINE_DESCRIPTOR, CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE,
                 "engine configuration: no engine");
    d->engine = engine->engine;
    return fake_desc_keep(d, CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &d->engine.workspace);
}

/* A plan, or what is asked of heuristics, is for a device: that of a handle, or one described. */
static bool has_device(const FakeDesc *d, cudnnBackendAttributeName_t handle, cudnnBackendAttributeName_t described)
{
    const FakeDesc *device = fake_child(d, described);
    return fake_attr(d, handle) || (device && device->type == CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
}

static cudnnStatus_t finalize_plan(FakeDesc *d)
{
    static const char json[] = "{\"plan\":\"of a stand-in for cuDNN; cannot be loaded\"}";
    const FakeDesc *config = fake_child(d, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
    FAKE_REQUIRE(config->type == CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE,
                 "plan: no engine configuration");
    FAKE_REQUIRE(has_device(d, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP), BAD,
                 "plan: neither a handle nor a device description");
    FAKE_REQUIRE(!config->engine.refuses, CUDNN_STATUS_NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING,
                 "plan: engine %lld is not for this graph", (long long)config->engine.index);
    d->engine = config->engine;
    FAKE_TRY(fake_desc_keep(d, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &d->engine.workspace));
    return fake_desc_keep(d, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, (int64_t)sizeof json - 1, json);
}

static cudnnStatus_t finalize_device(const FakeDesc *d)
{
    const FakeAttr *json = fake_attr(d, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION);
    FAKE_REQUIRE(json || fake_attr(d, CUDNN_ATTR_DEVICEPROP_HANDLE) || fake_attr(d, CUDNN_ATTR_DEVICEPROP_DEVICE_ID), BAD,
                 "device properties: nothing is set");
    FAKE_REQUIRE(!json || (json->count > 2 && *(const char *)json->data == '{'), BAD, "device properties: no JSON object");
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t fake_engine_finalize(FakeDesc *d)
{
    switch (d->type) {
    case CUDNN_BACKEND_ENGINE_DESCRIPTOR: return finalize_engine(d);
    case CUDNN_BACKEND_ENGINECFG_DESCRIPTOR: return finalize_config(d);
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR: return finalize_plan(d);
    case CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR: return finalize_device(d);
    case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR:
        FAKE_REQUIRE(graph_of(d, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH), CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE,
                     "heuristics: no operation graph");
        FAKE_REQUIRE(has_device(graph_of(d, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH), CUDNN_ATTR_OPERATIONGRAPH_HANDLE,
                                CUDNN_ATTR_ENGINEHEUR_DEVICEPROP) || fake_attr(d, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP), BAD,
                     "heuristics: neither a handle on the graph nor a device description");
        return CUDNN_STATUS_SUCCESS;
    default: return CUDNN_STATUS_SUCCESS;
    }
}

/* ---- heuristics: fills the caller's descriptors with finalized configurations */

/* An engine, made for the caller's configuration, which then holds it. */
static cudnnStatus_t give_engine(FakeDesc *engine, FakeDesc *graph, int64_t index, FakeDesc *config)
{
    FAKE_TRY(fake_desc_keep(engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &graph));
    FAKE_TRY(fake_desc_keep(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &index));
    FAKE_TRY(finalize_engine(engine));
    engine->finalized = true;
    return fake_desc_keep(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &engine);
}

static cudnnStatus_t give_knob(FakeDesc *knob, int64_t value, FakeDesc *config)
{
    const cudnnBackendKnobType_t type = CUDNN_KNOB_TYPE_TILE_SIZE;
    FAKE_TRY(fake_desc_keep(knob, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &type));
    FAKE_TRY(fake_desc_keep(knob, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &value));
    knob->finalized = true;
    return fake_desc_keep(config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &knob);
}

static cudnnStatus_t fill_config(const FakeDesc *heuristics, const FakeCudnnEngine *from, FakeDesc *config)
{
    FakeDesc *graph = graph_of(heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
    FakeDesc *engine = fake_desc_create(CUDNN_BACKEND_ENGINE_DESCRIPTOR),
             *knob = fake_desc_create(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
    cudnnStatus_t s = engine && knob
                          ? give_engine(engine, graph, from->index, config)
                          : fake_error(CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED, "out of memory for an engine");
    if (s == CUDNN_STATUS_SUCCESS && from->knob != 0)
        s = give_knob(knob, from->knob, config);
    if (s == CUDNN_STATUS_SUCCESS)
        s = finalize_config(config);
    config->finalized = s == CUDNN_STATUS_SUCCESS;
    if (engine)
        fake_desc_release(engine);
    if (knob)
        fake_desc_release(knob);
    return s;
}

cudnnStatus_t fake_engine_results(const FakeDesc *heuristics, int64_t room, int64_t *count, FakeDesc *const *configs)
{
    const bool fallback = fake_int(heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, -1) == CUDNN_HEUR_MODE_FALLBACK;
    int engines;
    const FakeCudnnEngine *engine = fake_engines(&engines);
    int64_t n = 0;
    for (int i = 0; i < engines; i++) {
        if (engine[i].fallback != fallback)
            continue;
        if (room > 0 && n == room)
            break;
        if (room > 0) {
            FakeDesc *config = fake_desc_of(configs[n]);
            FAKE_REQUIRE(config && config->type == CUDNN_BACKEND_ENGINECFG_DESCRIPTOR && !config->finalized,
                         CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE, "heuristics: result %lld goes into no fresh engine configuration",
                         (long long)n);
            FAKE_TRY(fill_config(heuristics, &engine[i], config));
        }
        n++;
    }
    *count = n;
    return CUDNN_STATUS_SUCCESS;
}

/* ---- execution */

static const InterpGraph *plan_graph(const FakeDesc *plan)
{
    const FakeDesc *config = fake_child(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
    return graph_of(fake_child(config, CUDNN_ATTR_ENGINECFG_ENGINE), CUDNN_ATTR_ENGINE_OPERATION_GRAPH)->graph;
}

/* Ragged tensors end where their offsets say, which only the device knows. */
static size_t tensor_bytes_of(const InterpTensor *t)
{
    return t->ragged >= 0 ? 1 : ((size_t)interp_extent(t) * (size_t)interp_type_bits(t->type) + 7) / 8;
}

/* memory[i] of tensor i; every tensor that is not virtual must be in the pack once, and nothing else. */
static cudnnStatus_t bind_memory(const InterpGraph *g, const FakeDesc *pack, void **memory)
{
    const FakeAttr *ids = fake_attr(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS),
                   *pointers = fake_attr(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
    for (int64_t k = 0; k < ids->count; k++) {
        const int64_t uid = ((const int64_t *)ids->data)[k];
        void *pointer = ((void *const *)pointers->data)[k];
        int i = 0;
        while (i < g->tensors && g->tensor[i].uid != uid)
            i++;
        FAKE_REQUIRE(i < g->tensors && !g->tensor[i].is_virtual, BAD, "variant pack: the graph has no tensor %lld in memory",
                     (long long)uid);
        FAKE_REQUIRE(!memory[i], CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES, "variant pack: tensor %lld twice", (long long)uid);
        FAKE_REQUIRE(pointer, CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "variant pack: tensor %lld is NULL", (long long)uid);
        FAKE_REQUIRE(g->tensor[i].by_value || (uintptr_t)pointer % (uintptr_t)g->tensor[i].alignment == 0,
                     CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER, "variant pack: tensor %lld is not aligned to %lld bytes",
                     (long long)uid, (long long)g->tensor[i].alignment);
        FAKE_REQUIRE(g->tensor[i].by_value ? !fake_is_device(pointer, 1) : fake_is_device(pointer, tensor_bytes_of(&g->tensor[i])),
                     BAD, "variant pack: tensor %lld is not in %s", (long long)uid,
                     g->tensor[i].by_value ? "host memory" : "one block of device memory");
        memory[i] = pointer;
    }
    for (int i = 0; i < g->tensors; i++)
        FAKE_REQUIRE(memory[i] || g->tensor[i].is_virtual, BAD, "variant pack: tensor %lld is missing",
                     (long long)g->tensor[i].uid);
    return CUDNN_STATUS_SUCCESS;
}

static uintptr_t end_of(const InterpTensor *t, const void *memory) { return (uintptr_t)memory + tensor_bytes_of(t); }

static bool is_in_place(const InterpGraph *g, int in, int out, void *const *memory)
{
    const InterpTensor *a = &g->tensor[in], *b = &g->tensor[out];
    bool allowed = memory[in] == memory[out] && a->type == b->type && a->rank == b->rank &&
                   memcmp(a->dim, b->dim, sizeof a->dim) == 0 && memcmp(a->stride, b->stride, sizeof a->stride) == 0;
    for (int i = 0; allowed && i < g->ops; i++) {
        const InterpOp *op = &g->op[i];
        const bool running = op->kind == INTERP_NORM && ((op->slot[NORM_RUN_MEAN] == in && op->slot[NORM_NEXT_MEAN] == out) ||
                                                         (op->slot[NORM_RUN_VAR] == in && op->slot[NORM_NEXT_VAR] == out));
        if (running)
            return true;
        allowed = op->kind == INTERP_POINTWISE;
    }
    return allowed;
}

static bool ranges_overlap(const InterpGraph *g, int a, int b, void *const *memory)
{
    const InterpTensor *ta = &g->tensor[a], *tb = &g->tensor[b];
    return !ta->is_virtual && !tb->is_virtual && !ta->by_value && !tb->by_value && ta->ragged < 0 && tb->ragged < 0 &&
           (uintptr_t)memory[a] < end_of(tb, memory[b]) && (uintptr_t)memory[b] < end_of(ta, memory[a]);
}

/* No element of one lies on an element of the other: rows of both with one step in memory, as the q, k, v parts of a row have,
 * that do not meet. Sufficient, not necessary. */
static bool interleave(const InterpTensor *a, const InterpTensor *b, const void *pa, const void *pb)
{
    const int64_t bytes = interp_type_bits(a->type) / 8;
    int64_t pitch = 0, width_a = 1, width_b = 1;
    if (a->type != b->type || bytes == 0 || a->rank != b->rank)
        return false;
    for (int d = 0; d < a->rank; d++) /* the smallest step that both make and that is larger than the distance of the two */
        if (a->stride[d] == b->stride[d] && a->dim[d] == b->dim[d] && a->dim[d] > 1 && (pitch == 0 || a->stride[d] < pitch) &&
            a->stride[d] * bytes > llabs((long long)((intptr_t)pa - (intptr_t)pb)))
            pitch = a->stride[d];
    for (int d = 0; d < a->rank && pitch > 0; d++) {
        if (a->stride[d] % pitch != 0)
            width_a += (a->dim[d] - 1) * a->stride[d];
        if (b->stride[d] % pitch != 0)
            width_b += (b->dim[d] - 1) * b->stride[d];
    }
    if (pitch == 0)
        return false;
    const int64_t shift = (((intptr_t)pb - (intptr_t)pa) / bytes % pitch + pitch) % pitch;
    return shift >= width_a && shift + width_b <= pitch;
}

static cudnnStatus_t check_overlaps(const InterpGraph *g, void *const *memory)
{
    for (int out = 0; out < g->tensors; out++)
        for (int other = 0; g->tensor[out].written && other < g->tensors; other++)
            if (other != out && ranges_overlap(g, out, other, memory) &&
                (!g->tensor[other].read || g->tensor[other].written || !is_in_place(g, other, out, memory)) &&
                !interleave(&g->tensor[out], &g->tensor[other], memory[out], memory[other]))
                return fake_error(BAD, "variant pack: output %lld lies over tensor %lld", (long long)g->tensor[out].uid,
                                  (long long)g->tensor[other].uid);
    return CUDNN_STATUS_SUCCESS;
}

/* What waits on the stream: the job and a reference to the plan, whose graph it runs. */
typedef struct Pending { FakeDesc *plan; InterpJob *job; } Pending;

static void pending_run(void *context) { interp_job_run(((Pending *)context)->job); }

static void pending_free(void *context)
{
    Pending *p = context;
    interp_job_destroy(p->job);
    fake_desc_release(p->plan);
    free(p);
}

static cudnnStatus_t enqueue(cudaStream_t stream, FakeDesc *plan, void *const *memory, void *workspace)
{
    Pending *p = calloc(1, sizeof *p);
    InterpJob *job = p ? interp_job_create(plan_graph(plan), memory) : NULL;
    if (!job) {
        free(p);
        return fake_error(CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED, "out of memory for a plan");
    }
    job->rounds_inputs = plan->engine.notes >> CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS & 1;
    job->workspace = workspace;
    job->workspace_bytes = (size_t)plan->engine.workspace;
    plan->references++;
    *p = (Pending){ .plan = plan, .job = job };
    fake_count_execution(plan->engine.index);
    const cudaError_t e = fake_enqueue(stream, "fake_cudnn", plan->engine.microseconds, pending_run, p, pending_free);
    FAKE_REQUIRE(e == cudaSuccess, CUDNN_STATUS_EXECUTION_FAILED_CUDART, "execute: the stream takes no work (error %d)", (int)e);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t fake_plan_execute(cudnnHandle_t handle, cudaStream_t stream, FakeDesc *plan, const FakeDesc *pack)
{
    FAKE_REQUIRE(handle && plan && pack, CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "execute: a handle, a plan and a variant pack");
    FAKE_REQUIRE(plan->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR && pack->type == CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR,
                 CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE, "execute: a plan and a variant pack");
    FAKE_REQUIRE(plan->finalized && pack->finalized, CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED,
                 "execute: plan or variant pack is not finalized");
    const InterpGraph *g = plan_graph(plan);
    const FakeAttr *workspace = fake_attr(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
    void *room = workspace ? *(void **)workspace->data : NULL;
    FAKE_REQUIRE(plan->engine.workspace == 0 || (room && fake_is_device(room, (size_t)plan->engine.workspace)), BAD,
                 "execute: no workspace of %lld bytes in device memory", (long long)plan->engine.workspace);
    FAKE_REQUIRE(!plan->engine.fails, CUDNN_STATUS_EXECUTION_FAILED, "execute: engine %lld failed", (long long)plan->engine.index);
    void **memory = calloc((size_t)g->tensors, sizeof *memory);
    FAKE_REQUIRE(memory, CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED, "out of memory for a plan");
    cudnnStatus_t s = bind_memory(g, pack, memory);
    if (s == CUDNN_STATUS_SUCCESS)
        s = check_overlaps(g, memory);
    if (s == CUDNN_STATUS_SUCCESS)
        s = enqueue(stream, plan, memory, room);
    free(memory);
    return s;
}
