/* test_exec.c - the executor: layouts, memory, allocation, poison, its errors. What it computes is in test_exec_values.c. */
#include "../nets/exec.h"
#include "../nets/grad.h"
#include "../nets/layers.h"
#include "../nets/nets.h"
#include "fault_alloc.h"
#include "tiny_net.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- a backend that is watched: counts, failures, layouts of its own. One at a time. ---- */

typedef struct Watch {
    const BackendVtable *real;
    BackendVtable        vtable;
    const Kernel        *kernels[OP_COUNT];
    Kernel               first, second; /* kernels with a function of this file in place of their own */
    int64_t              allocs, live, bytes, fail_at;
    int                  prepares, releases, fail_prepare_at;
} Watch;

static Watch watch; /* a kernel's functions have no context of their own */

static Status watch_alloc(Backend *be, size_t bytes, void **address)
{
    *address = NULL;
    if (++watch.allocs == watch.fail_at)
        return status_error(STATUS_OOM, "the device has no %zu bytes", bytes);
    TRY(watch.real->alloc(be, bytes, address));
    memset(*address, 0xaa, bytes); /* fresh memory holds anything */
    watch.live++;
    watch.bytes += (int64_t)bytes;
    return status_ok();
}

static void watch_free(Backend *be, void *address)
{
    watch.live -= address != NULL;
    watch.real->free(be, address);
}

static void watch_backend(Backend *be)
{
    watch = (Watch){ .real = be->vtable, .vtable = *be->vtable };
    memcpy(watch.kernels, be->vtable->kernels, sizeof watch.kernels);
    watch.vtable.alloc = watch_alloc;
    watch.vtable.free = watch_free;
    watch.vtable.kernels = watch.kernels;
    be->vtable = &watch.vtable;
}

static void unwatch_backend(Backend *be)
{
    be->vtable = watch.real;
}

static Status counting_prepare(Backend *be, const OpDesc *op, void **state)
{
    (void)be; (void)op;
    if (++watch.prepares == watch.fail_prepare_at)
        return status_error(STATUS_BACKEND, "no primitive for this");
    *state = malloc(1);
    return *state ? status_ok() : status_error(STATUS_OOM, "no memory for a state");
}

static void counting_release(void *state)
{
    watch.releases++;
    free(state);
}

/* ---- memory ---- */

static void resnet50_needs_the_memory_that_is_planned(void **state)
{
    (void)state;
    NetConfig config = net_config_default(NULL);
    Backend  *be = tiny_backend("cpu");
    Net       net;
    MemPlan   plan;
    config.batch = 32;
    double start = clock_seconds();
    expect_ok(net_build(&config, &net));
    expect_ok(exec_plan_memory(net.graph, be, NULL, &plan));
    assert_true(clock_seconds() - start < 1.0); /* takes some 0.04 s */

    assert_int_equal(plan.arena_peak, plan.arena_lower_bound);
    assert_true(plan.kind[MEM_ACT] < 2.6 * 0x1p30);
    assert_true(plan.arena_naive > 2 * plan.arena_peak);
    assert_in_range(plan.kind[MEM_WEIGHT], 25557032 * 4, 25557032 * 4 * 1.01);
    assert_in_range(plan.kind[MEM_GRAD], 25557032 * 4, 25557032 * 4 * 1.01);
    assert_int_equal(plan.kind[MEM_OPTIM], plan.kind[MEM_GRAD]);
    size_t sum = 0;
    for (int k = 0; k < MEM_KIND_COUNT; k++)
        sum += plan.kind[k];
    assert_int_equal(plan.total, sum);
    assert_int_equal(plan.kind[MEM_ACT] + plan.kind[MEM_WORKSPACE], plan.arena_peak);
    net_destroy(&net);
    backend_close(be);
}

