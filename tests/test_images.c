/* test_images.c - resizing, JPEG and PNG in every kind and with every defect, and the folder source. */
#include "../datasets/data.h"
#include "../datasets/image.h"
#include "fault_alloc.h"
#include "sample_files.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>
#include <png.h>

/* ---- resizing ---- */

static void resizing_keeps_a_plain_picture_plain(void **state)
{
    (void)state;
    static const int64_t shapes[][2] = { { 1, 1 }, { 1, 900 }, { 900, 1 }, { 7, 5 }, { 64, 64 }, { 333, 500 } };
    static const int64_t sizes[] = { 1, 8, 31, 64, 224 };
    uint8_t *in = malloc(333 * 500 * 3), *out = malloc(224 * 224 * 3);
    assert_true(in && out);
    for (size_t i = 0; i < COUNT_OF(shapes) * COUNT_OF(sizes); i++) {
        int64_t h = shapes[i % COUNT_OF(shapes)][0], w = shapes[i % COUNT_OF(shapes)][1];
        int64_t size = sizes[i / COUNT_OF(shapes)];
        for (int value = 0; value < 256; value += 51) {
            memset(in, value, (size_t)(h * w * 3));
            assert_int_equal(image_resize_square(in, h, w, 3, size, out).code, STATUS_OK);
            for (int64_t p = 0; p < size * size * 3; p++)
                assert_int_equal(out[p], value);
        }
    }
    free(in);
    free(out);
}

static void resizing_gives_the_values_of_the_filter(void **state)
{
    (void)state;
    uint8_t out[16];
    /* Twice as large: half-pixel centres fall at 1/4 and 3/4 between two pixels, the border is held. */
    const uint8_t two[4] = { 0, 200, 0, 200 };
    assert_int_equal(image_resize_square(two, 2, 2, 1, 4, out).code, STATUS_OK);
    const uint8_t want[4] = { 0, 50, 150, 200 };
    for (int y = 0; y < 4; y++)
        assert_memory_equal(out + 4 * y, want, 4);
    /* Half as large: weights 1/8 3/8 3/8 1/8 inside; cut at the border and normalised, 3/7 3/7 1/7. */
    const uint8_t row[4] = { 70, 0, 140, 0 };
    uint8_t four[16];
    for (int y = 0; y < 4; y++)
        memcpy(four + 4 * y, row, 4);
    assert_int_equal(image_resize_square(four, 4, 4, 1, 2, out).code, STATUS_OK);
    assert_int_equal(out[0], 50); /* (3 * 70 + 3 * 0 + 140) / 7 */
    assert_int_equal(out[1], 60); /* (0 + 3 * 140 + 3 * 0) / 7 */
    /* Fine stripes must not turn into coarse ones: 64 to 8 gives grey. */
    static uint8_t stripes[64 * 64];
    for (int i = 0; i < 64 * 64; i++)
        stripes[i] = i % 2 ? 255 : 0;
    uint8_t grey[64];
    assert_int_equal(image_resize_square(stripes, 64, 64, 1, 8, grey).code, STATUS_OK);
    for (int i = 0; i < 64; i++)
        assert_in_range(grey[i], 120, 135);
}

static void the_centre_square_is_cut_out(void **state)
{
    (void)state;
    uint8_t wide[8 * 24], out[64];
    for (int i = 0; i < 8 * 24; i++)
        wide[i] = (uint8_t)(i % 24);
    assert_int_equal(image_resize_square(wide, 8, 24, 1, 8, out).code, STATUS_OK);
    for (int i = 0; i < 64; i++)
        assert_int_equal(out[i], 8 + i % 8);
    assert_int_equal(image_resize_square(wide, 24, 8, 1, 8, out).code, STATUS_OK); /* the same bytes, upright */
    for (int i = 0; i < 64; i++)
        assert_int_equal(out[i], wide[64 + i]);
}

/* ---- decoding ---- */

static Image decode_or_fail(const char *path, int64_t size)
{
    Image image;
    Status status = image_decode(path, size, &image);
    if (status.code != STATUS_OK)
        fail_msg("image_decode: %s", status.text);
    return image;
}

