/* mask_files.h - small pictures with masks for tests. Failures end the cmocka test. */
#ifndef BATCHMARK_TESTS_MASK_FILES_H
#define BATCHMARK_TESTS_MASK_FILES_H

#include "../datasets/data.h"

enum { MASK_SIZE = 16, MASK_AREA = MASK_SIZE * MASK_SIZE, MASK_PAIRS = 23 };

/* Mask number i, (size, size): a rectangle that differs from mask to mask and touches no border; value where it is. */
void mask_fill(int i, int size, uint8_t value, uint8_t *out);

/* dir/name, an 8-bit grey PNG. */
void mask_write(const char *dir, const char *name, int width, int height, const uint8_t *values);

/* dir/masks/pair.<i>.png with mask i, and dir/images/pair.<i>.png, which is its mask in white; or MASK_PAIRS of them. */
void mask_write_pair(const char *dir, int i, uint8_t value);
void mask_write_pairs(const char *dir, uint8_t value);

/* The set of such a directory. */
DatasetConfig mask_config(const char *dir);

/* Of a sample of it, `area` pixels: image and mask say the same. */
void mask_expect_alike(const uint8_t *pixels, const uint8_t *mask, int64_t area);

#endif
