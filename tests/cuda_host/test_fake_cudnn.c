/* test_fake_cudnn.c - the stand-in for cuDNN as a library: engines and plans, what a variant pack must hold, work that runs late and
 * in recorded graphs, faults. What graphs compute is test_interp.c's, which of them are taken test_cudnn_agrees.c's. */
#include "raw_run.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define F CUDNN_DATA_FLOAT

/* y = x w, a 1x1 convolution of one channel over n pixels: ids 1, 2, 3. */
static RawGraph product(const CudnnApi *api, cudnnDataType_t type, int64_t n, double beta)
{
    RawGraph g = raw_begin(api);
    raw_conv(&g, RAW_FORWARD, raw_nhwc(&g, 1, type, 1, 1, 1, n), raw_nhwc(&g, 2, type, 1, 1, 1, 1),
             raw_nhwc(&g, 3, type, 1, 1, 1, n), (RawConv){ .beta = beta });
    raw_finish(&g);
    if (g.status != CUDNN_STATUS_SUCCESS)
        fail_msg("%s", g.words);
    return g;
}

/* Executes and expects this status; with success it waits. */
static void expect_execute(RawGraph *g, RawDevice *d, Desc plan, Desc pack, cudnnStatus_t status, const char *word)
{
    char words[256];
    if (g->status != CUDNN_STATUS_SUCCESS)
        fail_msg("%s", g->words);
    assert_int_equal(d->api->cudnnBackendExecute(d->handle, plan, pack), status);
    d->api->cudnnGetLastErrorString(words, sizeof words);
    if (!strstr(words, word))
        fail_msg("cuDNN says '%s', not '%s'", words, word);
    if (status == CUDNN_STATUS_SUCCESS)
        assert_int_equal(cudaStreamSynchronize(d->stream), cudaSuccess);
}

/* ---- engines */

enum { CONFIGS = 8 };

static int64_t ask(RawGraph *g, RawDevice *d, cudnnBackendHeurMode_t mode, int64_t room, Desc *config)
{
    int64_t count = -1;
    Desc heuristics = raw_create(g, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    Desc device = raw_create(g, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
    raw_set(g, device, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, 16, "{\"deviceVer\":90}");
    raw_finalize(g, device, "device");
    raw_set_desc(g, heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, g->graph);
    raw_set_int(g, heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, mode);
    raw_set_desc(g, heuristics, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, device);
    raw_finalize(g, heuristics, "heuristics");
    if (g->status != CUDNN_STATUS_SUCCESS)
        fail_msg("%s", g->words);
    for (int64_t i = 0; i < room; i++)
        config[i] = raw_create(g, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    assert_int_equal(d->api->cudnnBackendGetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                                      room, &count, config),
                     CUDNN_STATUS_SUCCESS);
    return count;
}

typedef struct Engine { int64_t index, workspace, notes, behaviour, knob; bool tensor_cores, rounds; cudnnStatus_t plan; } Engine;

static Engine look(RawGraph *g, RawDevice *d, Desc config)
{
    Engine e = { .index = -1 };
    int64_t n = 0;
    cudnnBackendNumericalNote_t note[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    cudnnBackendBehaviorNote_t behaviour[CUDNN_BEHAVIOR_NOTE_TYPE_COUNT];
    Desc engine = raw_create(g, CUDNN_BACKEND_ENGINE_DESCRIPTOR), plan = raw_create(g, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    assert_int_equal(
        d->api->cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &n, &engine),
        CUDNN_STATUS_SUCCESS);
    assert_int_equal(d->api->cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &n, &e.index),
                     CUDNN_STATUS_SUCCESS);
    assert_int_equal(d->api->cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                                      COUNT_OF(note), &e.notes, note),
                     CUDNN_STATUS_SUCCESS);
    assert_int_equal(d->api->cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE,
                                                      COUNT_OF(behaviour), &e.behaviour, behaviour),
                     CUDNN_STATUS_SUCCESS);
    Desc knob = raw_create(g, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
    if (d->api->cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &n, &knob) ==
        CUDNN_STATUS_SUCCESS)
        assert_int_equal(
            d->api->cudnnBackendGetAttribute(knob, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &n, &e.knob),
            CUDNN_STATUS_SUCCESS);
    for (int64_t i = 0; i < e.notes; i++) {
        e.tensor_cores |= note[i] == CUDNN_NUMERICAL_NOTE_TENSOR_CORE;
        e.rounds |= note[i] == CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS;
    }
    raw_set_desc(g, plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
    raw_set(g, plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &d->handle);
    e.plan = d->api->cudnnBackendFinalize(plan);
    if (e.plan == CUDNN_STATUS_SUCCESS)
        assert_int_equal(
            d->api->cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &n, &e.workspace),
            CUDNN_STATUS_SUCCESS);
    return e;
}

