/* test_loader.c - batches: the same for any number of threads, every sample once an epoch, ends, errors, shutdown. */
#include "fault_alloc.h"
#include "open_data.h"
#include "sample_files.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

enum { SIZE = 16, BYTES = SIZE * SIZE * 3, SAMPLES = 37 };

static int open_shapes(void **state)
{
    *state = data_open_or_fail((DatasetConfig){ .name = "shapes", .size = SIZE, .seed = 3, .limit = SAMPLES });
    return 0;
}

static int close_shapes(void **state)
{
    dataset_close(*state);
    return 0;
}

static LoaderConfig training(int64_t batch, int threads)
{
    return (LoaderConfig){ .split = SPLIT_TRAIN, .batch = batch, .threads = threads, .queue = 2, .seed = 5,
                           .shuffle = true, .augment = true, .repeat = true, .drop_last = true };
}

static LoaderConfig plain(int64_t batch, int threads)
{
    return (LoaderConfig){ .split = SPLIT_TRAIN, .batch = batch, .threads = threads, .queue = 1, .seed = 5 };
}

static uint64_t hash_batch(const Batch *batch)
{
    uint64_t hash = data_hash(1, batch->pixels, (size_t)batch->size * BYTES);
    hash = data_hash(hash, batch->labels, (size_t)batch->size * sizeof *batch->labels);
    int64_t rest[] = { batch->size, batch->valid, batch->epoch, batch->index };
    return data_hash(hash, rest, sizeof rest);
}

/* Which sample of the split has these pixels? -1: none. Samples are told apart by all their bytes. */
static int64_t find_sample(const Dataset *ds, const uint8_t *pixels)
{
    for (int64_t i = 0; i < dataset_count(ds, SPLIT_TRAIN); i++) {
        uint8_t want[BYTES];
        int32_t label;
        assert_int_equal(dataset_read(ds, SPLIT_TRAIN, i, want, &label).code, STATUS_OK);
        if (memcmp(want, pixels, BYTES) == 0)
            return i;
    }
    return -1;
}

/* ---- determinism and order ---- */

static void batches_are_the_same_for_any_number_of_threads(void **state)
{
    enum { BATCHES = 20 };
    static const struct { int threads, queue; } cases[] = { { 0, 1 }, { 1, 1 }, { 1, 3 }, { 2, 1 }, { 3, 2 }, { 8, 5 } };
    for (int fill = 0; fill < 2; fill++) {
        uint64_t want[BATCHES];
        for (size_t c = 0; c < COUNT_OF(cases); c++) {
            LoaderConfig config = training(8, cases[c].threads);
            config.queue = cases[c].queue;
            config.drop_last = !fill;
            Loader *loader = loader_create_or_fail(*state, config);
            for (int b = 0; b < BATCHES; b++) {
                uint64_t hash = hash_batch(loader_next_or_fail(loader));
                if (c == 0)
                    want[b] = hash;
                assert_int_equal(hash, want[b]);
            }
            loader_destroy(loader);
        }
        for (int b = 1; b < BATCHES; b++)
            assert_int_not_equal(want[b], want[b - 1]);
    }
}

static void another_seed_gives_other_batches(void **state)
{
    LoaderConfig config = training(8, 0);
    Loader *one = loader_create_or_fail(*state, config);
    config.seed++;
    Loader *two = loader_create_or_fail(*state, config);
    assert_int_not_equal(hash_batch(loader_next_or_fail(one)), hash_batch(loader_next_or_fail(two)));
    loader_destroy(one);
    loader_destroy(two);
}

static void every_sample_comes_once_an_epoch(void **state)
{
    LoaderConfig config = plain(8, 2);
    config.shuffle = config.repeat = true;
    Loader *loader = loader_create_or_fail(*state, config);
    int64_t order[3][SAMPLES];
    for (int epoch = 0; epoch < 3; epoch++) {
        bool seen[SAMPLES] = { false };
        int64_t at = 0;
        for (int64_t b = 0; b < loader_batches(loader); b++) {
            const Batch *batch = loader_next_or_fail(loader);
            assert_int_equal(batch->epoch, epoch);
            assert_int_equal(batch->index, b);
            for (int64_t i = 0; i < batch->valid; i++) {
                int64_t sample = find_sample(*state, batch->pixels + i * BYTES);
                assert_in_range(sample, 0, SAMPLES - 1);
                assert_false(seen[sample]);
                seen[sample] = true;
                order[epoch][at++] = sample;
            }
        }
        assert_int_equal(at, SAMPLES);
    }
    assert_memory_not_equal(order[0], order[1], sizeof order[0]);
    assert_memory_not_equal(order[1], order[2], sizeof order[0]);
    loader_destroy(loader);
}

