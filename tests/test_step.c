/* test_step.c - whole training steps: the cpu backend against the reference, and what accumulation means. */
#include "../nets/grad.h"
#include "../nets/nets.h"
#include "tiny_net.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* One window of `micro` micro-batches, without the update: gradients stay to be read. */
static void run_window(Tiny *t, const TinyData *data, int64_t first, int micro, int64_t window)
{
    const NetConfig *c = &t->net.config;
    expect_ok(step_begin(&t->session, window));
    for (int k = 0; k < micro; k++) {
        MicroBatch batch = tiny_batch(data, c, first + k * c->batch);
        expect_ok(step_micro(&t->session, &batch));
    }
}

/* The largest relative distance of a parameter's gradient between two nets of the same shape, and whose it is. */
static double worst_gradient(Tiny *a, Tiny *b, const char **name)
{
    double worst = 0;
    for (int v = 0; v < a->net.graph->value_count; v++) {
        Value d = grad_of_param(a->net.graph, (Value){ v });
        if (d.id < 0)
            continue;
        double distance = tiny_distance(a, d, b, graph_find(b->net.graph, a->net.graph->values[d.id].name));
        if (distance >= worst) {
            worst = distance;
            *name = a->net.graph->values[d.id].name;
        }
    }
    return worst;
}

static void expect_close_gradients(Tiny *a, Tiny *b, double limit)
{
    const char *name = "";
    double      worst = worst_gradient(a, b, &name);
    if (!(worst <= limit))
        fail_msg("'%s' differs by %.2g, allowed %.2g", name, worst, limit);
}

/* ---- the whole net on both backends ---- */

static void compare_with_reference(NetConfig config, double loss_limit, double gradient_limit)
{
    Tiny       cpu, ref;
    StepResult a, b;
    TinyData   data = tiny_data(&config, 1);
    tiny_open(&config, "cpu", NULL, &cpu);
    tiny_open(&config, "ref", NULL, &ref);
    assert_true(tiny_hash(&cpu) == tiny_hash(&ref)); /* both start from the same weights */

    run_window(&cpu, &data, 0, 1, config.batch);
    run_window(&ref, &data, 0, 1, config.batch);
    expect_close_gradients(&cpu, &ref, gradient_limit);
    expect_ok(step_update(&cpu.session, 0.01f));
    expect_ok(step_update(&ref.session, 0.01f));
    expect_ok(step_result(&cpu.session, &a));
    expect_ok(step_result(&ref.session, &b));
    assert_true(fabs(a.loss - b.loss) <= loss_limit * b.loss);
    assert_true(fabs(a.grad_norm - b.grad_norm) <= gradient_limit * b.grad_norm);
    assert_int_equal(a.samples, config.batch);

    expect_ok(eval_begin(&cpu.session)); /* and what the update left: weights, copies, running statistics */
    expect_ok(eval_begin(&ref.session));
    MicroBatch batch = tiny_batch(&data, &config, 0);
    expect_ok(eval_batch(&cpu.session, &batch));
    expect_ok(eval_batch(&ref.session, &batch));
    expect_ok(eval_result(&cpu.session, &a));
    expect_ok(eval_result(&ref.session, &b));
    assert_true(fabs(a.loss - b.loss) <= 10 * loss_limit * b.loss);
    tiny_data_free(&data);
    tiny_close(&cpu);
    tiny_close(&ref);
}

/* Rounding errors of every layer pass through all layers behind it, so the limits are for whole nets: some ten times what
 * was measured, and far below what a wrong or missing term gives (which is of order 1). */
static void whole_net_agrees_with_the_reference(void **state)
{
    (void)state;
    NetConfig config = tiny_config(2);
    config.eval = true;
    compare_with_reference(config, 1e-5, 1e-3);
    config.stem = STEM_STANDARD;
    config.size = 64;
    compare_with_reference(config, 1e-5, 1e-3);
}

static void whole_net_agrees_with_the_reference_in_bf16(void **state)
{
    (void)state;
    NetConfig config = tiny_config(2);
    config.eval = true;
    config.amp = AMP_BF16;
    compare_with_reference(config, 0.02, 0.5);
}

/* ---- accumulation ---- */

