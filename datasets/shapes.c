/* shapes.c - the generator "shapes": one of five figures, striped one of two ways, before smoothed noise.
 *
 * The label is (figure, stripe direction), ten balanced classes, so neither the outline nor the texture alone decides:
 * a net that sees only one of them gets half or a fifth of the samples. Place, size, rotation, contrast sign, colours,
 * stripe width and background are random. With label noise p the best possible accuracy is 1 - p + p / 10 (p = 0.1:
 * 91 %); a higher one means that something leaks.
 *
 * A sample is a pure function of (seed, split, index) and all arithmetic is on integers, so every machine draws the
 * same pixels. The splits draw from different random streams. The picture does not depend on the size it is drawn
 * at, apart from sharpness; below about 32 pixels the stripes blur. */
#include "source.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { TRAIN_COUNT = 20000, TEST_COUNT = 2000 };
enum { FIGURES = 5, CLASSES = 2 * FIGURES };
typedef enum Figure { DISC, SQUARE, TRIANGLE, CROSS, RING } Figure;

/* Lengths are in units of 1/65536 of the picture's side, directions are vectors of length 2^14. */
enum { UNIT = 65536, DIRECTION_BITS = 14 };

/* Stripes run along one diagonal: "rising" like a slash, "falling" like a backslash. A mirror image swaps the two. */
static const char *const class_names[CLASSES] = {
    "disc, rising",     "disc, falling",  "square, rising", "square, falling", "triangle, rising",
    "triangle, falling", "cross, rising", "cross, falling", "ring, rising",    "ring, falling",
};

/* Two octaves of value noise: random bytes at the corners of COARSE^2 and FINE^2 cells, blended in between. */
enum { COARSE = 6, FINE = 13, COARSE_CORNERS = (COARSE + 1) * (COARSE + 1), FINE_CORNERS = (FINE + 1) * (FINE + 1) };
enum { PARAMETER_BLOCKS = 6, BLOCKS_PER_SAMPLE = 256 };

typedef struct World {
    uint64_t seed;
    double   label_noise;
} World;

typedef struct Scene {
    Figure  figure;
    int32_t x, y, radius;        /* centre and circumradius */
    int32_t axis_x, axis_y;      /* direction of the figure's own x axis */
    int32_t normal_x, normal_y;  /* direction across the stripes */
    int32_t period, phase;       /* of the stripes */
    int32_t ground[3];           /* mean background, 0..255 */
    int32_t amplitude;           /* of the noise around it */
    int32_t stripe[2][3];        /* the two stripe colours */
    uint8_t noise[COARSE_CORNERS + FINE_CORNERS];
} Scene;

/* ---- drawing the parameters ---- */

typedef struct Draws {
    uint32_t word[4 * PARAMETER_BLOCKS];
    int      used;
} Draws;

/* Uniform in low..high, both included. */
static int32_t draw(Draws *d, int32_t low, int32_t high)
{
    CHECK(d->used < (int)COUNT_OF(d->word));
    uint64_t range = (uint64_t)(high - low) + 1;
    return low + (int32_t)((d->word[d->used++] * range) >> 32);
}

/* sin(pi * a / 512) * 2^14 for a of 1/1024 turns: Bhaskara's approximation (7th century), within 0.2 %. */
static int32_t sine(int32_t a)
{
    a &= 1023;
    int32_t half = a & 511;
    int32_t product = half * (512 - half);
    int32_t value = (int32_t)(((int64_t)16 * product << DIRECTION_BITS) / (5 * 512 * 512 - 4 * product));
    return a < 512 ? value : -value;
}

static int32_t cosine(int32_t a)
{
    return sine(a + 256);
}

static void draw_place(Scene *scene, Draws *d, bool falling)
{
    scene->radius = draw(d, UNIT * 24 / 100, UNIT * 38 / 100);
    scene->x = draw(d, scene->radius, UNIT - scene->radius);
    scene->y = draw(d, scene->radius, UNIT - scene->radius);
    int32_t turn = draw(d, 0, 1023);
    scene->axis_x = cosine(turn);
    scene->axis_y = sine(turn);
    /* y points down: stripes like "/" vary along (1, 1), an eighth turn, those like "\" along (-1, 1); +-15 degrees */
    int32_t across = (falling ? 384 : 128) + draw(d, -43, 43);
    scene->normal_x = cosine(across);
    scene->normal_y = sine(across);
    scene->period = draw(d, UNIT * 14 / 100, UNIT * 20 / 100);
    scene->phase = draw(d, 0, scene->period - 1);
}

