/* test_optim.c - the optimisers in a net: both backends take the same steps, tables tell tensors apart in any layout, what
 * starts from a list starts so, and what memory each optimiser costs. */
#include "fault_alloc.h"
#include "tiny_net.h"

#include "../nets/grad.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void open_kind(OptimKind kind, bool accumulate, const char *backend, Tiny *t)
{
    PlainConfig config = plain_config(2, accumulate);
    config.optim.kind = kind;
    plain_net_build_as(&config, &t->net);
    tiny_bind(t, backend, NULL);
}

/* The reference has no padding between tensors and row-major weights, so agreement shows that a table is right. */
static void every_optimizer_agrees_with_the_reference(void **state)
{
    (void)state;
    for (int kind = 0; kind < OPTIM_COUNT; kind++) {
        Tiny cpu, ref, still;
        open_kind((OptimKind)kind, true, "cpu", &cpu);
        open_kind((OptimKind)kind, true, "ref", &ref);
        open_kind((OptimKind)kind, true, "ref", &still);
        StepResult a = tiny_train(&cpu, 3, 2, 1), b = tiny_train(&ref, 3, 2, 1);
        if (!(fabs(a.loss - b.loss) < 1e-5 * b.loss))
            fail_msg("%s: loss %.8g, on the reference %.8g", optim_names[kind], a.loss, b.loss);
        int moved = 0;
        for (int v = 0; v < cpu.net.graph->value_count; v++) {
            if (!cpu.net.graph->values[v].is_param)
                continue;
            double apart = tiny_distance(&cpu, (Value){ v }, &ref, (Value){ v });
            double step = tiny_distance(&still, (Value){ v }, &ref, (Value){ v });
            if (!(apart <= 1e-3 * step)) /* AdamW's first steps are +-lr whatever the size of the gradient */
                fail_msg("%s: '%s' differs by %.2g where it moved by %.2g", optim_names[kind], cpu.net.graph->values[v].name, apart, step);
            moved++;
        }
        assert_int_equal(moved, 8);
        tiny_close(&cpu);
        tiny_close(&ref);
        tiny_close(&still);
    }
}

static void a_table_has_the_places_of_its_group(void **state)
{
    (void)state;
    static const char *const backends[] = { "cpu", "ref" };
    for (size_t b = 0; b < COUNT_OF(backends); b++) {
        Tiny    t;
        int32_t decaying[5], others[5];
        open_kind(OPTIM_LAMB, false, backends[b], &t);
        expect_ok(exec_read(t.session.exec, graph_find(t.net.graph, "all.decaying.table"), decaying));
        expect_ok(exec_read(t.session.exec, graph_find(t.net.graph, "all.not_decaying.table"), others));
        assert_memory_equal(others, ((int32_t[]){ 0, 16, 32, 64, 80 }), sizeof others); /* biases of 16, 16, 32, 10 */
        const int32_t least[] = { 0, 16 * 27, 16 * 144, 32 * 16, 10 * 32 };
        assert_int_equal(decaying[0], 0);
        for (int i = 1; i < 5; i++)
            assert_true(decaying[i] - decaying[i - 1] >= least[i] && (decaying[i] - decaying[i - 1]) % 16 == 0);
        tiny_close(&t);
    }
}

static void control_starts_at_its_scale(void **state)
{
    (void)state;
    for (int scaled = 0; scaled < 2; scaled++) {
        Tiny        t;
        PlainConfig config = plain_config(2, false);
        config.optim.loss_scale = scaled;
        plain_net_build_as(&config, &t.net);
        tiny_bind(&t, "cpu", NULL);
        for (int again = 0; again < 2; again++) {
            float *c = tiny_read(&t, t.net.control);
            const float scale = scaled ? 65536 : 1, want[8] = { 1 / scale, 1, 0, scale };
            assert_memory_equal(c, want, sizeof want);
            free(c);
            tiny_train(&t, 1, 1, 1);
            c = tiny_read(&t, t.net.control);
            assert_true(c[6] == 1);
            free(c);
            expect_ok(exec_init(t.session.exec, 1)); /* takes it back */
        }
        tiny_close(&t);
    }
}

/* Random starts do not move when a net gets more of other values. */
static void optimizers_start_from_the_same_weights(void **state)
{
    (void)state;
    Tiny sgd, lamb;
    open_kind(OPTIM_SGD, false, "cpu", &sgd);
    open_kind(OPTIM_LAMB, true, "cpu", &lamb);
    assert_true(tiny_hash(&sgd) == tiny_hash(&lamb));
    tiny_close(&sgd);
    tiny_close(&lamb);
}

