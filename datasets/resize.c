/* resize.c - pictures by separable resampling with integer weights, masks by the nearest pixel, to the same square.
 *
 * Positions are measured in units of 1 / (2 * scaled) of a source pixel, in which all centres and weights are whole
 * numbers: the weights come out the same on every machine, whatever its floating-point unit. */
#include "image.h"

#include <stdlib.h>
#include <string.h>

enum { WEIGHT_BITS = 14 }; /* weights of one output pixel sum to 1 << WEIGHT_BITS */

/* For each of `count` output pixels: the first source pixel it reads and `taps` weights. */
typedef struct Axis {
    int64_t  count, taps;
    int64_t *first;  /* (count) */
    int32_t *weight; /* (count, taps) */
} Axis;

static void axis_free(Axis *axis)
{
    free(axis->first);
    free(axis->weight);
}

static int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t max64(int64_t a, int64_t b) { return a > b ? a : b; }

static int64_t triangle(int64_t reach, int64_t distance)
{
    return max64(0, reach - llabs(distance));
}

/* Triangle of half-width max(1, in / scaled) source pixels around the centre (i + 1/2) * in / scaled of output
 * pixel i, cut at the border and normalised. Rounding goes through the running sum, so the total is exact. */
static void fill_weights(int64_t in, int64_t scaled, int64_t i, int64_t taps, int64_t *first, int32_t *weight)
{
    int64_t reach = 2 * max64(in, scaled);
    int64_t centre = (2 * i + 1) * in;
    int64_t lowest = centre - reach < 0 ? 0 : (centre - reach) / (2 * scaled);
    *first = max64(0, min64(lowest, in - taps));

    int64_t total = 0;
    for (int64_t t = 0; t < taps; t++)
        total += triangle(reach, (2 * (*first + t) + 1) * scaled - centre);
    int64_t sum = 0, placed = 0;
    for (int64_t t = 0; t < taps; t++) {
        sum += triangle(reach, (2 * (*first + t) + 1) * scaled - centre);
        int64_t upto = ((sum << WEIGHT_BITS) + total / 2) / total;
        weight[t] = (int32_t)(upto - placed);
        placed = upto;
    }
}

/* Scales a side of `in` pixels to `scaled` and keeps `count` output pixels from `start` on. */
static Status axis_create(int64_t in, int64_t scaled, int64_t start, int64_t count, Axis *axis)
{
    axis->count = count;
    axis->taps = min64(in, 2 * max64(1, (in + scaled - 1) / scaled) + 1);
    axis->first = malloc((size_t)count * sizeof *axis->first);
    axis->weight = malloc((size_t)(count * axis->taps) * sizeof *axis->weight);
    if (!axis->first || !axis->weight)
        return status_error(STATUS_OOM, "no memory to resize an image");
    for (int64_t i = 0; i < count; i++)
        fill_weights(in, scaled, start + i, axis->taps, &axis->first[i], axis->weight + i * axis->taps);
    return status_ok();
}

/* (width, channels) to (across->count, channels). */
static void resize_row(const uint8_t *in, int64_t channels, const Axis *across, uint8_t *out)
{
    for (int64_t x = 0; x < across->count; x++) {
        const uint8_t *source = in + across->first[x] * channels;
        const int32_t *weight = across->weight + x * across->taps;
        for (int64_t c = 0; c < channels; c++) {
            int32_t sum = 1 << (WEIGHT_BITS - 1);
            for (int64_t t = 0; t < across->taps; t++)
                sum += weight[t] * source[t * channels + c];
            out[x * channels + c] = (uint8_t)(sum >> WEIGHT_BITS);
        }
    }
}

/* One output row of `bytes` values from the rows it reads; sums is scratch of `bytes` values. */
static void blend_rows(const uint8_t *rows, const int32_t *weight, int64_t taps, int64_t bytes, int32_t *sums,
                       uint8_t *out)
{
    for (int64_t i = 0; i < bytes; i++)
        sums[i] = 1 << (WEIGHT_BITS - 1);
    for (int64_t t = 0; t < taps; t++) {
        const uint8_t *row = rows + t * bytes;
        int32_t w = weight[t];
        if (w == 0)
            continue;
        for (int64_t i = 0; i < bytes; i++)
            sums[i] += w * row[i];
    }
    for (int64_t i = 0; i < bytes; i++)
        out[i] = (uint8_t)(sums[i] >> WEIGHT_BITS);
}

/* Length of a side once the shorter one is `size`. */
static int64_t scaled_side(int64_t side, int64_t height, int64_t width, int64_t size)
{
    int64_t shorter = min64(height, width);
    return (side * size + shorter / 2) / shorter;
}

Status image_resize_square(const uint8_t *in, int64_t height, int64_t width, int64_t channels, int64_t size,
                           uint8_t *out)
{
    CHECK(height > 0 && width > 0 && size > 0);
    if (height == size && width == size) {
        memcpy(out, in, (size_t)(size * size * channels));
        return status_ok();
    }
    int64_t tall = scaled_side(height, height, width, size), wide = scaled_side(width, height, width, size);

    Axis across = { 0, 0, NULL, NULL }, down = { 0, 0, NULL, NULL };
    uint8_t *rows = NULL;
    int32_t *sums = NULL;
    Status status;
    TRY_GOTO(status, axis_create(width, wide, (wide - size) / 2, size, &across), done);
    TRY_GOTO(status, axis_create(height, tall, (tall - size) / 2, size, &down), done);

    int64_t top = down.first[0], bottom = down.first[size - 1] + down.taps; /* source rows that are read */
    int64_t bytes = size * channels;
    rows = malloc((size_t)((bottom - top) * bytes));
    sums = malloc((size_t)bytes * sizeof *sums);
    if (!rows || !sums) {
        status = status_error(STATUS_OOM, "no memory to resize an image");
        goto done;
    }
    for (int64_t y = top; y < bottom; y++)
        resize_row(in + y * width * channels, channels, &across, rows + (y - top) * bytes);
    for (int64_t y = 0; y < size; y++)
        blend_rows(rows + (down.first[y] - top) * bytes, down.weight + y * down.taps, down.taps, bytes, sums,
                   out + y * bytes);
done:
    free(sums);
    free(rows);
    axis_free(&down);
    axis_free(&across);
    return status;
}

Status image_resize_grey(const uint8_t *in, int64_t height, int64_t width, int64_t size, uint8_t *out)
{
    /* The grey picture is resized into the last third of the RGB one; walking forward, a grey value is read before
     * or when its place is overwritten: 3 i + 2 <= 2 area + i for every i < area. */
    int64_t area = size * size;
    uint8_t *grey = out + 2 * area;
    TRY(image_resize_square(in, height, width, 1, size, grey));
    for (int64_t i = 0; i < area; i++) {
        uint8_t value = grey[i];
        out[3 * i] = value;
        out[3 * i + 1] = value;
        out[3 * i + 2] = value;
    }
    return status_ok();
}

void image_resize_mask(const uint8_t *in, int64_t height, int64_t width, int64_t size, uint8_t *out)
{
    CHECK(height > 0 && width > 0 && size > 0);
    int64_t tall = scaled_side(height, height, width, size), wide = scaled_side(width, height, width, size);
    int64_t top = (tall - size) / 2, left = (wide - size) / 2;
    for (int64_t y = 0; y < size; y++) {
        const uint8_t *row = in + (2 * (top + y) + 1) * height / (2 * tall) * width;
        for (int64_t x = 0; x < size; x++)
            out[y * size + x] = row[(2 * (left + x) + 1) * width / (2 * wide)];
    }
}