static void expect_bad_image(const char *path, StatusCode code, const char *word)
{
    Image image;
    int64_t live = fault_alloc_live();
    Status status = image_decode(path, 32, &image);
    if (status.code != code || !strstr(status.text, word) || !strstr(status.text, strrchr(path, '/')))
        fail_msg("expected %s with '%s' and the file's name, got %s: %s", status_code_name(code), word,
                 status_code_name(status.code), status.text);
    assert_null(image.pixels);
    assert_int_equal(fault_alloc_live(), live);
}

static void expect_pixel(const Image *image, int64_t x, int64_t y, int r, int g, int b, int within)
{
    const uint8_t *p = image->pixels + 3 * (y * image->width + x);
    if (abs(p[0] - r) > within || abs(p[1] - g) > within || abs(p[2] - b) > within)
        fail_msg("pixel (%d, %d) is (%d, %d, %d), expected (%d, %d, %d) within %d", (int)x, (int)y, p[0], p[1], p[2], r, g,
                 b, within);
}

enum { W = 40, H = 24 };

/* Left half one colour, right half another. */
static void fill_halves(uint8_t *pixels, int channels, const uint8_t *left, const uint8_t *right)
{
    for (int i = 0; i < W * H; i++)
        memcpy(pixels + i * channels, i % W < W / 2 ? left : right, (size_t)channels);
}

static void every_kind_of_jpeg_becomes_rgb(void **state)
{
    static const struct { JpegKind kind; int channels; uint8_t left[4], right[4], rgb[2][3]; } cases[] = {
        { JPEG_RGB, 3, { 200, 30, 60 }, { 10, 220, 90 }, { { 200, 30, 60 }, { 10, 220, 90 } } },
        { JPEG_PROGRESSIVE, 3, { 200, 30, 60 }, { 10, 220, 90 }, { { 200, 30, 60 }, { 10, 220, 90 } } },
        { JPEG_GREY, 1, { 40 }, { 210 }, { { 40, 40, 40 }, { 210, 210, 210 } } },
        /* libjpeg writes an Adobe marker for CMYK: 255 is no ink. */
        { JPEG_CMYK, 4, { 255, 0, 255, 255 }, { 100, 200, 255, 128 }, { { 255, 0, 255 }, { 50, 100, 128 } } },
    };
    char path[SAMPLE_PATH_BYTES];
    sample_path(path, *state, "kind.jpg");
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        uint8_t pixels[W * H * 4];
        fill_halves(pixels, cases[i].channels, cases[i].left, cases[i].right);
        sample_write_jpeg(path, cases[i].kind, W, H, pixels);
        Image image = decode_or_fail(path, H);
        assert_true(image.width == W && image.height == H);
        for (int side = 0; side < 2; side++) {
            const uint8_t *want = cases[i].rgb[side];
            expect_pixel(&image, side ? W - 5 : 4, H / 2, want[0], want[1], want[2], 4);
        }
        free(image.pixels);
    }
}

static void large_jpegs_are_decoded_smaller_but_not_too_small(void **state)
{
    char path[SAMPLE_PATH_BYTES];
    sample_write_picture(sample_path(path, *state, "large.jpg"), 800, 400, 77);
    static const struct { int64_t size, height; } cases[] = { { 32, 50 }, { 50, 50 }, { 51, 100 }, { 400, 400 }, { 401, 400 } };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        Image image = decode_or_fail(path, cases[i].size);
        assert_int_equal(image.height, cases[i].height);
        assert_int_equal(image.width, 2 * cases[i].height);
        expect_pixel(&image, image.width / 2, image.height / 4, 77, 128, 64, 6);
        free(image.pixels);
    }
}

