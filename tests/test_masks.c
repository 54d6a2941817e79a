/* test_masks.c - folders of images and masks, with everything that can be wrong in them. */
#include "../datasets/image.h"
#include "fault_alloc.h"
#include "mask_files.h"
#include "open_data.h"
#include "sample_files.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <png.h>

enum { SIZE = MASK_SIZE, AREA = MASK_AREA, PAIRS = MASK_PAIRS };

/* ---- helpers ---- */

/* ---- what a folder may hold ---- */

static void both_codes_of_two_classes(void **state)
{
    for (int value = 1; value < 256; value += 254) {
        mask_write_pairs(*state, (uint8_t)value);
        Dataset *ds = data_open_or_fail(mask_config(*state));
        assert_int_equal(dataset_task(ds), TASK_SEGMENT);
        assert_int_equal(dataset_classes(ds), 2);
        assert_string_equal(dataset_class_name(ds, 0), "background");
        assert_string_equal(dataset_class_name(ds, 1), "foreground");
        assert_int_equal(strstr(dataset_describe(ds), "0 and 255") != NULL, value == 255);
        assert_int_equal(dataset_count(ds, SPLIT_TRAIN), PAIRS - 2);
        assert_int_equal(dataset_count(ds, SPLIT_TEST), 2);
        bool seen[PAIRS] = { false };
        for (int k = 0; k < PAIRS; k++) {
            uint8_t pixels[AREA * 3], mask[AREA], want[AREA];
            Split split = k < PAIRS - 2 ? SPLIT_TRAIN : SPLIT_TEST;
            data_read_mask_or_fail(ds, split, split == SPLIT_TRAIN ? k : k - (PAIRS - 2), pixels, mask);
            mask_expect_alike(pixels, mask, AREA);
            for (int i = 0; i < PAIRS; i++) {
                mask_fill(i, SIZE, 1, want);
                seen[i] = seen[i] || memcmp(want, mask, AREA) == 0;
            }
        }
        for (int i = 0; i < PAIRS; i++)
            assert_true(seen[i]); /* every pair is in one split */
        dataset_close(ds);
    }
}

static void the_split_follows_the_seed(void **state)
{
    mask_write_pairs(*state, 1);
    uint8_t pixels[AREA * 3], mask[3][AREA];
    for (int i = 0; i < 3; i++) {
        DatasetConfig config = mask_config(*state);
        config.seed = i < 2 ? 3 : 4;
        Dataset *ds = data_open_or_fail(config);
        data_read_mask_or_fail(ds, SPLIT_TEST, 0, pixels, mask[i]);
        dataset_close(ds);
    }
    assert_memory_equal(mask[0], mask[1], AREA);
    assert_memory_not_equal(mask[0], mask[2], AREA);
}

static void more_classes_and_ignored_pixels(void **state)
{
    uint8_t values[AREA], pixels[AREA * 3], mask[AREA];
    char path[SAMPLE_PATH_BYTES];
    for (int p = 0; p < AREA; p++)
        values[p] = p % 5 == 4 ? 255 : (uint8_t)(p % 5);
    for (int i = 0; i < 2; i++) {
        mask_write(*state, i ? "masks/b.png" : "masks/a.png", SIZE, SIZE, values);
        sample_write_picture(sample_path(path, *state, i ? "images/b.JPEG" : "images/a.jpg"), SIZE, SIZE, 60);
    }
    DatasetConfig config = mask_config(*state);
    config.classes = 4;
    Dataset *ds = data_open_or_fail(config);
    assert_int_equal(dataset_classes(ds), 4);
    assert_string_equal(dataset_class_name(ds, 3), "class 3");
    data_read_mask_or_fail(ds, SPLIT_TEST, 0, pixels, mask);
    assert_memory_equal(mask, values, AREA);
    assert_int_equal(pixels[0] / 16, 3); /* 60, through JPEG */
    dataset_close(ds);

    config.classes = 3;
    data_expect_refusal(config, STATUS_INPUT, "masks/", "class 3 at row 0, column 3, expected 0..2 or 255");
    config.classes = 0; /* two: values 1 to 254 in the first mask say that these are indices */
    data_expect_refusal(config, STATUS_INPUT, "masks/", "class 2 at row 0, column 2, expected 0..1 or 255");
    config.classes = 1;
    data_expect_refusal(config, STATUS_USAGE, "1 classes", "2..255");
    config.classes = 256;
    data_expect_refusal(config, STATUS_USAGE, "256 classes", "2..255");
}

