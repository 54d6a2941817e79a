/* test_accumulation.c - what a window of several micro-batches is: how many updates and at which rates (tests/CASES.md D11), and that
 * a mean over it is a mean over what is labelled in all of it, tokens (D12) or pixels. What batch norm makes of it (D13) is in
 * test_step.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>

#include "../bench/train.h"
#include "../nets/grad.h"
#include "mask_files.h"
#include "sample_files.h"
#include "tiny_text.h"

static MeasureOptions quick_options(void)
{
    return (MeasureOptions){ .device = "cpu", .backend = { .threads = 1 }, .seed = 1 };
}

/* ---- D11: updates, rates, samples ---- */

enum { MICRO_BATCHES = 10, MICRO_BATCH = 2 };

static TrainConfig ten_micro_batches(bool text)
{
    NetConfig net = text ? tiny_bert(MICRO_BATCH) : tiny_config(MICRO_BATCH);
    net.size = text ? 16 : 8;
    net.width = text ? 1 : 0.01;
    return (TrainConfig){ .net = net, .epochs = 2, .lr = 1e-3, .base_batch = 1, .schedule = SCHEDULE_LINEAR, .rules = session_rules(), .seed = 1,
                          .feed = { .data = text ? "copy" : "shapes", .limit = MICRO_BATCHES * MICRO_BATCH, .loaders = 1, .seed = 1 } };
}

static json_t *train(const TrainConfig *t)
{
    MeasureOptions options = quick_options();
    json_t        *entry = NULL;
    expect_ok(train_run(t, &options, false, &entry));
    assert_string_equal(json_string_value(json_object_get(entry, "status")), "ok");
    return entry;
}

static double number(const json_t *object, const char *member)
{
    const json_t *value = json_object_get(object, member);
    assert_true(json_is_number(value));
    return json_number_value(value);
}

/* ceil(10 / K) updates an epoch, the last window shorter; every rate is the schedule's at its update, and no sample is left. */
static void expect_updates(bool text, int64_t accum)
{
    TrainConfig   t = ten_micro_batches(text);
    const int64_t per_epoch = (MICRO_BATCHES + accum - 1) / accum, updates = 2 * per_epoch;
    t.accum = accum;
    t.warmup = 0.5;
    json_t       *entry = train(&t), *curve = json_object_get(entry, "curve");
    const int64_t warmup = per_epoch / 2;
    assert_int_equal(json_array_size(curve), updates);
    for (int64_t u = 0; u < updates; u++) {
        const json_t *point = json_array_get(curve, (size_t)u);
        const int64_t of_epoch = u % per_epoch + 1, done = u / per_epoch * MICRO_BATCHES
                    + (of_epoch * accum < MICRO_BATCHES ? of_epoch * accum : MICRO_BATCHES);
        const double rate = u < warmup ? 1e-3 * (double)(u + 1) / (double)warmup : 1e-3 * (double)(updates - u) / (double)(updates - warmup);
        assert_true(fabs(number(point, "lr") - rate) < 1e-12);
        assert_true(number(point, "samples") == (double)(done * MICRO_BATCH));
    }
    assert_true(number(json_array_get(curve, (size_t)updates - 1), "lr") <= 1e-3 / (double)(updates - warmup) + 1e-12); /* one step from 0 */
    json_decref(entry);
}

static void test_last_window_counts(void **state)
{
    (void)state;
    const int64_t accums[] = { 1, 2, 3, 4, 16 };
    for (size_t i = 0; i < COUNT_OF(accums); i++) {
        expect_updates(false, accums[i]);
        expect_updates(true, accums[i]);
    }
}

/* ---- D12: tokens ---- */

enum { LONG = 128, SEQUENCES = 8 };

/* Labels in 3 to 128 tokens; one sequence has none. */
static const TinySequence uneven[SEQUENCES] = { { 1, 128, 128 }, { 2, 128, 3 }, { 3, 60, 40 }, { 4, 128, 17 },
                                                { 5, 90, 0 },    { 6, 12, 12 }, { 7, 128, 77 }, { 8, 33, 5 } };

