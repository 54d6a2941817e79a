/* test_fp16.c - training in fp16 of a small net of each kind, as the program does it, and how a training ends whose numbers are
 * not finite (tests/CASES.md D8). The scaler alone is in test_scaler.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <math.h>

#include "../bench/train.h"
#include "tiny_text.h"

enum { MAX_UPDATES = 16 + 20 }; /* halvings of the loss scale from 2^16 to 1, and skips there before the run ends */

static MeasureOptions quick_options(void)
{
    return (MeasureOptions){ .device = "cpu", .backend = { .threads = 1 }, .seed = 1, .steps = 1, .timed = true };
}

static NetConfig small_net(const char *name)
{
    if (!strcmp(name, "bert")) {
        NetConfig c = tiny_bert(2);
        c.size = 16;
        c.dropout = 0.1f;
        return c;
    }
    NetConfig c = net_config_default(name);
    c.batch = 2;
    c.size = 16;
    c.width = 0.25;
    c.depth = 1;
    c.stem = STEM_SMALL;
    c.classes = strcmp(name, "unet") ? 10 : 2;
    return c;
}

static TrainConfig small_training(const char *name, Amp amp)
{
    TrainConfig t = { .net = small_net(name), .accum = 1, .epochs = 1, .lr = 1e-3, .base_batch = 1, .rules = session_rules(), .seed = 1,
                      .feed = { .limit = 8, .loaders = 0, .seed = 1 } };
    t.net.amp = amp;
    t.feed.data = net_is_text(&t.net) ? "copy" : net_loss(&t.net) == LOSS_CLASSES ? "shapes" : "ellipses";
    return t;
}

static const char *const names[] = { "resnet50", "unet", "bert" };

static double number(const json_t *object, const char *member)
{
    const json_t *value = json_object_get(object, member);
    assert_true(json_is_number(value));
    return json_number_value(value);
}

/* Trains; gives the loss of the first micro-batch, which is the weights' own before any rounding could grow. */
static double first_loss(Amp amp, const char *name)
{
    TrainConfig    t = small_training(name, amp);
    MeasureOptions options = quick_options();
    json_t        *entry = NULL;
    t.epochs = 4; /* 16 updates; the first ones are lost on finding the loss scale */
    expect_ok(train_run(&t, &options, false, &entry));
    assert_string_equal(json_string_value(json_object_get(entry, "status")), "ok");
    assert_non_null(strstr(json_string_value(json_object_get(entry, "name")), amp == AMP_FP16 ? "/amp:fp16" : "/amp:off"));
    const json_t *scale = json_object_get(entry, "loss_scale");
    if (amp == AMP_FP16) {
        const double skips = number(scale, "skipped_updates");
        if (!(skips <= 8 && number(scale, "last") == ldexp(65536, -(int)skips)))
            fail_msg("%s: %g updates skipped, the last scale is %g", name, skips, number(scale, "last"));
    } else {
        assert_true(json_is_null(scale));
    }
    assert_true(number(json_array_get(json_object_get(entry, "epochs"), 3), "test_loss") > 0);
    const double loss = number(json_array_get(json_object_get(entry, "curve"), 0), "loss");
    json_decref(entry);
    return loss;
}

static void test_each_net_trains(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        const double half = first_loss(AMP_FP16, names[i]), full = first_loss(AMP_OFF, names[i]);
        if (!(half != full && fabs(half - full) < 0.05 * full))
            fail_msg("%s: loss %g in fp16, %g in fp32", names[i], half, full);
    }
}