/* Palette indices and 1-bit values are taken as they stand. */
static void palette_and_packed_masks(void **state)
{
    const char *dir = *state;
    char path[SAMPLE_PATH_BYTES];
    uint8_t indices[AREA], bits[AREA / 8], pixels[AREA * 3], mask[AREA];
    for (int p = 0; p < AREA; p++)
        indices[p] = (uint8_t)(p / 3 % 4);
    for (int i = 0; i < AREA / 8; i++)
        bits[i] = (uint8_t)(37 * i + 1);
    for (int i = 0; i < 2; i++) {
        sample_write_picture(sample_path(path, dir, i ? "images/b.png" : "images/a.png"), SIZE, SIZE, 60);
        sample_write_png(sample_path(path, dir, i ? "masks/b.png" : "masks/a.png"), PNG_COLOR_TYPE_PALETTE, 8, SIZE, SIZE, indices);
    }
    DatasetConfig config = mask_config(dir);
    config.classes = 4;
    Dataset *ds = data_open_or_fail(config);
    data_read_mask_or_fail(ds, SPLIT_TRAIN, 0, pixels, mask);
    assert_memory_equal(mask, indices, AREA);
    dataset_close(ds);

    for (int i = 0; i < 2; i++)
        sample_write_png(sample_path(path, dir, i ? "masks/b.png" : "masks/a.png"), PNG_COLOR_TYPE_GRAY, 1, SIZE, SIZE, bits);
    config.classes = 2;
    ds = data_open_or_fail(config);
    data_read_mask_or_fail(ds, SPLIT_TRAIN, 0, pixels, mask);
    for (int p = 0; p < AREA; p++)
        assert_int_equal(mask[p], bits[p / 8] >> (7 - p % 8) & 1);
    dataset_close(ds);
}

/* 40 empty masks come first: the code shows only in the last. */
static void the_code_is_looked_for_behind_empty_masks(void **state)
{
    static const uint8_t black[AREA];
    char name[64], path[SAMPLE_PATH_BYTES];
    for (int i = 0; i < 41; i++) {
        for (int split = 0; split < 2; split++) {
            snprintf(name, sizeof name, "%s/images/%02d.png", split ? "val" : "train", i);
            sample_write_picture(sample_path(path, *state, name), SIZE, SIZE, 60);
            uint8_t values[AREA];
            mask_fill(i, SIZE, 255, values);
            snprintf(name, sizeof name, "%s/masks/%02d.png", split ? "val" : "train", i);
            mask_write(*state, name, SIZE, SIZE, i == 40 ? values : black);
        }
    }
    Dataset *ds = data_open_or_fail(mask_config(*state));
    assert_int_equal(dataset_count(ds, SPLIT_TRAIN), 41);
    assert_int_equal(dataset_count(ds, SPLIT_TEST), 41);
    uint8_t pixels[AREA * 3], mask[AREA];
    data_read_mask_or_fail(ds, SPLIT_TEST, 40, pixels, mask);
    assert_int_equal(mask[11 * SIZE + 8], 1);
    dataset_close(ds);

    mask_write(*state, "val/masks/07.png", SIZE, SIZE, (const uint8_t[AREA]){ 0, 0, 1 });
    ds = data_open_or_fail(mask_config(*state));
    data_expect_error(dataset_read_mask(ds, SPLIT_TEST, 7, pixels, mask), STATUS_INPUT, "val/masks/07.png",
                      "value 1 at row 0, column 2");
    dataset_close(ds);
}

/* Image and mask go through the same window: the mask of a resized picture lies where its object does. */
static void resizing_keeps_image_and_mask_together(void **state)
{
    enum { W = 90, H = 60 };
    static uint8_t rgb[W * H * 3], values[W * H], pixels[AREA * 3], mask[AREA];
    char path[SAMPLE_PATH_BYTES];
    for (int p = 0; p < W * H; p++) {
        values[p] = p % W >= 45 && p / W >= 15 && p / W < 45;
        memset(rgb + 3 * p, values[p] ? 255 : 0, 3);
    }
    for (int i = 0; i < 2; i++) {
        sample_write_png(sample_path(path, *state, i ? "images/b.png" : "images/a.png"), PNG_COLOR_TYPE_RGB, 8, W, H, rgb);
        mask_write(*state, i ? "masks/b.png" : "masks/a.png", W, H, values);
    }
    Dataset *ds = data_open_or_fail(mask_config(*state));
    data_read_mask_or_fail(ds, SPLIT_TRAIN, 0, pixels, mask);
    for (int p = 0; p < AREA; p++) {
        assert_int_equal(mask[p], p % SIZE >= 8 && p / SIZE >= 4 && p / SIZE < 12); /* the middle 60 columns */
        assert_int_equal(pixels[3 * p] > 127, mask[p]);
    }
    dataset_close(ds);
}

/* ---- what is wrong with a folder ---- */

