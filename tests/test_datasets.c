/* test_datasets.c - what all sources share, Fashion-MNIST with every defect its files can have, and the generator. */
#include "fault_alloc.h"
#include "open_data.h"
#include "sample_files.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static const char train_images[] = "train-images-idx3-ubyte.gz", train_labels[] = "train-labels-idx1-ubyte.gz";
static const char test_images[] = "t10k-images-idx3-ubyte.gz", test_labels[] = "t10k-labels-idx1-ubyte.gz";

static DatasetConfig config_of(const char *name, const char *dir, int64_t size)
{
    return (DatasetConfig){ .name = name, .dir = dir, .size = size, .seed = 1 };
}

static const uint64_t hash_start = UINT64_C(0xCBF29CE484222325);

static uint64_t hash_sample(const Dataset *ds, Split split, int64_t index)
{
    size_t bytes = (size_t)(dataset_size(ds) * dataset_size(ds)) * 3;
    uint8_t *pixels = malloc(bytes);
    assert_non_null(pixels);
    int32_t label;
    assert_int_equal(dataset_read(ds, split, index, pixels, &label).code, STATUS_OK);
    uint64_t hash = data_hash(data_hash(hash_start, pixels, bytes), &label, sizeof label);
    free(pixels);
    return hash;
}

static int compare_hashes(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* The sorted hashes of a split, to be freed. */
static uint64_t *hash_split(const Dataset *ds, Split split)
{
    int64_t n = dataset_count(ds, split);
    uint64_t *hashes = malloc((size_t)n * sizeof *hashes);
    assert_non_null(hashes);
    for (int64_t i = 0; i < n; i++)
        hashes[i] = hash_sample(ds, split, i);
    qsort(hashes, (size_t)n, sizeof *hashes, compare_hashes);
    return hashes;
}

/* ---- the config ---- */

static void bad_configs_are_usage_errors(void **state)
{
    (void)state;
    DatasetConfig c = config_of("cifar", NULL, 32);
    data_expect_refusal(c, STATUS_USAGE, "'cifar'", "fashion-mnist, folder, shapes");
    data_expect_refusal(config_of(NULL, NULL, 32), STATUS_USAGE, "''", "unknown");
    data_expect_refusal(config_of("shapes", NULL, 7), STATUS_USAGE, "size 7", "8..4096");
    data_expect_refusal(config_of("shapes", NULL, 4097), STATUS_USAGE, "size 4097", "8..4096");
    data_expect_refusal(config_of("shapes", NULL, -1), STATUS_USAGE, "size -1", "8..4096");
    data_expect_refusal(config_of("shapes", "/tmp", 32), STATUS_USAGE, "shapes", "/tmp");
    data_expect_refusal(config_of("folder", NULL, 32), STATUS_USAGE, "folder", "directory");
    data_expect_refusal(config_of("folder", "", 32), STATUS_USAGE, "folder", "directory");
    c = config_of("shapes", NULL, 32);
    c.limit = -1;
    data_expect_refusal(c, STATUS_USAGE, "limit -1", "negative");
    c.limit = 0;
    static const double bad_noise[] = { -0.1, 1.1, (double)NAN, (double)INFINITY };
    for (size_t i = 0; i < COUNT_OF(bad_noise); i++) {
        c.label_noise = bad_noise[i];
        data_expect_refusal(c, STATUS_USAGE, "label noise", "0..1");
    }
    c = config_of("fashion-mnist", NULL, 28);
    c.label_noise = 0.1;
    data_expect_refusal(c, STATUS_USAGE, "label noise", "generated");
}

static void closing_nothing_is_fine(void **state)
{
    (void)state;
    dataset_close(NULL);
}

/* ---- Fashion-MNIST ---- */

static void small_fashion_is_read_exactly(void **state)
{
    const char *dir = *state;
    Dataset *ds = data_open_or_fail(config_of("fashion-mnist", dir, 28));
    assert_int_equal(dataset_count(ds, SPLIT_TRAIN), SAMPLE_TRAIN);
    assert_int_equal(dataset_count(ds, SPLIT_TEST), SAMPLE_TEST);
    assert_int_equal(dataset_classes(ds), 10);
    assert_int_equal(dataset_size(ds), 28);
    assert_string_equal(dataset_class_name(ds, 9), "Ankle boot");
    assert_non_null(strstr(dataset_describe(ds), "23 train + 11 test"));
    double sum = 0, squares = 0;
    for (Split split = SPLIT_TRAIN; split < SPLIT_COUNT; split++) {
        for (int64_t i = 0; i < dataset_count(ds, split); i++) {
            uint8_t pixels[784 * 3];
            int32_t label;
            assert_int_equal(dataset_read(ds, split, i, pixels, &label).code, STATUS_OK);
            assert_int_equal(label, (i + split) % 10);
            for (int64_t p = 0; p < 784; p++) {
                uint8_t want = sample_fashion_pixel(split, i, p);
                for (int c = 0; c < 3; c++)
                    assert_int_equal(pixels[3 * p + c], want);
                if (split == SPLIT_TRAIN) {
                    sum += want / 255.0;
                    squares += want / 255.0 * want / 255.0;
                }
            }
        }
    }
    float mean[3], deviation[3];
    dataset_channel_stats(ds, mean, deviation);
    double n = SAMPLE_TRAIN * 784.0, want = sum / n;
    for (int c = 0; c < 3; c++) {
        assert_true(fabs(mean[c] - want) < 1e-6);
        assert_true(fabs(deviation[c] - sqrt(squares / n - want * want)) < 1e-6);
    }
    dataset_close(ds);
}

static void fashion_is_resized_to_any_size(void **state)
{
    const char *dir = *state;
    static const int64_t sizes[] = { 8, 14, 27, 29, 32, 56, 100 };
    for (size_t s = 0; s < COUNT_OF(sizes); s++) {
        int64_t size = sizes[s];
        Dataset *ds = data_open_or_fail(config_of("fashion-mnist", dir, size));
        uint8_t *pixels = malloc((size_t)(size * size) * 3);
        assert_non_null(pixels);
        int32_t label;
        assert_int_equal(dataset_read(ds, SPLIT_TRAIN, 0, pixels, &label).code, STATUS_OK);
        /* Image 0 is the plane 3 x + y, which a linear filter keeps away from the border. */
        for (int64_t y = size / 4; y < size * 3 / 4; y++) {
            for (int64_t x = size / 4; x < size * 3 / 4; x++) {
                double want = 3 * (((double)x + 0.5) * 28 / (double)size - 0.5) +
                              ((double)y + 0.5) * 28 / (double)size - 0.5;
                const uint8_t *rgb = pixels + 3 * (y * size + x);
                assert_true(fabs(rgb[0] - want) <= 1.01); /* two roundings to whole numbers */
                assert_true(rgb[0] == rgb[1] && rgb[1] == rgb[2]);
            }
        }
        free(pixels);
        dataset_close(ds);
    }
}

/* A file of the small set with other contents, and what the error must say about it. */
typedef struct Defect {
    const char *file;
    uint32_t    magic;
    int         dims;
    uint32_t    dim[3];
    size_t      bytes;
    int         value; /* of all data bytes */
    const char *word;
} Defect;

static const Defect defects[] = {
    { train_images, 0x802, 3, { 23, 28, 28 }, 23 * 784, 0, "magic 0x00000802, expected 0x00000803" },
    { train_labels, 0x8, 1, { 23 }, 23, 0, "magic 0x00000008, expected 0x00000801" },
    { train_images, 0x801, 1, { 23 }, 23, 0, "swapped" },
    { train_labels, 0x803, 3, { 23, 28, 28 }, 23 * 784, 0, "swapped" },
    { train_images, 0x803, 3, { 23, 32, 28 }, 23 * 784, 0, "rows 32, expected 28" },
    { train_images, 0x803, 3, { 23, 28, 0 }, 23 * 784, 0, "columns 0, expected 28" },
    { test_images, 0x803, 3, { 0, 28, 28 }, 0, 0, "count 0, expected 1..10000000" },
    { test_images, 0x803, 3, { 0xFFFFFFFF, 28, 28 }, 784, 0, "count 4294967295, expected 1..10000000" },
    { test_labels, 0x801, 1, { 10000001 }, 11, 0, "count 10000001, expected" },
    { test_images, 0x803, 3, { 11, 28, 28 }, 11 * 784 - 1, 0, "pixel data ends after 8623 of 8624 bytes" },
    { test_images, 0x803, 3, { 11, 28, 28 }, 11 * 784 + 1, 0, "more data than the header" },
    { test_labels, 0x801, 1, { 11 }, 10, 0, "label data ends after 10 of 11 bytes" },
    { test_labels, 0x801, 1, { 11 }, 12, 0, "more data than the header" },
    { test_labels, 0x801, 1, { 12 }, 12, 0, "holds 11 images but" },
    { train_images, 0x803, 3, { 22, 28, 28 }, 22 * 784, 0, "holds 22 images but" },
    { train_labels, 0x801, 1, { 23 }, 23, 10, "label 0 is 10, expected 0..9" },
    { test_labels, 0x801, 1, { 11 }, 11, 255, "label 0 is 255, expected 0..9" },
    { train_images, 0x803, 1, { 23 }, 0, 0, "IDX header ends after 8 of 16 bytes" },
    { train_labels, 0x801, 0, { 0 }, 0, 0, "IDX header ends after 4 of 8 bytes" },
};

static void every_idx_defect_names_file_and_field(void **state)
{
    const char *dir = *state;
    for (size_t i = 0; i < COUNT_OF(defects); i++) {
        const Defect *d = &defects[i];
        char path[SAMPLE_PATH_BYTES];
        sample_write_fashion(dir);
        uint8_t *data = malloc(d->bytes + 1);
        assert_non_null(data);
        memset(data, d->value, d->bytes);
        sample_write_idx(sample_path(path, dir, d->file), d->magic, d->dims, d->dim, data, d->bytes);
        free(data);
        data_expect_refusal(config_of("fashion-mnist", dir, 28), STATUS_INPUT, d->word, d->file);
    }
    sample_write_fashion(dir);
}

static void whole_files_swapped_are_noticed(void **state)
{
    const char *dir = *state;
    char a[SAMPLE_PATH_BYTES], b[SAMPLE_PATH_BYTES], c[SAMPLE_PATH_BYTES];
    sample_path(c, dir, "aside");
    sample_path(a, dir, train_images);
    sample_path(b, dir, train_labels);
    assert_true(rename(a, c) == 0 && rename(b, a) == 0 && rename(c, b) == 0);
    data_expect_refusal(config_of("fashion-mnist", dir, 28), STATUS_INPUT, train_images, "swapped");
    sample_write_fashion(dir);
    sample_path(b, dir, test_images); /* train images for test images: the counts disagree */
    assert_true(rename(a, c) == 0 && rename(b, a) == 0 && rename(c, b) == 0);
    data_expect_refusal(config_of("fashion-mnist", dir, 28), STATUS_INPUT, "11 images", "23 labels");
    sample_write_fashion(dir);
}

static void a_file_cut_anywhere_is_refused(void **state)
{
    const char *dir = *state;
    static const char *const files[] = { train_images, test_labels };
    for (size_t f = 0; f < COUNT_OF(files); f++) {
        char path[SAMPLE_PATH_BYTES];
        size_t bytes;
        uint8_t *data = sample_read(sample_path(path, dir, files[f]), &bytes);
        size_t step = bytes > 400 ? bytes / 200 : 1;
        for (size_t length = 0; length < bytes; length += length + 12 < bytes ? step : 1) {
            sample_write(path, data, length);
            data_expect_refusal(config_of("fashion-mnist", dir, 28), STATUS_INPUT, files[f], "cut short");
        }
        sample_write(path, data, bytes);
        free(data);
    }
}

static void trailing_bytes_are_refused(void **state)
{
    const char *dir = *state;
    char path[SAMPLE_PATH_BYTES];
    size_t bytes;
    uint8_t *data = sample_read(sample_path(path, dir, test_labels), &bytes);
    data[bytes] = 0;
    sample_write(path, data, bytes + 1);
    data_expect_refusal(config_of("fashion-mnist", dir, 28), STATUS_INPUT, test_labels, "trailing bytes");
    sample_write(path, data, bytes);
    free(data);
}

/* A changed byte is either noticed or without effect (the time stamp in the gzip header, say). */
static void no_changed_byte_passes_with_other_data(void **state)
{
    const char *dir = *state;
    Dataset *ds = data_open_or_fail(config_of("fashion-mnist", dir, 28));
    uint64_t want = hash_sample(ds, SPLIT_TEST, 3);
    dataset_close(ds);
    char path[SAMPLE_PATH_BYTES];
    size_t bytes;
    int refused = 0;
    uint8_t *data = sample_read(sample_path(path, dir, test_labels), &bytes);
    for (size_t i = 0; i < bytes; i++) {
        data[i] ^= 0x55;
        sample_write(path, data, bytes);
        DatasetConfig config = config_of("fashion-mnist", dir, 28);
        Status status = dataset_open(&config, &ds);
        if (status.code == STATUS_OK) {
            assert_int_equal(hash_sample(ds, SPLIT_TEST, 3), want);
            dataset_close(ds);
        } else {
            assert_int_equal(status.code, STATUS_INPUT);
            refused++;
        }
        data[i] ^= 0x55;
    }
    assert_true(refused >= (int)bytes - 8);
    sample_write(path, data, bytes);
    free(data);
}

static void missing_and_foreign_files_are_named(void **state)
{
    const char *dir = *state;
    char path[SAMPLE_PATH_BYTES];
    sample_path(path, dir, train_labels);
    sample_write(path, "not gzip at all", 15);
    data_expect_refusal(config_of("fashion-mnist", dir, 28), STATUS_INPUT, train_labels, "gzip data");
    assert_int_equal(unlink(path), 0);
    data_expect_refusal(config_of("fashion-mnist", dir, 28), STATUS_INPUT, train_labels, "No such file");
    data_expect_refusal(config_of("fashion-mnist", "/nonexistent", 28), STATUS_INPUT, "/nonexistent/", "No such file");
    sample_write_fashion(dir);
}

static Status open_read_close(void *context)
{
    const DatasetConfig *config = context;
    Dataset *ds;
    TRY(dataset_open(config, &ds));
    static uint8_t pixels[64 * 64 * 3];
    int32_t label;
    Status status = dataset_read(ds, SPLIT_TEST, 0, pixels, &label);
    dataset_close(ds);
    return status;
}

static void no_memory_is_an_error_everywhere(void **state)
{
    DatasetConfig fashion = config_of("fashion-mnist", *state, 32), shapes = config_of("shapes", NULL, 32);
    fashion.limit = 5;
    shapes.limit = 5;
    assert_true(fault_alloc_sweep(open_read_close, &fashion) > 20);
    assert_true(fault_alloc_sweep(open_read_close, &shapes) > 4);
}

static void limit_keeps_a_seeded_choice(void **state)
{
    const char *dir = *state;
    DatasetConfig config = config_of("fashion-mnist", dir, 28);
    Dataset *all = data_open_or_fail(config);
    uint64_t *hashes = hash_split(all, SPLIT_TRAIN);
    config.limit = 7;
    Dataset *seven = data_open_or_fail(config), *again = data_open_or_fail(config);
    config.seed = 2;
    Dataset *other = data_open_or_fail(config);
    assert_int_equal(dataset_count(seven, SPLIT_TRAIN), 7);
    assert_int_equal(dataset_count(seven, SPLIT_TEST), 7);
    uint64_t *few = hash_split(seven, SPLIT_TRAIN), *few_other = hash_split(other, SPLIT_TRAIN);
    for (int i = 0; i < 7; i++) {
        assert_non_null(bsearch(&few[i], hashes, SAMPLE_TRAIN, sizeof *hashes, compare_hashes));
        assert_true(i == 0 || few[i] != few[i - 1]); /* no sample twice */
        assert_int_equal(hash_sample(seven, SPLIT_TRAIN, i), hash_sample(again, SPLIT_TRAIN, i));
    }
    assert_memory_not_equal(few, few_other, 7 * sizeof *few);
    config.limit = SAMPLE_TRAIN; /* all of the training set, and more than the test set has */
    Dataset *loose = data_open_or_fail(config);
    assert_int_equal(dataset_count(loose, SPLIT_TEST), SAMPLE_TEST);
    assert_int_equal(hash_sample(loose, SPLIT_TRAIN, 5), hash_sample(all, SPLIT_TRAIN, 5));
    Dataset *opened[] = { all, seven, again, other, loose };
    for (size_t i = 0; i < COUNT_OF(opened); i++)
        dataset_close(opened[i]);
    free(hashes);
    free(few);
    free(few_other);
}

static int32_t nearest_label(const uint8_t *train, const int32_t *labels, int64_t n, const uint8_t *image)
{
    int64_t best = 0;
    int32_t best_distance = INT32_MAX;
    for (int64_t i = 0; i < n; i++) {
        int32_t distance = 0;
        for (int64_t p = 0; p < 784; p++) {
            int32_t d = train[i * 784 + p] - image[p];
            distance += d * d;
        }
        if (distance < best_distance) {
            best_distance = distance;
            best = i;
        }
    }
    return labels[best];
}

static void read_grey(const Dataset *ds, Split split, int64_t index, uint8_t *grey, int32_t *label)
{
    uint8_t pixels[784 * 3];
    assert_int_equal(dataset_read(ds, split, index, pixels, label).code, STATUS_OK);
    for (int64_t p = 0; p < 784; p++)
        grey[p] = pixels[3 * p];
}

/* 1-nearest-neighbour on 10,000 training images gives 80.8 %; on 2,000 a little less. */
static void the_real_fashion_mnist_can_be_learnt(void **state)
{
    (void)state;
    enum { TRAIN = 2000, TEST = 400 };
    if (access("/usr/share/datasets/fashion-mnist", F_OK) != 0) {
        print_message("skipped: apt install dataset-fashion-mnist\n");
        skip();
    }
    DatasetConfig config = config_of("fashion-mnist", NULL, 28);
    Dataset *ds = data_open_or_fail(config);
    assert_int_equal(dataset_count(ds, SPLIT_TRAIN), 60000);
    assert_int_equal(dataset_count(ds, SPLIT_TEST), 10000);
    float mean[3], deviation[3];
    dataset_channel_stats(ds, mean, deviation);
    assert_true(fabsf(mean[0] - 0.2860f) < 1e-4f && fabsf(deviation[0] - 0.3530f) < 1e-4f); /* published figures */
    uint8_t *train = malloc(TRAIN * 784);
    int32_t labels[TRAIN], right = 0;
    assert_non_null(train);
    for (int64_t i = 0; i < TRAIN; i++)
        read_grey(ds, SPLIT_TRAIN, i, train + i * 784, &labels[i]);
    for (int64_t i = 0; i < TEST; i++) {
        uint8_t image[784];
        int32_t label;
        read_grey(ds, SPLIT_TEST, i, image, &label);
        right += nearest_label(train, labels, TRAIN, image) == label;
    }
    free(train);
    dataset_close(ds);
    print_message("1-NN on %d images: %.1f %%\n", TRAIN, 100.0 * right / TEST);
    assert_in_range(right, TEST * 70 / 100, TEST * 90 / 100);
}

/* ---- shapes ---- */

/* The same pixels on every machine and for every compiler: a hash computed once. */
static void shapes_have_known_pixels(void **state)
{
    (void)state;
    Dataset *ds = data_open_or_fail(config_of("shapes", NULL, 48));
    uint64_t hash = hash_start;
    for (int64_t i = 0; i < 40; i++) {
        uint64_t one = hash_sample(ds, (Split)(i % 2), 37 * i);
        hash = data_hash(hash, &one, sizeof one);
    }
    dataset_close(ds);
    assert_int_equal(hash, UINT64_C(0x59E4C1FBEAD50EFF));
}

static void shapes_depend_on_the_seed(void **state)
{
    (void)state;
    DatasetConfig config = config_of("shapes", NULL, 32);
    Dataset *one = data_open_or_fail(config), *same = data_open_or_fail(config);
    config.seed = 2;
    Dataset *two = data_open_or_fail(config);
    for (int64_t i = 0; i < 50; i++) {
        assert_int_equal(hash_sample(one, SPLIT_TRAIN, i), hash_sample(same, SPLIT_TRAIN, i));
        assert_int_not_equal(hash_sample(one, SPLIT_TRAIN, i), hash_sample(two, SPLIT_TRAIN, i));
    }
    dataset_close(one);
    dataset_close(same);
    dataset_close(two);
}

static void shapes_never_repeat_within_or_across_splits(void **state)
{
    (void)state;
    Dataset *ds = data_open_or_fail(config_of("shapes", NULL, 8));
    int64_t train = dataset_count(ds, SPLIT_TRAIN), test = dataset_count(ds, SPLIT_TEST);
    uint64_t *a = hash_split(ds, SPLIT_TRAIN), *b = hash_split(ds, SPLIT_TEST);
    for (int64_t i = 1; i < train; i++)
        assert_true(a[i] != a[i - 1]);
    for (int64_t i = 0; i < test; i++)
        assert_null(bsearch(&b[i], a, (size_t)train, sizeof *a, compare_hashes));
    free(a);
    free(b);
    dataset_close(ds);
}

static void label_noise_redraws_its_share(void **state)
{
    (void)state;
    DatasetConfig config = config_of("shapes", NULL, 8);
    Dataset *clean = data_open_or_fail(config);
    static const double shares[] = { 0.1, 0.5, 1.0 };
    for (size_t s = 0; s < COUNT_OF(shares); s++) {
        config.label_noise = shares[s];
        Dataset *noisy = data_open_or_fail(config);
        for (Split split = SPLIT_TRAIN; split < SPLIT_COUNT; split++) {
            enum { N = 2000 };
            int counts[10] = { 0 }, changed = 0;
            for (int64_t i = 0; i < N; i++) {
                uint8_t a[8 * 8 * 3], b[8 * 8 * 3];
                int32_t before, after;
                assert_int_equal(dataset_read(clean, split, i, a, &before).code, STATUS_OK);
                assert_int_equal(dataset_read(noisy, split, i, b, &after).code, STATUS_OK);
                assert_memory_equal(a, b, sizeof a);
                counts[before]++;
                changed += before != after;
            }
            for (int c = 0; c < 10; c++)
                assert_int_equal(counts[c], N / 10);
            /* 9 of 10 redrawn labels differ; within five standard deviations. */
            double share = 0.9 * shares[s], spread = 5 * sqrt(share * (1 - share) / N);
            assert_true(fabs((double)changed / N - share) < spread);
        }
        dataset_close(noisy);
    }
    dataset_close(clean);
}

/* Stripes along a diagonal give gradients across it: the sign of sum(gx * gy) tells the two directions apart, whatever
 * the figure, the contrast or the colours. y points down, so "rising" stripes vary along (1, 1). */
static void stripes_run_as_the_label_says(void **state)
{
    (void)state;
    enum { SIZE = 64, N = 500 };
    Dataset *ds = data_open_or_fail(config_of("shapes", NULL, SIZE));
    int right = 0;
    for (int64_t i = 0; i < N; i++) {
        uint8_t rgb[SIZE * SIZE * 3];
        int32_t label;
        assert_int_equal(dataset_read(ds, SPLIT_TEST, i, rgb, &label).code, STATUS_OK);
        int64_t sum = 0;
        for (int y = 1; y < SIZE - 1; y++) {
            for (int x = 1; x < SIZE - 1; x++) {
                const uint8_t *p = rgb + 3 * (y * SIZE + x);
                sum += (p[3] - p[-3]) * (p[3 * SIZE] - p[-3 * SIZE]);
            }
        }
        bool falling = strstr(dataset_class_name(ds, label), "falling") != NULL;
        right += (sum < 0) == falling;
    }
    print_message("stripe direction told from gradients: %.1f %%\n", 100.0 * right / N);
    assert_true(right > N * 98 / 100);
    dataset_close(ds);
}

static int make_fashion(void **state)
{
    static char dir[SAMPLE_PATH_BYTES];
    sample_make_dir(dir);
    sample_write_fashion(dir);
    *state = dir;
    return 0;
}

static int remove_fashion(void **state)
{
    sample_remove_tree(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_configs_are_usage_errors),
        cmocka_unit_test(closing_nothing_is_fine),
        cmocka_unit_test(small_fashion_is_read_exactly),
        cmocka_unit_test(fashion_is_resized_to_any_size),
        cmocka_unit_test(every_idx_defect_names_file_and_field),
        cmocka_unit_test(whole_files_swapped_are_noticed),
        cmocka_unit_test(a_file_cut_anywhere_is_refused),
        cmocka_unit_test(trailing_bytes_are_refused),
        cmocka_unit_test(no_changed_byte_passes_with_other_data),
        cmocka_unit_test(missing_and_foreign_files_are_named),
        cmocka_unit_test(no_memory_is_an_error_everywhere),
        cmocka_unit_test(limit_keeps_a_seeded_choice),
        cmocka_unit_test(the_real_fashion_mnist_can_be_learnt),
        cmocka_unit_test(shapes_have_known_pixels),
        cmocka_unit_test(shapes_depend_on_the_seed),
        cmocka_unit_test(shapes_never_repeat_within_or_across_splits),
        cmocka_unit_test(label_noise_redraws_its_share),
        cmocka_unit_test(stripes_run_as_the_label_says),
    };
    return cmocka_run_group_tests(tests, make_fashion, remove_fashion);
}
