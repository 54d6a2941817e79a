/* test_dnn_plan.c - graphs and plans of cuDNN: which engines are taken, tuning and what becomes of its choice, mistakes in graphs,
 * every call failing once. */
#include "../scratch.h"
#include "cuda_case.h"
#include "fake.h"
#include "fake_cudnn.h"
#include "idle_libs.h"

#include "../../kernels/cuda/dnn_engines.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define NOTES(name) (1u << CUDNN_NUMERICAL_NOTE_##name)

static void expect_ok(Status s)
{
    if (s.code != STATUS_OK)
        fail_msg("%s", s.text);
}

static Backend *open_backend(BackendOptions options)
{
    Backend *be;
    idle_libs_use();
    fake_set_library(FAKE_CUDNN, fake_cudnn_api(), NULL);
    expect_ok(backend_open("cuda", &options, &be));
    return be;
}

static OpDesc conv_op(Dtype t, int64_t n)
{
    OpDesc op = { .kind = OP_conv2d, .n_in = 2, .in = { tensor_act(t, n, 6, 6, 16), tensor_4d(t, 8, 3, 3, 16) },
                  .attr = { .kernel = 3, .stride = 1, .pad = 1 } };
    expect_ok(op_infer(&op));
    return op;
}

/* One op with its memory, through query, prepare, tune and run. */
typedef struct Life { Backend *be; const Kernel *kernel; OpDesc op; OpNeeds needs; void *state, *buf[3], *scratch; } Life;

static Status life_begin(Life *l, Backend *be, OpDesc op)
{
    *l = (Life){ .be = be, .kernel = be->vtable->kernels[op.kind], .op = op };
    const Tensor *tensors[] = { &op.in[0], &op.in[1], &op.out[0] };
    TRY(backend_query(be, &op, &l->needs));
    for (int i = 0; i < 3; i++)
        TRY(backend_alloc(be, backend_bytes(be, tensors[i]), &l->buf[i]));
    if (l->needs.scratch)
        TRY(backend_alloc(be, l->needs.scratch, &l->scratch));
    return l->kernel->prepare(be, &l->op, &l->state);
}

static Status life_run(Life *l)
{
    TRY(l->kernel->tune(l->be, &l->op, l->state, l->buf, l->scratch));
    TRY(l->kernel->run(l->be, &l->op, l->state, l->buf, l->scratch));
    return backend_sync(l->be);
}

static void life_end(Life *l)
{
    if (l->state)
        l->kernel->release(l->state);
    for (int i = 0; i < 3; i++)
        backend_free(l->be, l->buf[i]);
    backend_free(l->be, l->scratch);
}

/* The engine that an op runs with. */
static int64_t engine_of(Backend *be, OpDesc op)
{
    Life l;
    expect_ok(life_begin(&l, be, op));
    expect_ok(life_run(&l));
    life_end(&l);
    return fake_cudnn_last_engine();
}

static int use_scratch(void **state)
{
    if (scratch_setup(state))
        return -1;
    fake_reset();
    fake_cudnn_reset();
    return setenv("XDG_CACHE_HOME", *state, 1);
}

/* ---- which engines */

static const FakeCudnnEngine inexact[] = {
    { .index = 1, .notes = NOTES(REDUCED_PRECISION_REDUCTION) }, { .index = 2, .notes = NOTES(NONDETERMINISTIC) }, { .index = 3, .notes = NOTES(FFT) },
    { .index = 4, .notes = NOTES(WINOGRAD) | NOTES(WINOGRAD_TILE_6x6) }, { .index = 5, .notes = NOTES(WINOGRAD) },
    { .index = 6, .workspace = (int64_t)2 << 30 }, { .index = 7, .notes = NOTES(TENSOR_CORE) }, { .index = 8 },
};