static void every_kind_of_png_becomes_rgb(void **state)
{
    static const struct { int color_type, depth; uint8_t pixel[8]; int bytes, rgb[3]; } cases[] = {
        { PNG_COLOR_TYPE_RGB, 8, { 10, 200, 30 }, 3, { 10, 200, 30 } },
        { PNG_COLOR_TYPE_RGB, 16, { 10, 10, 200, 200, 30, 30 }, 6, { 10, 200, 30 } },
        { PNG_COLOR_TYPE_GRAY, 8, { 99 }, 1, { 99, 99, 99 } },
        { PNG_COLOR_TYPE_GRAY, 16, { 99, 99 }, 2, { 99, 99, 99 } },
        { PNG_COLOR_TYPE_GRAY_ALPHA, 8, { 99, 255 }, 2, { 99, 99, 99 } },
        { PNG_COLOR_TYPE_RGB_ALPHA, 8, { 10, 200, 30, 255 }, 4, { 10, 200, 30 } },
        { PNG_COLOR_TYPE_RGB_ALPHA, 8, { 10, 200, 30, 0 }, 4, { 255, 255, 255 } }, /* clear: white shows */
        { PNG_COLOR_TYPE_RGB_ALPHA, 16, { 10, 10, 200, 200, 30, 30, 255, 255 }, 8, { 10, 200, 30 } },
        { PNG_COLOR_TYPE_PALETTE, 8, { 2 }, 1, { 0, 0, 255 } },
    };
    char path[SAMPLE_PATH_BYTES];
    sample_path(path, *state, "kind.png");
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        uint8_t rows[W * H * 8];
        for (int p = 0; p < W * H; p++)
            memcpy(rows + p * cases[i].bytes, cases[i].pixel, (size_t)cases[i].bytes);
        sample_write_png(path, cases[i].color_type, cases[i].depth, W, H, rows);
        Image image = decode_or_fail(path, H);
        assert_true(image.width == W && image.height == H);
        const int *want = cases[i].rgb;
        expect_pixel(&image, 3, 5, want[0], want[1], want[2], cases[i].depth == 16 ? 1 : 0);
        free(image.pixels);
    }
    uint8_t bits[W / 8 * H]; /* one bit a pixel: eight black, eight white, ... */
    for (int i = 0; i < W / 8 * H; i++)
        bits[i] = i % 2 ? 0xFF : 0;
    sample_write_png(path, PNG_COLOR_TYPE_GRAY, 1, W, H, bits);
    Image image = decode_or_fail(path, H);
    expect_pixel(&image, 7, 0, 0, 0, 0, 0);
    expect_pixel(&image, 8, 0, 255, 255, 255, 0);
    free(image.pixels);
}

static void the_bytes_and_not_the_suffix_tell_the_format(void **state)
{
    char png[SAMPLE_PATH_BYTES], jpg[SAMPLE_PATH_BYTES];
    sample_write_picture(sample_path(png, *state, "a.png"), W, H, 5);
    sample_path(jpg, *state, "a.JPEG");
    assert_int_equal(rename(png, jpg), 0);
    Image image = decode_or_fail(jpg, H);
    assert_int_equal(image.width, W);
    free(image.pixels);
}

static void an_image_cut_anywhere_is_refused(void **state)
{
    static const char *const names[] = { "cut.jpg", "cut.png" };
    for (size_t n = 0; n < COUNT_OF(names); n++) {
        char path[SAMPLE_PATH_BYTES];
        sample_write_picture(sample_path(path, *state, names[n]), W, H, 120);
        size_t bytes;
        uint8_t *data = sample_read(path, &bytes);
        for (size_t length = 0; length < bytes; length++) {
            sample_write(path, data, length);
            /* Without its last chunk, IEND (12 bytes, no data), a PNG still holds every pixel. */
            if (n == 1 && length >= bytes - 12) {
                Image image;
                Status status = image_decode(path, 32, &image);
                assert_true(status.code == STATUS_OK || status.code == STATUS_INPUT);
                free(image.pixels);
            } else {
                expect_bad_image(path, STATUS_INPUT, length == 0 ? "file size 0" : length < 2 ? "neither" : "");
            }
        }
        free(data);
    }
}

