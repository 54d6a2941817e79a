/* raw_run.c - see raw_run.h. */
#include "raw_run.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

RawDevice raw_device_open(void)
{
    RawDevice d = { .api = fake_cudnn_api() };
    fake_reset();
    fake_cudnn_reset();
    assert_int_equal(cudaStreamCreateWithFlags(&d.stream, cudaStreamNonBlocking), cudaSuccess);
    assert_int_equal(d.api->cudnnCreate(&d.handle), CUDNN_STATUS_SUCCESS);
    assert_int_equal(d.api->cudnnSetStream(d.handle, d.stream), CUDNN_STATUS_SUCCESS);
    d.workspace = raw_alloc(RAW_WORKSPACE);
    return d;
}

void raw_device_close(RawDevice *d)
{
    assert_int_equal(d->api->cudnnDestroy(d->handle), CUDNN_STATUS_SUCCESS);
    assert_int_equal(cudaStreamDestroy(d->stream), cudaSuccess);
    assert_int_equal(cudaFree(d->workspace), cudaSuccess);
    const FakeCudnnCounts left = fake_cudnn_counts();
    assert_int_equal(left.descriptors, 0);
    assert_int_equal(left.handles, 0);
    assert_int_equal(fake_counts().device_blocks, 0);
    assert_int_equal(fake_counts().overruns, 0);
}

void *raw_alloc(size_t bytes)
{
    void *p = NULL;
    assert_int_equal(cudaMalloc(&p, bytes), cudaSuccess);
    memset(p, 0xff, bytes);
    return p;
}

float *raw_floats(int64_t n, const float *values)
{
    float *p = raw_alloc((size_t)n * sizeof *p);
    if (values)
        memcpy(p, values, (size_t)n * sizeof *p);
    return p;
}

Desc raw_plan(RawGraph *g, RawDevice *d, int64_t index)
{
    Desc engine = raw_create(g, CUDNN_BACKEND_ENGINE_DESCRIPTOR), config = raw_create(g, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR),
         plan = raw_create(g, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    raw_set_desc(g, engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, g->graph);
    raw_set_int(g, engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, index);
    raw_finalize(g, engine, "engine");
    raw_set_desc(g, config, CUDNN_ATTR_ENGINECFG_ENGINE, engine);
    raw_finalize(g, config, "engine configuration");
    raw_set_desc(g, plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
    raw_set(g, plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &d->handle);
    raw_finalize(g, plan, "plan");
    return plan;
}

Desc raw_pack(RawGraph *g, const RawBind *bind, int count, void *workspace)
{
    int64_t uid[32];
    void *memory[32];
    Desc pack = raw_create(g, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    for (int i = 0; i < count; i++) {
        uid[i] = bind[i].uid;
        memory[i] = bind[i].memory;
    }
    raw_set(g, pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, uid);
    raw_set(g, pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count, memory);
    if (workspace)
        raw_set(g, pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
    raw_finalize(g, pack, "variant pack");
    return pack;
}

void raw_run(RawGraph *g, RawDevice *d, const RawBind *bind, int count)
{
    raw_finish(g);
    Desc plan = raw_plan(g, d, 12), pack = raw_pack(g, bind, count, d->workspace);
    if (g->status != CUDNN_STATUS_SUCCESS)
        fail_msg("%s", g->words);
    if (d->api->cudnnBackendExecute(d->handle, plan, pack) != CUDNN_STATUS_SUCCESS) {
        char words[256];
        d->api->cudnnGetLastErrorString(words, sizeof words);
        fail_msg("%s", words);
    }
    assert_int_equal(cudaStreamSynchronize(d->stream), cudaSuccess);
}
