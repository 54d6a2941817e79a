/* test_scaler.c - loss scale, clipping and skipped updates in a whole step (tests/CASES.md D7, D8, D9). What step_control does alone
 * over thousands of updates is in test_optim_ops.c. */
#include "tiny_net.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Places in control, see kernels/ops.h. */
enum { UNSCALE, CLIP, SKIP, SCALE, FINITE, SKIPPED, DONE, SKIPPED_IN_ROW, CONTROLS };

static const float RATE = 0.25f;

static void open_net(Dtype type, bool scaled, bool accumulate, bool batch_norm, const char *backend, Tiny *t)
{
    PlainConfig config = plain_config(2, accumulate);
    config.type = type;
    config.batch_norm = batch_norm;
    config.optim.loss_scale = scaled;
    config.optim.weight_decay = 0;
    plain_net_build_as(&config, &t->net);
    tiny_bind(t, backend, NULL);
}

static void read_control(Tiny *t, float control[CONTROLS])
{
    expect_ok(exec_read(t->session.exec, t->net.control, control));
}

static void set_scale(Tiny *t, float scale)
{
    float control[CONTROLS];
    read_control(t, control);
    control[SCALE] = scale;
    expect_ok(exec_write(t->session.exec, t->net.control, control));
}

static float read_norm(Tiny *t)
{
    float norm2;
    expect_ok(exec_read(t->session.exec, t->net.norm2, &norm2));
    return sqrtf(norm2);
}

typedef struct Rules { float max_norm, interval; } Rules;

/* One update of `micro` micro-batches. */
static void train(Tiny *t, const TinyData *data, int micro, Rules rules)
{
    const NetConfig *c = &t->net.config;
    const float      hyper[8] = { RATE, rules.max_norm, rules.interval, 2, 0.5f, 1, 16777216, 0 };
    expect_ok(step_begin(&t->session, micro * c->batch));
    for (int k = 0; k < micro; k++) {
        MicroBatch batch = tiny_batch(data, c, k * c->batch);
        expect_ok(step_micro(&t->session, &batch));
    }
    expect_ok(exec_write(t->session.exec, t->net.hyper, hyper));
    expect_ok(exec_run(t->session.exec, SEG_UPDATE));
}

/* All parameters one after another. */
static float *read_params(Tiny *t, int64_t *count)
{
    const Graph *g = t->net.graph;
    float       *all = malloc((size_t)graph_param_count(g) * sizeof *all);
    assert_non_null(all);
    *count = 0;
    for (int v = 0; v < g->value_count; v++)
        if (g->values[v].is_param) {
            expect_ok(exec_read(t->session.exec, (Value){ v }, all + *count));
            *count += tensor_count(&g->values[v].tensor);
        }
    return all;
}

/* What one update of a new net changes the parameters by. The caller frees. */
static float *change_on(const char *backend, Dtype type, float scale, int micro, float max_norm, float *norm, int64_t *count)
{
    Tiny     t;
    open_net(type, scale > 0, true, false, backend, &t);
    TinyData data = tiny_data(&t.net.config, 1);
    float   *before = read_params(&t, count);
    if (scale > 0)
        set_scale(&t, scale);
    train(&t, &data, micro, (Rules){ max_norm, scale > 0 ? 2000 : 0 });
    *norm = read_norm(&t);
    float *after = read_params(&t, count);
    for (int64_t i = 0; i < *count; i++)
        after[i] -= before[i];
    free(before);
    tiny_data_free(&data);
    tiny_close(&t);
    return after;
}

static float *change_of(Dtype type, float scale, int micro, float max_norm, float *norm, int64_t *count)
{
    return change_on("cpu", type, scale, micro, max_norm, norm, count);
}

static double length(const float *x, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    return sqrt(sum);
}

static double apart(const float *x, const float *y, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += ((double)x[i] - (double)y[i]) * ((double)x[i] - (double)y[i]);
    return sqrt(sum) / length(y, n);
}

/* D7: clipped after it is unscaled, once per window. Scales are powers of two, so in fp32 they may not change anything; in
 * fp16 what is left is the rounding of activations and their gradients (seen: 6e-3 in direction, 8e-4 in size), while the length
 * of the clipped step does not depend on it. */
