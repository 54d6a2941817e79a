/* test_masks.c - folders of images and masks with everything that can be wrong in them, and batches with masks: image
 * and mask move alike, any number of threads gives the same, held batches stay as they are. */
#include "../datasets/data.h"
#include "../datasets/image.h"
#include "fault_alloc.h"
#include "sample_files.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>
#include <png.h>

enum { SIZE = 16, AREA = SIZE * SIZE, PAIRS = 23 };

/* ---- helpers ---- */

static int set_up_dir(void **state)
{
    *state = malloc(SAMPLE_PATH_BYTES);
    assert_non_null(*state);
    sample_make_dir(*state);
    return 0;
}

static int remove_dir(void **state)
{
    sample_remove_tree(*state);
    free(*state);
    return 0;
}

static DatasetConfig config_of(const char *dir)
{
    return (DatasetConfig){ .name = "masks", .dir = dir, .size = SIZE, .seed = 3 };
}

static Dataset *open_or_fail(DatasetConfig config)
{
    Dataset *ds = NULL;
    Status status = dataset_open(&config, &ds);
    if (status.code != STATUS_OK)
        fail_msg("dataset_open: %s", status.text);
    return ds;
}

static void expect_text(Status status, StatusCode code, const char *word, const char *word2)
{
    if (status.code != code || !strstr(status.text, word) || !strstr(status.text, word2))
        fail_msg("expected %s with '%s' and '%s', got %s: %s", status_code_name(code), word, word2,
                 status_code_name(status.code), status.text);
    assert_null(strchr(status.text, '\n'));
}

static void expect_refusal(DatasetConfig config, StatusCode code, const char *word, const char *word2)
{
    Dataset *ds = NULL;
    int64_t live = fault_alloc_live();
    expect_text(dataset_open(&config, &ds), code, word, word2);
    assert_null(ds);
    assert_int_equal(fault_alloc_live(), live);
}

static void read_or_fail(const Dataset *ds, Split split, int64_t index, uint8_t *pixels, uint8_t *mask)
{
    Status status = dataset_read_mask(ds, split, index, pixels, mask);
    if (status.code != STATUS_OK)
        fail_msg("dataset_read_mask: %s", status.text);
}

/* Mask number i: a rectangle that differs from mask to mask and touches no border; value where it is. */
static void fill_mask(int i, int size, uint8_t value, uint8_t *out)
{
    for (int p = 0; p < size * size; p++) {
        int x = p % size, y = p / size;
        out[p] = x > 1 + i % 5 && x < size - 3 && y > 1 + i / 5 && y < size - 2 - i % 3 ? value : 0;
    }
}

static void write_mask(const char *dir, const char *name, int width, int height, const uint8_t *values)
{
    char path[SAMPLE_PATH_BYTES];
    sample_write_png(sample_path(path, dir, name), PNG_COLOR_TYPE_GRAY, 8, width, height, values);
}

/* A pair whose image is its mask as grey values: white where the mask has `value`. */
static void write_pair(const char *dir, int i, uint8_t value)
{
    uint8_t mask[AREA], rgb[AREA * 3];
    char name[64], path[SAMPLE_PATH_BYTES];
    fill_mask(i, SIZE, value, mask);
    for (int p = 0; p < AREA; p++)
        memset(rgb + 3 * p, mask[p] ? 255 : 0, 3);
    snprintf(name, sizeof name, "masks/pair.%02d.png", i);
    write_mask(dir, name, SIZE, SIZE, mask);
    snprintf(name, sizeof name, "images/pair.%02d.png", i);
    sample_write_png(sample_path(path, dir, name), PNG_COLOR_TYPE_RGB, 8, SIZE, SIZE, rgb);
}

static void write_pairs(const char *dir, uint8_t value)
{
    for (int i = 0; i < PAIRS; i++)
        write_pair(dir, i, value);
}

