/* mask_files.c - the bodies of mask_files.h. */
#include "mask_files.h"
#include "sample_files.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <png.h>

void mask_fill(int i, int size, uint8_t value, uint8_t *out)
{
    for (int p = 0; p < size * size; p++) {
        int x = p % size, y = p / size;
        out[p] = x > 1 + i % 5 && x < size - 3 && y > 1 + i / 5 && y < size - 2 - i % 3 ? value : 0;
    }
}

void mask_write(const char *dir, const char *name, int width, int height, const uint8_t *values)
{
    char path[SAMPLE_PATH_BYTES];
    sample_write_png(sample_path(path, dir, name), PNG_COLOR_TYPE_GRAY, 8, width, height, values);
}

void mask_write_pair(const char *dir, int i, uint8_t value)
{
    uint8_t mask[MASK_AREA], rgb[MASK_AREA * 3];
    char name[64], path[SAMPLE_PATH_BYTES];
    mask_fill(i, MASK_SIZE, value, mask);
    for (int p = 0; p < MASK_AREA; p++)
        memset(rgb + 3 * p, mask[p] ? 255 : 0, 3);
    snprintf(name, sizeof name, "masks/pair.%02d.png", i);
    mask_write(dir, name, MASK_SIZE, MASK_SIZE, mask);
    snprintf(name, sizeof name, "images/pair.%02d.png", i);
    sample_write_png(sample_path(path, dir, name), PNG_COLOR_TYPE_RGB, 8, MASK_SIZE, MASK_SIZE, rgb);
}

void mask_write_pairs(const char *dir, uint8_t value)
{
    for (int i = 0; i < MASK_PAIRS; i++)
        mask_write_pair(dir, i, value);
}

DatasetConfig mask_config(const char *dir)
{
    return (DatasetConfig){ .name = "masks", .dir = dir, .size = MASK_SIZE, .seed = 3 };
}

void mask_expect_alike(const uint8_t *pixels, const uint8_t *mask, int64_t area)
{
    for (int64_t p = 0; p < 3 * area; p++)
        assert_int_equal(pixels[p], mask[p / 3] ? 255 : 0);
}