static void f32_is_not_rounded_unless_tf32_is_wanted(void **state)
{
    (void)state;
    fake_cudnn_set_engines(inexact, (int)COUNT_OF(inexact));
    Backend *be = open_backend((BackendOptions){ .no_tune = true });
    assert_int_equal(engine_of(be, conv_op(DTYPE_F32, 1)), 8);
    assert_int_equal(engine_of(be, conv_op(DTYPE_BF16, 1)), 7); /* tensor cores round nothing there */
    backend_close(be);
    be = open_backend((BackendOptions){ .no_tune = true, .tf32 = true });
    assert_int_equal(engine_of(be, conv_op(DTYPE_F32, 1)), 7);
    backend_close(be);
}

static void without_a_good_engine_the_op_is_refused(void **state)
{
    (void)state;
    Life l;
    fake_cudnn_set_engines(inexact, 6);
    Backend *be = open_backend((BackendOptions){ 0 });
    Status   s = life_begin(&l, be, conv_op(DTYPE_F32, 1));
    assert_int_equal(s.code, STATUS_UNSUPPORTED);
    assert_non_null(strstr(s.text, "conv2d"));
    assert_non_null(strstr(s.text, "cuDNN 9"));
    life_end(&l);
    backend_close(be);
}

static void a_fallback_steps_in_where_no_plan_can_be_made(void **state)
{
    (void)state;
    static const FakeCudnnEngine engines[] = {
        { .index = 1, .refuses = true }, { .index = 2, .refuses = true }, { .index = 3, .fallback = true, .workspace = 512 },
    };
    fake_cudnn_set_engines(engines, (int)COUNT_OF(engines));
    Backend *be = open_backend((BackendOptions){ 0 });
    assert_int_equal(engine_of(be, conv_op(DTYPE_BF16, 1)), 3);
    backend_close(be);
}

/* ---- tuning */

static const FakeCudnnEngine timed[] = {
    { .index = 1, .microseconds = 30, .workspace = 4096 }, { .index = 2, .microseconds = 1, .fails = true },
    { .index = 3, .microseconds = 10, .workspace = 1024 }, { .index = 4, .microseconds = 20 },
    { .index = 5, .microseconds = 1, .fallback = true }, /* not worth its time: others are there */
};

static void the_fastest_is_kept_and_known_in_the_next_run(void **state)
{
    (void)state;
    Life l;
    fake_cudnn_set_engines(timed, (int)COUNT_OF(timed));
    Backend *be = open_backend((BackendOptions){ 0 });
    expect_ok(life_begin(&l, be, conv_op(DTYPE_BF16, 1)));
    assert_true(l.needs.scratch >= 4096); /* the largest of those that will be tried */
    expect_ok(life_run(&l));
    assert_int_equal(fake_cudnn_last_engine(), 3);
    life_end(&l);
    backend_close(be);

    be = open_backend((BackendOptions){ 0 });
    const int64_t before = fake_cudnn_counts().executed;
    expect_ok(life_begin(&l, be, conv_op(DTYPE_BF16, 1)));
    assert_int_equal(l.needs.scratch, 1024); /* the choice's own */
    expect_ok(life_run(&l));
    assert_int_equal(fake_cudnn_last_engine(), 3);
    assert_int_equal(fake_cudnn_counts().executed, before + 1); /* run once, not timed */
    life_end(&l);
    assert_int_equal(engine_of(be, conv_op(DTYPE_BF16, 2)), 3); /* another shape is timed for itself */
    assert_true(fake_cudnn_counts().executed > before + 5);
    backend_close(be);

    fake_cudnn_set_version(92000); /* another cuDNN: nothing is known */
    be = open_backend((BackendOptions){ 0 });
    expect_ok(life_begin(&l, be, conv_op(DTYPE_BF16, 1)));
    assert_true(l.needs.scratch >= 4096);
    life_end(&l);
    backend_close(be);
}

static void without_tuning_the_first_is_taken(void **state)
{
    (void)state;
    fake_cudnn_set_engines(timed, (int)COUNT_OF(timed));
    Backend      *be = open_backend((BackendOptions){ .no_tune = true });
    const int64_t before = fake_cudnn_counts().executed;
    assert_int_equal(engine_of(be, conv_op(DTYPE_BF16, 1)), 1);
    assert_int_equal(fake_cudnn_counts().executed, before + 1);
    backend_close(be);
}

