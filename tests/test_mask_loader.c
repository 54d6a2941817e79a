/* test_mask_loader.c - batches with masks: image and mask move alike, any number of threads gives the same, held batches
 * stay as they are, the end is filled with ignored pixels. */
#include "fault_alloc.h"
#include "mask_files.h"
#include "open_data.h"
#include "sample_files.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

enum { SIZE = MASK_SIZE, AREA = MASK_AREA, PAIRS = MASK_PAIRS };

/* ---- helpers ---- */

static LoaderConfig training(int64_t batch, int threads)
{
    return (LoaderConfig){ .split = SPLIT_TRAIN, .batch = batch, .threads = threads, .queue = 2, .seed = 5,
                           .shuffle = true, .augment = true, .repeat = true, .drop_last = true };
}

static LoaderConfig plain(int64_t batch, int threads)
{
    return (LoaderConfig){ .split = SPLIT_TRAIN, .batch = batch, .threads = threads, .queue = 1 };
}

static uint64_t hash_batch(const Batch *batch)
{
    uint64_t hash = data_hash(1, batch->pixels, (size_t)batch->size * AREA * 3);
    hash = data_hash(hash, batch->mask, (size_t)batch->size * AREA);
    int64_t rest[] = { batch->size, batch->valid, batch->labelled, batch->epoch, batch->index };
    return data_hash(hash, rest, sizeof rest);
}

static bool is_among(const uint8_t *mask)
{
    uint8_t want[AREA];
    for (int i = 0; i < PAIRS; i++) {
        mask_fill(i, SIZE, 1, want);
        if (memcmp(want, mask, AREA) == 0)
            return true;
    }
    return false;
}

static void augmentation_moves_both(void **state)
{
    mask_write_pairs(*state, 255);
    Dataset *ds = data_open_or_fail(mask_config(*state));
    Loader *loader = loader_create_or_fail(ds, training(4, 2));
    int moved = 0;
    for (int b = 0; b < 50; b++) {
        const Batch *batch = loader_next_or_fail(loader);
        assert_null(batch->labels);
        mask_expect_alike(batch->pixels, batch->mask, 4 * AREA);
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
    mask_write_pairs(*state, 1);
    Dataset *ds = data_open_or_fail(mask_config(*state));
    static const struct { int threads, hold; } cases[] = { { 0, 0 }, { 1, 1 }, { 2, 3 }, { 7, 2 }, { 0, 4 } };
    uint64_t want[12];
    for (size_t c = 0; c < COUNT_OF(cases); c++) {
        LoaderConfig config = training(4, cases[c].threads);
        config.hold = cases[c].hold;
        Loader *loader = loader_create_or_fail(ds, config);
        for (int b = 0; b < 12; b++) {
            uint64_t hash = hash_batch(loader_next_or_fail(loader));
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
    mask_write_pairs(*state, 1);
    Dataset *ds = data_open_or_fail(mask_config(*state));
    for (int threads = 0; threads < 3; threads += 2) {
        Loader *loader = loader_create_or_fail(ds, plain(8, threads));
        for (int b = 0; b < 3; b++) {
            const Batch *batch = loader_next_or_fail(loader);
            int64_t valid = b < 2 ? 8 : PAIRS - 2 - 16;
            assert_int_equal(batch->valid, valid);
            assert_int_equal(batch->labelled, valid * AREA);
            mask_expect_alike(batch->pixels, batch->mask, valid * AREA);
            for (int64_t p = valid * AREA; p < 8 * AREA; p++)
                assert_true(batch->mask[p] == MASK_IGNORE && batch->pixels[3 * p] == 0 && batch->pixels[3 * p + 2] == 0);
        }
        assert_null(loader_next_or_fail(loader));
        loader_destroy(loader);
    }
    dataset_close(ds);
}

static void ignored_pixels_are_not_counted(void **state)
{
    mask_write_pairs(*state, 1);
    uint8_t values[AREA];
    char name[64];
    for (int i = 0; i < PAIRS; i++) { /* pair i: i + 1 ignored pixels, and one of class 1 that tells the code */
        memset(values, 255, (size_t)i + 1);
        memset(values + i + 1, 0, AREA - (size_t)i - 1);
        values[AREA - 1] = 1;
        snprintf(name, sizeof name, "masks/pair.%02d.png", i);
        mask_write(*state, name, SIZE, SIZE, values);
    }
    Dataset *ds = data_open_or_fail(mask_config(*state));
    Loader *loader = loader_create_or_fail(ds, plain(5, 2));
    int64_t samples = 0;
    for (const Batch *batch; (batch = loader_next_or_fail(loader)) != NULL;) {
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
    mask_write_pairs(*state, 1);
    Dataset *ds = data_open_or_fail(mask_config(*state));
    for (int threads = 0; threads < 3; threads++) {
        for (int hold = 1; hold <= 4; hold++) {
            enum { ROUNDS = 40 };
            LoaderConfig config = training(3, threads);
            config.hold = hold;
            Loader *loader = loader_create_or_fail(ds, config);
            const Batch *batch[ROUNDS];
            uint64_t hash[ROUNDS];
            bool again = false;
            for (int b = 0; b < ROUNDS; b++) {
                batch[b] = loader_next_or_fail(loader);
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
    data_expect_error(loader_create(ds, &wrong, &loader), STATUS_USAGE, "-1 batches to hold", "0..");
    wrong.hold = 5000;
    data_expect_error(loader_create(ds, &wrong, &loader), STATUS_USAGE, "5000 batches to hold", "0..");
    assert_null(loader);
    dataset_close(ds);
}

/* A classification set has labels and no masks; `hold` is for it too. */
static void classification_batches_have_labels(void **state)
{
    (void)state;
    Dataset *ds = data_open_or_fail((DatasetConfig){ .name = "shapes", .size = SIZE, .limit = 10 });
    assert_int_equal(dataset_task(ds), TASK_CLASSIFY);
    LoaderConfig config = plain(4, 2);
    config.hold = 2;
    Loader *loader = loader_create_or_fail(ds, config);
    const Batch *before = NULL;
    for (int b = 0; b < 3; b++) {
        const Batch *batch = loader_next_or_fail(loader);
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
    mask_write_pairs(*state, 255);
    Dataset *ds = data_open_or_fail(mask_config(*state));
    char path[SAMPLE_PATH_BYTES];
    for (int i = 0; i < PAIRS; i++) {
        char name[64];
        snprintf(name, sizeof name, "masks/pair.%02d.png", i);
        sample_write(sample_path(path, *state, name), "not a mask", 10);
    }
    Loader *loader = loader_create_or_fail(ds, plain(4, 2));
    const Batch *batch = NULL;
    data_expect_error(loader_next(loader, &batch), STATUS_INPUT, "masks/pair.0", "PNG");
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
        mask_write_pair(*state, i, 255);
    Attempt attempt = { mask_config(*state), plain(1, 0) };
    attempt.data.size = 8; /* so that it resizes */
    attempt.loader.shuffle = attempt.loader.augment = true;
    attempt.loader.hold = 2;
    assert_true(fault_alloc_sweep(open_and_load, &attempt) > 50);
}

int main(void)
{
#define IN_A_NEW_FOLDER(test) cmocka_unit_test_setup_teardown(test, sample_setup, sample_teardown)
    const struct CMUnitTest tests[] = {
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