/* With batch norm each micro-batch has statistics of its own: the gradient of the window is the sum of theirs. */
static void a_window_is_the_sum_of_its_micro_batches(void **state)
{
    (void)state;
    NetConfig config = tiny_config(2);
    Tiny      single, window;
    TinyData  data = tiny_data(&config, 1);
    tiny_open(&config, "cpu", NULL, &single);
    config.accumulate = true;
    tiny_open(&config, "cpu", NULL, &window);
    run_window(&window, &data, 0, 3, 6);

    for (int v = 0; v < window.net.graph->value_count; v++) {
        Value d = grad_of_param(window.net.graph, (Value){ v });
        if (d.id < 0)
            continue;
        int64_t n = tensor_count(graph_tensor(window.net.graph, d));
        float  *sum = calloc((size_t)n, sizeof *sum), *whole = tiny_read(&window, d);
        double  difference = 0, norm = 0;
        assert_non_null(sum);
        for (int k = 0; k < 3; k++) {
            run_window(&single, &data, 2 * k, 1, 6);
            float *part = tiny_read(&single, graph_find(single.net.graph, window.net.graph->values[d.id].name));
            for (int64_t i = 0; i < n; i++)
                sum[i] += part[i];
            free(part);
        }
        for (int64_t i = 0; i < n; i++) {
            difference += ((double)sum[i] - (double)whole[i]) * ((double)sum[i] - (double)whole[i]);
            norm += (double)sum[i] * (double)sum[i];
        }
        assert_true(sqrt(difference) <= 1e-6 * sqrt(norm));
        free(sum);
        free(whole);
        v += 40; /* each run gives all gradients; a sample of the parameters is enough */
    }
    tiny_data_free(&data);
    tiny_close(&single);
    tiny_close(&window);
}

static void open_plain(int64_t batch, bool accumulate, Tiny *t)
{
    plain_net_build(batch, accumulate, &t->net);
    tiny_bind(t, "cpu", NULL);
}

/* Claim A4 and cases.md D13, first half. */
static void without_batch_norm_a_window_equals_the_large_batch(void **state)
{
    (void)state;
    Tiny large, window;
    open_plain(8, false, &large);
    open_plain(2, true, &window);
    TinyData   data = tiny_data(&large.net.config, 1);
    StepResult a, b;
    run_window(&large, &data, 0, 1, 8);
    run_window(&window, &data, 0, 4, 8);
    expect_close_gradients(&window, &large, 1e-5);
    expect_ok(step_update(&large.session, 0.1f));
    expect_ok(step_update(&window.session, 0.1f));
    expect_ok(step_result(&large.session, &a));
    expect_ok(step_result(&window.session, &b));
    assert_true(fabs(a.loss - b.loss) < 1e-5 * a.loss && fabs(a.grad_norm - b.grad_norm) < 1e-5 * a.grad_norm);
    assert_int_equal(b.samples, 8);
    assert_true(a.accuracy == b.accuracy);
    tiny_data_free(&data);
    tiny_close(&large);
    tiny_close(&window);
}

/* cases.md D13, second half. */
static void with_batch_norm_a_window_is_something_else(void **state)
{
    (void)state;
    NetConfig   config = tiny_config(8);
    Tiny        large, window;
    const char *name;
    tiny_open(&config, "cpu", NULL, &large);
    config = tiny_config(2);
    config.accumulate = true;
    tiny_open(&config, "cpu", NULL, &window);
    TinyData data = tiny_data(&config, 1);
    run_window(&large, &data, 0, 1, 8);
    run_window(&window, &data, 0, 4, 8);
    assert_true(worst_gradient(&window, &large, &name) > 0.05);
    tiny_data_free(&data);
    tiny_close(&large);
    tiny_close(&window);
}

