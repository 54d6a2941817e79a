/* drawing.h - private to datasets/: what the generators share: random parameters in order, sines, smooth noise, and a
 * canvas that turns covered area into pixels and a mask.
 *
 * All on integers, so that every machine draws the same. Lengths are in units of 1/65536 of the picture's side. */
#ifndef BATCHMARK_DATASETS_DRAWING_H
#define BATCHMARK_DATASETS_DRAWING_H

#include "../kernels/base.h"

enum { UNIT = 65536, DIRECTION_BITS = 14 }; /* a direction is a vector of length 2^14 */

/* ---- random parameters ---- */

/* The words of the blocks counter, counter + 1, ... of a stream, one after the other. */
typedef struct Draws {
    uint64_t seed, stream, counter; /* the next block */
    uint64_t end;                   /* the block that is no longer this sample's */
    RngBlock block;
    int      left;                  /* unused words in it */
} Draws;

Draws draws_start(uint64_t seed, uint64_t stream, uint64_t counter, uint64_t blocks);

/* Uniform in low..high, both included. */
int32_t draw(Draws *d, int32_t low, int32_t high);

/* 2^14 times the sine and cosine of a / 1024 turns, within 0.2 %. */
int32_t sine(int32_t a);
int32_t cosine(int32_t a);

/* ---- smooth noise ---- */

/* Two octaves of value noise: random bytes at the corners of COARSE^2 and FINE^2 cells, blended in between. */
enum { COARSE = 6, FINE = 13, COARSE_CORNERS = (COARSE + 1) * (COARSE + 1), FINE_CORNERS = (FINE + 1) * (FINE + 1) };
enum { NOISE_BLOCKS = (COARSE_CORNERS + FINE_CORNERS + 15) / 16 };

typedef struct Noise {
    uint8_t corner[COARSE_CORNERS + FINE_CORNERS];
} Noise;

void noise_fill(Noise *noise, uint64_t seed, uint64_t stream, uint64_t counter); /* takes NOISE_BLOCKS blocks */

/* At a point of the picture, -amplitude * 2 .. amplitude * 2. */
int32_t noise_at(const Noise *noise, int32_t amplitude, int32_t x, int32_t y);

uint8_t clamp_byte(int32_t value);

/* ---- a picture with a mask ---- */

typedef enum Cover { COVER_NONE, COVER_TARGET, COVER_OTHER } Cover;

/* 2 x 2 points a pixel; each holds a Cover. */
typedef struct Canvas {
    int64_t  size;  /* of the picture, pixels */
    uint8_t *cover; /* (2 * size, 2 * size) */
} Canvas;

typedef struct Look {
    Noise    noise;
    int32_t  amplitude;   /* of the smooth noise */
    int32_t  grain;       /* standard deviation of the noise of single pixels */
    int32_t  ground[3];   /* mean background, 0..255 */
    int32_t  contrast[3]; /* added where something covers it */
    uint64_t seed, grain_stream, grain_counter; /* size^2 / 4 blocks, rounded up, at most 2^22 */
} Look;

Status canvas_create(int64_t size, Canvas *out); /* nothing on it; STATUS_OOM */
void   canvas_free(Canvas *canvas);

/* The points of one axis from low to high, cut to the canvas: first..end - 1; and where point i lies. */
int64_t canvas_first(const Canvas *canvas, int64_t low);
int64_t canvas_end(const Canvas *canvas, int64_t high);
int32_t canvas_point(const Canvas *canvas, int64_t i);

/* The picture (size, size, 3), and the mask (size, size): 1 where the target covers half of the pixel or more. */
void canvas_paint(const Canvas *canvas, const Look *look, uint8_t *pixels, uint8_t *mask);

#endif