static void layouts_that_are_refused(void **state)
{
    char *dir = *state, path[SAMPLE_PATH_BYTES];
    data_expect_refusal(mask_config(NULL), STATUS_USAGE, "masks", "--data-dir");
    data_expect_refusal(mask_config("/nonexistent"), STATUS_INPUT, "/nonexistent", "No such file");
    data_expect_refusal(mask_config(dir), STATUS_INPUT, "/images", "No such file");
    sample_path(path, dir, "images/x");
    data_expect_refusal(mask_config(dir), STATUS_INPUT, "/images", "no images");
    mask_write_pair(dir, 0, 1);
    data_expect_refusal(mask_config(dir), STATUS_INPUT, "one image", "test split");
    mask_write_pair(dir, 1, 1);
    dataset_close(data_open_or_fail(mask_config(dir)));
    assert_int_equal(unlink(sample_path(path, dir, "masks/pair.01.png")), 0);
    data_expect_refusal(mask_config(dir), STATUS_INPUT, "masks/pair.01.png: missing", "pair.01.png");
    assert_int_equal(unlink(sample_path(path, dir, "masks/pair.00.png")), 0);
    assert_int_equal(rmdir(sample_path(path, dir, "masks")), 0);
    data_expect_refusal(mask_config(dir), STATUS_INPUT, "/masks", "No such file");
    sample_path(path, dir, "train/images/x");
    data_expect_refusal(mask_config(dir), STATUS_INPUT, "'train'", "no 'val' or 'test'");
}

static void masks_that_are_refused(void **state)
{
    char *dir = *state, path[SAMPLE_PATH_BYTES];
    static uint8_t wide[AREA * 8];
    mask_write_pair(dir, 0, 1);
    mask_write_pair(dir, 1, 1);
    for (int i = 0; i < 2; i++)
        mask_write(dir, i ? "masks/pair.01.png" : "masks/pair.00.png", SIZE / 2, 2 * SIZE, wide);
    data_expect_refusal(mask_config(dir), STATUS_INPUT, "masks/pair.0", "8 x 32 pixels, but its image has 16 x 16");
    static const struct { int type, depth; const char *word; } kinds[] = {
        { PNG_COLOR_TYPE_RGB, 8, "colour type 2, 8 bits" }, { PNG_COLOR_TYPE_GRAY, 16, "colour type 0, 16 bits" },
        { PNG_COLOR_TYPE_GRAY_ALPHA, 8, "colour type 4, 8 bits" },
    };
    for (size_t k = 0; k < COUNT_OF(kinds); k++) {
        for (int i = 0; i < 2; i++)
            sample_write_png(sample_path(path, dir, i ? "masks/pair.01.png" : "masks/pair.00.png"), kinds[k].type, kinds[k].depth,
                             SIZE, SIZE, wide);
        data_expect_refusal(mask_config(dir), STATUS_INPUT, kinds[k].word, "masks/pair.0");
    }
}

/* Cut at every length, and with every byte changed: never a crash, always a line or a mask. */
static void damaged_masks(void **state)
{
    char *dir = *state, path[SAMPLE_PATH_BYTES];
    uint8_t values[AREA];
    mask_fill(3, SIZE, 1, values);
    sample_write_png(sample_path(path, dir, "mask.png"), PNG_COLOR_TYPE_GRAY, 8, SIZE, SIZE, values);
    size_t bytes;
    uint8_t *whole = sample_read(path, &bytes);
    for (size_t n = 0; n < bytes; n++) {
        Image mask;
        sample_write(path, whole, n);
        data_expect_error(image_decode_mask(path, &mask), STATUS_INPUT, "mask.png: ", "");
        assert_null(mask.pixels);
    }
    for (size_t n = 0; n < bytes; n++) {
        Image mask;
        whole[n] ^= 0x41;
        sample_write(path, whole, bytes);
        whole[n] ^= 0x41;
        Status status = image_decode_mask(path, &mask);
        if (status.code != STATUS_OK)
            assert_int_equal(status.code, STATUS_INPUT);
        free(mask.pixels);
    }
    sample_write(path, "\xFF\xD8\xFF\xE0 a JPEG", 11);
    Image mask;
    data_expect_error(image_decode_mask(path, &mask), STATUS_INPUT, "mask.png", "PNG");
    free(whole);
}

int main(void)
{
#define IN_A_NEW_FOLDER(test) cmocka_unit_test_setup_teardown(test, sample_setup, sample_teardown)
    const struct CMUnitTest tests[] = {
        IN_A_NEW_FOLDER(both_codes_of_two_classes),
        IN_A_NEW_FOLDER(the_split_follows_the_seed),
        IN_A_NEW_FOLDER(more_classes_and_ignored_pixels),
        IN_A_NEW_FOLDER(palette_and_packed_masks),
        IN_A_NEW_FOLDER(the_code_is_looked_for_behind_empty_masks),
        IN_A_NEW_FOLDER(resizing_keeps_image_and_mask_together),
        IN_A_NEW_FOLDER(layouts_that_are_refused),
        IN_A_NEW_FOLDER(masks_that_are_refused),
        IN_A_NEW_FOLDER(damaged_masks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