static void state_takes_one_or_two_floats_a_parameter(void **state)
{
    (void)state;
    static const size_t states[OPTIM_COUNT] = { 1, 2, 2, 1 };
    for (int kind = 0; kind < OPTIM_COUNT; kind++) {
        Tiny t;
        open_kind((OptimKind)kind, false, "ref", &t);
        const MemPlan *plan = exec_memory(t.session.exec);
        assert_int_equal(plan->kind[MEM_OPTIM], states[kind] * plan->kind[MEM_GRAD]);
        tiny_close(&t);
    }
}

/* Weight decay and, with LAMB and LARS, adaptation are for weights alone. */
static void biases_neither_decay_nor_adapt(void **state)
{
    (void)state;
    for (int kind = 0; kind < OPTIM_COUNT; kind++) {
        PlainConfig config = plain_config(2, false);
        Net         net;
        int         steps = 0;
        config.optim.kind = (OptimKind)kind;
        plain_net_build_as(&config, &net);
        for (int i = 0; i < net.graph->node_count; i++) {
            const GraphNode *n = &net.graph->nodes[i];
            if (strcmp(n->scope, optim_names[kind]))
                continue;
            bool decays = !strstr(net.graph->values[n->in[0]].name, "not_decaying");
            assert_true(n->op.attr.weight_decay == (decays ? 1e-4f : 0.0f) && n->op.attr.adapt == decays);
            steps++;
        }
        assert_int_equal(steps, 2);
        net_destroy(&net);
    }
}

static void what_would_break_padding_is_refused(void **state)
{
    (void)state;
    static const struct { OptimConfig config; const char *word; } broken[] = {
        { { .kind = OPTIM_ADAMW, .beta1 = 0.9f, .beta2 = 0.999f }, "adamw: eps is 0, it must be above 0" },
        { { .kind = OPTIM_LAMB, .beta1 = 0.9f, .beta2 = 0.999f, .eps = -1 }, "lamb: eps is -1" },
        { { .kind = OPTIM_ADAMW, .beta1 = 0.9f, .beta2 = 1, .eps = 1e-6f }, "adamw: beta is 0.9 and 1, both must be" },
    };
    for (size_t i = 0; i < COUNT_OF(broken); i++) {
        Graph *g;
        expect_ok(graph_create(&g));
        Value eight = graph_value(g, "eight", tensor_1d(DTYPE_F32, 8), MEM_INPUT), one = graph_value(g, "one", tensor_1d(DTYPE_F32, 1), MEM_INPUT);
        optim_append(g, &broken[i].config, &(OptimInputs){ eight, one, eight });
        expect_error(graph_status(g), STATUS_USAGE, broken[i].word);
        graph_destroy(g);
    }
    Graph *g;
    expect_ok(graph_create(&g));
    assert_int_equal(graph_span_table(g, "none", 3).id, -1);
    expect_error(graph_status(g), STATUS_USAGE, "none: group 3 has no values");
    graph_destroy(g);
}

typedef struct Start { const Graph *graph; Backend *be; } Start;

static Status start(void *context)
{
    const Start *s = context;
    Exec        *ex;
    TRY(exec_create(s->graph, s->be, NULL, &ex));
    Status status = exec_init(ex, 1);
    exec_destroy(ex);
    return status;
}

static void every_allocation_of_a_start_may_fail(void **state)
{
    (void)state;
    PlainConfig config = plain_config(2, true);
    Net         net;
    config.optim.kind = OPTIM_LARS;
    config.optim.loss_scale = config.batch_norm = true;
    plain_net_build_as(&config, &net);
    Start context = { net.graph, tiny_backend("ref") };
    assert_true(fault_alloc_sweep(start, &context) > 10);
    backend_close(context.be);
    net_destroy(&net);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_optimizer_agrees_with_the_reference),
        cmocka_unit_test(a_table_has_the_places_of_its_group),
        cmocka_unit_test(control_starts_at_its_scale),
        cmocka_unit_test(optimizers_start_from_the_same_weights),
        cmocka_unit_test(state_takes_one_or_two_floats_a_parameter),
        cmocka_unit_test(biases_neither_decay_nor_adapt),
        cmocka_unit_test(what_would_break_padding_is_refused),
        cmocka_unit_test(every_allocation_of_a_start_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
