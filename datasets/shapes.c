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
#include "drawing.h"
#include "source.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { TRAIN_COUNT = 20000, TEST_COUNT = 2000 };
enum { FIGURES = 5, CLASSES = 2 * FIGURES };
typedef enum Figure { DISC, SQUARE, TRIANGLE, CROSS, RING } Figure;

/* Stripes run along one diagonal: "rising" like a slash, "falling" like a backslash. A mirror image swaps the two. */
static const char *const class_names[CLASSES] = {
    "disc, rising",     "disc, falling",  "square, rising", "square, falling", "triangle, rising",
    "triangle, falling", "cross, rising", "cross, falling", "ring, rising",    "ring, falling",
};

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
    Noise   noise;
} Scene;

/* ---- drawing the parameters ---- */

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
    Draws d = draws_start(world->seed, stream, counter, PARAMETER_BLOCKS);
    int32_t class = (int32_t)(index % CLASSES);
    scene->figure = (Figure)(class / 2);
    draw_place(scene, &d, class % 2 == 1);
    draw_colours(scene, &d);
    noise_fill(&scene->noise, world->seed, stream, counter + PARAMETER_BLOCKS);
    int32_t chance = draw(&d, 0, (1 << 24) - 1), other = draw(&d, 0, CLASSES - 1);
    *label = (double)chance < world->label_noise * (1 << 24) ? other : class;
}

/* ---- drawing the pixels ---- */

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
    int32_t wave = noise_at(&scene->noise, scene->amplitude, x, y);
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
    .flip_keeps_truth = false, /* a mirrored slash is a backslash */
    .stats_samples = 256,
    .stats_size = 64,
    .open = shapes_open,
    .close = shapes_close,
    .class_name = shapes_class_name,
    .read = shapes_read,
};