static void a_plan_allocates_and_prepares_nothing(void **state)
{
    (void)state;
    NetConfig config = tiny_config(2);
    Backend  *be = tiny_backend("ref");
    Net       net;
    MemPlan   plan;
    expect_ok(net_build(&config, &net));
    watch_backend(be);
    watch.first = *watch.kernels[OP_conv2d];
    watch.first.prepare = counting_prepare;
    watch.kernels[OP_conv2d] = &watch.first;
    expect_ok(exec_plan_memory(net.graph, be, NULL, &plan));
    assert_int_equal(watch.allocs, 0);
    assert_int_equal(watch.prepares, 0);
    unwatch_backend(be);
    net_destroy(&net);
    backend_close(be);
}

static void what_is_allocated_is_what_was_planned(const char *backend, NetConfig config, bool separate)
{
    ExecOptions options = { .separate = separate };
    Tiny        t;
    MemPlan     plan;
    expect_ok(net_build(&config, &t.net));
    Backend *be = t.be = tiny_backend(backend);
    watch_backend(be);
    expect_ok(exec_plan_memory(t.net.graph, be, &options, &plan));
    t.session = (Session){ .net = &t.net };
    expect_ok(exec_create(t.net.graph, be, &options, &t.session.exec));
    int64_t allocs = watch.allocs;
    assert_int_equal(watch.bytes, plan.total);
    assert_int_equal(exec_allocated_peak(t.session.exec), plan.total);
    assert_memory_equal(exec_memory(t.session.exec), &plan, sizeof plan);

    expect_ok(exec_init(t.session.exec, 1));
    tiny_train(&t, 2, 2, 1);
    assert_int_equal(watch.allocs, allocs); /* nothing after exec_create */
    exec_destroy(t.session.exec);
    assert_int_equal(watch.live, 0);
    unwatch_backend(be);
    backend_close(be);
    net_destroy(&t.net);
}

static void allocation_equals_the_plan(void **state)
{
    (void)state;
    NetConfig config = tiny_config(2);
    config.accumulate = true;
    what_is_allocated_is_what_was_planned("cpu", config, false);
    what_is_allocated_is_what_was_planned("cpu", config, true);
    config.eval = true;
    config.amp = AMP_BF16;
    what_is_allocated_is_what_was_planned("cpu", config, false);
}

static void persistent_memory_starts_at_zero(void **state)
{
    (void)state;
    Backend *be = tiny_backend("ref");
    Net      net;
    Exec    *ex;
    float    momentum[16];
    plain_net_build(2, true, &net);
    watch_backend(be);
    expect_ok(exec_create(net.graph, be, NULL, &ex));
    expect_ok(exec_read(ex, graph_find(net.graph, "conv1.b.momentum"), momentum));
    for (size_t i = 0; i < COUNT_OF(momentum); i++)
        assert_true(momentum[i] == 0);
    exec_destroy(ex);
    unwatch_backend(be);
    net_destroy(&net);
    backend_close(be);
}

static void evaluation_shares_the_arena(void **state)
{
    (void)state;
    NetConfig config = net_config_default(NULL);
    Backend  *be = tiny_backend("cpu");
    MemPlan   without, with;
    Net       net;
    expect_ok(net_build(&config, &net));
    expect_ok(exec_plan_memory(net.graph, be, NULL, &without));
    net_destroy(&net);
    config.eval = true;
    expect_ok(net_build(&config, &net));
    expect_ok(exec_plan_memory(net.graph, be, NULL, &with));
    assert_int_equal(with.arena_peak, without.arena_peak);
    net_destroy(&net);
    backend_close(be);
}

static void an_activation_lives_in_one_segment(void **state)
{
    (void)state;
    Backend *be = tiny_backend("ref");
    Graph   *g;
    MemPlan  plan;
    expect_ok(graph_create(&g));
    Value x = graph_value(g, "x", tensor_1d(DTYPE_F32, 4), MEM_INPUT);
    Value y = graph_emit(g, (OpDesc){ .kind = OP_add }, 2, (Value[]){ x, x });
    g->segment = SEG_UPDATE;
    graph_emit(g, (OpDesc){ .kind = OP_sqnorm }, 1, &y);
    expect_ok(graph_status(g));
    expect_error(exec_plan_memory(g, be, NULL, &plan), STATUS_USAGE, "'add.0' of segment micro is used in segment update");
    graph_destroy(g);
    backend_close(be);
}