static void heuristics_list_the_engines(void **state)
{
    (void)state;
    RawDevice d = raw_device_open();
    RawGraph g = product(d.api, F, 4, 0);
    Desc config[CONFIGS];
    assert_int_equal(ask(&g, &d, CUDNN_HEUR_MODE_A, 0, NULL), 3);
    assert_int_equal(ask(&g, &d, CUDNN_HEUR_MODE_A, 2, config), 2);
    assert_int_equal(ask(&g, &d, CUDNN_HEUR_MODE_A, CONFIGS, config), 3);
    Engine e = look(&g, &d, config[0]);
    assert_true(e.index == 7 && e.workspace == 131 && e.notes == 2 && e.tensor_cores && e.rounds && e.behaviour == 0 &&
                e.knob == 3 && e.plan == CUDNN_STATUS_SUCCESS);
    e = look(&g, &d, config[1]);
    assert_true(e.index == 12 && e.workspace == 1024 && e.notes == 0 && e.knob == 0 && e.plan == CUDNN_STATUS_SUCCESS);
    e = look(&g, &d, config[2]);
    assert_true(e.index == 15 && e.behaviour == 1 && CUDNN_STATUS_CATEGORY(e.plan) == CUDNN_STATUS_NOT_SUPPORTED);
    assert_int_equal(ask(&g, &d, CUDNN_HEUR_MODE_FALLBACK, CONFIGS, config), 1);
    assert_int_equal(look(&g, &d, config[0]).index, 0);
    raw_end(&g);
    raw_device_close(&d);
}

static void tests_choose_the_engines(void **state)
{
    (void)state;
    static const FakeCudnnEngine engines[] = { { .index = 3, .fails = true }, { .index = 4, .workspace = 64 } };
    RawDevice d = raw_device_open();
    fake_cudnn_set_engines(engines, 2);
    RawGraph g = product(d.api, F, 2, 0);
    Desc config[CONFIGS];
    float *x = raw_floats(2, (float[]){ 1, 2 }), *w = raw_floats(1, (float[]){ 3 }), *y = raw_floats(2, NULL);
    const RawBind bind[] = { { 1, x }, { 2, w }, { 3, y } };
    assert_int_equal(ask(&g, &d, CUDNN_HEUR_MODE_FALLBACK, CONFIGS, config), 0);
    assert_int_equal(ask(&g, &d, CUDNN_HEUR_MODE_INSTANT, CONFIGS, config), 2);
    expect_execute(&g, &d, raw_plan(&g, &d, 3), raw_pack(&g, bind, 3, NULL), CUDNN_STATUS_EXECUTION_FAILED, "engine 3 failed");
    expect_execute(&g, &d, raw_plan(&g, &d, 4), raw_pack(&g, bind, 3, d.workspace), CUDNN_STATUS_SUCCESS, "");
    assert_true(y[0] == 3 && y[1] == 6);
    assert_int_equal(fake_cudnn_last_engine(), 4);
    raw_plan(&g, &d, 5);
    assert_int_equal(CUDNN_STATUS_CATEGORY(g.status), CUDNN_STATUS_NOT_SUPPORTED);
    raw_end(&g);
    cudaFree(x);
    cudaFree(w);
    cudaFree(y);
    raw_device_close(&d);
}

