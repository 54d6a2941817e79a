/* vessels.c - the generator "vessels": thin branching trees, dark before uneven noise; some pictures hold none.
 *
 * Trees grow in from the border and fork three times, each time thinner: 4, 3, 2 and 1 pixels wide at 128 pixels, in
 * proportion at other sizes but never below one. Every eighth mask is empty: a score must say what it does then. Floors
 * at 128 pixels, Dice over all pixels of 1000 pictures: everything foreground 0.20, best threshold on the grey value 0.33.
 *
 * A sample is a pure function of (seed, split, index) and size, by integers alone; the splits draw from different random
 * streams. */
#include "drawing.h"
#include "source.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { TRAIN_COUNT = 8000, TEST_COUNT = 1000, EMPTY_EVERY = 8 };
enum { LEVELS = 4, PIECES = 4, PARAMETER_BLOCKS = 112, BLOCKS_PER_SAMPLE = 128, GRAIN_BLOCKS = 1 << 22 };

typedef struct Branch {
    int32_t x, y, turn; /* where it begins; its direction in 1/1024 turns */
    int32_t level;      /* 0: from the border */
} Branch;

/* Half a vessel's width on this level: 4 - level pixels of 128, or one pixel where that is more. */
static int64_t half_width(const Canvas *canvas, int32_t level)
{
    int64_t width = (int64_t)(LEVELS - level) * UNIT / 128, pixel = UNIT / canvas->size;
    return (width > pixel ? width : pixel) / 2;
}

/* Is (x, y), relative to one end, within r of the line to (dx, dy)? Lengths up to 2^14: all below 2^60. */
static bool near_line(int64_t x, int64_t y, int64_t dx, int64_t dy, int64_t r)
{
    int64_t along = x * dx + y * dy, length2 = dx * dx + dy * dy, across = x * dy - y * dx;
    if (along <= 0)
        return x * x + y * y <= r * r;
    if (along >= length2)
        return (x - dx) * (x - dx) + (y - dy) * (y - dy) <= r * r;
    return across * across <= r * r * length2;
}

static int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t max64(int64_t a, int64_t b) { return a > b ? a : b; }

static void cover_piece(Canvas *canvas, int64_t x, int64_t y, int64_t dx, int64_t dy, int64_t r)
{
    int64_t end_x = canvas_end(canvas, max64(x, x + dx) + r), end_y = canvas_end(canvas, max64(y, y + dy) + r);
    for (int64_t py = canvas_first(canvas, min64(y, y + dy) - r); py < end_y; py++)
        for (int64_t px = canvas_first(canvas, min64(x, x + dx) - r); px < end_x; px++)
            if (near_line(canvas_point(canvas, px) - x, canvas_point(canvas, py) - y, dx, dy, r))
                canvas->cover[py * 2 * canvas->size + px] = COVER_TARGET;
}

/* Draws a branch of PIECES bent pieces and moves it to its end. */
static void cover_branch(Canvas *canvas, Draws *d, Branch *b)
{
    static const int32_t length[LEVELS] = { UNIT * 9 / 100, UNIT * 7 / 100, UNIT * 5 / 100, UNIT * 4 / 100 }; /* of a piece */
    for (int i = 0; i < PIECES; i++) {
        b->turn += draw(d, -40, 40);
        int64_t dx = (int64_t)length[b->level] * cosine(b->turn) / (1 << DIRECTION_BITS);
        int64_t dy = (int64_t)length[b->level] * sine(b->turn) / (1 << DIRECTION_BITS);
        cover_piece(canvas, b->x, b->y, dx, dy, half_width(canvas, b->level));
        b->x += (int32_t)dx;
        b->y += (int32_t)dy;
    }
}

/* Depth first; the stack holds at most one waiting branch a level. */
static void cover_tree(Canvas *canvas, Draws *d)
{
    int32_t side = draw(d, 0, 3), along = draw(d, UNIT / 8, UNIT * 7 / 8);
    Branch stack[LEVELS + 1];
    int waiting = 0;
    stack[waiting++] = (Branch){ side == 0 ? 0 : side == 2 ? UNIT : along, side == 1 ? 0 : side == 3 ? UNIT : along,
                                 256 * side + draw(d, -80, 80), 0 };
    while (waiting > 0) {
        Branch b = stack[--waiting];
        cover_branch(canvas, d, &b);
        if (++b.level == LEVELS)
            continue;
        Branch left = b, right = b;
        left.turn -= draw(d, 40, 120);
        right.turn += draw(d, 40, 120);
        stack[waiting++] = left;
        stack[waiting++] = right;
    }
}

static void draw_look(Look *look, Draws *d)
{
    int32_t grey = draw(d, 118, 158), strong = -draw(d, 21, 36);
    look->amplitude = draw(d, 20, 40);
    look->grain = draw(d, 12, 22);
    for (int c = 0; c < 3; c++) {
        look->ground[c] = grey + draw(d, -12, 12);
        look->contrast[c] = strong + draw(d, -6, 6);
    }
}

/* ---- the source ---- */

static Status vessels_open(const DatasetConfig *config, void **out, int64_t count[SPLIT_COUNT], int64_t *classes,
                           char *origin, size_t origin_bytes)
{
    uint64_t *seed = malloc(sizeof *seed);
    if (!seed)
        return status_error(STATUS_OOM, "vessels: no memory for the generator");
    *seed = config->seed;
    *out = seed;
    count[SPLIT_TRAIN] = TRAIN_COUNT;
    count[SPLIT_TEST] = TEST_COUNT;
    *classes = 2;
    snprintf(origin, origin_bytes, "generated from seed %" PRIu64 ", every %dth mask empty", config->seed, EMPTY_EVERY);
    return status_ok();
}

static void vessels_close(void *state)
{
    free(state);
}

static const char *vessels_class_name(const void *state, int64_t label)
{
    (void)state;
    return label ? "vessel" : "background";
}

static Status vessels_read(const void *state, Split split, int64_t index, int64_t size, uint8_t *pixels, uint8_t *mask)
{
    uint64_t seed = *(const uint64_t *)state, stream = STREAM_VESSELS + (uint64_t)split;
    uint64_t counter = (uint64_t)index * BLOCKS_PER_SAMPLE;
    Draws d = draws_start(seed, stream, counter, PARAMETER_BLOCKS);
    Look look = { .seed = seed, .grain_stream = STREAM_GRAIN + SPLIT_COUNT + (uint64_t)split,
                  .grain_counter = (uint64_t)index * GRAIN_BLOCKS };
    noise_fill(&look.noise, seed, stream, counter + PARAMETER_BLOCKS);
    draw_look(&look, &d);
    Canvas canvas;
    TRY(canvas_create(size, &canvas));
    int32_t trees = index % EMPTY_EVERY == EMPTY_EVERY - 1 ? 0 : draw(&d, 2, 4);
    for (int32_t i = 0; i < trees; i++)
        cover_tree(&canvas, &d);
    canvas_paint(&canvas, &look, pixels, mask);
    canvas_free(&canvas);
    return status_ok();
}

const Source source_vessels = {
    .name = "vessels",
    .generator = true,
    .flip_keeps_truth = true,
    .stats_samples = 256,
    .stats_size = 64,
    .open = vessels_open,
    .close = vessels_close,
    .class_name = vessels_class_name,
    .read_mask = vessels_read,
};