static int64_t asked_length;

static Status span_query(Backend *be, const OpDesc *op, OpNeeds *needs)
{
    (void)be;
    asked_length = op->in[0].dim[0];
    needs->scratch = tensor_bytes(&op->in[0]);
    return status_ok();
}

static void a_span_has_the_length_of_its_padded_group(void **state)
{
    (void)state;
    Backend *be = tiny_backend("ref");
    Net      net;
    MemPlan  without, with;
    plain_net_build(1, false, &net); /* biases of 16, 16, 32 and 10, which takes the room of 16 */
    expect_ok(exec_plan_memory(net.graph, be, NULL, &without));
    watch_backend(be);
    watch.first = *watch.kernels[OP_sgd];
    watch.first.query = span_query;
    watch.kernels[OP_sgd] = &watch.first;
    expect_ok(exec_plan_memory(net.graph, be, NULL, &with)); /* the biases are the second span, asked about last */
    assert_int_equal(asked_length, 16 + 16 + 32 + 16);
    assert_true(with.arena_naive > without.arena_naive);
    unwatch_backend(be);
    net_destroy(&net);
    backend_close(be);
}

/* ---- a debugging aid ---- */

static Status forget_to_write(Backend *be, const OpDesc *op, void *state, void *const *buf, void *scratch)
{
    (void)be; (void)op; (void)state; (void)buf; (void)scratch;
    return status_ok();
}

static void poison_shows_a_read_of_stale_memory(void **state)
{
    (void)state;
    for (int poison = 0; poison < 2; poison++) {
        ExecOptions options = { .poison = poison };
        Tiny        t;
        StepResult  result;
        plain_net_build(2, false, &t.net);
        Backend *be = tiny_backend("ref");
        watch_backend(be);
        watch.first = (Kernel){ .run = forget_to_write };
        watch.kernels[OP_linear] = &watch.first;
        t.session = (Session){ .net = &t.net };
        expect_ok(exec_create(t.net.graph, be, &options, &t.session.exec));
        expect_ok(exec_init(t.session.exec, 1));
        TinyData   data = tiny_data(&t.net.config, 1);
        MicroBatch batch = tiny_batch(&data, &t.net.config, 0);
        expect_ok(step_begin(&t.session, 2));
        expect_ok(step_micro(&t.session, &batch));
        assert_int_equal(step_result(&t.session, &result).code, poison ? STATUS_NUMERIC : STATUS_OK);
        tiny_data_free(&data);
        exec_destroy(t.session.exec);
        unwatch_backend(be);
        backend_close(be);
        net_destroy(&t.net);
    }
}

/* ---- layouts ---- */

static int wished; /* the layout that the queries below ask for; forward and wgrad differ where it is odd */

static Status forward_query(Backend *be, const OpDesc *op, OpNeeds *needs)
{
    (void)be; (void)op;
    needs->in_layout[1] = wished ? LAYOUT_ACT : LAYOUT_ANY; /* the reference knows only two layouts, which are equal there */
    return status_ok();
}

static Status wgrad_query(Backend *be, const OpDesc *op, OpNeeds *needs)
{
    (void)be; (void)op;
    needs->out_layout[0] = wished == 2 ? LAYOUT_ACT : LAYOUT_PLAIN;
    return status_ok();
}