static void test_fp16_is_not_timed_where_it_is_emulated(void **state)
{
    (void)state;
    BackendInfo info;
    Backend    *be = tiny_backend("cpu");
    backend_describe(be, &info);
    backend_close(be);
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        CellConfig     cell = { small_net(names[i]), 1 };
        MeasureOptions options = quick_options();
        json_t        *entry = NULL, *verified = NULL;
        cell.net.amp = AMP_FP16;
        expect_ok(verify_net(&cell.net, &options, &verified));
        json_decref(verified);
        Status s = cell_measure(&cell, &options, &entry);
        json_decref(entry);
        if (info.fast_fp16) {
            expect_ok(s);
            continue;
        }
        expect_error(s, STATUS_UNSUPPORTED, "fp16 is not timed here");
        json_t *failed = cell_failed(&cell, &s);
        assert_string_equal(json_string_value(json_object_get(failed, "status")), "skipped");
        assert_string_equal(json_string_value(json_object_get(failed, "reason")), s.text);
        json_decref(failed);
    }
}

/* A step that verification makes must leave numbers that fit into fp16, or nothing could be trained. */
static void test_each_optimizer_is_verified(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(names); i++)
        for (int kind = 0; kind < OPTIM_COUNT; kind++) {
            MeasureOptions options = quick_options();
            NetConfig      c = small_net(names[i]);
            json_t        *verified = NULL;
            c.amp = AMP_FP16;
            c.width = i < 2 ? 0.05 : 1;
            c.optim.kind = (OptimKind)kind;
            expect_ok(verify_net(&c, &options, &verified));
            json_decref(verified);
        }
}

/* ---- numbers that are not finite ---- */

typedef struct Bad { const char *net, *weight; } Bad;
static const Bad bad[] = { { "resnet50", "fc.w" }, { "unet", "head.b" }, { "bert", "layer1.ffn1.w" } };

/* One number of this weight is infinite. The caller closes. */
static void open_bad(const Bad *b, Amp amp, bool check_nan, Tiny *t)
{
    NetConfig c = small_net(b->net);
    c.amp = amp;
    tiny_open(&c, "cpu", &(ExecOptions){ .check_nan = check_nan }, t);
    const Value weight = graph_find(t->net.graph, b->weight);
    assert_true(weight.id >= 0);
    float *values = tiny_read(t, weight);
    values[3 % tensor_count(graph_tensor(t->net.graph, weight))] = INFINITY;
    expect_ok(exec_write(t->session.exec, weight, values));
    Status copied = exec_refresh_copies(t->session.exec);
    if (!check_nan)
        expect_ok(copied);
    free(values);
}

/* Host data of one micro-batch: random pixels, or two sequences. */
typedef struct Sample { uint8_t pixels[2 * 16 * 16 * 3], mask[2 * 16 * 16]; int32_t labels[2]; TinyText text; } Sample;

static MicroBatch make_sample(const NetConfig *c, Sample *s)
{
    static const TinySequence two[] = { { 1, 16, 3 }, { 2, 9, 2 } };
    memset(s, 0, sizeof *s);
    if (net_is_text(c)) {
        s->text = tiny_text(c, two, 2, c->size);
        return s->text.batch;
    }
    for (size_t i = 0; i < sizeof s->pixels; i++)
        s->pixels[i] = (uint8_t)(rng_block(5, 1, i).word[0] & 255);
    for (size_t i = 0; i < sizeof s->mask; i++)
        s->mask[i] = i / 7 % 2;
    return (MicroBatch){ .pixels = s->pixels, .mask = s->mask, .labels = s->labels,
                         .counted = net_loss(c) == LOSS_PIXELS ? 2 * 16 * 16 : 2 };
}

static Status step(Tiny *t, const MicroBatch *batch, StepResult *result)
{
    t->session.rules = session_rules();
    TRY(step_begin(&t->session, batch->counted));
    TRY(step_micro(&t->session, batch));
    TRY(step_update(&t->session, 1e-3f));
    return step_result(&t->session, result);
}

static void test_an_infinite_weight_ends_fp16_by_name(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        Tiny       t;
        Sample     sample;
        StepResult result;
        Status     s = status_ok();
        int        updates = 0;
        open_bad(&bad[i], AMP_FP16, false, &t);
        const MicroBatch batch = make_sample(&t.net.config, &sample);
        const uint64_t   before = tiny_hash(&t);
        while (s.code == STATUS_OK && updates < 100) {
            s = step(&t, &batch, &result);
            updates++;
            assert_true(result.skipped && result.skips == updates && result.loss_scale >= 1);
            assert_true(s.code != STATUS_OK || tiny_hash(&t) == before);
        }
        assert_true(updates <= MAX_UPDATES);
        expect_error(s, STATUS_NUMERIC, "at the least loss scale, 1");
        expect_error(s, STATUS_NUMERIC, bad[i].weight);
        tiny_text_free(&sample.text);
        tiny_close(&t);
    }
}

