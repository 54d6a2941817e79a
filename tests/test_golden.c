/* test_golden.c - ten training steps of a small ResNet-50 against the curve that PyTorch gave, golden/resnet50_tiny.json
 * (made by golden/make_golden.py, which holds the other half of what is drawn here). */
#include "../nets/nets.h"
#include "tiny_net.h"

#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* PyTorch's own float32 and float64 curves are at most 1.3e-3 apart (relative, tenth step; both are in the file): the
 * rounding errors of a step are multiplied by the next. The first step has no such history. */
static const double FIRST_LOSS = 1e-6, FIRST_NORM = 1e-5, LATER_LOSS = 5e-3;

/* bf16 keeps 8 bits, an error of 2^-9 an operation, which averages out in sums: measured were 2e-4 in the first loss, 2e-3 in
 * the first gradient norm, 5e-3 in the later losses. */
static const double BF16_FIRST_LOSS = 2e-3, BF16_FIRST_NORM = 1e-2, BF16_LATER_LOSS = 3e-2;

typedef struct Golden { json_t *root, *config; } Golden;

static Golden golden_load(void)
{
    json_error_t error;
    json_t      *root = json_load_file(GOLDEN_DIR "/resnet50_tiny.json", 0, &error);
    if (!root)
        fail_msg("%s:%d: %s", error.source, error.line, error.text);
    json_t *config = json_object_get(root, "config");
    assert_non_null(config);
    return (Golden){ root, config };
}

static double number(const json_t *object, const char *key)
{
    json_t *value = json_object_get(object, key);
    if (!json_is_number(value))
        fail_msg("the golden file has no number '%s'", key);
    return json_number_value(value);
}

static double element(const json_t *object, const char *key, int i)
{
    json_t *value = json_array_get(json_object_get(object, key), (size_t)i);
    if (!json_is_number(value))
        fail_msg("the golden file has no number '%s'[%d]", key, i);
    return json_number_value(value);
}

/* Parameter number `stream`: as its Init says, but batch norm off its 1 and 0, so that every term counts. */
static float drawn(const Init *init, uint64_t seed, uint64_t stream, uint64_t i)
{
    switch (init->kind) {
    case INIT_NORMAL:  return init->scale * (float)rng_normal(seed, stream, i);
    case INIT_UNIFORM: return init->scale * (2 * rng_uniform(rng_block(seed, stream, i).word[0]) - 1);
    default:           return (init->kind == INIT_ONE) + 0.1f * (float)rng_normal(seed, stream, i);
    }
}

/* Writes all parameters; returns the sum of their squares. */
static double write_params(Tiny *t, uint64_t seed)
{
    const Graph *g = t->net.graph;
    double       norm2 = 0;
    uint64_t     stream = 0;
    for (int v = 0; v < g->value_count; v++) {
        if (!g->values[v].is_param)
            continue;
        int64_t n = tensor_count(&g->values[v].tensor);
        float  *host = malloc((size_t)n * sizeof *host);
        assert_non_null(host);
        for (int64_t i = 0; i < n; i++) {
            host[i] = drawn(&g->values[v].init, seed, stream, (uint64_t)i);
            norm2 += (double)host[i] * (double)host[i];
        }
        expect_ok(exec_write(t->session.exec, (Value){ v }, host));
        free(host);
        stream++;
    }
    expect_ok(exec_refresh_copies(t->session.exec));
    return norm2;
}

/* batch() of make_golden.py: all samples of a step. */
static void draw_batch(uint64_t seed, uint64_t step, int64_t n, int64_t size, int64_t classes,
                       uint8_t *pixels, int32_t *labels)
{
    for (int64_t s = 0; s < n; s++)
        labels[s] = (int32_t)(s % classes);
    for (int64_t i = 0; i < n * size * size * 3; i++) {
        int64_t c = i % 3, x = i / 3 % size, y = i / 3 / size % size, s = i / 3 / size / size;
        int64_t square = ((labels[s] * 4 + y * 4 / size) * 4 + x * 4 / size) * 3 + c;
        uint32_t pattern = rng_block(seed, UINT64_C(1) << 32, (uint64_t)square).word[0] & 255;
        uint32_t noise = rng_block(seed, step, (uint64_t)i).word[0] & 255;
        pixels[i] = (uint8_t)((3 * pattern + noise) / 4);
    }
}