static void open_uneven(int micro, Tiny *t, double *loss)
{
    NetConfig c = tiny_bert(SEQUENCES / micro);
    TinyText  text[SEQUENCES];
    c.size = c.positions = LONG;
    c.head = HEAD_ALL;
    c.accumulate = micro > 1;
    tiny_open(&c, "cpu", NULL, t);
    for (int k = 0; k < micro; k++)
        text[k] = tiny_text(&c, uneven + k * c.batch, (int)c.batch, LONG);
    *loss = tiny_text_window(t, text, micro);
    for (int k = 0; k < micro; k++)
        tiny_text_free(&text[k]);
}

static void test_tokens_of_a_window_weigh_alike(void **state)
{
    (void)state;
    Tiny   whole, parts;
    double loss, other;
    open_uneven(1, &whole, &loss);
    for (int micro = 4; micro <= 8; micro += 4) {
        open_uneven(micro, &parts, &other);
        assert_true(fabs(other - loss) < 1e-6 * loss);
        expect_same_gradients(&parts, &whole, 1e-5);
        tiny_close(&parts);
    }
    tiny_close(&whole);
}

/* ---- pixels ---- */

enum { SIDE = 16, AREA = SIDE * SIDE, MICRO = 3 };

typedef struct Picture { uint8_t pixels[2 * AREA * 3], mask[2 * AREA]; MicroBatch batch; } Picture;

/* Micro-batch k has a label in about one of k^2 pixels, the last one in none. */
static void draw(int k, Picture *p)
{
    int64_t counted = 0;
    for (size_t i = 0; i < sizeof p->pixels; i++)
        p->pixels[i] = (uint8_t)(rng_block(5, (uint64_t)k, i).word[0] & 255);
    for (size_t i = 0; i < sizeof p->mask; i++) {
        p->mask[i] = k < 3 && i % (size_t)(k * k) == 0 ? (uint8_t)(i / 5 % 3) : 255;
        counted += p->mask[i] != 255;
    }
    p->batch = (MicroBatch){ .pixels = p->pixels, .mask = p->mask, .counted = counted };
}

static double pixel_window(Tiny *t, const Picture *pictures, int first, int count)
{
    float   metrics[5 + 3 * 3];
    int64_t counted = 0;
    for (int k = first; k < first + count; k++)
        counted += pictures[k].batch.counted;
    expect_ok(step_begin(&t->session, counted));
    for (int k = first; k < first + count; k++)
        expect_ok(step_micro(&t->session, &pictures[k].batch));
    expect_ok(exec_read(t->session.exec, t->net.metrics, metrics));
    assert_true(metrics[2] == (float)counted);
    return (double)metrics[0];
}

/* The window's gradient is the mean of the micro-batches' own, each weighing as many pixels as it has labelled: its batch
 * norm is its own, so this holds for UNet too. */
static void test_pixels_of_a_window_weigh_alike(void **state)
{
    (void)state;
    NetConfig c = net_config_default("unet");
    Tiny      t;
    Picture   pictures[MICRO];
    double    loss = 0;
    c.size = SIDE;
    c.batch = 2;
    c.classes = 3;
    c.depth = 1;
    c.width = 0.25;
    c.accumulate = true;
    tiny_open(&c, "cpu", NULL, &t);
    for (int k = 0; k < MICRO; k++)
        draw(k + 1, &pictures[k]);
    const double counted[MICRO] = { 512, 128, 0 };
    const Value  gradients[] = { grad_of_param(t.net.graph, graph_find(t.net.graph, "head.w")), graph_find(t.net.graph, "down0.conv1.w.grad") };
    float       *sum[2] = { NULL, NULL };
    assert_true(gradients[0].id >= 0 && gradients[1].id >= 0);
    for (int k = 0; k < MICRO; k++) {
        assert_true((double)pictures[k].batch.counted == counted[k]);
        loss += pixel_window(&t, pictures, k, 1);
        for (int i = 0; i < 2; i++) {
            const int64_t n = tensor_count(graph_tensor(t.net.graph, gradients[i]));
            float        *g = tiny_read(&t, gradients[i]);
            sum[i] = sum[i] ? sum[i] : calloc((size_t)n, sizeof **sum);
            assert_non_null(sum[i]);
            for (int64_t j = 0; j < n; j++)
                sum[i][j] += g[j] * (float)(counted[k] / 640);
            free(g);
        }
    }
    assert_true(fabs(pixel_window(&t, pictures, 0, MICRO) - loss) < 1e-6 * loss);
    for (int i = 0; i < 2; i++) {
        float *g = tiny_read(&t, gradients[i]);
        for (int64_t j = 0; j < tensor_count(graph_tensor(t.net.graph, gradients[i])); j++)
            assert_true(fabsf(g[j] - sum[i][j]) < 1e-6f + 1e-5f * fabsf(g[j]));
        free(g);
        free(sum[i]);
    }
    tiny_close(&t);
}