static void a_known_choice_that_is_gone_is_made_anew(void **state)
{
    for (int how = 0; how < 2; how++) { /* there, but without a plan; not there */
        FakeCudnnEngine changed[COUNT_OF(timed)];
        (void)remove(scratch_path(*state, "batchmark/choices.txt"));
        fake_cudnn_set_engines(timed, (int)COUNT_OF(timed));
        Backend *be = open_backend((BackendOptions){ 0 });
        assert_int_equal(engine_of(be, conv_op(DTYPE_BF16, 1)), 3);
        backend_close(be);
        memcpy(changed, timed, sizeof timed);
        if (how == 0)
            changed[2].refuses = true;
        else
            changed[2].index = 9, changed[2].microseconds = 40;
        fake_cudnn_set_engines(changed, (int)COUNT_OF(changed));
        be = open_backend((BackendOptions){ 0 });
        assert_int_equal(engine_of(be, conv_op(DTYPE_BF16, 1)), 4);
        backend_close(be);
    }
}

/* Twenty layers of one shape: searched and timed once. */
static void equal_graphs_are_searched_once(void **state)
{
    (void)state;
    enum { LAYERS = 20 };
    Life l[LAYERS];
    fake_cudnn_set_engines(timed, (int)COUNT_OF(timed));
    Backend *be = open_backend((BackendOptions){ 0 });
    expect_ok(life_begin(&l[0], be, conv_op(DTYPE_BF16, 1)));
    expect_ok(life_run(&l[0]));
    const int64_t executed = fake_cudnn_counts().executed, before = fake_cudnn_counts().descriptors;
    const FakeFault count = { .at = 1, .call = "cudnnBackendGetAttribute", .error = { [FAKE_CUDNN] = CUDNN_STATUS_INTERNAL_ERROR } };
    fake_set_fault(&count); /* asking the library for anything would fail */
    for (int i = 1; i < LAYERS; i++) {
        expect_ok(life_begin(&l[i], be, conv_op(DTYPE_BF16, 1)));
        expect_ok(life_run(&l[i]));
    }
    assert_false(fake_fault_met());
    fake_set_fault(NULL);
    assert_int_equal(fake_cudnn_counts().executed, executed + LAYERS - 1);
    for (int i = 1; i < LAYERS; i++)
        life_end(&l[i]);
    assert_int_equal(fake_cudnn_counts().descriptors, before); /* a plan holds nothing of its own but its variant pack */
    life_end(&l[0]);
    backend_close(be);
    assert_int_equal(fake_cudnn_counts().descriptors, 0);
}

typedef struct Noted { int count; char op[160], choice[64]; size_t bytes; double us; } Noted;
static void note(void *context, const char *op, const char *choice, size_t bytes, double us)
{
    Noted *n = context;
    n->count++;
    snprintf(n->op, sizeof n->op, "%s", op);
    snprintf(n->choice, sizeof n->choice, "%s", choice);
    n->bytes = bytes;
    n->us = us;
}

static void the_record_lists_the_choice(void **state)
{
    (void)state;
    for (int tune = 0; tune < 2; tune++) {
        Noted n = { 0 };
        fake_cudnn_set_engines(timed, (int)COUNT_OF(timed));
        Backend *be = open_backend((BackendOptions){ .no_tune = !tune });
        (void)engine_of(be, conv_op(DTYPE_BF16, 1));
        be->vtable->choices(be, note, &n);
        assert_int_equal(n.count, 1);
        assert_non_null(strstr(n.op, "conv2d bf16[1,6,6,16]"));
        assert_int_equal(strncmp(n.choice, tune ? "e3" : "e1", 2), 0);
        assert_int_equal(n.bytes, tune ? 1024 : 4096);
        if (tune)
            assert_float_equal(n.us, 10.0, 1.0);
        else
            assert_true(n.us != n.us);
        backend_close(be);
    }
}

/* ---- mistakes in graphs: kept, told with the graph's name, and nothing is built after them */

typedef void Build(DnnGraph *g);