/* Whatever the bytes are, the decoder returns: a picture or STATUS_INPUT. The sanitizers watch this one. */
static void changed_bytes_never_crash_the_decoders(void **state)
{
    static const char *const names[] = { "flip.jpg", "flip.png" };
    for (size_t n = 0; n < COUNT_OF(names); n++) {
        char path[SAMPLE_PATH_BYTES];
        sample_write_picture(sample_path(path, *state, names[n]), W, H, 120);
        size_t bytes;
        uint8_t *data = sample_read(path, &bytes);
        int refused = 0;
        for (size_t i = 0; i < bytes; i++) {
            for (int bit = 0; bit < 8; bit += 3) {
                data[i] ^= (uint8_t)(1 << bit);
                sample_write(path, data, bytes);
                Image image;
                Status status = image_decode(path, 32, &image);
                assert_true(status.code == STATUS_OK || status.code == STATUS_INPUT);
                refused += status.code != STATUS_OK;
                free(image.pixels);
                data[i] ^= (uint8_t)(1 << bit);
            }
        }
        assert_true(refused > (int)bytes / 10);
        free(data);
    }
}

static void absurd_sizes_are_refused_before_anything_is_allocated(void **state)
{
    char path[SAMPLE_PATH_BYTES];
    sample_write_picture(sample_path(path, *state, "huge.jpg"), W, H, 1);
    size_t bytes, at = 2;
    uint8_t *data = sample_read(path, &bytes);
    while (data[at + 1] != 0xC0) /* SOF0: marker, length, precision, height, width */
        at += 2 + (size_t)(data[at + 2] << 8 | data[at + 3]);
    memset(data + at + 5, 0xF0, 4);
    sample_write(path, data, bytes);
    free(data);
    expect_bad_image(path, STATUS_INPUT, "JPEG header: width x height 61680 x 61680");

    sample_path(path, *state, "huge.png");
    uint8_t *row = calloc(1000000 / 8, 200);
    assert_non_null(row);
    sample_write_png(path, PNG_COLOR_TYPE_GRAY, 1, 1000000, 200, row); /* 25 kB file, 600 MB of RGB */
    free(row);
    expect_bad_image(path, STATUS_INPUT, "PNG header: width x height 1000000 x 200");
}

static void what_is_no_image_is_said_to_be_none(void **state)
{
    char path[SAMPLE_PATH_BYTES];
    sample_path(path, *state, "x.jpg");
    expect_bad_image(path, STATUS_INPUT, "No such file");
    sample_write(path, "hello, world", 12);
    expect_bad_image(path, STATUS_INPUT, "neither a JPEG nor a PNG");
    sample_write(path, "\xFF\xD8 but then text", 17);
    expect_bad_image(path, STATUS_INPUT, "JPEG data");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkdir(path, 0777), 0);
    expect_bad_image(path, STATUS_INPUT, "not a regular file");
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(mkfifo(path, 0666), 0); /* nobody will ever write to it */
    expect_bad_image(path, STATUS_INPUT, "not a regular file");
}

/* ---- the folder ---- */

static Status open_folder(const char *dir, uint64_t seed, Dataset **out)
{
    DatasetConfig config = { .name = "folder", .dir = dir, .size = 16, .seed = seed };
    return dataset_open(&config, out);
}

static void expect_bad_folder(const char *dir, const char *word, const char *word2)
{
    Dataset *ds;
    int64_t live = fault_alloc_live();
    Status status = open_folder(dir, 1, &ds);
    assert_null(ds);
    if (status.code != STATUS_INPUT || !strstr(status.text, word) || !strstr(status.text, word2))
        fail_msg("expected input with '%s' and '%s', got %s: %s", word, word2, status_code_name(status.code), status.text);
    assert_int_equal(fault_alloc_live(), live);
}

static void add_picture(const char *dir, const char *name, int shade)
{
    char path[SAMPLE_PATH_BYTES];
    sample_write_picture(sample_path(path, dir, name), W, H, shade);
}