/* Of a set written by write_pair: image and mask say the same. */
static void expect_alike(const uint8_t *pixels, const uint8_t *mask, int64_t area)
{
    for (int64_t p = 0; p < 3 * area; p++)
        assert_int_equal(pixels[p], mask[p / 3] ? 255 : 0);
}

/* ---- what a folder may hold ---- */

static void both_codes_of_two_classes(void **state)
{
    for (int value = 1; value < 256; value += 254) {
        write_pairs(*state, (uint8_t)value);
        Dataset *ds = open_or_fail(config_of(*state));
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
            read_or_fail(ds, split, split == SPLIT_TRAIN ? k : k - (PAIRS - 2), pixels, mask);
            expect_alike(pixels, mask, AREA);
            for (int i = 0; i < PAIRS; i++) {
                fill_mask(i, SIZE, 1, want);
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
    write_pairs(*state, 1);
    uint8_t pixels[AREA * 3], mask[3][AREA];
    for (int i = 0; i < 3; i++) {
        DatasetConfig config = config_of(*state);
        config.seed = i < 2 ? 3 : 4;
        Dataset *ds = open_or_fail(config);
        read_or_fail(ds, SPLIT_TEST, 0, pixels, mask[i]);
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
        write_mask(*state, i ? "masks/b.png" : "masks/a.png", SIZE, SIZE, values);
        sample_write_picture(sample_path(path, *state, i ? "images/b.JPEG" : "images/a.jpg"), SIZE, SIZE, 60);
    }
    DatasetConfig config = config_of(*state);
    config.classes = 4;
    Dataset *ds = open_or_fail(config);
    assert_int_equal(dataset_classes(ds), 4);
    assert_string_equal(dataset_class_name(ds, 3), "class 3");
    read_or_fail(ds, SPLIT_TEST, 0, pixels, mask);
    assert_memory_equal(mask, values, AREA);
    assert_int_equal(pixels[0] / 16, 3); /* 60, through JPEG */
    dataset_close(ds);

    config.classes = 3;
    expect_refusal(config, STATUS_INPUT, "masks/", "class 3 at row 0, column 3, expected 0..2 or 255");
    config.classes = 0; /* two: values 1 to 254 in the first mask say that these are indices */
    expect_refusal(config, STATUS_INPUT, "masks/", "class 2 at row 0, column 2, expected 0..1 or 255");
    config.classes = 1;
    expect_refusal(config, STATUS_USAGE, "1 classes", "2..255");
    config.classes = 256;
    expect_refusal(config, STATUS_USAGE, "256 classes", "2..255");
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
    DatasetConfig config = config_of(dir);
    config.classes = 4;
    Dataset *ds = open_or_fail(config);
    read_or_fail(ds, SPLIT_TRAIN, 0, pixels, mask);
    assert_memory_equal(mask, indices, AREA);
    dataset_close(ds);

    for (int i = 0; i < 2; i++)
        sample_write_png(sample_path(path, dir, i ? "masks/b.png" : "masks/a.png"), PNG_COLOR_TYPE_GRAY, 1, SIZE, SIZE, bits);
    config.classes = 2;
    ds = open_or_fail(config);
    read_or_fail(ds, SPLIT_TRAIN, 0, pixels, mask);
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
            fill_mask(i, SIZE, 255, values);
            snprintf(name, sizeof name, "%s/masks/%02d.png", split ? "val" : "train", i);
            write_mask(*state, name, SIZE, SIZE, i == 40 ? values : black);
        }
    }
    Dataset *ds = open_or_fail(config_of(*state));
    assert_int_equal(dataset_count(ds, SPLIT_TRAIN), 41);
    assert_int_equal(dataset_count(ds, SPLIT_TEST), 41);
    uint8_t pixels[AREA * 3], mask[AREA];
    read_or_fail(ds, SPLIT_TEST, 40, pixels, mask);
    assert_int_equal(mask[11 * SIZE + 8], 1);
    dataset_close(ds);

    write_mask(*state, "val/masks/07.png", SIZE, SIZE, (const uint8_t[AREA]){ 0, 0, 1 });
    ds = open_or_fail(config_of(*state));
    expect_text(dataset_read_mask(ds, SPLIT_TEST, 7, pixels, mask), STATUS_INPUT, "val/masks/07.png", "value 1 at row 0, column 2");
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
        write_mask(*state, i ? "masks/b.png" : "masks/a.png", W, H, values);
    }
    Dataset *ds = open_or_fail(config_of(*state));
    read_or_fail(ds, SPLIT_TRAIN, 0, pixels, mask);
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
    expect_refusal(config_of(NULL), STATUS_USAGE, "masks", "--data-dir");
    expect_refusal(config_of("/nonexistent"), STATUS_INPUT, "/nonexistent", "No such file");
    expect_refusal(config_of(dir), STATUS_INPUT, "/images", "No such file");
    sample_path(path, dir, "images/x");
    expect_refusal(config_of(dir), STATUS_INPUT, "/images", "no images");
    write_pair(dir, 0, 1);
    expect_refusal(config_of(dir), STATUS_INPUT, "one image", "test split");
    write_pair(dir, 1, 1);
    dataset_close(open_or_fail(config_of(dir)));
    assert_int_equal(unlink(sample_path(path, dir, "masks/pair.01.png")), 0);
    expect_refusal(config_of(dir), STATUS_INPUT, "masks/pair.01.png: missing", "pair.01.png");
    assert_int_equal(unlink(sample_path(path, dir, "masks/pair.00.png")), 0);
    assert_int_equal(rmdir(sample_path(path, dir, "masks")), 0);
    expect_refusal(config_of(dir), STATUS_INPUT, "/masks", "No such file");
    sample_path(path, dir, "train/images/x");
    expect_refusal(config_of(dir), STATUS_INPUT, "'train'", "no 'val' or 'test'");
}

