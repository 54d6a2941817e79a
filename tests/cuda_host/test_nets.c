/* test_nets.c - whole small nets trained for ten updates by the CUDA backend, over the stand-ins for CUDA's runtime and libraries,
 * against the reference: ResNet-50 with the standard stem, UNet and BERT, in f32, bf16 and fp16, with one and three micro-batches
 * an update. Recorded graphs, every node on its own, and streams in any order must give the same bits. */
#include "../tiny_text.h"
#include "fake.h"
#include "fake_cublaslt.h"
#include "fake_cudnn.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { STEPS = 10, EARLY = 4, MOST_MICRO = 3 };

/* ---- nets and their data */

/* 64 pixels, so that the last stage's batch norms see eight numbers a channel: of two, a rounding error can turn the sign. */
static NetConfig resnet_config(void)
{
    NetConfig c = tiny_config(2);
    c.stem = STEM_STANDARD;
    c.size = 64;
    return c;
}

static NetConfig unet_config(void)
{
    NetConfig c = net_config_default("unet");
    c.batch = 2;
    c.size = 16;
    c.classes = 3;
    c.width = 0.25;
    c.depth = 2;
    return c;
}

static NetConfig bert_config(void)
{
    NetConfig c = tiny_bert(3);
    c.hidden = 64;
    c.dropout = 0.1f;
    return c;
}

/* Micro-batches of one net; of its three kinds of data one is there. */
typedef struct Data { TinyData images; uint8_t *masks; TinyText text[MOST_MICRO]; MicroBatch micro[MOST_MICRO]; } Data;

static void make_text(const NetConfig *c, Data *d)
{
    for (int k = 0; k < MOST_MICRO; k++) {
        const TinySequence some[3] = { { 3 * k + 1, 20, 3 }, { 3 * k + 2, 7 + k, 2 }, { 3 * k + 3, 11, 3 } };
        d->text[k] = tiny_text(c, some, 3, c->size);
        d->micro[k] = d->text[k].batch;
    }
}

static void make_images(const NetConfig *c, Data *d)
{
    d->images = tiny_data(c, 5);
    for (int k = 0; k < MOST_MICRO; k++)
        d->micro[k] = tiny_batch(&d->images, c, 2 * k); /* of eight images */
}

/* A mask for each micro-batch: every class in patches, some pixels without one. */
static void make_masks(const NetConfig *c, Data *d)
{
    const int64_t pixels = c->batch * c->size * c->size;
    d->masks = malloc((size_t)(pixels * MOST_MICRO));
    assert_non_null(d->masks);
    for (int64_t i = 0; i < pixels * MOST_MICRO; i++)
        d->masks[i] = i % 11 == 7 ? 255 : (uint8_t)rng_below(6, 2, (uint64_t)i / 4, c->classes);
    for (int k = 0; k < MOST_MICRO; k++) {
        d->micro[k].labels = NULL;
        d->micro[k].mask = d->masks + k * pixels;
        d->micro[k].counted = 0;
        for (int64_t i = 0; i < pixels; i++)
            d->micro[k].counted += d->micro[k].mask[i] != 255;
    }
}

static Data make_data(const NetConfig *c)
{
    Data d = { .masks = NULL };
    if (net_is_text(c)) {
        make_text(c, &d);
        return d;
    }
    make_images(c, &d);
    if (net_loss(c) != LOSS_CLASSES)
        make_masks(c, &d);
    return d;
}

static void free_data(const NetConfig *c, Data *d)
{
    for (int k = 0; net_is_text(c) && k < MOST_MICRO; k++)
        tiny_text_free(&d->text[k]);
    tiny_data_free(&d->images);
    free(d->masks);
}

/* ---- training */

typedef struct Curve { double loss[STEPS]; int64_t skips; uint64_t hash; float *weights; int64_t count; } Curve;

static void keep_weights(Tiny *t, Curve *out)
{
    for (int v = 0; v < t->net.graph->value_count; v++)
        if (t->net.graph->values[v].is_param)
            out->count += tensor_count(&t->net.graph->values[v].tensor);
    out->weights = malloc((size_t)out->count * sizeof *out->weights);
    assert_non_null(out->weights);
    int64_t at = 0;
    for (int v = 0; v < t->net.graph->value_count; v++)
        if (t->net.graph->values[v].is_param) {
            float *values = tiny_read(t, (Value){ v });
            memcpy(out->weights + at, values, (size_t)tensor_count(&t->net.graph->values[v].tensor) * sizeof *values);
            at += tensor_count(&t->net.graph->values[v].tensor);
            free(values);
        }
}

static Curve train(const NetConfig *c, const char *backend, bool eager, int accum)
{
    Tiny       t;
    Curve      curve = { .count = 0 };
    StepResult result;
    Data       data = make_data(c);
    int64_t    window = 0;
    tiny_open(c, backend, &(ExecOptions){ .eager = eager }, &t);
    t.session.rules = session_rules();
    for (int k = 0; k < accum; k++)
        window += data.micro[k].counted;
    for (int i = 0; i < STEPS; i++) {
        expect_ok(step_begin(&t.session, window));
        for (int k = 0; k < accum; k++)
            expect_ok(step_micro(&t.session, &data.micro[k]));
        expect_ok(step_update(&t.session, strcmp(c->net, "unet") ? 1e-3f : 1e-2f));
        expect_ok(step_result(&t.session, &result));
        curve.loss[i] = result.loss;
    }
    curve.skips = result.skips;
    curve.hash = tiny_hash(&t);
    keep_weights(&t, &curve);
    tiny_close(&t);
    free_data(c, &data);
    return curve;
}