/* 1 + 2^-11 and 1 - 2^-12 need more than TF32's ten bits; in fp16 nothing is rounded and the note is not given. */
static void an_engine_that_rounds_inputs_does_so(void **state)
{
    (void)state;
    RawDevice d = raw_device_open();
    RawGraph g = product(d.api, F, 2, 0);
    float *x = raw_floats(2, (float[]){ 1 + 0x1p-11f, 1 + 0x1p-12f }), *w = raw_floats(1, (float[]){ 1 }), *y = raw_floats(2, NULL);
    const RawBind bind[] = { { 1, x }, { 2, w }, { 3, y } };
    Desc pack = raw_pack(&g, bind, 3, d.workspace);
    expect_execute(&g, &d, raw_plan(&g, &d, 12), pack, CUDNN_STATUS_SUCCESS, "");
    assert_true(y[0] == 1 + 0x1p-11f && y[1] == 1 + 0x1p-12f);
    expect_execute(&g, &d, raw_plan(&g, &d, 7), pack, CUDNN_STATUS_SUCCESS, "");
    assert_true(y[0] == 1 + 0x1p-10f && y[1] == 1);
    raw_end(&g);
    g = product(d.api, CUDNN_DATA_HALF, 2, 0);
    Desc config[CONFIGS];
    ask(&g, &d, CUDNN_HEUR_MODE_A, CONFIGS, config);
    const Engine e = look(&g, &d, config[0]);
    assert_true(e.tensor_cores && !e.rounds);
    raw_end(&g);
    cudaFree(x);
    cudaFree(w);
    cudaFree(y);
    raw_device_close(&d);
}

/* ---- variant packs */

