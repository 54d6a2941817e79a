/* ellipses.c - the generator "ellipses": find the filled ellipses among rings, under noise.
 *
 * Two to six ellipses lie in different cells of a 3 x 3 grid, every second one filled, the others rings of the same
 * colours. Only the filled ones are the target, so a pixel's own brightness does not decide: the picture around it does.
 * The contrast may be bright or dark. Floors at 128 pixels, Dice over all pixels of 1000 pictures: everything foreground
 * 0.12, best threshold on the grey value 0.21.
 *
 * A sample is a pure function of (seed, split, index) and size, by integers alone; the splits draw from different random
 * streams. The scene does not depend on the size; the grain of the noise is one pixel at any size. */
#include "drawing.h"
#include "source.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { TRAIN_COUNT = 8000, TEST_COUNT = 1000 };
enum { CELLS = 3, MOST = 6, PARAMETER_BLOCKS = 32, BLOCKS_PER_SAMPLE = 64, GRAIN_BLOCKS = 1 << 22 };

typedef struct Ellipse {
    int32_t x, y;           /* centre */
    int32_t a, b;           /* half axes, a >= b */
    int32_t axis_x, axis_y; /* direction of a */
    int32_t inner;          /* percent of a and b at which a ring's hole begins; 0 = filled */
} Ellipse;

static Ellipse draw_ellipse(Draws *d, int32_t cell, bool filled)
{
    Ellipse e;
    e.a = draw(d, UNIT * 80 / 1000, UNIT * 150 / 1000);
    e.b = draw(d, e.a * 6 / 10, e.a);
    int32_t side = UNIT / CELLS, turn = draw(d, 0, 1023);
    e.x = cell % CELLS * side + draw(d, e.a, side - e.a);
    e.y = cell / CELLS * side + draw(d, e.a, side - e.a);
    e.axis_x = cosine(turn);
    e.axis_y = sine(turn);
    int32_t inner = draw(d, 50, 65);
    e.inner = filled ? 0 : inner;
    return e;
}

/* Inside: u^2 b^2 + v^2 a^2 < a^2 b^2, along and across the axis; all below 2^60. */
static void cover_ellipse(Canvas *canvas, const Ellipse *e)
{
    int64_t first_x = canvas_first(canvas, e->x - e->a), end_x = canvas_end(canvas, e->x + e->a);
    int64_t first_y = canvas_first(canvas, e->y - e->a), end_y = canvas_end(canvas, e->y + e->a);
    int64_t aa = (int64_t)e->a * e->a, bb = (int64_t)e->b * e->b;
    for (int64_t py = first_y; py < end_y; py++) {
        for (int64_t px = first_x; px < end_x; px++) {
            int64_t dx = canvas_point(canvas, px) - e->x, dy = canvas_point(canvas, py) - e->y;
            int64_t u = (dx * e->axis_x + dy * e->axis_y) / (1 << DIRECTION_BITS);
            int64_t v = (dy * e->axis_x - dx * e->axis_y) / (1 << DIRECTION_BITS);
            int64_t distance = u * u * bb + v * v * aa, edge = aa * bb;
            if (distance < edge && distance >= edge / 10000 * e->inner * e->inner)
                canvas->cover[py * 2 * canvas->size + px] = e->inner ? COVER_OTHER : COVER_TARGET;
        }
    }
}

static void cover_scene(Canvas *canvas, Draws *d)
{
    int32_t cell[CELLS * CELLS], count = draw(d, 2, MOST);
    for (int32_t i = 0; i < CELLS * CELLS; i++)
        cell[i] = i;
    for (int32_t i = 0; i < count; i++) {
        int32_t j = draw(d, i, CELLS * CELLS - 1), here = cell[j];
        cell[j] = cell[i];
        Ellipse e = draw_ellipse(d, here, i % 2 == 1);
        cover_ellipse(canvas, &e);
    }
}

static void draw_look(Look *look, Draws *d)
{
    int32_t sign = draw(d, 0, 1) ? 1 : -1, grey = draw(d, 108, 148), strong = sign * draw(d, 36, 58);
    look->amplitude = draw(d, 20, 40);
    look->grain = draw(d, 15, 30);
    for (int c = 0; c < 3; c++) {
        look->ground[c] = grey + draw(d, -12, 12);
        look->contrast[c] = strong + draw(d, -6, 6);
    }
}

/* ---- the source ---- */

static Status ellipses_open(const DatasetConfig *config, void **out, int64_t count[SPLIT_COUNT], int64_t *classes,
                            char *origin, size_t origin_bytes)
{
    uint64_t *seed = malloc(sizeof *seed);
    if (!seed)
        return status_error(STATUS_OOM, "ellipses: no memory for the generator");
    *seed = config->seed;
    *out = seed;
    count[SPLIT_TRAIN] = TRAIN_COUNT;
    count[SPLIT_TEST] = TEST_COUNT;
    *classes = 2;
    snprintf(origin, origin_bytes, "generated from seed %" PRIu64, config->seed);
    return status_ok();
}

static void ellipses_close(void *state)
{
    free(state);
}

static const char *ellipses_class_name(const void *state, int64_t label)
{
    (void)state;
    return label ? "filled ellipse" : "background";
}

static Status ellipses_read(const void *state, Split split, int64_t index, int64_t size, uint8_t *pixels, uint8_t *mask)
{
    uint64_t seed = *(const uint64_t *)state, stream = STREAM_ELLIPSES + (uint64_t)split;
    uint64_t counter = (uint64_t)index * BLOCKS_PER_SAMPLE;
    Draws d = draws_start(seed, stream, counter, PARAMETER_BLOCKS);
    Look look = { .seed = seed, .grain_stream = STREAM_GRAIN + (uint64_t)split, .grain_counter = (uint64_t)index * GRAIN_BLOCKS };
    noise_fill(&look.noise, seed, stream, counter + PARAMETER_BLOCKS);
    draw_look(&look, &d);
    Canvas canvas;
    TRY(canvas_create(size, &canvas));
    cover_scene(&canvas, &d);
    canvas_paint(&canvas, &look, pixels, mask);
    canvas_free(&canvas);
    return status_ok();
}

const Source source_ellipses = {
    .name = "ellipses",
    .generator = true,
    .flip_keeps_truth = true,
    .stats_samples = 256,
    .stats_size = 64,
    .open = ellipses_open,
    .close = ellipses_close,
    .class_name = ellipses_class_name,
    .read_mask = ellipses_read,
};