/* ---- masks of five classes and pixels without one, from files ---- */

static void write_masks(const char *dir)
{
    for (int i = 0; i < MASK_PAIRS; i++) {
        uint8_t mask[MASK_AREA];
        char    name[64];
        mask_write_pair(dir, i, 255);
        mask_fill(i, MASK_SIZE, (uint8_t)(1 + i % 4), mask);
        memset(mask, 255, (size_t)(7 * i));
        snprintf(name, sizeof name, "masks/pair.%02d.png", i);
        mask_write(dir, name, MASK_SIZE, MASK_SIZE, mask);
    }
}

static TrainConfig train_masks(const char *dir)
{
    NetConfig net = net_config_default("unet");
    net.size = MASK_SIZE;
    net.batch = 2;
    net.depth = 1;
    net.width = 0.25;
    net.classes = 5;
    return (TrainConfig){ .net = net, .accum = 3, .epochs = 1, .lr = 1e-2, .base_batch = 1, .rules = session_rules(), .seed = 1,
                          .feed = { .data = "masks", .dir = dir, .loaders = 0, .seed = 1 } };
}

static void test_masks_of_five_classes(void **state)
{
    (void)state;
    char        dir[SAMPLE_PATH_BYTES], name[CELL_NAME_BYTES];
    Feed       *feed;
    MicroBatch  batch;
    int64_t     samples, seen[256] = { 0 };
    sample_make_dir(dir);
    write_masks(dir);
    TrainConfig t = train_masks(dir);
    expect_ok(feed_open(&t.feed, t.accum, &t.net, &feed));
    assert_int_equal(t.net.classes, 5);
    for (int64_t b = 0; b < feed_batches(feed); b++) {
        int64_t counted = 0;
        expect_ok(feed_next(feed, &batch, &samples));
        for (int i = 0; i < 2 * MASK_AREA; i++) {
            counted += batch.mask[i] != 255;
            seen[batch.mask[i]]++;
        }
        assert_int_equal(batch.counted, counted);
    }
    feed_close(feed);
    assert_true(seen[0] && seen[1] && seen[2] && seen[3] && seen[4] && seen[255]);
    json_t *entry = train(&t);
    assert_string_equal(json_string_value(json_object_get(entry, "name")), train_name(&t, name, sizeof name));
    assert_non_null(strstr(name, "/classes:5"));
    assert_true(number(json_array_get(json_object_get(entry, "epochs"), 0), "test_dice") >= 0);
    json_decref(entry);

    MeasureOptions options = quick_options();
    t.net.classes = 3; /* fewer than the masks hold */
    expect_error(train_run(&t, &options, false, &entry), STATUS_INPUT, "expected 0..2 or 255");
    t.net.classes = 1;
    expect_error(train_run(&t, &options, false, &entry), STATUS_INPUT, "masks/pair");
    sample_remove_tree(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_last_window_counts),
        cmocka_unit_test(test_tokens_of_a_window_weigh_alike),
        cmocka_unit_test(test_pixels_of_a_window_weigh_alike),
        cmocka_unit_test(test_masks_of_five_classes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