static DnnTensor nhwc(DnnGraph *g, int64_t n, int64_t c, int64_t h, int slot) { return dnn_tensor_nhwc(g, CUDNN_DATA_HALF, n, c, h, h, dnn_slot(slot)); }
static void grouped(DnnGraph *g) { dnn_conv(g, DNN_CONV_FORWARD, nhwc(g, 2, 64, 8, 0), nhwc(g, 64, 32, 3, 1), nhwc(g, 2, 64, 8, 2), 1, 1); }
static void wrong_images(DnnGraph *g) { dnn_conv(g, DNN_CONV_FORWARD, nhwc(g, 2, 16, 8, 0), nhwc(g, 16, 16, 3, 1), nhwc(g, 1, 16, 8, 2), 1, 1); }
static void wrong_outputs(DnnGraph *g) { dnn_conv(g, DNN_CONV_WGRAD, nhwc(g, 2, 16, 8, 0), nhwc(g, 32, 16, 3, 1), nhwc(g, 2, 16, 8, 2), 1, 1); }
static void wrong_size(DnnGraph *g) { dnn_conv(g, DNN_CONV_DGRAD, nhwc(g, 2, 16, 9, 0), nhwc(g, 16, 16, 3, 1), nhwc(g, 2, 16, 4, 2), 1, 2); }
static void large_window(DnnGraph *g) { dnn_conv(g, DNN_CONV_FORWARD, nhwc(g, 2, 16, 2, 0), nhwc(g, 16, 16, 7, 1), nhwc(g, 2, 16, 1, 2), 1, 1); }
static void no_input(DnnGraph *g) { dnn_conv(g, DNN_CONV_FORWARD, DNN_NONE, nhwc(g, 16, 16, 3, 1), nhwc(g, 2, 16, 8, 2), 1, 1); }
static void no_stride(DnnGraph *g) { dnn_conv(g, DNN_CONV_FORWARD, nhwc(g, 2, 16, 8, 0), nhwc(g, 16, 16, 3, 1), nhwc(g, 2, 16, 8, 2), 1, 0); }
static void empty_tensor(DnnGraph *g) { (void)nhwc(g, 0, 16, 8, 0); }
static void wide_bias(DnnGraph *g) { dnn_pointwise(g, CUDNN_POINTWISE_ADD, nhwc(g, 2, 16, 8, 0), nhwc(g, 1, 8, 1, 1), nhwc(g, 2, 16, 8, 2)); }
static void wrong_pool(DnnGraph *g)
{
    dnn_pool_forward(g, &(DnnPool){ CUDNN_RESAMPLE_MAXPOOL, 3, 1, 2 }, nhwc(g, 2, 16, 8, 0), nhwc(g, 2, 16, 5, 1), DNN_NONE);
}
static void pool_without_index(DnnGraph *g)
{
    dnn_pool_backward(g, &(DnnPool){ CUDNN_RESAMPLE_MAXPOOL, 2, 0, 2 }, nhwc(g, 2, 16, 8, 0), nhwc(g, 2, 16, 4, 1), DNN_NONE);
}
static void nothing(DnnGraph *g) { (void)g; }
static void late_ragged(DnnGraph *g)
{
    DnnTensor x = nhwc(g, 2, 16, 8, 0), offsets = dnn_tensor_nhwc(g, CUDNN_DATA_INT32, 3, 1, 1, 1, dnn_slot(3));
    dnn_pointwise(g, CUDNN_POINTWISE_RELU_FWD, x, DNN_NONE, nhwc(g, 2, 16, 8, 2));
    dnn_tensor_ragged(g, x, offsets);
}
static void many(DnnGraph *g)
{
    for (int i = 0; i < 1000; i++)
        (void)nhwc(g, 1, 8, 1, 0);
}