static void clipping_sees_the_unscaled_gradient_of_the_window(void **state)
{
    (void)state;
    static const float scales[] = { 1, 65536 };
    static const Dtype types[] = { DTYPE_F32, DTYPE_F16 };
    for (int micro = 1; micro <= 4; micro += 3) {
        float   norm, clip;
        int64_t n;
        free(change_of(DTYPE_F32, 0, micro, 0, &norm, &n));
        clip = norm / 10;
        float *want = change_of(DTYPE_F32, 0, micro, clip, &norm, &n);
        assert_true(fabs(length(want, n) - (double)(RATE * clip)) < 1e-3 * (double)(RATE * clip)); /* the first step of momentum */
        for (size_t s = 0; s < COUNT_OF(scales); s++)
            for (size_t k = 0; k < COUNT_OF(types); k++) {
                const bool   exact = types[k] == DTYPE_F32;
                float        scaled_norm;
                float       *got = change_of(types[k], scales[s], micro, clip, &scaled_norm, &n);
                const double distance = apart(got, want, n), off = fabs((double)(scaled_norm - norm)) / (double)norm;
                if (!(distance < (exact ? 1e-6 : 2e-2) && off < (exact ? 1e-6 : 3e-3) && fabs(length(got, n) / length(want, n) - 1) < 1e-3))
                    fail_msg("%s, %d micro-batches, scale %g: the change differs by %.2g, the norm by %.2g", dtype_name(types[k]), micro,
                             (double)scales[s], distance, off);
                free(got);
            }
        free(want);
    }
}

/* Both round to fp16 in the same places; where a sum of fp32 and one of fp64 fall on either side of a tie they part. */
static void an_update_in_fp16_is_that_of_the_reference(void **state)
{
    (void)state;
    float   norm, ref_norm;
    int64_t n;
    float  *got = change_on("cpu", DTYPE_F16, 1024, 4, 0, &norm, &n), *want = change_on("ref", DTYPE_F16, 1024, 4, 0, &ref_norm, &n);
    const double distance = apart(got, want, n);
    if (!(distance < 5e-4 && fabsf(norm - ref_norm) < 1e-3f * ref_norm))
        fail_msg("the change differs by %.2g, the norm is %.8g, on the reference %.8g", distance, (double)norm, (double)ref_norm);
    free(got);
    free(want);
}

/* Weights, statistics and optimiser state, bit by bit; what is saved in each BEGIN is left out. */
static uint64_t hash_of(Tiny *t)
{
    const Graph *g = t->net.graph;
    uint64_t     hash = tiny_hash(t);
    for (int v = 0; v < g->value_count; v++) {
        if (g->values[v].kind != MEM_OPTIM || g->values[v].span_group || g->values[v].layout_of < 0)
            continue;
        float *values = tiny_read(t, (Value){ v });
        for (size_t i = 0; i < tensor_bytes(&g->values[v].tensor); i++)
            hash = (hash ^ ((unsigned char *)values)[i]) * UINT64_C(0x100000001B3); /* FNV-1a */
        free(values);
    }
    return hash;
}

/* D9, first half: a scale that is too large makes infinities in the backward pass, after batch norm has taken the batch in. */
static void a_skipped_update_leaves_nothing_behind(void **state)
{
    (void)state;
    static const OptimKind kinds[] = { OPTIM_SGD, OPTIM_LAMB };
    for (size_t k = 0; k < COUNT_OF(kinds); k++) {
        Tiny        t;
        float       control[CONTROLS];
        PlainConfig config = plain_config(2, true);
        config.type = DTYPE_F16;
        config.batch_norm = config.optim.loss_scale = true;
        config.optim.kind = kinds[k];
        plain_net_build_as(&config, &t.net);
        tiny_bind(&t, "cpu", NULL);
        TinyData data = tiny_data(&t.net.config, 1);
        train(&t, &data, 2, (Rules){ 0, 2000 });
        const uint64_t before = hash_of(&t);
        set_scale(&t, 16777216);
        train(&t, &data, 2, (Rules){ 0, 2000 });
        read_control(&t, control);
        assert_true(control[SKIP] == 1 && control[SKIPPED] == 1 && control[SKIPPED_IN_ROW] == 1 && control[DONE] == 1 && control[FINITE] == 0);
        assert_true(control[SCALE] == 8388608 && control[UNSCALE] == 1.0f / 16777216);
        assert_true(hash_of(&t) == before);

        int more = 0; /* the scale comes down until the gradients fit */
        for (; control[SKIP] != 0 && more < 24; more++) {
            train(&t, &data, 2, (Rules){ 0, 2000 });
            read_control(&t, control);
            assert_true((hash_of(&t) == before) == (control[SKIP] == 1));
        }
        assert_true(more > 1 && more < 24 && control[SKIPPED] == (float)more && control[DONE] == 2 && control[SKIPPED_IN_ROW] == 0);
        assert_true(control[SCALE] == 16777216 / (float)(1 << more));
        tiny_data_free(&data);
        tiny_close(&t);
    }
}