static void repacks_vanish_where_layouts_agree(void **state)
{
    (void)state;
    NetConfig config = tiny_config(1);
    Backend  *be = tiny_backend("ref");
    MemPlan   plan[3];
    Net       net;
    expect_ok(net_build(&config, &net));
    watch_backend(be);
    watch.first = *watch.kernels[OP_conv2d];
    watch.first.query = forward_query;
    watch.second = *watch.kernels[OP_conv2d_wgrad];
    watch.second.query = wgrad_query;
    watch.kernels[OP_conv2d] = &watch.first;
    watch.kernels[OP_conv2d_wgrad] = &watch.second;
    for (wished = 0; wished < 3; wished++)
        expect_ok(exec_plan_memory(net.graph, be, NULL, &plan[wished]));
    unwatch_backend(be);

    assert_int_equal(plan[0].kind[MEM_COPY], 0);                        /* forward takes what wgrad writes */
    assert_true(plan[1].kind[MEM_COPY] > plan[1].kind[MEM_GRAD] * 0.8); /* each convolution needs its copy */
    assert_true(plan[2].kind[MEM_COPY] > 0);                            /* now the dgrads do */
    net_destroy(&net);
    backend_close(be);
}

static void two_wishes_on_one_value_are_an_error(void **state)
{
    (void)state;
    Backend *be = tiny_backend("ref");
    Graph   *g;
    MemPlan  plan;
    expect_ok(graph_create(&g));
    /* Without copies_append the forward op reads the weight itself, which has the layout that wgrad wishes. */
    Value x = graph_value(g, "x", tensor_act(DTYPE_F32, 1, 8, 8, 16), MEM_INPUT);
    Value labels = graph_value(g, "labels", tensor_1d(DTYPE_I32, 1), MEM_INPUT);
    Value scale = graph_value(g, "scale", tensor_1d(DTYPE_F32, 1), MEM_INPUT);
    Value metrics = graph_value(g, "metrics", tensor_1d(DTYPE_F32, 4), MEM_INPUT);
    Value y = layer_conv(g, "conv7", x, 3, 16, 1);
    layer_loss(g, "loss", layer_linear(g, "fc", layer_global_avgpool(g, "mean", y), 4), labels, scale, metrics);
    grad_append(g, false);
    expect_ok(graph_status(g));
    watch_backend(be);
    watch.first = *watch.kernels[OP_conv2d];
    watch.first.query = forward_query;
    watch.second = *watch.kernels[OP_conv2d_wgrad];
    watch.second.query = wgrad_query;
    watch.kernels[OP_conv2d] = &watch.first;
    watch.kernels[OP_conv2d_wgrad] = &watch.second;
    wished = 1;
    Status s = exec_plan_memory(g, be, NULL, &plan);
    expect_error(s, STATUS_BACKEND, "conv7 (conv2d) wishes");
    expect_error(s, STATUS_BACKEND, "conv7 (conv2d_wgrad) wishes");
    wished = 2;
    expect_ok(exec_plan_memory(g, be, NULL, &plan));
    unwatch_backend(be);
    graph_destroy(g);
    backend_close(be);
}

/* ---- failures ---- */

typedef struct Attempt { const Graph *graph; Backend *be; } Attempt;

static Status create_and_init(void *context)
{
    Attempt *a = context;
    Exec    *ex;
    TRY(exec_create(a->graph, a->be, &(ExecOptions){ .check_nan = true }, &ex));
    Status s = exec_init(ex, 1);
    exec_destroy(ex);
    return s;
}

static void host_memory_may_run_out_anywhere(void **state)
{
    (void)state;
    const char *backends[] = { "ref", "cpu" };
    for (size_t b = 0; b < COUNT_OF(backends); b++) {
        Attempt a = { .be = tiny_backend(backends[b]) };
        Net     net;
        plain_net_build(2, true, &net);
        a.graph = net.graph;
        expect_ok(create_and_init(&a)); /* what a backend keeps for good, it has now */
        assert_true(fault_alloc_sweep(create_and_init, &a) > 15);
        net_destroy(&net);
        backend_close(a.be);
    }
}