static Curve train_in_order(const NetConfig *c, FakeOrder order, bool eager, int accum)
{
    fake_reset();
    fake_cudnn_reset();
    fake_set_order(order);
    fake_set_library(FAKE_CUDNN, fake_cudnn_api(), NULL);
    fake_cublaslt_reset();
    fake_set_library(FAKE_CUBLASLT, fake_cublaslt_api(), NULL);
    const FakeCounts before = fake_counts();
    Curve            curve = train(c, "cuda", eager, accum);
    assert_true(fake_nothing_leaked(&before));
    const FakeCudnnCounts left = fake_cudnn_counts();
    assert_true(left.descriptors == 0 && left.handles == 0 && (left.executed > 0 || net_is_text(c)));
    return curve;
}

/* ---- comparison */

/* |a - b| / |how far training has moved b|, over all parameters. */
static double weights_apart(const Curve *a, const Curve *b, const Curve *start)
{
    double difference = 0, moved = 0;
    assert_int_equal(a->count, b->count);
    for (int64_t i = 0; i < a->count; i++) {
        difference += pow((double)a->weights[i] - (double)b->weights[i], 2);
        moved += pow((double)b->weights[i] - (double)start->weights[i], 2);
    }
    assert_true(moved > 0);
    return sqrt(difference / moved);
}

static Curve start_of(const NetConfig *c)
{
    Tiny  t;
    Curve curve = { .count = 0 };
    tiny_open(c, "ref", NULL, &t);
    keep_weights(&t, &curve);
    tiny_close(&t);
    return curve;
}

/* Limits on the loss of the first EARLY steps and of all, relative, and on the weights after ten. A rounding error grows from step to
 * step, and jumps where it turns the sign of a ReLU or another pixel becomes the largest of its window; so the early steps are
 * what shows a small mistake, and the later ones that nothing accumulates. Some five times what was measured. */
typedef struct Limits { double early, loss, weights; } Limits;

static double losses_apart(const Curve *a, const Curve *b, int steps)
{
    double worst = 0;
    for (int i = 0; i < steps; i++)
        worst = fmax(worst, fabs(a->loss[i] - b->loss[i]) / fabs(b->loss[i]));
    return worst;
}

/* Fails unless the two are the same bit by bit; frees b. */
static void expect_same(const Curve *a, Curve b)
{
    assert_true(a->hash == b.hash);
    assert_memory_equal(a->loss, b.loss, sizeof a->loss);
    free(b.weights);
}

static void compare(NetConfig c, Amp amp, Limits limits)
{
    const double began = clock_seconds();
    c.amp = amp;
    for (int accum = 1; accum <= MOST_MICRO; accum += 2) {
        c.accumulate = accum > 1;
        Curve start = start_of(&c), want = train(&c, "ref", true, accum), got = train_in_order(&c, FAKE_LATE, false, accum);
        const double early = losses_apart(&got, &want, EARLY), all = losses_apart(&got, &want, STEPS),
                     apart = weights_apart(&got, &want, &start);
        print_message("%s %s x%d: losses within %.1g, %.1g early, weights within %.1g of the way; loss %.3f to %.3f; %.1f s\n",
                      c.net, amp_names[amp], accum, all, early, apart, want.loss[0], want.loss[STEPS - 1], clock_seconds() - began);
        assert_true(want.loss[STEPS - 1] < want.loss[0]); /* it learns */
        assert_true(early <= limits.early && all <= limits.loss && apart <= limits.weights);
        assert_int_equal(got.skips, want.skips);
        expect_same(&got, train_in_order(&c, FAKE_FIRST_LATE, true, accum)); /* each node enqueued on its own */
        if (amp == AMP_OFF)
            expect_same(&got, train_in_order(&c, FAKE_FIRST_AT_ONCE, false, accum));
        free(start.weights);
        free(want.weights);
        free(got.weights);
    }
}

static void resnet_learns_as_the_reference(void **state)
{
    (void)state;
    compare(resnet_config(), AMP_OFF, (Limits){ 2e-6, 2e-2, 0.2 });
    compare(resnet_config(), AMP_BF16, (Limits){ 0.1, 0.5, 2 });
    compare(resnet_config(), AMP_FP16, (Limits){ 0.1, 0.5, 2 });
}

static void unet_learns_as_the_reference(void **state)
{
    (void)state;
    compare(unet_config(), AMP_OFF, (Limits){ 1e-6, 5e-3, 0.2 }); /* 1e-7 to the end, 5e-4 with one such jump */
    compare(unet_config(), AMP_BF16, (Limits){ 2e-2, 0.1, 1 });
    compare(unet_config(), AMP_FP16, (Limits){ 2e-2, 0.1, 1 });
}

static void bert_learns_as_the_reference(void **state)
{
    (void)state;
    compare(bert_config(), AMP_OFF, (Limits){ 1e-6, 1e-6, 5e-5 });
    compare(bert_config(), AMP_BF16, (Limits){ 1e-3, 1e-3, 0.15 });
    compare(bert_config(), AMP_FP16, (Limits){ 2e-4, 2e-4, 0.05 });
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(resnet_learns_as_the_reference),
        cmocka_unit_test(unet_learns_as_the_reference),
        cmocka_unit_test(bert_learns_as_the_reference),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