static void masks_that_are_refused(void **state)
{
    char *dir = *state, path[SAMPLE_PATH_BYTES];
    static uint8_t wide[AREA * 8];
    write_pair(dir, 0, 1);
    write_pair(dir, 1, 1);
    for (int i = 0; i < 2; i++)
        write_mask(dir, i ? "masks/pair.01.png" : "masks/pair.00.png", SIZE / 2, 2 * SIZE, wide);
    expect_refusal(config_of(dir), STATUS_INPUT, "masks/pair.0", "8 x 32 pixels, but its image has 16 x 16");
    static const struct { int type, depth; const char *word; } kinds[] = {
        { PNG_COLOR_TYPE_RGB, 8, "colour type 2, 8 bits" }, { PNG_COLOR_TYPE_GRAY, 16, "colour type 0, 16 bits" },
        { PNG_COLOR_TYPE_GRAY_ALPHA, 8, "colour type 4, 8 bits" },
    };
    for (size_t k = 0; k < COUNT_OF(kinds); k++) {
        for (int i = 0; i < 2; i++)
            sample_write_png(sample_path(path, dir, i ? "masks/pair.01.png" : "masks/pair.00.png"), kinds[k].type, kinds[k].depth,
                             SIZE, SIZE, wide);
        expect_refusal(config_of(dir), STATUS_INPUT, kinds[k].word, "masks/pair.0");
    }
}