static void add_two_trees(const char *dir, const char *test_name)
{
    static const char *const files[] = { "train/cat/1.jpg", "train/cat/2.JPEG", "train/cat/3.png", "train/dog/z.JPG",
                                         "train/dog/a.jpeg" };
    for (size_t i = 0; i < COUNT_OF(files); i++)
        add_picture(dir, files[i], (int)(50 * i));
    char name[64];
    snprintf(name, sizeof name, "%s/cat/9.jpg", test_name);
    add_picture(dir, name, 250);
    snprintf(name, sizeof name, "%s/dog/9.jpg", test_name);
    add_picture(dir, name, 125);
}

static int read_shade(const Dataset *ds, Split split, int64_t index, int32_t *label)
{
    uint8_t pixels[16 * 16 * 3];
    Status status = dataset_read(ds, split, index, pixels, label);
    if (status.code != STATUS_OK)
        fail_msg("dataset_read: %s", status.text);
    return pixels[3 * (16 * 8 + 8)];
}

static void train_and_val_trees_are_read_in_sorted_order(void **state)
{
    const char *dir = *state;
    char path[SAMPLE_PATH_BYTES];
    add_two_trees(dir, "val");
    add_picture(dir, "test/other/1.jpg", 0); /* with a val beside it, test is not looked at */
    sample_write(sample_path(path, dir, "train/README.txt"), "x", 1);
    sample_write(sample_path(path, dir, "train/cat/.hidden.jpg"), "x", 1);
    sample_write(sample_path(path, dir, "train/cat/notes.txt"), "x", 1);
    sample_write(sample_path(path, dir, "train/cat/jpg"), "x", 1);
    Dataset *ds;
    Status status = open_folder(dir, 1, &ds);
    if (status.code != STATUS_OK)
        fail_msg("%s", status.text);
    assert_int_equal(dataset_count(ds, SPLIT_TRAIN), 5);
    assert_int_equal(dataset_count(ds, SPLIT_TEST), 2);
    assert_int_equal(dataset_classes(ds), 2);
    assert_string_equal(dataset_class_name(ds, 0), "cat");
    assert_string_equal(dataset_class_name(ds, 1), "dog");
    static const int want[5][2] = { { 0, 0 }, { 50, 0 }, { 100, 0 }, { 200, 1 }, { 150, 1 } }; /* "a" before "z" */
    for (int i = 0; i < 5; i++) {
        int32_t label;
        assert_true(abs(read_shade(ds, SPLIT_TRAIN, i, &label) - want[i][0]) <= 3);
        assert_int_equal(label, want[i][1]);
    }
    int32_t label;
    assert_true(abs(read_shade(ds, SPLIT_TEST, 1, &label) - 125) <= 3 && label == 1);
    float mean[3], deviation[3];
    dataset_channel_stats(ds, mean, deviation);
    assert_true(mean[0] > 99 / 255.0f && mean[0] < 101 / 255.0f); /* of 0, 50, 100, 150, 200: training images only */
    assert_true(deviation[0] > 70 / 255.0f && deviation[0] < 71.5f / 255.0f);
    dataset_close(ds);
}

static void a_tree_called_test_will_do(void **state)
{
    add_two_trees(*state, "test");
    Dataset *ds;
    assert_int_equal(open_folder(*state, 1, &ds).code, STATUS_OK);
    assert_int_equal(dataset_count(ds, SPLIT_TEST), 2);
    dataset_close(ds);
}

/* Which of 40 pictures, told by shade, are in each split of a flat folder. */
static void collect_shades(const char *dir, uint64_t seed, int where[256])
{
    Dataset *ds;
    Status status = open_folder(dir, seed, &ds);
    if (status.code != STATUS_OK)
        fail_msg("%s", status.text);
    assert_int_equal(dataset_count(ds, SPLIT_TRAIN), 36);
    assert_int_equal(dataset_count(ds, SPLIT_TEST), 4);
    memset(where, 0, 256 * sizeof *where);
    for (Split split = SPLIT_TRAIN; split < SPLIT_COUNT; split++) {
        for (int64_t i = 0; i < dataset_count(ds, split); i++) {
            int32_t label;
            int shade = read_shade(ds, split, i, &label);
            assert_int_equal(where[shade], 0); /* no picture twice */
            assert_int_equal(label, shade / 6 >= 20);
            where[shade] = split == SPLIT_TRAIN ? 1 : 2;
        }
    }
    dataset_close(ds);
}