/* D8: the fault is in the model. Nothing changes, the scale stops at its floor. */
static void a_model_that_makes_nan_changes_nothing(void **state)
{
    (void)state;
    Tiny  t;
    float control[CONTROLS], bias[10] = { INFINITY };
    open_net(DTYPE_F16, true, false, true, "cpu", &t);
    TinyData data = tiny_data(&t.net.config, 1);
    expect_ok(exec_write(t.session.exec, graph_find(t.net.graph, "fc.b"), bias));
    const uint64_t before = hash_of(&t);
    for (int i = 1; i <= 30; i++) {
        train(&t, &data, 1, (Rules){ 1, 2000 });
        read_control(&t, control);
        assert_true(control[SCALE] == (i < 16 ? 65536 / (float)(1 << i) : 1) && control[SKIPPED_IN_ROW] == (float)i && control[DONE] == 0);
    }
    assert_true(hash_of(&t) == before);
    tiny_data_free(&data);
    tiny_close(&t);
}

static void the_scale_grows_every_interval(void **state)
{
    (void)state;
    Tiny  t;
    float control[CONTROLS];
    open_net(DTYPE_F16, true, false, true, "cpu", &t);
    TinyData data = tiny_data(&t.net.config, 1);
    set_scale(&t, 8);
    for (int i = 1; i <= 7; i++) {
        train(&t, &data, 1, (Rules){ 1, 3 });
        read_control(&t, control);
        assert_true(control[SKIP] == 0 && control[SCALE] == (float)(8 << i / 3) && control[FINITE] == (float)(i % 3));
    }
    tiny_data_free(&data);
    tiny_close(&t);
}

/* D9: pixels are so far apart that only the two about the middle are finite in fp16; one pixel of one batch is not. */
enum { BATCHES = 11, BAD = 3 };

static void run_with_bad_pixel(bool bad, Tiny *t, float *loss)
{
    PlainConfig config = plain_config(2, false);
    config.type = DTYPE_F16;
    config.batch_norm = config.optim.loss_scale = true;
    config.deviation = 1.0f / (255 * 600);
    plain_net_build_as(&config, &t->net);
    tiny_bind(t, "cpu", NULL);
    TinyData data = tiny_data(&t->net.config, 1);
    for (int i = 0; i < 2 * 16 * 16 * 3; i++)
        data.pixels[i] = (uint8_t)(127 + data.pixels[i] % 2);
    for (int i = 0; i < BATCHES; i++) {
        const uint8_t kept = data.pixels[100];
        if (i == BAD) {
            if (!bad)
                continue;
            data.pixels[100] = 255;
        }
        train(t, &data, 1, (Rules){ 1, 2000 });
        data.pixels[100] = kept;
        float metrics[4];
        expect_ok(exec_read(t->session.exec, t->net.metrics, metrics));
        *loss = metrics[0];
    }
    tiny_data_free(&data);
}

static void one_overflowing_pixel_is_forgotten(void **state)
{
    (void)state;
    Tiny  with, without;
    float control[CONTROLS], loss, loss_without;
    int   statistics = 0;
    run_with_bad_pixel(true, &with, &loss);
    run_with_bad_pixel(false, &without, &loss_without);
    read_control(&with, control);
    assert_true(control[SKIPPED] == 1 && control[DONE] == BATCHES - 1 && control[SCALE] == 32768);
    assert_true(isfinite(loss) && fabsf(loss - loss_without) < 1e-2f * loss_without);
    for (int v = 0; v < with.net.graph->value_count; v++) {
        const GraphValue *s = &with.net.graph->values[v];
        if (s->kind != MEM_WEIGHT || s->is_param || s->span_group)
            continue;
        assert_true(tiny_distance(&with, (Value){ v }, &without, (Value){ v }) < 1e-2); /* fails on NaN */
        statistics++;
    }
    assert_int_equal(statistics, 6);
    tiny_close(&with);
    tiny_close(&without);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(clipping_sees_the_unscaled_gradient_of_the_window),
        cmocka_unit_test(an_update_in_fp16_is_that_of_the_reference),
        cmocka_unit_test(a_skipped_update_leaves_nothing_behind),
        cmocka_unit_test(a_model_that_makes_nan_changes_nothing),
        cmocka_unit_test(the_scale_grows_every_interval),
        cmocka_unit_test(one_overflowing_pixel_is_forgotten),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