static void without_shuffle_the_order_is_the_index(void **state)
{
    Loader *loader = loader_create_or_fail(*state, plain(5, 2));
    int64_t at = 0;
    for (const Batch *batch; (batch = loader_next_or_fail(loader)) != NULL;)
        for (int64_t i = 0; i < batch->valid; i++) {
            uint8_t want[BYTES];
            int32_t label;
            assert_int_equal(dataset_read(*state, SPLIT_TRAIN, at++, want, &label).code, STATUS_OK);
            assert_memory_equal(batch->pixels + i * BYTES, want, BYTES);
            assert_int_equal(batch->labels[i], label);
        }
    assert_int_equal(at, SAMPLES);
    loader_destroy(loader);
}

/* ---- the end of an epoch ---- */

static void the_last_batch_is_filled_up_or_dropped(void **state)
{
    for (int threads = 0; threads < 3; threads++) {
        LoaderConfig config = plain(10, threads);
        Loader *loader = loader_create_or_fail(*state, config);
        assert_int_equal(loader_batches(loader), 4);
        const Batch *batch = NULL;
        for (int b = 0; b < 4; b++) {
            batch = loader_next_or_fail(loader);
            assert_int_equal(batch->valid, b < 3 ? 10 : 7);
            assert_int_equal(batch->size, 10);
        }
        for (int64_t i = 7; i < 10; i++) {
            assert_int_equal(batch->labels[i], -1);
            for (int64_t p = 0; p < BYTES; p++)
                assert_int_equal(batch->pixels[i * BYTES + p], 0);
        }
        assert_null(loader_next_or_fail(loader));
        assert_null(loader_next_or_fail(loader)); /* and stays so */
        loader_destroy(loader);

        config.drop_last = true;
        loader = loader_create_or_fail(*state, config);
        assert_int_equal(loader_batches(loader), 3);
        for (int b = 0; b < 3; b++)
            assert_int_equal(loader_next_or_fail(loader)->valid, 10);
        assert_null(loader_next_or_fail(loader));
        loader_destroy(loader);
    }
}

static void a_batch_may_be_larger_than_the_split(void **state)
{
    LoaderConfig config = plain(100, 2);
    config.repeat = config.shuffle = true;
    Loader *loader = loader_create_or_fail(*state, config);
    for (int64_t epoch = 0; epoch < 3; epoch++) {
        const Batch *batch = loader_next_or_fail(loader);
        assert_true(batch->valid == SAMPLES && batch->size == 100 && batch->epoch == epoch && batch->index == 0);
    }
    loader_destroy(loader);
}

/* ---- augmentation ---- */

/* Is `out` the picture `in` shifted by at most SIZE / 8, zeros moving in, and mirrored or not? */
static bool is_shifted(const uint8_t *in, const uint8_t *out, int dx, int dy, bool flip)
{
    for (int y = 0; y < SIZE; y++) {
        for (int x = 0; x < SIZE; x++) {
            int fx = (flip ? SIZE - 1 - x : x) + dx, fy = y + dy;
            bool inside = fx >= 0 && fx < SIZE && fy >= 0 && fy < SIZE;
            for (int c = 0; c < 3; c++)
                if (out[3 * (y * SIZE + x) + c] != (inside ? in[3 * (fy * SIZE + fx) + c] : 0))
                    return false;
        }
    }
    return true;
}

/* Runs `epochs` unshuffled, augmented epochs; counts how often each shift and each mirroring was met. */
static void count_augmentations(const Dataset *ds, int epochs, int shifts[5][5], int flips[2])
{
    LoaderConfig config = plain(1, 2);
    config.augment = config.repeat = true;
    Loader *loader = loader_create_or_fail(ds, config);
    int64_t n = dataset_count(ds, SPLIT_TRAIN);
    for (int64_t k = 0; k < n * epochs; k++) {
        const Batch *batch = loader_next_or_fail(loader);
        uint8_t in[BYTES];
        int32_t label;
        assert_int_equal(dataset_read(ds, SPLIT_TRAIN, k % n, in, &label).code, STATUS_OK);
        assert_int_equal(batch->labels[0], label);
        int found = 0;
        for (int code = 0; code < 50; code++) {
            int dx = code % 5 - 2, dy = code / 5 % 5 - 2, flip = code / 25;
            if (is_shifted(in, batch->pixels, dx, dy, flip)) {
                shifts[dy + 2][dx + 2]++;
                flips[flip]++;
                found++;
            }
        }
        assert_int_equal(found, 1);
    }
    loader_destroy(loader);
}

