/* drawing.c - the bodies of drawing.h. */
#include "drawing.h"

#include <stdlib.h>

/* ---- random parameters ---- */

Draws draws_start(uint64_t seed, uint64_t stream, uint64_t counter, uint64_t blocks)
{
    return (Draws){ .seed = seed, .stream = stream, .counter = counter, .end = counter + blocks };
}

int32_t draw(Draws *d, int32_t low, int32_t high)
{
    if (d->left == 0) {
        CHECK(d->counter < d->end);
        d->block = rng_block(d->seed, d->stream, d->counter++);
        d->left = 4;
    }
    uint64_t range = (uint64_t)(high - low) + 1;
    return low + (int32_t)((d->block.word[4 - d->left--] * range) >> 32);
}

/* Bhaskara's approximation (7th century): 16 p / (5 pi^2 - 4 p) with p = x (pi - x). */
int32_t sine(int32_t a)
{
    a &= 1023;
    int32_t half = a & 511;
    int32_t product = half * (512 - half);
    int32_t value = (int32_t)(((int64_t)16 * product << DIRECTION_BITS) / (5 * 512 * 512 - 4 * product));
    return a < 512 ? value : -value;
}

int32_t cosine(int32_t a)
{
    return sine(a + 256);
}

/* ---- smooth noise ---- */

void noise_fill(Noise *noise, uint64_t seed, uint64_t stream, uint64_t counter)
{
    RngBlock block = { { 0 } };
    for (size_t i = 0; i < sizeof noise->corner; i++) {
        if (i % 16 == 0)
            block = rng_block(seed, stream, counter + i / 16);
        noise->corner[i] = (uint8_t)(block.word[i / 4 % 4] >> 8 * (i % 4));
    }
}

/* Value noise at (x, y) on a grid of cells^2, 0..255. */
static int32_t blend_corners(const uint8_t *corners, int32_t cells, int32_t x, int32_t y)
{
    int64_t gx = (int64_t)x * cells, gy = (int64_t)y * cells;
    int32_t fx = (int32_t)(gx & (UNIT - 1)) >> 8, fy = (int32_t)(gy & (UNIT - 1)) >> 8; /* 0..255 */
    const uint8_t *c = corners + (gy >> 16) * (cells + 1) + (gx >> 16);
    int32_t top = c[0] * (256 - fx) + c[1] * fx;
    int32_t bottom = c[cells + 1] * (256 - fx) + c[cells + 2] * fx;
    return (top * (256 - fy) + bottom * fy) >> 16;
}

int32_t noise_at(const Noise *noise, int32_t amplitude, int32_t x, int32_t y)
{
    int32_t sum = 2 * blend_corners(noise->corner, COARSE, x, y) +
                  blend_corners(noise->corner + COARSE_CORNERS, FINE, x, y);
    return (sum - 3 * 128) * amplitude / 192;
}

uint8_t clamp_byte(int32_t value)
{
    return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
}

/* ---- a picture with a mask ---- */

Status canvas_create(int64_t size, Canvas *out)
{
    *out = (Canvas){ size, calloc((size_t)(4 * size * size), 1) };
    return out->cover ? status_ok() : status_error(STATUS_OOM, "no memory to draw a picture");
}

void canvas_free(Canvas *canvas)
{
    free(canvas->cover);
}

int32_t canvas_point(const Canvas *canvas, int64_t i)
{
    return (int32_t)((2 * i + 1) * UNIT / (4 * canvas->size));
}

int64_t canvas_first(const Canvas *canvas, int64_t low)
{
    return low <= 0 ? 0 : low * 2 * canvas->size / UNIT;
}

int64_t canvas_end(const Canvas *canvas, int64_t high)
{
    int64_t end = high < 0 ? 0 : high * 2 * canvas->size / UNIT + 1;
    return end < 2 * canvas->size ? end : 2 * canvas->size;
}

/* Four bytes summed: nearly normal, standard deviation 2 * 256 / sqrt(12) = 148. */
static int32_t grain_of(uint32_t word, int32_t deviation)
{
    int32_t sum = (int32_t)((word & 255) + (word >> 8 & 255) + (word >> 16 & 255) + (word >> 24)) - 510;
    return sum * deviation / 148;
}

void canvas_paint(const Canvas *canvas, const Look *look, uint8_t *pixels, uint8_t *mask)
{
    int64_t size = canvas->size, stride = 2 * size;
    RngBlock grain = { { 0 } };
    for (int64_t p = 0; p < size * size; p++) {
        const uint8_t *cover = canvas->cover + p / size * 2 * stride + p % size * 2;
        const uint8_t points[4] = { cover[0], cover[1], cover[stride], cover[stride + 1] };
        int targets = 0, covered = 0;
        for (int i = 0; i < 4; i++) {
            targets += points[i] == COVER_TARGET;
            covered += points[i] != COVER_NONE;
        }
        if (p % 4 == 0)
            grain = rng_block(look->seed, look->grain_stream, look->grain_counter + (uint64_t)p / 4);
        int32_t x = (int32_t)((2 * (p % size) + 1) * UNIT / (2 * size)); /* the pixel's centre */
        int32_t y = (int32_t)((2 * (p / size) + 1) * UNIT / (2 * size));
        int32_t noise = noise_at(&look->noise, look->amplitude, x, y) + grain_of(grain.word[p % 4], look->grain);
        for (int c = 0; c < 3; c++)
            pixels[3 * p + c] = clamp_byte(look->ground[c] + noise + look->contrast[c] * covered / 4);
        mask[p] = targets >= 2;
    }
}
