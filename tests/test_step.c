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

/* How far the gradients of two nets of the same shape are apart, relative: the worst parameter, its name, and all
 * parameters as one vector. */
typedef struct Apart { double worst, whole; const char *name; } Apart;

static Apart gradients_apart(Tiny *a, Tiny *b)
{
    Apart  apart = { 0, 0, "" };
    double difference = 0, norm = 0;
    for (int v = 0; v < a->net.graph->value_count; v++) {
        Value d = grad_of_param(a->net.graph, (Value){ v });
        if (d.id < 0)
            continue;
        const char *name = a->net.graph->values[d.id].name;
        Value       e = graph_find(b->net.graph, name);
        double      distance = tiny_distance(a, d, b, e);
        if (distance >= apart.worst)
            apart = (Apart){ distance, 0, name };
        float *g = tiny_read(b, e);
        for (int64_t i = 0; i < tensor_count(graph_tensor(b->net.graph, e)); i++) {
            norm += (double)g[i] * (double)g[i];
            difference += (double)g[i] * (double)g[i] * distance * distance;
        }
        free(g);
    }
    apart.whole = sqrt(difference / norm);
    return apart;
}

static void expect_close_gradients(Tiny *a, Tiny *b, double limit)
{
    Apart apart = gradients_apart(a, b);
    if (!(apart.worst <= limit))
        fail_msg("'%s' differs by %.2g, allowed %.2g", apart.name, apart.worst, limit);
}

/* ---- the whole net on both backends ---- */

typedef struct Limits { double worst_gradient, whole_gradient, loss; } Limits; /* relative */

static void compare_with_reference(NetConfig config, Limits limits)
{
    Tiny       cpu, ref;
    StepResult a, b;
    TinyData   data = tiny_data(&config, 1);
    MicroBatch batch = tiny_batch(&data, &config, 0);
    config.eval = true;
    tiny_open(&config, "cpu/2", NULL, &cpu);
    tiny_open(&config, "ref/2", NULL, &ref);
    assert_true(tiny_hash(&cpu) == tiny_hash(&ref)); /* both start from the same weights */

    run_window(&cpu, &data, 0, 1, config.batch);
    run_window(&ref, &data, 0, 1, config.batch);
    Apart apart = gradients_apart(&cpu, &ref);
    if (!(apart.worst <= limits.worst_gradient && apart.whole <= limits.whole_gradient))
        fail_msg("gradients differ by %.2g, '%s' by %.2g", apart.whole, apart.name, apart.worst);
    expect_ok(step_update(&cpu.session, 0.01f));
    expect_ok(step_update(&ref.session, 0.01f));
    expect_ok(step_result(&cpu.session, &a));
    expect_ok(step_result(&ref.session, &b));
    assert_true(fabs(a.loss - b.loss) <= limits.loss * b.loss);
    assert_true(fabs(a.grad_norm - b.grad_norm) <= limits.whole_gradient * b.grad_norm);
    assert_int_equal(a.counted, config.batch);

    expect_ok(eval_begin(&cpu.session)); /* and what the update left: weights, copies, running statistics */
    expect_ok(eval_begin(&ref.session));
    expect_ok(eval_batch(&cpu.session, &batch));
    expect_ok(eval_batch(&ref.session, &batch));
    expect_ok(eval_result(&cpu.session, &a));
    expect_ok(eval_result(&ref.session, &b));
    assert_true(fabs(a.loss - b.loss) <= limits.loss * b.loss);
    tiny_data_free(&data);
    tiny_close(&cpu);
    tiny_close(&ref);
}

/* Rounding errors of every layer pass through all layers behind it, so the limits are for whole nets: some five times what
 * was measured, and far below what a wrong or missing term gives, which is of order 1. */
static void whole_net_agrees_with_the_reference(void **state)
{
    (void)state;
    const Limits limits = { 1e-4, 5e-5, 1e-6 };
    NetConfig    config = tiny_config(2);
    compare_with_reference(config, limits);
    config.stem = STEM_STANDARD;
    config.size = 64;
    compare_with_reference(config, limits);
}

/* In bf16 a difference in the last bit (2^-8) flips some ReLUs, and what reaches the first layers is mostly rounding: a
 * single gradient there says nothing, the whole does. */
static void whole_net_agrees_with_the_reference_in_bf16(void **state)
{
    (void)state;
    NetConfig config = tiny_config(2);
    config.amp = AMP_BF16;
    compare_with_reference(config, (Limits){ 2, 0.3, 5e-3 });
}

/* ---- gradients are derivatives: what comparing backends cannot show, since both run the same graph ---- */

/* The sum of losses of one micro-batch after `from` + step * along was written to a parameter. */
static double loss_at(Tiny *t, const MicroBatch *batch, Value p, const float *from, const float *along, double step)
{
    int64_t n = tensor_count(graph_tensor(t->net.graph, p));
    float  *moved = malloc((size_t)n * sizeof *moved), metrics[4];
    assert_non_null(moved);
    for (int64_t i = 0; i < n; i++)
        moved[i] = from[i] + (float)(step * (double)along[i]);
    expect_ok(exec_write(t->session.exec, p, moved));
    expect_ok(exec_refresh_copies(t->session.exec));
    expect_ok(step_begin(&t->session, 1));
    expect_ok(step_micro(&t->session, batch));
    expect_ok(exec_read(t->session.exec, t->net.metrics, metrics));
    free(moved);
    return (double)metrics[0];
}

