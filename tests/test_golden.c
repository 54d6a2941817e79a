/* test_golden.c - ten training steps of a small ResNet-50 against the curves that PyTorch gave, golden/resnet50_tiny.json
 * (made by golden/make_golden.py; golden/resnet50.py holds the other half of what is drawn here). */
#include "golden_file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

/* bf16 keeps 8 bits, an error of 2^-9 an operation, which averages out in sums: measured were 2e-4 in the first loss, 2e-3 in
 * the first gradient norm, 5e-3 in the later losses. */
static const GoldenLimits BF16 = { .first_loss = 2e-3, .first_norm = 1e-2, .later_loss = 3e-2 };

/* All samples of a step. */
typedef struct Images {
    uint64_t seed;
    int64_t  size, classes;
    uint8_t *pixels; /* (samples, size, size, 3) */
    int32_t *labels;
    int64_t  samples;
} Images;

/* batch() of golden/resnet50.py. */
static int64_t draw(void *data, int step)
{
    const Images *d = data;
    const int64_t size = d->size;
    for (int64_t s = 0; s < d->samples; s++)
        d->labels[s] = (int32_t)(s % d->classes);
    for (int64_t i = 0; i < d->samples * size * size * 3; i++) {
        int64_t c = i % 3, x = i / 3 % size, y = i / 3 / size % size, s = i / 3 / size / size;
        int64_t square = ((d->labels[s] * 4 + y * 4 / size) * 4 + x * 4 / size) * 3 + c;
        uint32_t pattern = rng_block(d->seed, UINT64_C(1) << 32, (uint64_t)square).word[0] & 255;
        uint32_t noise = rng_block(d->seed, (uint64_t)step, (uint64_t)i).word[0] & 255;
        d->pixels[i] = (uint8_t)((3 * pattern + noise) / 4);
    }
    return d->samples;
}

static MicroBatch micro(void *data, int64_t first, int64_t count)
{
    const Images *d = data;
    assert_true(first + count <= d->samples);
    return (MicroBatch){ .pixels = d->pixels + first * d->size * d->size * 3, .labels = d->labels + first, .counted = count };
}

typedef struct Setup { Golden golden; NetConfig config; Images images; GoldenBatches batches; } Setup;

static void set_up(Setup *s)
{
    s->golden = golden_open("resnet50", "xent");
    const json_t *c = s->golden.config;
    s->config = net_config_default("resnet50");
    s->config.size = (int64_t)golden_number(c, "size");
    s->config.classes = (int64_t)golden_number(c, "classes");
    s->config.width = golden_number(c, "width");
    s->config.stem = STEM_SMALL;
    s->config.zero_init_gamma = true;
    s->images = (Images){ .seed = (uint64_t)golden_number(c, "data_seed"), .size = s->config.size, .classes = s->config.classes,
                          .samples = (int64_t)golden_number(c, "batch") };
    s->images.pixels = malloc((size_t)(s->images.samples * s->config.size * s->config.size * 3));
    s->images.labels = malloc((size_t)s->images.samples * sizeof *s->images.labels);
    assert_true(s->images.pixels && s->images.labels);
    s->batches = (GoldenBatches){ .draw = draw, .micro = micro, .data = &s->images, .samples = s->images.samples };
}

static void tear_down(Setup *s)
{
    free(s->images.pixels);
    free(s->images.labels);
    golden_close(&s->golden);
}

static void follow(const int *curves, int count, Amp amp)
{
    Setup s;
    set_up(&s);
    GoldenLimits limits = amp == AMP_OFF ? golden_limits(&s.golden) : BF16;
    for (int i = 0; i < count; i++)
        golden_follow(&s.golden, &s.config, curves[i], amp, &limits, &s.batches);
    tear_down(&s);
}

static void the_first_step_is_pytorchs(void **state)
{
    (void)state;
    Setup s;
    set_up(&s);
    golden_check_first(&s.golden, &s.config, &s.batches);
    tear_down(&s);
}

static void f32_follows_pytorch(void **state)
{
    (void)state;
    const int all[] = { 0, 1, 2, 3, 4, 5 };
    follow(all, 6, AMP_OFF);
}

static void bf16_stays_near_f32(void **state)
{
    (void)state;
    const int some[] = { 0, 1, 3 }; /* SGD, SGD of two micro-batches, AdamW of four */
    follow(some, 3, AMP_BF16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_step_is_pytorchs),
        cmocka_unit_test(f32_follows_pytorch),
        cmocka_unit_test(bf16_stays_near_f32),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