/* Cut at every length, and with every byte changed: never a crash, always a line or a mask. */
static void damaged_masks(void **state)
{
    char *dir = *state, path[SAMPLE_PATH_BYTES];
    uint8_t values[AREA];
    fill_mask(3, SIZE, 1, values);
    sample_write_png(sample_path(path, dir, "mask.png"), PNG_COLOR_TYPE_GRAY, 8, SIZE, SIZE, values);
    size_t bytes;
    uint8_t *whole = sample_read(path, &bytes);
    for (size_t n = 0; n < bytes; n++) {
        Image mask;
        sample_write(path, whole, n);
        expect_text(image_decode_mask(path, &mask), STATUS_INPUT, "mask.png: ", "");
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
    expect_text(image_decode_mask(path, &mask), STATUS_INPUT, "mask.png", "PNG");
    free(whole);
}

/* ---- batches ---- */

static LoaderConfig training(int64_t batch, int threads)
{
    return (LoaderConfig){ .split = SPLIT_TRAIN, .batch = batch, .threads = threads, .queue = 2, .seed = 5,
                           .shuffle = true, .augment = true, .repeat = true, .drop_last = true };
}

static LoaderConfig plain(int64_t batch, int threads)
{
    return (LoaderConfig){ .split = SPLIT_TRAIN, .batch = batch, .threads = threads, .queue = 1 };
}

static Loader *create_or_fail(const Dataset *ds, LoaderConfig config)
{
    Loader *loader = NULL;
    Status status = loader_create(ds, &config, &loader);
    if (status.code != STATUS_OK)
        fail_msg("loader_create: %s", status.text);
    return loader;
}

static const Batch *next_or_fail(Loader *loader)
{
    const Batch *batch = NULL;
    Status status = loader_next(loader, &batch);
    if (status.code != STATUS_OK)
        fail_msg("loader_next: %s", status.text);
    return batch;
}

static uint64_t hash_bytes(uint64_t hash, const void *data, size_t bytes) /* FNV-1a */
{
    const uint8_t *b = data;
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ b[i]) * UINT64_C(0x100000001B3);
    return hash;
}

static uint64_t hash_batch(const Batch *batch)
{
    uint64_t hash = hash_bytes(1, batch->pixels, (size_t)batch->size * AREA * 3);
    hash = hash_bytes(hash, batch->mask, (size_t)batch->size * AREA);
    int64_t rest[] = { batch->size, batch->valid, batch->labelled, batch->epoch, batch->index };
    return hash_bytes(hash, rest, sizeof rest);
}

static bool is_among(const uint8_t *mask)
{
    uint8_t want[AREA];
    for (int i = 0; i < PAIRS; i++) {
        fill_mask(i, SIZE, 1, want);
        if (memcmp(want, mask, AREA) == 0)
            return true;
    }
    return false;
}

static void augmentation_moves_both(void **state)
{
    write_pairs(*state, 255);
    Dataset *ds = open_or_fail(config_of(*state));
    Loader *loader = create_or_fail(ds, training(4, 2));
    int moved = 0;
    for (int b = 0; b < 50; b++) {
        const Batch *batch = next_or_fail(loader);
        assert_null(batch->labels);
        expect_alike(batch->pixels, batch->mask, 4 * AREA);
        assert_int_equal(batch->labelled, 4 * AREA); /* the padding is background, not ignored */
        for (int i = 0; i < 4; i++)
            moved += !is_among(batch->mask + i * AREA);
    }
    assert_in_range(moved, 150, 199); /* 1 of 25 shifts is none, and half of these are mirrored; some look alike */
    loader_destroy(loader);
    dataset_close(ds);
}

static void threads_do_not_matter(void **state)
{
    write_pairs(*state, 1);
    Dataset *ds = open_or_fail(config_of(*state));
    static const struct { int threads, hold; } cases[] = { { 0, 0 }, { 1, 1 }, { 2, 3 }, { 7, 2 }, { 0, 4 } };
    uint64_t want[12];
    for (size_t c = 0; c < COUNT_OF(cases); c++) {
        LoaderConfig config = training(4, cases[c].threads);
        config.hold = cases[c].hold;
        Loader *loader = create_or_fail(ds, config);
        for (int b = 0; b < 12; b++) {
            uint64_t hash = hash_batch(next_or_fail(loader));
            if (c == 0)
                want[b] = hash;
            assert_true(hash == want[b] && (b == 0 || hash != want[b - 1]));
        }
        loader_destroy(loader);
    }
    dataset_close(ds);
}