static void draw_colours(Scene *scene, Draws *d)
{
    int32_t sign = draw(d, 0, 1) ? 1 : -1;
    int32_t grey = draw(d, 108, 148);
    int32_t strong = sign * draw(d, 70, 100), weak = sign * draw(d, 10, 25);
    scene->amplitude = draw(d, 20, 50);
    for (int c = 0; c < 3; c++) {
        scene->ground[c] = grey + draw(d, -16, 16);
        scene->stripe[0][c] = scene->ground[c] + strong + draw(d, -8, 8);
        scene->stripe[1][c] = scene->ground[c] + weak + draw(d, -8, 8);
    }
}

static void draw_scene(const World *world, Split split, int64_t index, Scene *scene, int32_t *label)
{
    uint64_t stream = STREAM_SHAPES + (uint64_t)split, counter = (uint64_t)index * BLOCKS_PER_SAMPLE;
    Draws d;
    d.used = 0;
    for (int block = 0; block < PARAMETER_BLOCKS; block++) {
        RngBlock words = rng_block(world->seed, stream, counter++);
        for (int i = 0; i < 4; i++)
            d.word[4 * block + i] = words.word[i];
    }
    int32_t class = (int32_t)(index % CLASSES);
    scene->figure = (Figure)(class / 2);
    draw_place(scene, &d, class % 2 == 1);
    draw_colours(scene, &d);
    for (size_t i = 0; i < sizeof scene->noise; i += 4) {
        RngBlock words = rng_block(world->seed, stream, counter + i / 16);
        for (size_t j = i; j < i + 4 && j < sizeof scene->noise; j++)
            scene->noise[j] = (uint8_t)(words.word[i / 4 % 4] >> (8 * (j - i)));
    }
    int32_t chance = draw(&d, 0, (1 << 24) - 1), other = draw(&d, 0, CLASSES - 1);
    *label = (double)chance < world->label_noise * (1 << 24) ? other : class;
}

/* ---- drawing the pixels ---- */

/* Value noise at (x, y) on a grid of cells^2, 0..255. */
static int32_t blend_noise(const uint8_t *corners, int32_t cells, int32_t x, int32_t y)
{
    int64_t gx = (int64_t)x * cells, gy = (int64_t)y * cells;
    int32_t fx = (int32_t)(gx & (UNIT - 1)) >> 8, fy = (int32_t)(gy & (UNIT - 1)) >> 8; /* 0..255 */
    const uint8_t *c = corners + (gy >> 16) * (cells + 1) + (gx >> 16);
    int32_t top = c[0] * (256 - fx) + c[1] * fx;
    int32_t bottom = c[cells + 1] * (256 - fx) + c[cells + 2] * fx;
    return (top * (256 - fy) + bottom * fy) >> 16;
}

/* Is the point (u, v), relative to the centre and along the figure's own axes, inside? All five figures lie within the
 * circle of this radius. */
static bool figure_holds(Figure figure, int64_t radius, int64_t u, int64_t v)
{
    int64_t square = u * u + v * v, au = llabs(u), av = llabs(v);
    switch (figure) {
    case DISC:
        return 100 * square < 81 * radius * radius; /* 0.9 of the radius: about the other figures' area */
    case RING:
        return square < radius * radius && 100 * square > 27 * radius * radius;
    case SQUARE:
        return 100 * au < 70 * radius && 100 * av < 70 * radius;
    case TRIANGLE: /* equilateral: v > -r/2 and sqrt(3) |u| + v < r */
        return 2 * v > -radius && 1732 * au + 1000 * v < 1000 * radius;
    case CROSS:
        return (100 * au < 32 * radius && 100 * av < 94 * radius) || (100 * av < 32 * radius && 100 * au < 94 * radius);
    }
    return false;
}