static void device_memory_may_run_out(void **state)
{
    (void)state;
    Backend *be = tiny_backend("ref");
    Net      net;
    plain_net_build(2, true, &net);
    watch_backend(be);
    for (int n = 1; n <= 2; n++) {
        Exec *ex;
        watch.allocs = 0;
        watch.fail_at = n;
        expect_error(exec_create(net.graph, be, NULL, &ex), STATUS_OOM, n == 1 ? "MiB of weights" : "MiB of activations");
        assert_null(ex);
        assert_int_equal(watch.live, 0);
    }
    unwatch_backend(be);
    net_destroy(&net);
    backend_close(be);
}

static void a_failing_prepare_releases_what_was_prepared(void **state)
{
    (void)state;
    Backend *be = tiny_backend("ref");
    Net      net;
    plain_net_build(2, true, &net);
    watch_backend(be);
    watch.first = *watch.kernels[OP_conv2d];
    watch.first.prepare = counting_prepare;
    watch.first.release = counting_release;
    watch.kernels[OP_conv2d] = &watch.first;
    watch.fail_prepare_at = 3;
    Exec *ex;
    expect_error(exec_create(net.graph, be, NULL, &ex), STATUS_BACKEND, "conv3: conv2d: no primitive for this");
    assert_int_equal(watch.releases, 2);
    assert_int_equal(watch.live, 0);
    unwatch_backend(be);
    net_destroy(&net);
    backend_close(be);
}

static void a_failing_node_is_named(void **state)
{
    (void)state;
    NetConfig config = tiny_config(2);
    Tiny      t;
    tiny_open(&config, "cpu", NULL, &t);
    TinyData data = tiny_data(&config, 1);
    data.labels[1] = 10;
    MicroBatch batch = tiny_batch(&data, &config, 0);
    expect_ok(step_begin(&t.session, 2));
    expect_error(step_micro(&t.session, &batch), STATUS_NUMERIC, "loss: softmax_xent: ");
    tiny_data_free(&data);
    tiny_close(&t);
}

static void note_order(void *context, int node, double start, double end)
{
    int *last = context;
    assert_true(node > *last && end >= start);
    *last = node;
}

static void the_clock_sees_every_node_once(void **state)
{
    (void)state;
    NetConfig config = tiny_config(2);
    Tiny      t;
    tiny_open(&config, "cpu", NULL, &t);
    int last = -1;
    exec_set_clock(t.session.exec, note_order, &last);
    TinyData   data = tiny_data(&config, 1);
    MicroBatch batch = tiny_batch(&data, &config, 0);
    expect_ok(step_micro(&t.session, &batch));
    assert_true(last > 100);
    int after = last;
    exec_set_clock(t.session.exec, NULL, NULL);
    expect_ok(step_micro(&t.session, &batch));
    assert_int_equal(last, after);
    assert_true(t.session.copy_seconds > 0);
    tiny_data_free(&data);
    tiny_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(resnet50_needs_the_memory_that_is_planned),
        cmocka_unit_test(a_plan_allocates_and_prepares_nothing),
        cmocka_unit_test(allocation_equals_the_plan),
        cmocka_unit_test(persistent_memory_starts_at_zero),
        cmocka_unit_test(evaluation_shares_the_arena),
        cmocka_unit_test(an_activation_lives_in_one_segment),
        cmocka_unit_test(a_span_has_the_length_of_its_padded_group),
        cmocka_unit_test(poison_shows_a_read_of_stale_memory),
        cmocka_unit_test(repacks_vanish_where_layouts_agree),
        cmocka_unit_test(two_wishes_on_one_value_are_an_error),
        cmocka_unit_test(host_memory_may_run_out_anywhere),
        cmocka_unit_test(device_memory_may_run_out),
        cmocka_unit_test(a_failing_prepare_releases_what_was_prepared),
        cmocka_unit_test(a_failing_node_is_named),
        cmocka_unit_test(the_clock_sees_every_node_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