static void the_last_batch_is_filled_with_ignored_pixels(void **state)
{
    write_pairs(*state, 1);
    Dataset *ds = open_or_fail(config_of(*state));
    for (int threads = 0; threads < 3; threads += 2) {
        Loader *loader = create_or_fail(ds, plain(8, threads));
        for (int b = 0; b < 3; b++) {
            const Batch *batch = next_or_fail(loader);
            int64_t valid = b < 2 ? 8 : PAIRS - 2 - 16;
            assert_int_equal(batch->valid, valid);
            assert_int_equal(batch->labelled, valid * AREA);
            expect_alike(batch->pixels, batch->mask, valid * AREA);
            for (int64_t p = valid * AREA; p < 8 * AREA; p++)
                assert_true(batch->mask[p] == MASK_IGNORE && batch->pixels[3 * p] == 0 && batch->pixels[3 * p + 2] == 0);
        }
        assert_null(next_or_fail(loader));
        loader_destroy(loader);
    }
    dataset_close(ds);
}

static void ignored_pixels_are_not_counted(void **state)
{
    write_pairs(*state, 1);
    uint8_t values[AREA];
    char name[64];
    for (int i = 0; i < PAIRS; i++) { /* pair i: i + 1 ignored pixels, and one of class 1 that tells the code */
        memset(values, 255, (size_t)i + 1);
        memset(values + i + 1, 0, AREA - (size_t)i - 1);
        values[AREA - 1] = 1;
        snprintf(name, sizeof name, "masks/pair.%02d.png", i);
        write_mask(*state, name, SIZE, SIZE, values);
    }
    Dataset *ds = open_or_fail(config_of(*state));
    Loader *loader = create_or_fail(ds, plain(5, 2));
    int64_t samples = 0;
    for (const Batch *batch; (batch = next_or_fail(loader)) != NULL;) {
        int64_t counted = 0;
        for (int64_t p = 0; p < batch->size * AREA; p++)
            counted += batch->mask[p] != MASK_IGNORE;
        assert_int_equal(batch->labelled, counted);
        assert_true(counted < batch->valid * AREA && counted > batch->valid * (AREA - PAIRS - 1));
        samples += batch->valid;
    }
    assert_int_equal(samples, PAIRS - 2);
    loader_destroy(loader);
    dataset_close(ds);
}

/* A batch must not change until `hold` further calls; then its place may be used again, and is, for the memory is bounded. */
static void held_batches_stay(void **state)
{
    write_pairs(*state, 1);
    Dataset *ds = open_or_fail(config_of(*state));
    for (int threads = 0; threads < 3; threads++) {
        for (int hold = 1; hold <= 4; hold++) {
            enum { ROUNDS = 40 };
            LoaderConfig config = training(3, threads);
            config.hold = hold;
            Loader *loader = create_or_fail(ds, config);
            const Batch *batch[ROUNDS];
            uint64_t hash[ROUNDS];
            bool again = false;
            for (int b = 0; b < ROUNDS; b++) {
                batch[b] = next_or_fail(loader);
                hash[b] = hash_batch(batch[b]);
                if (threads && b % 8 == 0)
                    nanosleep(&(struct timespec){ 0, 2000000 }, NULL); /* let the threads run ahead as far as they may */
                for (int old = b; old > b - hold && old >= 0; old--) {
                    assert_true(hash_batch(batch[old]) == hash[old]);
                    assert_true(old == b || batch[old] != batch[b]);
                }
                for (int old = b - 1; old >= 0; old--)
                    again = again || batch[old] == batch[b];
            }
            assert_true(again);
            loader_destroy(loader);
        }
    }
    LoaderConfig wrong = training(3, 0);
    Loader *loader = NULL;
    wrong.hold = -1;
    expect_text(loader_create(ds, &wrong, &loader), STATUS_USAGE, "-1 batches to hold", "0..");
    wrong.hold = 5000;
    expect_text(loader_create(ds, &wrong, &loader), STATUS_USAGE, "5000 batches to hold", "0..");
    assert_null(loader);
    dataset_close(ds);
}