/* 0 or 1: which stripe covers the point; -1: the background. */
static int stripe_at(const Scene *scene, int32_t x, int32_t y)
{
    int64_t dx = x - scene->x, dy = y - scene->y;
    int64_t u = (dx * scene->axis_x + dy * scene->axis_y) / (1 << DIRECTION_BITS);
    int64_t v = (dy * scene->axis_x - dx * scene->axis_y) / (1 << DIRECTION_BITS);
    if (!figure_holds(scene->figure, scene->radius, u, v))
        return -1;
    int32_t along = (int32_t)((dx * scene->normal_x + dy * scene->normal_y) / (1 << DIRECTION_BITS));
    int32_t place = (along + scene->phase) % scene->period;
    if (place < 0)
        place += scene->period;
    return 2 * place < scene->period ? 0 : 1;
}

static uint8_t clamp_byte(int32_t value)
{
    return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
}

/* Where the lines are that divide a side of `size` pixels into 4 * size parts. */
static int32_t quarter(int64_t k, int64_t step)
{
    return (int32_t)((k * step) >> 16);
}

/* One pixel, from 2 x 2 points inside it. step: a quarter of a pixel, in 1/65536 of the unit. */
static void draw_pixel(const Scene *scene, int64_t step, int64_t px, int64_t py, uint8_t *rgb)
{
    int hits[2] = { 0, 0 };
    int32_t x = quarter(4 * px + 2, step), y = quarter(4 * py + 2, step);
    int64_t dx = x - scene->x, dy = y - scene->y, far = scene->radius + quarter(4, step);
    for (int sub = 0; sub < 4 && dx * dx + dy * dy < far * far; sub++) {
        int stripe = stripe_at(scene, quarter(4 * px + 1 + 2 * (sub & 1), step),
                               quarter(4 * py + 1 + 2 * (sub >> 1), step));
        if (stripe >= 0)
            hits[stripe]++;
    }
    int32_t noise = 2 * blend_noise(scene->noise, COARSE, x, y) +
                    blend_noise(scene->noise + COARSE_CORNERS, FINE, x, y);
    int32_t wave = (noise - 3 * 128) * scene->amplitude / 192; /* -2 * amplitude .. 2 * amplitude */
    for (int c = 0; c < 3; c++) {
        int32_t sum = (4 - hits[0] - hits[1]) * (scene->ground[c] + wave) + hits[0] * scene->stripe[0][c] +
                      hits[1] * scene->stripe[1][c];
        rgb[c] = clamp_byte((sum + 2) / 4);
    }
}

/* ---- the source ---- */

static Status shapes_open(const DatasetConfig *config, void **out, int64_t count[SPLIT_COUNT], int64_t *classes,
                          char *origin, size_t origin_bytes)
{
    World *world = malloc(sizeof *world);
    if (!world)
        return status_error(STATUS_OOM, "shapes: no memory for the generator");
    *world = (World){ config->seed, config->label_noise };
    *out = world;
    count[SPLIT_TRAIN] = TRAIN_COUNT;
    count[SPLIT_TEST] = TEST_COUNT;
    *classes = CLASSES;
    snprintf(origin, origin_bytes, "generated from seed %" PRIu64 ", label noise %g", config->seed,
             config->label_noise);
    return status_ok();
}

static void shapes_close(void *state)
{
    free(state);
}

static const char *shapes_class_name(const void *state, int64_t label)
{
    (void)state;
    return class_names[label];
}

static Status shapes_read(const void *state, Split split, int64_t index, int64_t size, uint8_t *pixels,
                          int32_t *label)
{
    Scene scene;
    draw_scene(state, split, index, &scene, label);
    int64_t step = ((int64_t)UNIT << 16) / (4 * size);
    for (int64_t y = 0; y < size; y++)
        for (int64_t x = 0; x < size; x++)
            draw_pixel(&scene, step, x, y, pixels + 3 * (y * size + x));
    return status_ok();
}

const Source source_shapes = {
    .name = "shapes",
    .generator = true,
    .flip_keeps_label = false, /* a mirrored slash is a backslash */
    .stats_samples = 256,
    .stats_size = 64,
    .open = shapes_open,
    .close = shapes_close,
    .class_name = shapes_class_name,
    .read = shapes_read,
};