static void augmentation_shifts_and_keeps_the_direction_of_stripes(void **state)
{
    int shifts[5][5] = { { 0 } }, flips[2] = { 0 };
    count_augmentations(*state, 20, shifts, flips);
    for (int i = 0; i < 25; i++)
        assert_in_range(shifts[i / 5][i % 5], 5, 70); /* 740 / 25 = 30 expected */
    assert_int_equal(flips[1], 0); /* a mirrored slash is a backslash */
}

static void augmentation_mirrors_half_of_fashion(void **state)
{
    (void)state;
    char dir[SAMPLE_PATH_BYTES];
    sample_make_dir(dir);
    sample_write_fashion(dir);
    Dataset *ds = data_open_or_fail((DatasetConfig){ .name = "fashion-mnist", .dir = dir, .size = SIZE });
    int shifts[5][5] = { { 0 } }, flips[2] = { 0 };
    count_augmentations(ds, 20, shifts, flips);
    assert_int_equal(flips[0] + flips[1], 20 * SAMPLE_TRAIN);
    assert_in_range(flips[1], 10 * SAMPLE_TRAIN - 54, 10 * SAMPLE_TRAIN + 54); /* five standard deviations */
    dataset_close(ds);
    sample_remove_tree(dir);
}

/* ---- errors, waiting, shutdown ---- */

static void an_unreadable_sample_ends_the_loader_with_its_error(void **state)
{
    (void)state;
    char dir[SAMPLE_PATH_BYTES], path[SAMPLE_PATH_BYTES];
    sample_make_dir(dir);
    for (int i = 0; i < 20; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s/c/%02d.png", i < 12 ? "train" : "val", i);
        sample_write_picture(sample_path(path, dir, name), SIZE, SIZE, 10 * i);
    }
    Dataset *ds = data_open_or_fail((DatasetConfig){ .name = "folder", .dir = dir, .size = SIZE });
    sample_write(sample_path(path, dir, "train/c/07.png"), "broken", 6); /* after opening; in the third batch of 3 */
    sample_write(sample_path(path, dir, "train/c/08.png"), "broken", 6); /* the same batch: 07 is reported */
    static const int threads[] = { 0, 1, 2, 7 };
    for (size_t t = 0; t < COUNT_OF(threads); t++) {
        LoaderConfig config = plain(3, threads[t]);
        config.queue = 4;
        Loader *loader = loader_create_or_fail(ds, config);
        assert_non_null(loader_next_or_fail(loader));
        assert_non_null(loader_next_or_fail(loader));
        for (int again = 0; again < 3; again++) {
            const Batch *batch;
            Status status = loader_next(loader, &batch);
            assert_null(batch);
            assert_int_equal(status.code, STATUS_INPUT);
            if (!strstr(status.text, "train/c/07.png: "))
                fail_msg("expected the name of 07.png: %s", status.text);
        }
        loader_destroy(loader);
    }
    dataset_close(ds);
    sample_remove_tree(dir);
}

static void stopping_in_the_middle_neither_hangs_nor_leaks(void **state)
{
    int64_t live = fault_alloc_live();
    for (int round = 0; round < 200; round++) {
        LoaderConfig config = training(1 + round % 9, round % 6);
        config.queue = 1 + round % 3;
        Loader *loader = loader_create_or_fail(*state, config);
        for (int taken = 0; taken < round % 5; taken++)
            assert_non_null(loader_next_or_fail(loader));
        if (round % 20 == 19) /* let the queue run full, so that all threads wait */
            nanosleep(&(struct timespec){ 0, 5 * 1000 * 1000 }, NULL);
        loader_destroy(loader);
    }
    loader_destroy(NULL);
    assert_int_equal(fault_alloc_live(), live);
}

static void the_batch_in_hand_is_not_touched_by_the_threads(void **state)
{
    LoaderConfig config = training(4, 4);
    Loader *loader = loader_create_or_fail(*state, config);
    for (int b = 0; b < 10; b++) {
        const Batch *batch = loader_next_or_fail(loader);
        uint64_t hash = hash_batch(batch);
        nanosleep(&(struct timespec){ 0, 2 * 1000 * 1000 }, NULL);
        assert_int_equal(hash_batch(batch), hash);
    }
    loader_destroy(loader);
}