static void a_flat_folder_is_split_by_seed(void **state)
{
    for (int i = 0; i < 40; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s/%d.png", i < 20 ? "alpha" : "beta", i);
        add_picture(*state, name, 6 * i);
    }
    int one[256], again[256], two[256];
    collect_shades(*state, 1, one);
    collect_shades(*state, 1, again);
    collect_shades(*state, 2, two);
    assert_memory_equal(one, again, sizeof one);
    assert_memory_not_equal(one, two, sizeof one);
}

/* Statistics of a large folder come from images all along the list, not from its first class alone. */
static void statistics_are_spread_over_all_classes(void **state)
{
    enum { EACH = 300 };
    for (int i = 0; i < 2 * EACH; i++) {
        char name[64], path[SAMPLE_PATH_BYTES];
        uint8_t rows[8 * 8];
        memset(rows, i < EACH ? 0 : 250, sizeof rows);
        snprintf(name, sizeof name, "%s/%d.png", i < EACH ? "dark" : "light", i);
        sample_write_png(sample_path(path, *state, name), PNG_COLOR_TYPE_GRAY, 8, 8, 8, rows);
    }
    Dataset *ds;
    assert_int_equal(open_folder(*state, 1, &ds).code, STATUS_OK);
    assert_int_equal(dataset_count(ds, SPLIT_TRAIN), 2 * EACH * 9 / 10);
    assert_int_equal(dataset_count(ds, SPLIT_TEST), 2 * EACH / 10);
    float mean[3], deviation[3];
    dataset_channel_stats(ds, mean, deviation);
    for (int c = 0; c < 3; c++) {
        assert_true(mean[c] > 124 / 255.0f && mean[c] < 126 / 255.0f);
        assert_true(deviation[c] > 124 / 255.0f && deviation[c] < 126 / 255.0f);
    }
    dataset_close(ds);
}

static void a_class_of_one_image_trains_only(void **state)
{
    add_picture(*state, "a/1.jpg", 1);
    add_picture(*state, "b/1.jpg", 1);
    expect_bad_folder(*state, "every class holds one image", *state);
    add_picture(*state, "b/2.jpg", 1);
    Dataset *ds;
    assert_int_equal(open_folder(*state, 1, &ds).code, STATUS_OK);
    assert_int_equal(dataset_count(ds, SPLIT_TRAIN), 2);
    assert_int_equal(dataset_count(ds, SPLIT_TEST), 1);
    dataset_close(ds);
}

static void bad_trees_are_named(void **state)
{
    const char *dir = *state;
    char path[SAMPLE_PATH_BYTES];
    expect_bad_folder("/nonexistent/dir", "/nonexistent/dir", "No such file");
    sample_write(sample_path(path, dir, "file"), "x", 1);
    expect_bad_folder(path, "/file", "Not a directory");
    expect_bad_folder(dir, "no class directories", dir);
    assert_int_equal(mkdir(sample_path(path, dir, "empty"), 0777), 0);
    expect_bad_folder(dir, "/empty: class without images", dir);
    sample_write(sample_path(path, dir, "empty/notes.txt"), "x", 1);
    expect_bad_folder(dir, "/empty: class without images", dir);
    sample_remove_tree(sample_path(path, dir, "empty"));

    add_picture(dir, "train/cat/1.jpg", 1);
    expect_bad_folder(dir, "holds 'train' but no 'val' or 'test'", dir);
    assert_int_equal(mkdir(sample_path(path, dir, "val"), 0777), 0);
    expect_bad_folder(dir, "/val: no class directories", dir);
    add_picture(dir, "val/dog/1.jpg", 1);
    expect_bad_folder(dir, "class 'cat' is in", "/train but not in");
    add_picture(dir, "val/cat/1.jpg", 1);
    expect_bad_folder(dir, "class 'dog' is in", "/val but not in");
    add_picture(dir, "train/dog/1.jpg", 1);
    add_picture(dir, "train/eel/1.jpg", 1);
    expect_bad_folder(dir, "class 'eel' is in", "/train but not in");
    sample_remove_tree(sample_path(path, dir, "train"));
    expect_bad_folder(dir, "holds 'val' but no 'train'", dir);
}