/* Along its gradient g the loss must rise by |g|^2 times the step (central difference; the float32 loss leaves 2e-4). */
static void expect_derivative(Tiny *t, const MicroBatch *batch, Value p)
{
    const char *name = t->net.graph->values[p.id].name;
    int64_t     n = tensor_count(graph_tensor(t->net.graph, p));
    float      *start = tiny_read(t, p);
    double      norm2 = 0;
    loss_at(t, batch, p, start, start, 0);
    float *g = tiny_read(t, grad_of_param(t->net.graph, p));
    for (int64_t i = 0; i < n; i++)
        norm2 += (double)g[i] * (double)g[i];
    double step = 0.003 / norm2; /* changes the loss by about 0.003 */
    double rise = (loss_at(t, batch, p, start, g, step) - loss_at(t, batch, p, start, g, -step)) / (2 * step);
    if (!(norm2 > 0 && fabs(rise - norm2) <= 0.002 * norm2))
        fail_msg("'%s': along its gradient the loss rises by %g, not %g", name, rise, norm2);
    loss_at(t, batch, p, start, g, 0);
    free(start);
    free(g);
}

/* The net without batch norm, which golden/ does not see. */
static void gradients_are_derivatives(void **state)
{
    (void)state;
    Tiny t;
    int  params = 0;
    plain_net_build(4, false, &t.net);
    tiny_bind(&t, "cpu", NULL);
    TinyData   data = tiny_data(&t.net.config, 1);
    MicroBatch batch = tiny_batch(&data, &t.net.config, 0);
    for (int v = 0; v < t.net.graph->value_count; v++)
        if (t.net.graph->values[v].is_param) {
            expect_derivative(&t, &batch, (Value){ v });
            params++;
        }
    assert_int_equal(params, 8);
    tiny_data_free(&data);
    tiny_close(&t);
}

/* ---- accumulation ---- */

/* With batch norm each micro-batch has statistics of its own: the gradient of the window is the sum of theirs. */
static void a_window_is_the_sum_of_its_micro_batches(void **state)
{
    (void)state;
    NetConfig config = tiny_config(2);
    TinyData  data = tiny_data(&config, 1);
    Tiny      part[3], window;
    for (int k = 0; k < 3; k++) {
        tiny_open(&config, "cpu", NULL, &part[k]);
        run_window(&part[k], &data, 2 * k, 1, 6);
    }
    config.accumulate = true;
    tiny_open(&config, "cpu", NULL, &window);
    run_window(&window, &data, 0, 3, 6);

    for (int v = 0; v < window.net.graph->value_count; v++) {
        Value d = grad_of_param(window.net.graph, (Value){ v });
        if (d.id < 0)
            continue;
        float *whole = tiny_read(&window, d), *of[3];
        for (int k = 0; k < 3; k++)
            of[k] = tiny_read(&part[k], graph_find(part[k].net.graph, window.net.graph->values[d.id].name));
        double difference = 0, norm = 0;
        for (int64_t i = 0; i < tensor_count(graph_tensor(window.net.graph, d)); i++) {
            double sum = (double)of[0][i] + (double)of[1][i] + (double)of[2][i];
            difference += (sum - (double)whole[i]) * (sum - (double)whole[i]);
            norm += sum * sum;
        }
        assert_true(norm > 0 && sqrt(difference) <= 1e-6 * sqrt(norm));
        free(whole);
        for (int k = 0; k < 3; k++)
            free(of[k]);
    }
    tiny_data_free(&data);
    for (int k = 0; k < 3; k++)
        tiny_close(&part[k]);
    tiny_close(&window);
}

static void open_plain(int64_t batch, bool accumulate, Tiny *t)
{
    plain_net_build(batch, accumulate, &t->net);
    tiny_bind(t, "cpu", NULL);
}

/* Claim A4 and tests/CASES.md D13, first half. */
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
    assert_int_equal(b.counted, 8);
    assert_true(a.accuracy == b.accuracy);
    tiny_data_free(&data);
    tiny_close(&large);
    tiny_close(&window);
}

/* tests/CASES.md D13, second half. */
static void with_batch_norm_a_window_is_something_else(void **state)
{
    (void)state;
    NetConfig config = tiny_config(8);
    Tiny      large, window;
    tiny_open(&config, "cpu", NULL, &large);
    config = tiny_config(2);
    config.accumulate = true;
    tiny_open(&config, "cpu", NULL, &window);
    TinyData data = tiny_data(&config, 1);
    run_window(&large, &data, 0, 1, 8);
    run_window(&window, &data, 0, 4, 8);
    assert_true(gradients_apart(&window, &large).whole > 0.1);
    tiny_data_free(&data);
    tiny_close(&large);
    tiny_close(&window);
}

/* tests/CASES.md D12: the mean is over the labelled samples of the window, not a mean of the micro-batches' means. */
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
    assert_int_equal(a.counted, 5);
    assert_int_equal(b.counted, 5);

    for (int i = 0; i < 8; i++)
        data.labels[i] = -1;
    run_window(&window, &data, 0, 4, 0);
    expect_ok(step_update(&window.session, 0.1f));
    expect_ok(step_result(&window.session, &b));
    assert_true(b.grad_norm == 0 && b.loss == 0 && b.counted == 0);
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
    assert_int_equal(whole.counted, 6);
    expect_ok(eval_begin(&t.session));
    for (int i = 0; i < 2; i++) {
        expect_ok(eval_batch(&t.session, &first));
        expect_ok(eval_batch(&t.session, &second));
    }
    expect_ok(eval_result(&t.session, &twice));
    assert_int_equal(twice.counted, 12);
    assert_true(fabs(twice.loss - whole.loss) < 1e-6 * whole.loss && twice.accuracy == whole.accuracy);
    tiny_data_free(&data);
    tiny_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_net_agrees_with_the_reference),
        cmocka_unit_test(whole_net_agrees_with_the_reference_in_bf16),
        cmocka_unit_test(gradients_are_derivatives),
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