/* A classification set has labels and no masks; `hold` is for it too. */
static void classification_batches_have_labels(void **state)
{
    (void)state;
    Dataset *ds = open_or_fail((DatasetConfig){ .name = "shapes", .size = SIZE, .limit = 10 });
    assert_int_equal(dataset_task(ds), TASK_CLASSIFY);
    LoaderConfig config = plain(4, 2);
    config.hold = 2;
    Loader *loader = create_or_fail(ds, config);
    const Batch *before = NULL;
    for (int b = 0; b < 3; b++) {
        const Batch *batch = next_or_fail(loader);
        assert_null(batch->mask);
        assert_int_equal(batch->labelled, batch->valid);
        assert_int_equal(batch->labels[3] == -1, b == 2);
        assert_true(batch != before);
        before = batch;
    }
    loader_destroy(loader);
    dataset_close(ds);
}

static void an_unreadable_mask_ends_the_loader(void **state)
{
    write_pairs(*state, 255);
    Dataset *ds = open_or_fail(config_of(*state));
    char path[SAMPLE_PATH_BYTES];
    for (int i = 0; i < PAIRS; i++) {
        char name[64];
        snprintf(name, sizeof name, "masks/pair.%02d.png", i);
        sample_write(sample_path(path, *state, name), "not a mask", 10);
    }
    Loader *loader = create_or_fail(ds, plain(4, 2));
    const Batch *batch = NULL;
    expect_text(loader_next(loader, &batch), STATUS_INPUT, "masks/pair.0", "PNG");
    assert_null(batch);
    loader_destroy(loader);
    dataset_close(ds);
}

/* ---- memory ---- */

typedef struct Attempt {
    DatasetConfig data;
    LoaderConfig  loader;
} Attempt;

static Status open_and_load(void *context)
{
    Attempt *attempt = context;
    Dataset *ds;
    TRY(dataset_open(&attempt->data, &ds));
    Loader *loader = NULL;
    const Batch *batch = NULL;
    Status status = loader_create(ds, &attempt->loader, &loader);
    for (int b = 0; b < 3 && status.code == STATUS_OK; b++)
        status = loader_next(loader, &batch);
    loader_destroy(loader);
    dataset_close(ds);
    return status;
}

/* Three batches and no queue ahead: every read belongs to a batch that is asked for. */
static void no_memory_is_an_error_everywhere(void **state)
{
    for (int i = 0; i < 4; i++)
        write_pair(*state, i, 255);
    Attempt attempt = { config_of(*state), plain(1, 0) };
    attempt.data.size = 8; /* so that it resizes */
    attempt.loader.shuffle = attempt.loader.augment = true;
    attempt.loader.hold = 2;
    assert_true(fault_alloc_sweep(open_and_load, &attempt) > 50);
}

int main(void)
{
#define IN_A_NEW_FOLDER(test) cmocka_unit_test_setup_teardown(test, set_up_dir, remove_dir)
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
        IN_A_NEW_FOLDER(augmentation_moves_both),
        IN_A_NEW_FOLDER(threads_do_not_matter),
        IN_A_NEW_FOLDER(the_last_batch_is_filled_with_ignored_pixels),
        IN_A_NEW_FOLDER(ignored_pixels_are_not_counted),
        IN_A_NEW_FOLDER(held_batches_stay),
        cmocka_unit_test(classification_batches_have_labels),
        IN_A_NEW_FOLDER(an_unreadable_mask_ends_the_loader),
        IN_A_NEW_FOLDER(no_memory_is_an_error_everywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