static void a_broken_image_is_named_when_it_is_met(void **state)
{
    const char *dir = *state;
    add_two_trees(dir, "val");
    char path[SAMPLE_PATH_BYTES];
    sample_path(path, dir, "train/cat/2.JPEG");
    size_t bytes;
    uint8_t *data = sample_read(path, &bytes);
    sample_write(path, data, bytes / 2);
    expect_bad_folder(dir, "train/cat/2.JPEG: JPEG data", dir); /* met by the channel statistics */
    sample_write(path, data, bytes);
    free(data);
    Dataset *ds;
    assert_int_equal(open_folder(dir, 1, &ds).code, STATUS_OK);
    assert_int_equal(unlink(path), 0);
    uint8_t pixels[16 * 16 * 3];
    int32_t label;
    Status status = dataset_read(ds, SPLIT_TRAIN, 1, pixels, &label);
    assert_int_equal(status.code, STATUS_INPUT);
    assert_non_null(strstr(status.text, "train/cat/2.JPEG: No such file"));
    dataset_close(ds);
}

static Status open_and_read_all(void *context)
{
    Dataset *ds;
    TRY(open_folder(context, 1, &ds));
    Status status = status_ok();
    for (int64_t i = 0; i < dataset_count(ds, SPLIT_TRAIN) && status.code == STATUS_OK; i++) {
        uint8_t pixels[16 * 16 * 3];
        int32_t label;
        status = dataset_read(ds, SPLIT_TRAIN, i, pixels, &label);
    }
    dataset_close(ds);
    return status;
}

static void no_memory_is_an_error_everywhere(void **state)
{
    char *two = *state, flat[SAMPLE_PATH_BYTES];
    add_two_trees(two, "val");
    sample_path(flat, two, "train");
    uint8_t pixels[W * H * 4];
    memset(pixels, 90, sizeof pixels);
    char path[SAMPLE_PATH_BYTES];
    sample_write_jpeg(sample_path(path, two, "train/dog/cmyk.jpg"), JPEG_CMYK, W, H, pixels);
    assert_true(fault_alloc_sweep(open_and_read_all, two) > 100);
    assert_true(fault_alloc_sweep(open_and_read_all, flat) > 50);
}

int main(void)
{
#define IN_DIR(test) cmocka_unit_test_setup_teardown(test, sample_setup, sample_teardown)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(resizing_keeps_a_plain_picture_plain),
        cmocka_unit_test(resizing_gives_the_values_of_the_filter),
        cmocka_unit_test(the_centre_square_is_cut_out),
        IN_DIR(every_kind_of_jpeg_becomes_rgb),
        IN_DIR(large_jpegs_are_decoded_smaller_but_not_too_small),
        IN_DIR(every_kind_of_png_becomes_rgb),
        IN_DIR(the_bytes_and_not_the_suffix_tell_the_format),
        IN_DIR(an_image_cut_anywhere_is_refused),
        IN_DIR(changed_bytes_never_crash_the_decoders),
        IN_DIR(absurd_sizes_are_refused_before_anything_is_allocated),
        IN_DIR(what_is_no_image_is_said_to_be_none),
        IN_DIR(train_and_val_trees_are_read_in_sorted_order),
        IN_DIR(a_tree_called_test_will_do),
        IN_DIR(a_flat_folder_is_split_by_seed),
        IN_DIR(statistics_are_spread_over_all_classes),
        IN_DIR(a_class_of_one_image_trains_only),
        IN_DIR(bad_trees_are_named),
        IN_DIR(a_broken_image_is_named_when_it_is_met),
        IN_DIR(no_memory_is_an_error_everywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