static void mistakes_are_kept_with_the_name_of_the_graph(void **state)
{
    (void)state;
    static Build *const builds[] = { grouped, wrong_images, wrong_outputs, wrong_size, large_window, no_input, no_stride, empty_tensor, wide_bias,
                                     wrong_pool, pool_without_index, nothing, late_ragged, many };
    Backend     *be = open_backend((BackendOptions){ .no_tune = true });
    const OpDesc op = conv_op(DTYPE_F16, 1);
    for (size_t i = 0; i < COUNT_OF(builds); i++) {
        DnnGraph *g;
        DnnPlan  *plan;
        size_t    scratch;
        bool      counted;
        expect_ok(dnn_graph_create(cuda_of(be), &op, "of a test", 0, &g));
        builds[i](g);
        if (builds[i] != nothing)
            dnn_pointwise(g, CUDNN_POINTWISE_RELU_FWD, nhwc(g, 1, 8, 2, 0), DNN_NONE, nhwc(g, 1, 8, 2, 2)); /* good, and too late */
        Status query = dnn_query(cuda_of(be), g, &scratch, &counted), prepare = dnn_prepare(cuda_of(be), g, &plan);
        assert_int_equal(query.code, STATUS_USAGE);
        assert_int_equal(prepare.code, STATUS_USAGE);
        assert_non_null(strstr(prepare.text, "of a test"));
        assert_null(plan);
    }
    backend_close(be);
    assert_int_equal(fake_cudnn_counts().descriptors, 0);
}

/* ---- faults */

static Status whole_life(void)
{
    Backend *be;
    Life     l;
    TRY(backend_open("cuda", &(BackendOptions){ 0 }, &be));
    Status s = life_begin(&l, be, conv_op(DTYPE_BF16, 1));
    if (s.code == STATUS_OK)
        s = life_run(&l);
    life_end(&l);
    backend_close(be);
    return s;
}

/* Each call of cuDNN fails once, as it does when something breaks and when the GPU's memory is full: the op goes on with another
 * engine or ends with one line, and nothing is left behind. */
static void every_call_may_fail(void **state)
{
    (void)state;
    static const int errors[] = { CUDNN_STATUS_INTERNAL_ERROR, CUDNN_STATUS_ALLOC_FAILED };
    idle_libs_use();
    fake_set_library(FAKE_CUDNN, fake_cudnn_api(), NULL);
    assert_int_equal(setenv("XDG_CACHE_HOME", "/dev/null/none", 1), 0); /* tuned anew each time */
    fake_cudnn_set_engines(timed, (int)COUNT_OF(timed));
    for (size_t e = 0; e < COUNT_OF(errors); e++) {
        int failed = 0;
        for (int64_t at = 1;; at++) {
            const FakeCounts before = fake_counts();
            fake_set_fault(&(FakeFault){ .at = at, .error = { [FAKE_CUDNN] = errors[e] } });
            Status     s = whole_life();
            const bool met = fake_fault_met();
            fake_set_fault(NULL);
            assert_int_equal(fake_cudnn_counts().descriptors, 0);
            assert_int_equal(fake_cudnn_counts().handles, 0);
            assert_true(fake_nothing_leaked(&before));
            if (s.code != STATUS_OK) {
                failed++;
                assert_true(s.text[0] && !strchr(s.text, '\n'));
                assert_int_equal(s.code, errors[e] == CUDNN_STATUS_ALLOC_FAILED ? STATUS_OOM : STATUS_BACKEND);
            }
            if (!met) {
                expect_ok(s);
                assert_true(at > 100);
                break;
            }
        }
        assert_true(failed > 50);
    }
}

int main(void)
{
#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, use_scratch, scratch_teardown)
    const struct CMUnitTest tests[] = {
        IN_FOLDER(f32_is_not_rounded_unless_tf32_is_wanted),
        IN_FOLDER(without_a_good_engine_the_op_is_refused),
        IN_FOLDER(a_fallback_steps_in_where_no_plan_can_be_made),
        IN_FOLDER(the_fastest_is_kept_and_known_in_the_next_run),
        IN_FOLDER(without_tuning_the_first_is_taken),
        IN_FOLDER(a_known_choice_that_is_gone_is_made_anew),
        IN_FOLDER(equal_graphs_are_searched_once),
        IN_FOLDER(the_record_lists_the_choice),
        IN_FOLDER(mistakes_are_kept_with_the_name_of_the_graph),
        IN_FOLDER(every_call_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