static void waiting_is_accounted(void **state)
{
    for (int threads = 0; threads < 2; threads++) {
        Loader *loader = loader_create_or_fail(*state, training(SAMPLES, threads));
        assert_true(loader_wait_seconds(loader) == 0.0);
        double start = clock_seconds(), before = 0;
        for (int b = 0; b < 5; b++) {
            assert_non_null(loader_next_or_fail(loader));
            assert_true(loader_wait_seconds(loader) > before);
            before = loader_wait_seconds(loader);
        }
        assert_true(before <= clock_seconds() - start);
        loader_destroy(loader);
    }
}

static void expect_usage_error(const Dataset *ds, LoaderConfig config, const char *word)
{
    Loader *loader;
    Status status = loader_create(ds, &config, &loader);
    assert_null(loader);
    if (status.code != STATUS_USAGE || !strstr(status.text, word))
        fail_msg("expected usage with '%s', got %s: %s", word, status_code_name(status.code), status.text);
}

static void bad_configs_are_usage_errors(void **state)
{
    expect_usage_error(*state, training(0, 0), "batch size 0");
    expect_usage_error(*state, training(-3, 0), "batch size -3");
    expect_usage_error(*state, training(SAMPLES + 1, 0), "larger than the 37 samples");
    expect_usage_error(*state, training(1, -1), "-1 loader threads");
    expect_usage_error(*state, training(1, 257), "257 loader threads");
    LoaderConfig config = training(1, 0);
    config.queue = 0;
    expect_usage_error(*state, config, "queue of 0");
    config = plain(INT64_MAX, 0); /* more than there are addresses */
    Loader *loader;
    Status status = loader_create(*state, &config, &loader);
    assert_int_equal(status.code, STATUS_OOM);
    assert_null(loader);
}

typedef struct Attempt {
    const Dataset *ds;
    LoaderConfig   config;
} Attempt;

static Status create_and_take(void *context)
{
    Attempt *attempt = context;
    Loader *loader;
    TRY(loader_create(attempt->ds, &attempt->config, &loader));
    Status status = status_ok();
    const Batch *batch = NULL;
    for (int b = 0; b < 3 && status.code == STATUS_OK; b++)
        status = loader_next(loader, &batch);
    loader_destroy(loader);
    return status;
}

/* Fashion-MNIST allocates while it resizes, so the faults also strike inside reads, in the caller and in threads.
 * Three batches and no queue ahead: every read belongs to a batch that is asked for. */
static void no_memory_is_an_error_everywhere(void **state)
{
    (void)state;
    char dir[SAMPLE_PATH_BYTES];
    sample_make_dir(dir);
    sample_write_fashion(dir);
    Dataset *ds = data_open_or_fail((DatasetConfig){ .name = "fashion-mnist", .dir = dir, .size = SIZE });
    for (int threads = 0; threads < 3; threads += 2) {
        Attempt attempt = { ds, plain(8, threads) };
        attempt.config.shuffle = attempt.config.augment = true;
        assert_true(fault_alloc_sweep(create_and_take, &attempt) > 100);
    }
    dataset_close(ds);
    sample_remove_tree(dir);
}

int main(void)
{
#define ON_SHAPES(test) cmocka_unit_test_setup_teardown(test, open_shapes, close_shapes)
    const struct CMUnitTest tests[] = {
        ON_SHAPES(batches_are_the_same_for_any_number_of_threads),
        ON_SHAPES(another_seed_gives_other_batches),
        ON_SHAPES(every_sample_comes_once_an_epoch),
        ON_SHAPES(without_shuffle_the_order_is_the_index),
        ON_SHAPES(the_last_batch_is_filled_up_or_dropped),
        ON_SHAPES(a_batch_may_be_larger_than_the_split),
        ON_SHAPES(augmentation_shifts_and_keeps_the_direction_of_stripes),
        cmocka_unit_test(augmentation_mirrors_half_of_fashion),
        cmocka_unit_test(an_unreadable_sample_ends_the_loader_with_its_error),
        ON_SHAPES(stopping_in_the_middle_neither_hangs_nor_leaks),
        ON_SHAPES(the_batch_in_hand_is_not_touched_by_the_threads),
        ON_SHAPES(waiting_is_accounted),
        ON_SHAPES(bad_configs_are_usage_errors),
        cmocka_unit_test(no_memory_is_an_error_everywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