/* cases.md D12: the mean is over the labelled samples of the window, not a mean of the micro-batches' means. */
static void unlabelled_samples_do_not_count(void **state)
{
    (void)state;
    Tiny large, window;
    open_plain(8, false, &large);
    open_plain(2, true, &window);
    TinyData data = tiny_data(&large.net.config, 1);
    data.labels[1] = data.labels[4] = data.labels[5] = -1; /* micro-batches of 1, 2, 0 and 2 samples */
    StepResult a, b;
    run_window(&large, &data, 0, 1, 5);
    run_window(&window, &data, 0, 4, 5);
    expect_close_gradients(&window, &large, 1e-5);
    expect_ok(step_result(&large.session, &a));
    expect_ok(step_result(&window.session, &b));
    assert_int_equal(a.samples, 5);
    assert_int_equal(b.samples, 5);

    for (int i = 0; i < 8; i++)
        data.labels[i] = -1;
    run_window(&window, &data, 0, 4, 0);
    expect_ok(step_update(&window.session, 0.1f));
    expect_ok(step_result(&window.session, &b));
    assert_true(b.grad_norm == 0 && b.loss == 0 && b.samples == 0);
    tiny_data_free(&data);
    tiny_close(&large);
    tiny_close(&window);
}

static void begin_forgets_the_last_window(void **state)
{
    (void)state;
    Tiny t, fresh;
    open_plain(2, true, &t);
    open_plain(2, true, &fresh);
    TinyData   data = tiny_data(&t.net.config, 1);
    StepResult a, b;
    run_window(&t, &data, 0, 2, 4);
    run_window(&t, &data, 4, 2, 4);
    run_window(&fresh, &data, 4, 2, 4);
    expect_close_gradients(&t, &fresh, 0);
    expect_ok(step_update(&t.session, 0));
    expect_ok(step_update(&fresh.session, 0));
    expect_ok(step_result(&t.session, &a));
    expect_ok(step_result(&fresh.session, &b));
    assert_true(a.loss == b.loss && a.grad_norm == b.grad_norm);
    expect_error(step_begin(&t.session, -1), STATUS_USAGE, "cannot have -1 samples");
    tiny_data_free(&data);
    tiny_close(&t);
    tiny_close(&fresh);
}

/* ---- training works ---- */

static void ten_steps_learn_a_batch_by_heart(void **state)
{
    (void)state;
    for (int amp = 0; amp < AMP_COUNT; amp++) {
        NetConfig config = tiny_config(8);
        config.amp = (Amp)amp;
        Tiny t;
        tiny_open(&config, "cpu", NULL, &t);
        double first = tiny_train(&t, 1, 1, 1).loss, last = tiny_train(&t, 12, 1, 1).loss;
        assert_true(fabs(first - log(10)) < 1.0); /* untrained: about as good as guessing */
        assert_true(last < 0.7 * first);
        tiny_close(&t);
    }
}

/* The scale of the small net's output is known: padded slots of the last batch do not count. */
static void evaluation_counts_labelled_samples(void **state)
{
    (void)state;
    NetConfig config = tiny_config(4);
    config.train = false;
    config.eval = true;
    Tiny t;
    tiny_open(&config, "cpu", NULL, &t);
    TinyData   data = tiny_data(&config, 1);
    StepResult whole, twice;
    data.labels[6] = data.labels[7] = -1;
    MicroBatch first = tiny_batch(&data, &config, 0), second = tiny_batch(&data, &config, 4);
    expect_ok(eval_begin(&t.session));
    expect_ok(eval_batch(&t.session, &first));
    expect_ok(eval_batch(&t.session, &second));
    expect_ok(eval_result(&t.session, &whole));
    assert_int_equal(whole.samples, 6);
    expect_ok(eval_begin(&t.session));
    for (int i = 0; i < 2; i++) {
        expect_ok(eval_batch(&t.session, &first));
        expect_ok(eval_batch(&t.session, &second));
    }
    expect_ok(eval_result(&t.session, &twice));
    assert_int_equal(twice.samples, 12);
    assert_true(fabs(twice.loss - whole.loss) < 1e-6 * whole.loss && twice.accuracy == whole.accuracy);
    tiny_data_free(&data);
    tiny_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_net_agrees_with_the_reference),
        cmocka_unit_test(whole_net_agrees_with_the_reference_in_bf16),
        cmocka_unit_test(a_window_is_the_sum_of_its_micro_batches),
        cmocka_unit_test(without_batch_norm_a_window_equals_the_large_batch),
        cmocka_unit_test(with_batch_norm_a_window_is_something_else),
        cmocka_unit_test(unlabelled_samples_do_not_count),
        cmocka_unit_test(begin_forgets_the_last_window),
        cmocka_unit_test(ten_steps_learn_a_batch_by_heart),
        cmocka_unit_test(evaluation_counts_labelled_samples),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
