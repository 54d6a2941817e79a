/* test_golden_unet.c - the first step and ten steps of a small UNet, with both of its losses, against what PyTorch gave:
 * golden/unet_tiny.json (made by golden/make_golden.py; golden/unet.py holds the other half of what is drawn here). */
#include "golden_file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SQUARES = 8, IGNORED = 255, STEP_WITH_AN_EMPTY_IMAGE = 3, EMPTY_IMAGE = 2 };

/* bf16 keeps 8 bits, an error of 2^-9 an operation: measured were 6e-4 in the first loss, 9e-3 in the first gradient norm, 4e-2
 * in the later losses, which fall to a tenth of the first. */
static const GoldenLimits BF16 = { .first_loss = 3e-3, .first_norm = 3e-2, .later_loss = 1e-1 };

/* All samples of a step. */
typedef struct Images {
    uint64_t seed;
    int64_t  size, samples;
    bool     dice;
    uint8_t *pixels; /* (samples, size, size, 3) */
    uint8_t *mask;   /* (samples, size, size) */
} Images;

static uint32_t word(const Images *d, uint64_t kind, int step, int64_t i)
{
    return rng_block(d->seed, kind << 32 | (uint64_t)step, (uint64_t)i).word[0];
}

/* Pixel i of all: its colour, and its class in the mask. */
static void draw_pixel(const Images *d, int step, int64_t i)
{
    const int64_t  size = d->size, x = i % size, y = i / size % size, s = i / size / size;
    const uint32_t kind = word(d, 2, step, (s * SQUARES + y * SQUARES / size) * SQUARES + x * SQUARES / size) & 1;
    for (int64_t c = 0; c < 3; c++) {
        uint32_t colour = word(d, 1, 0, 3 * kind + c) & 255, noise = word(d, 0, step, 3 * i + c) & 255;
        d->pixels[3 * i + c] = (uint8_t)((3 * colour + noise) / 4);
    }
    bool ignored = word(d, 3, step, i) % 16 == 0 || (step == STEP_WITH_AN_EMPTY_IMAGE && s == EMPTY_IMAGE);
    d->mask[i] = ignored ? IGNORED : (uint8_t)kind;
}

/* Pixels, or with Dice images, that count among `count` images from `first` on. */
static int64_t counted(const Images *d, int64_t first, int64_t count)
{
    const int64_t image = d->size * d->size;
    int64_t       pixels = 0, images = 0;
    for (int64_t s = first; s < first + count; s++) {
        int64_t before = pixels;
        for (int64_t i = s * image; i < (s + 1) * image; i++)
            pixels += d->mask[i] != IGNORED;
        images += pixels > before;
    }
    return d->dice ? images : pixels;
}

/* batch() of golden/unet.py. */
static int64_t draw(void *data, int step)
{
    const Images *d = data;
    for (int64_t i = 0; i < d->samples * d->size * d->size; i++)
        draw_pixel(d, step, i);
    return counted(d, 0, d->samples);
}

static MicroBatch micro(void *data, int64_t first, int64_t count)
{
    const Images *d = data;
    const int64_t image = d->size * d->size;
    return (MicroBatch){ .pixels = d->pixels + first * image * 3, .mask = d->mask + first * image,
                         .counted = counted(d, first, count) };
}

typedef struct Setup { Golden golden; NetConfig config; Images images; GoldenBatches batches; } Setup;

static void set_up(const char *variant, Setup *s)
{
    s->golden = golden_open("unet", variant);
    const json_t *c = s->golden.config;
    s->config = net_config_default("unet");
    s->config.size = (int64_t)golden_number(c, "size");
    s->config.classes = (int64_t)golden_number(s->golden.variant, "classes");
    s->config.width = golden_number(c, "width");
    s->config.depth = (int64_t)golden_number(c, "depth");
    s->images = (Images){ .seed = (uint64_t)golden_number(c, "data_seed"), .size = s->config.size,
                          .samples = (int64_t)golden_number(c, "batch"), .dice = !strcmp(variant, "bce_dice") };
    const size_t pixels = (size_t)(s->images.samples * s->config.size * s->config.size);
    s->images.pixels = malloc(3 * pixels);
    s->images.mask = malloc(pixels);
    assert_true(s->images.pixels && s->images.mask);
    s->batches = (GoldenBatches){ .draw = draw, .micro = micro, .data = &s->images, .samples = s->images.samples };
}

static void tear_down(Setup *s)
{
    free(s->images.pixels);
    free(s->images.mask);
    golden_close(&s->golden);
}

static void check_first(const char *variant)
{
    Setup s;
    set_up(variant, &s);
    golden_check_first(&s.golden, &s.config, &s.batches);
    tear_down(&s);
}

static void follow_all(const char *variant, Amp amp)
{
    Setup s;
    set_up(variant, &s);
    GoldenLimits limits = amp == AMP_OFF ? golden_limits(&s.golden) : BF16;
    for (int curve = 0; curve < golden_curve_count(&s.golden); curve++)
        golden_follow(&s.golden, &s.config, curve, amp, &limits, &s.batches);
    tear_down(&s);
}

static void the_first_step_is_pytorchs(void **state)
{
    (void)state;
    check_first("xent");
    check_first("bce_dice");
}

static void f32_follows_pytorch_with_cross_entropy(void **state)
{
    (void)state;
    follow_all("xent", AMP_OFF);
}

static void f32_follows_pytorch_with_dice(void **state)
{
    (void)state;
    follow_all("bce_dice", AMP_OFF);
}

static void bf16_stays_near_f32(void **state)
{
    (void)state;
    follow_all("xent", AMP_BF16);
    follow_all("bce_dice", AMP_BF16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_step_is_pytorchs),
        cmocka_unit_test(f32_follows_pytorch_with_cross_entropy),
        cmocka_unit_test(f32_follows_pytorch_with_dice),
        cmocka_unit_test(bf16_stays_near_f32),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
