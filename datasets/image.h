/* image.h - private to datasets/: JPEG and PNG files to 8-bit RGB, PNG masks, and resizing.
 *
 * Everything here is integer arithmetic, so that pixels are the same on every machine. (JPEG decoding itself is
 * libjpeg's; its default integer DCT gives the same pixels with and without SIMD.) */
#ifndef BATCHMARK_DATASETS_IMAGE_H
#define BATCHMARK_DATASETS_IMAGE_H

#include "../kernels/base.h"

/* For image_decode: never at a reduced size. */
#define IMAGE_WHOLE INT64_MAX

/* An image of more pixels, or a file of more bytes, is refused as absurd: 2^27 pixels are 400 MB of RGB. */
#define IMAGE_MAX_PIXELS (INT64_C(1) << 27)
#define IMAGE_MAX_BYTES  (INT64_C(1) << 28)

typedef struct Image {
    int64_t  width, height;
    uint8_t *pixels; /* (height, width, 3), of a mask (height, width); free() */
} Image;

/* Decodes a file, told JPEG from PNG by its first bytes (ImageNet holds a PNG that is called .JPEG). A JPEG whose
 * shorter side is at least twice `size` may be decoded at a reduced size, never below `size`. Alpha is composited
 * over white, 16 bits become 8, grey becomes RGB; the EXIF orientation is not applied (torchvision does not either).
 * Errors: STATUS_INPUT naming file and field, STATUS_IO, STATUS_OOM. On success the caller frees out->pixels. */
Status image_decode(const char *path, int64_t size, Image *out);

/* Decodes a PNG whose pixels are values and not colours, as they stand in the file: grey or palette indices of 1 to 8
 * bits, without gamma, scaling or transparency. Errors as above; STATUS_INPUT also for other kinds of picture. */
Status image_decode_mask(const char *path, Image *out);

/* Resizes so that the shorter side becomes `size`, and cuts the centre square out of it: in (height, width,
 * channels) to out (size, size, channels). A triangle filter whose support grows with the reduction: bilinear with
 * half-pixel centres where the image grows, area-weighted (antialiased) where it shrinks, an exact copy at
 * scale 1. Error: STATUS_OOM. */
Status image_resize_square(const uint8_t *in, int64_t height, int64_t width, int64_t channels, int64_t size,
                           uint8_t *out);

/* The same for a grey picture (height, width), which comes out as RGB (size, size, 3). */
Status image_resize_grey(const uint8_t *in, int64_t height, int64_t width, int64_t size, uint8_t *out);

/* The same square of a mask (height, width), where every output pixel takes the nearest value: class indices have no
 * mean. */
void image_resize_mask(const uint8_t *in, int64_t height, int64_t width, int64_t size, uint8_t *out);

#endif