/* The update has spread it by the time that the loss is read; --check-nan sees it where it is. */
static void test_an_infinite_weight_ends_fp32(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(bad); i++)
        for (int check = 0; check <= 1; check++)
            for (int amp = AMP_OFF; amp <= AMP_BF16; amp++) {
                Tiny       t;
                Sample     sample;
                StepResult result;
                open_bad(&bad[i], (Amp)amp, check, &t);
                const MicroBatch batch = make_sample(&t.net.config, &sample);
                Status           s = step(&t, &batch, &result);
                expect_error(s, STATUS_NUMERIC, "not finite");
                expect_error(s, STATUS_NUMERIC, check ? bad[i].weight : "the loss is");
                expect_error(s, STATUS_NUMERIC, check ? bad[i].weight : "--check-nan");
                tiny_text_free(&sample.text);
                tiny_close(&t);
            }
}

/* Before the update that a bad number would come from, the weights are fine; it is an absurd rate that spoils them. */
static void test_absurd_rates_end_the_training(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(names); i++)
        for (int amp = AMP_OFF; amp <= AMP_FP16; amp += AMP_FP16 - AMP_OFF) {
            TrainConfig    t = small_training(names[i], (Amp)amp);
            MeasureOptions options = quick_options();
            json_t        *entry = NULL;
            t.lr = 1e30;
            t.epochs = 40;
            expect_ok(train_run(&t, &options, false, &entry));
            assert_string_equal(json_string_value(json_object_get(entry, "status")), "failed");
            const char *reason = json_string_value(json_object_get(entry, "reason"));
            if (!strstr(reason, "not finite") || strchr(reason, '\n'))
                fail_msg("%s: '%s'", names[i], reason);
            const json_t *curve = json_object_get(entry, "curve");
            assert_true(json_array_size(curve) <= MAX_UPDATES + 4);
            json_decref(entry);
        }
}

static void set_scale(Tiny *t, float scale)
{
    float control[8];
    expect_ok(exec_read(t->session.exec, t->net.control, control));
    control[3] = scale;
    expect_ok(exec_write(t->session.exec, t->net.control, control));
}

/* Weights and statistics of whole nets after an update that was skipped, bit by bit; optimiser state is in
 * test_scaler.c. */
static void test_a_skipped_update_leaves_nothing(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        NetConfig  c = small_net(names[i]);
        Tiny       t;
        Sample     sample;
        StepResult result;
        c.amp = AMP_FP16;
        tiny_open(&c, "cpu", NULL, &t);
        const MicroBatch batch = make_sample(&c, &sample);
        const uint64_t   start = tiny_hash(&t);
        set_scale(&t, 256);
        expect_ok(step(&t, &batch, &result));
        const uint64_t before = tiny_hash(&t);
        assert_true(!result.skipped && before != start);
        set_scale(&t, 0x1p60f); /* no gradient fits */
        expect_ok(step(&t, &batch, &result));
        assert_true(result.skipped && result.skips_in_row == 1 && tiny_hash(&t) == before);
        tiny_text_free(&sample.text);
        tiny_close(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_net_trains),
        cmocka_unit_test(test_fp16_is_not_timed_where_it_is_emulated),
        cmocka_unit_test(test_each_optimizer_is_verified),
        cmocka_unit_test(test_an_infinite_weight_ends_fp16_by_name),
        cmocka_unit_test(test_an_infinite_weight_ends_fp32),
        cmocka_unit_test(test_absurd_rates_end_the_training),
        cmocka_unit_test(test_a_skipped_update_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