static void expect_near(const char *what, int step, double got, double want, double limit)
{
    if (!(fabs(got - want) <= limit * fabs(want)))
        fail_msg("%s of step %d is %.9g, PyTorch has %.9g: relative difference %.2g, allowed %.2g", what, step, got, want,
                 fabs(got / want - 1), limit);
}

static void follow(const char *curve_name, int accum, Amp amp)
{
    Golden        golden = golden_load();
    const json_t *c = golden.config, *curve = json_object_get(golden.root, curve_name);
    const int64_t samples = (int64_t)number(c, "batch");
    const uint64_t data_seed = (uint64_t)number(c, "data_seed");

    NetConfig config = net_config_default(NULL);
    config.batch = samples / accum;
    config.size = (int64_t)number(c, "size");
    config.classes = (int64_t)number(c, "classes");
    config.width = number(c, "width");
    config.optim.momentum = (float)number(c, "momentum");
    config.optim.weight_decay = (float)number(c, "weight_decay");
    config.stem = STEM_SMALL;
    config.zero_init_gamma = config.eval = true;
    config.accumulate = accum > 1;
    config.amp = amp;

    Tiny t;
    tiny_open(&config, "cpu", NULL, &t);
    assert_int_equal(graph_param_count(t.net.graph), (int64_t)number(curve, "params"));
    expect_near("the weights' square", 0, write_params(&t, (uint64_t)number(c, "param_seed")), number(curve, "start_norm2"),
                1e-9);

    const size_t image = (size_t)(config.size * config.size * 3);
    uint8_t     *pixels = malloc((size_t)samples * image);
    int32_t     *labels = malloc((size_t)samples * sizeof *labels);
    StepResult   result;
    assert_true(pixels && labels);
    for (int step = 0; step < (int)number(c, "steps"); step++) {
        draw_batch(data_seed, (uint64_t)step, samples, config.size, config.classes, pixels, labels);
        expect_ok(step_begin(&t.session, samples));
        for (int k = 0; k < accum; k++) {
            MicroBatch batch = { .pixels = pixels + (size_t)(k * config.batch) * image, .labels = labels + k * config.batch };
            expect_ok(step_micro(&t.session, &batch));
        }
        expect_ok(step_update(&t.session, (float)number(c, "learning_rate")));
        expect_ok(step_result(&t.session, &result));
        double first = amp ? BF16_FIRST_LOSS : FIRST_LOSS, later = amp ? BF16_LATER_LOSS : LATER_LOSS;
        expect_near("the loss", step, result.loss, element(curve, "loss", step), step ? later : first);
        if (step == 0)
            expect_near("the gradient norm", 0, result.grad_norm, element(curve, "grad_norm", 0),
                        amp ? BF16_FIRST_NORM : FIRST_NORM);
    }

    /* Running statistics, from ten steps, in use. */
    draw_batch(data_seed, 0, samples, config.size, config.classes, pixels, labels);
    expect_ok(eval_begin(&t.session));
    for (int k = 0; k < accum; k++) {
        MicroBatch batch = { .pixels = pixels + (size_t)(k * config.batch) * image, .labels = labels + k * config.batch };
        expect_ok(eval_batch(&t.session, &batch));
    }
    expect_ok(eval_result(&t.session, &result));
    expect_near("the evaluation loss", 10, result.loss, number(curve, "eval_loss"), amp ? BF16_LATER_LOSS : LATER_LOSS);
    free(pixels);
    free(labels);
    tiny_close(&t);
    json_decref(golden.root);
}

static void f32_follows_pytorch(void **state)
{
    (void)state;
    follow("f64_accum1", 1, AMP_OFF);
}

static void f32_follows_pytorch_with_two_micro_batches(void **state)
{
    (void)state;
    follow("f64_accum2", 2, AMP_OFF);
}

static void bf16_stays_near_f32(void **state)
{
    (void)state;
    follow("f64_accum1", 1, AMP_BF16);
    follow("f64_accum2", 2, AMP_BF16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(f32_follows_pytorch),
        cmocka_unit_test(f32_follows_pytorch_with_two_micro_batches),
        cmocka_unit_test(bf16_stays_near_f32),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