static void a_pack_names_the_tensors_of_the_graph_and_no_others(void **state)
{
    (void)state;
    RawDevice d = raw_device_open();
    RawGraph g = product(d.api, F, 4, 0);
    float *x = raw_floats(8, NULL), *w = raw_floats(1, NULL), *y = raw_floats(8, NULL), host[8];
    Desc plan = raw_plan(&g, &d, 12);
    const struct { RawBind bind[4]; int count; bool no_workspace; cudnnStatus_t status; const char *word; } packs[] = {
        { { { 1, x }, { 2, w } }, 2, false, CUDNN_STATUS_BAD_PARAM, "tensor 3 is missing" },
        { { { 1, x }, { 2, w }, { 3, y }, { 4, y } }, 4, false, CUDNN_STATUS_BAD_PARAM, "no tensor 4" },
        { { { 1, x }, { 2, w }, { 3, y }, { 3, y } }, 4, false, CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES, "tensor 3 twice" },
        { { { 1, x }, { 2, NULL }, { 3, y } }, 3, false, CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "tensor 2 is NULL" },
        { { { 1, x + 1 }, { 2, w }, { 3, y } }, 3, false, CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER, "not aligned" },
        { { { 1, host }, { 2, w }, { 3, y } }, 3, false, CUDNN_STATUS_BAD_PARAM, "device memory" },
        { { { 1, x + 8 }, { 2, w }, { 3, y } }, 3, false, CUDNN_STATUS_BAD_PARAM, "device memory" },
        { { { 1, x }, { 2, w }, { 3, x } }, 3, false, CUDNN_STATUS_BAD_PARAM, "lies over" },
        { { { 1, x + 4 }, { 2, w }, { 3, x } }, 3, false, CUDNN_STATUS_SUCCESS, "" }, /* behind it */
        { { { 1, x }, { 2, w }, { 3, y } }, 3, true, CUDNN_STATUS_BAD_PARAM, "workspace of 1024" },
        { { { 3, y }, { 2, w }, { 1, x } }, 3, false, CUDNN_STATUS_SUCCESS, "" },
    };
    for (size_t i = 0; i < COUNT_OF(packs); i++)
        expect_execute(&g, &d, plan, raw_pack(&g, packs[i].bind, packs[i].count, packs[i].no_workspace ? NULL : d.workspace),
                       packs[i].status, packs[i].word);
    Desc raw = raw_create(&g, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    expect_execute(&g, &d, plan, raw, CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "not finalized");
    expect_execute(&g, &d, raw, plan, CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE, "a plan and a variant pack");
    raw_end(&g);
    cudaFree(x);
    cudaFree(w);
    cudaFree(y);
    raw_device_close(&d);
}

static void pointwise_ops_may_run_in_place(void **state)
{
    (void)state;
    RawDevice d = raw_device_open();
    RawGraph g = raw_begin(d.api);
    float *x = raw_floats(4, (float[]){ 1, 2, 3, 4 });
    raw_point(&g, CUDNN_POINTWISE_ADD, raw_nhwc(&g, 1, F, 1, 4, 1, 1), raw_nhwc(&g, 1, F, 1, 4, 1, 1), NULL,
              raw_nhwc(&g, 2, F, 1, 4, 1, 1));
    RAW_RUN(&g, &d, { 1, x }, { 2, x });
    assert_true(x[0] == 2 && x[3] == 8);
    raw_end(&g);
    cudaFree(x);
    raw_device_close(&d);
}

/* q, k, v in one row of memory: outputs that interleave do not lie over each other; one that is moved by an element does. */
static void outputs_may_interleave(void **state)
{
    (void)state;
    RawDevice d = raw_device_open();
    RawGraph g = raw_begin(d.api);
    float *x = raw_floats(8, (float[]){ 1, 2, 3, 4, 5, 6, 7, 8 }), *rows = raw_floats(24, NULL);
    RawTensor t = { .type = F, .rank = 4, .dim = { 1, 2, 1, 4 }, .stride = { 24, 12, 12, 1 } };
    Desc y[2];
    for (int i = 0; i < 2; i++) {
        t.uid = 2 + i;
        y[i] = raw_tensor(&g, t);
        raw_point(&g, i ? CUDNN_POINTWISE_NEG : CUDNN_POINTWISE_IDENTITY,
                  raw_tensor(&g, (RawTensor){ .uid = 1, .type = F, .rank = 4, .dim = { 1, 2, 1, 4 } }), NULL, NULL, y[i]);
    }
    RAW_RUN(&g, &d, { 1, x }, { 2, rows }, { 3, rows + 8 });
    assert_true(rows[0] == 1 && isnan(rows[4]) && rows[8] == -1 && rows[12] == 5 && rows[23] == -8);
    expect_execute(&g, &d, raw_plan(&g, &d, 12), raw_pack(&g, (RawBind[]){ { 1, x }, { 2, rows }, { 3, rows } }, 3, d.workspace),
                   CUDNN_STATUS_BAD_PARAM, "lies over");
    raw_end(&g);
    cudaFree(x);
    cudaFree(rows);
    raw_device_close(&d);
}

/* ---- streams */

static void plans_run_late_with_the_values_of_the_call(void **state)
{
    (void)state;
    RawDevice d = raw_device_open();
    RawGraph g = raw_begin(d.api);
    float *x = raw_floats(4, (float[]){ 1, 2, 3, 4 }), *y = raw_floats(4, NULL), by = 10;
    raw_point(&g, CUDNN_POINTWISE_MUL, raw_nhwc(&g, 1, F, 1, 4, 1, 1), raw_scalar(&g, 2, F), NULL, raw_nhwc(&g, 3, F, 1, 4, 1, 1));
    raw_finish(&g);
    Desc plan = raw_plan(&g, &d, 12), pack = raw_pack(&g, (RawBind[]){ { 1, x }, { 2, &by }, { 3, y } }, 3, d.workspace);
    memset(d.workspace, 0, RAW_WORKSPACE);
    assert_int_equal(d.api->cudnnBackendExecute(d.handle, plan, pack), CUDNN_STATUS_SUCCESS);
    by = -1;
    x[0] = 5; /* device memory is read when the plan runs, a value given by value when it is enqueued */
    raw_end(&g); /* a plan may be destroyed while it is enqueued */
    assert_true(isnan(y[0]));
    assert_int_equal(cudaStreamSynchronize(d.stream), cudaSuccess);
    assert_true(y[0] == 50 && y[1] == 20 && y[3] == 40);
    const uint8_t *workspace = d.workspace;
    assert_true(workspace[0] == 0xff && workspace[1023] == 0xff && workspace[1024] == 0); /* NaN over what it was given */
    assert_int_equal(fake_cudnn_counts().executed, 1);
    cudaFree(x);
    cudaFree(y);
    raw_device_close(&d);
}

static void a_recorded_plan_runs_at_each_replay(void **state)
{
    (void)state;
    RawDevice d = raw_device_open();
    RawGraph g = product(d.api, F, 2, 1);
    float *x = raw_floats(2, (float[]){ 1, 2 }), *w = raw_floats(1, (float[]){ 3 }), *y = raw_floats(2, (float[]){ 0, 100 });
    Desc plan = raw_plan(&g, &d, 12), pack = raw_pack(&g, (RawBind[]){ { 1, x }, { 2, w }, { 3, y } }, 3, d.workspace);
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    assert_int_equal(cudaStreamBeginCapture(d.stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    assert_int_equal(d.api->cudnnBackendExecute(d.handle, plan, pack), CUDNN_STATUS_SUCCESS);
    assert_int_equal(cudaStreamEndCapture(d.stream, &graph), cudaSuccess);
    assert_int_equal(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
    assert_int_equal(cudaGraphDestroy(graph), cudaSuccess);
    raw_end(&g);
    assert_int_equal(cudaStreamSynchronize(d.stream), cudaSuccess);
    assert_true(y[0] == 0 && y[1] == 100);
    for (int i = 0; i < 2; i++)
        assert_int_equal(cudaGraphLaunch(exec, d.stream), cudaSuccess);
    assert_int_equal(cudaStreamSynchronize(d.stream), cudaSuccess);
    assert_true(y[0] == 6 && y[1] == 112);
    assert_int_equal(cudaGraphExecDestroy(exec), cudaSuccess);
    cudaFree(x);
    cudaFree(w);
    cudaFree(y);
    raw_device_close(&d);
}

/* ---- attributes that are read */

static void attributes_are_read_back_once_finalized(void **state)
{
    (void)state;
    RawDevice d = raw_device_open();
    RawGraph g = raw_begin(d.api);
    int64_t dim[8] = { 0 }, n = 0;
    float wrong = 0;
    Desc open = raw_create(&g, CUDNN_BACKEND_TENSOR_DESCRIPTOR), t = raw_nhwc(&g, 1, F, 2, 3, 4, 5);
    assert_int_equal(d.api->cudnnBackendGetAttribute(t, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 0, &n, NULL),
                     CUDNN_STATUS_SUCCESS);
    assert_int_equal(n, 4);
    assert_int_equal(d.api->cudnnBackendGetAttribute(t, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 2, &n, dim),
                     CUDNN_STATUS_SUCCESS);
    assert_true(n == 4 && dim[0] == 2 && dim[1] == 3 && dim[2] == 0);
    assert_int_equal(d.api->cudnnBackendGetAttribute(open, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 8, &n, dim),
                     CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED);
    assert_int_equal(d.api->cudnnBackendGetAttribute(t, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_FLOAT, 1, &n, &wrong),
                     CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE);
    assert_int_equal(d.api->cudnnBackendGetAttribute(t, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &n, dim),
                     CUDNN_STATUS_BAD_PARAM);
    assert_int_equal(d.api->cudnnBackendSetAttribute(t, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dim),
                     CUDNN_STATUS_NOT_INITIALIZED);
    Desc none = NULL;
    assert_int_equal(CUDNN_STATUS_CATEGORY(d.api->cudnnBackendCreateDescriptor(CUDNN_BACKEND_RNG_DESCRIPTOR, &none)),
                     CUDNN_STATUS_NOT_SUPPORTED);
    char words[128];
    d.api->cudnnGetLastErrorString(words, sizeof words);
    assert_non_null(strstr(words, "type 32"));
    d.api->cudnnGetLastErrorString(words, sizeof words);
    assert_string_equal(words, "");
    assert_int_equal(d.api->cudnnGetVersion(), CUDNN_VERSION);
    fake_cudnn_set_version(8900);
    assert_int_equal(d.api->cudnnGetVersion(), 8900);
    raw_end(&g);
    raw_device_close(&d);
}

/* ---- faults: every call that a run makes fails once, as cuDNN fails for want of device memory; nothing is left. */

static cudnnStatus_t make_and_run(RawDevice *d, const RawBind *bind)
{
    RawGraph g = raw_begin(d->api);
    raw_point(&g, CUDNN_POINTWISE_ADD, raw_nhwc(&g, 1, F, 1, 4, 1, 1), raw_nhwc(&g, 2, F, 1, 4, 1, 1), NULL,
              raw_nhwc(&g, 3, F, 1, 4, 1, 1));
    raw_finish(&g);
    Desc plan = raw_plan(&g, d, 12), pack = raw_pack(&g, bind, 3, d->workspace);
    if (g.status == CUDNN_STATUS_SUCCESS)
        g.status = d->api->cudnnBackendExecute(d->handle, plan, pack);
    const cudnnStatus_t status = g.status;
    raw_end(&g);
    return status;
}

static void any_call_can_fail(void **state)
{
    (void)state;
    RawDevice d = raw_device_open();
    float *x = raw_floats(4, (float[]){ 1, 2, 3, 4 }), *y = raw_floats(4, NULL);
    const RawBind bind[] = { { 1, x }, { 2, x }, { 3, y } };
    int64_t at = 1;
    for (bool met = true; met; at++) {
        FakeFault fault = { .at = at };
        fault.error[FAKE_CUDNN] = CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED;
        fake_set_fault(&fault);
        const cudnnStatus_t status = make_and_run(&d, bind);
        met = fake_fault_met();
        const bool in_destroy = met && !strcmp(fake_fault_call(), "cudnnBackendDestroyDescriptor");
        assert_int_equal(status, met && !in_destroy ? CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED : CUDNN_STATUS_SUCCESS);
        fake_set_fault(NULL);
        assert_int_equal(fake_cudnn_counts().descriptors, 0);
    }
    assert_true(at > 40);
    assert_int_equal(cudaStreamSynchronize(d.stream), cudaSuccess);
    assert_true(y[0] == 2 && y[3] == 8);
    cudaFree(x);
    cudaFree(y);
    raw_device_close(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(heuristics_list_the_engines),
        cmocka_unit_test(tests_choose_the_engines),
        cmocka_unit_test(an_engine_that_rounds_inputs_does_so),
        cmocka_unit_test(a_pack_names_the_tensors_of_the_graph_and_no_others),
        cmocka_unit_test(pointwise_ops_may_run_in_place),
        cmocka_unit_test(outputs_may_interleave),
        cmocka_unit_test(plans_run_late_with_the_values_of_the_call),
        cmocka_unit_test(a_recorded_plan_runs_at_each_replay),
        cmocka_unit_test(attributes_are_read_back_once_finalized),
        cmocka_unit_test(any_call_can_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
