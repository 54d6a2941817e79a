/* test_exec_values.c - what the executor computes: the same bits whatever the memory plan and the debugging aids, the same start
 * from a seed, every value kept where that is asked for, and NaN found where it arises. */
#include "../nets/exec.h"
#include "tiny_net.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- the same bits whatever the memory plan ---- */

static uint64_t hash_after_training(NetConfig config, ExecOptions options)
{
    Tiny t;
    tiny_open(&config, "cpu/2", &options, &t);
    tiny_train(&t, 2, config.accumulate ? 2 : 1, 1);
    uint64_t hash = tiny_hash(&t);
    tiny_close(&t);
    return hash;
}

static void planner_and_poison_do_not_change_a_bit(NetConfig config)
{
    uint64_t plain = hash_after_training(config, (ExecOptions){ 0 });
    assert_true(plain == hash_after_training(config, (ExecOptions){ 0 }));
    assert_true(plain == hash_after_training(config, (ExecOptions){ .separate = true }));
    assert_true(plain == hash_after_training(config, (ExecOptions){ .poison = true }));
    assert_true(plain == hash_after_training(config, (ExecOptions){ .check_nan = true }));
    config.classes = 11;
    assert_true(plain != hash_after_training(config, (ExecOptions){ 0 })); /* the hash does see a difference */
}

static void the_plan_does_not_change_a_bit(void **state)
{
    (void)state;
    NetConfig config = tiny_config(2);
    planner_and_poison_do_not_change_a_bit(config);
    config.stem = STEM_STANDARD;
    config.size = 64;
    config.accumulate = true;
    config.amp = AMP_BF16;
    planner_and_poison_do_not_change_a_bit(config);
}

static void a_seed_gives_the_same_start(void **state)
{
    (void)state;
    NetConfig config = tiny_config(1);
    Tiny      t;
    tiny_open(&config, "cpu", NULL, &t);
    expect_ok(exec_init(t.session.exec, 1));
    uint64_t first = tiny_hash(&t);
    tiny_train(&t, 1, 1, 1);
    assert_true(tiny_hash(&t) != first);
    expect_ok(exec_init(t.session.exec, 1)); /* also takes back momenta and statistics */
    assert_true(tiny_hash(&t) == first);
    expect_ok(exec_init(t.session.exec, 2));
    assert_true(tiny_hash(&t) != first);
    tiny_close(&t);
}

static void separate_keeps_every_value(void **state)
{
    (void)state;
    ExecOptions options = { .separate = true };
    Tiny        t;
    plain_net_build(2, false, &t.net);
    tiny_bind(&t, "cpu", &options);
    TinyData   data = tiny_data(&t.net.config, 1);
    MicroBatch batch = tiny_batch(&data, &t.net.config, 0);
    expect_ok(step_begin(&t.session, 2));
    expect_ok(step_micro(&t.session, &batch));
    int sums = 0;
    for (int i = 0; i < t.net.graph->node_count; i++) {
        const GraphNode *n = &t.net.graph->nodes[i];
        if (n->op.kind != OP_add)
            continue;
        float *a = tiny_read(&t, (Value){ n->in[0] }), *b = tiny_read(&t, (Value){ n->in[1] });
        float *y = tiny_read(&t, (Value){ n->out[0] });
        for (int64_t k = 0; k < tensor_count(&n->op.out[0]); k++)
            assert_true(y[k] == a[k] + b[k]);
        sums++;
        free(a);
        free(b);
        free(y);
    }
    assert_int_equal(sums, 2); /* the net's own, and that of the gradients at the fork */
    tiny_data_free(&data);
    tiny_close(&t);
}

/* ---- NaN ---- */

static void check_nan_names_the_first_bad_tensor(void **state)
{
    (void)state;
    NetConfig   config = tiny_config(2);
    ExecOptions options = { .check_nan = true };
    Tiny        t;
    tiny_open(&config, "cpu", &options, &t);
    Value  gamma = graph_find(t.net.graph, "conv3.1.bn2.gamma");
    float *scale = tiny_read(&t, gamma);
    scale[5] = NAN;
    expect_ok(exec_write(t.session.exec, gamma, scale));
    free(scale);

    TinyData   data = tiny_data(&config, 1);
    MicroBatch batch = tiny_batch(&data, &config, 0);
    expect_ok(step_begin(&t.session, 2));
    Status s = step_micro(&t.session, &batch);
    expect_error(s, STATUS_NUMERIC, "conv3.1.bn2: batchnorm: ");
    expect_error(s, STATUS_NUMERIC, "element 5 of 'conv3.1.bn2.gamma'");
    tiny_data_free(&data);
    tiny_close(&t);
}

/* The sums overflow, the step is lost, but evaluation afterwards works. */
static void an_overflow_does_not_poison_running_statistics(void **state)
{
    (void)state;
    NetConfig config = tiny_config(2);
    config.eval = true;
    const char *backends[] = { "cpu", "ref" };
    for (size_t b = 0; b < COUNT_OF(backends); b++) {
        Tiny t;
        tiny_open(&config, backends[b], NULL, &t);
        tiny_train(&t, 1, 1, 1);
        Value  w = graph_find(t.net.graph, "conv3.1.conv2.w");
        float *good = tiny_read(&t, w), *bad = tiny_read(&t, w);
        for (int64_t i = 0; i < tensor_count(graph_tensor(t.net.graph, w)); i++)
            bad[i] = 1e38f;
        expect_ok(exec_write(t.session.exec, w, bad));
        expect_ok(exec_refresh_copies(t.session.exec));
        TinyData   data = tiny_data(&config, 1);
        MicroBatch batch = tiny_batch(&data, &config, 0);
        StepResult result;
        expect_ok(step_begin(&t.session, 2));
        expect_ok(step_micro(&t.session, &batch));
        assert_int_equal(step_result(&t.session, &result).code, STATUS_NUMERIC);

        for (int v = 0; v < t.net.graph->value_count; v++) {
            if (!strstr(t.net.graph->values[v].name, ".run_"))
                continue;
            float *statistic = tiny_read(&t, (Value){ v });
            for (int64_t i = 0; i < tensor_count(&t.net.graph->values[v].tensor); i++)
                assert_true(isfinite(statistic[i]));
            free(statistic);
        }
        expect_ok(exec_write(t.session.exec, w, good));
        expect_ok(exec_refresh_copies(t.session.exec));
        expect_ok(eval_begin(&t.session));
        expect_ok(eval_batch(&t.session, &batch));
        expect_ok(eval_result(&t.session, &result));
        assert_true(result.loss > 0 && result.loss < 100);
        free(good);
        free(bad);
        tiny_data_free(&data);
        tiny_close(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_plan_does_not_change_a_bit),
        cmocka_unit_test(a_seed_gives_the_same_start),
        cmocka_unit_test(separate_keeps_every_value),
        cmocka_unit_test(check_nan_names_the_first_bad_tensor),
        cmocka_unit_test(an_overflow_does_not_poison_running_statistics),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
