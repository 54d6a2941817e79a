/* test_segment_data.c - segmentation data: the head from NIfTI files, the generators with masks.
 * What NIfTI files can get wrong is in test_nifti.c; folders of masks, and batches with masks, are in test_masks.c. */
#include "fault_alloc.h"
#include "nifti_files.h"
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

static Dataset *open_or_fail(DatasetConfig config)
{
    Dataset *ds = data_open_or_fail(config);
    assert_int_equal(dataset_task(ds), TASK_SEGMENT);
    return ds;
}

static Status open_read_close(void *context)
{
    const DatasetConfig *config = context;
    Dataset *ds;
    TRY(dataset_open(config, &ds));
    static uint8_t pixels[64 * 64 * 3], mask[64 * 64];
    Status status = dataset_read_mask(ds, SPLIT_TEST, 0, pixels, mask);
    dataset_close(ds);
    return status;
}

/* ---- mri ---- */

enum { NX = 8, NY = 114, NZ = 8 };

static double head_value(int x, int y, int z) { return y < 100 ? (x + 2 * y + 5 * z) % 100 - 20 : 200; }
static bool brain_at(int x, int y, int z) { return (x + y + 3 * z) % 4 == 0; }

static void write_head(const char *dir, int brain_ny)
{
    static double head[NX * NY * NZ], brain[NX * NY * NZ];
    for (int i = 0; i < NX * NY * NZ; i++) {
        int x = i % NX, y = i / NX % NY, z = i / NX / NY;
        head[i] = head_value(x, y, z);
        brain[i] = brain_at(x, y, z) ? head[i] + 100 : 0; /* 80 and more */
    }
    char path[SAMPLE_PATH_BYTES];
    NiftiSample sample = { .dim = { 3, NX, NY, NZ }, .datatype = 4, .bits = 16, .offset = 352, .values = head };
    nifti_sample_write(&sample, sample_path(path, dir, "ch2.nii.gz"), true);
    sample.dim[2] = (int16_t)brain_ny;
    sample.values = brain;
    nifti_sample_write(&sample, sample_path(path, dir, "ch2bet.nii.gz"), false); /* gzip is told by its bytes */
}

static void mri_slices_are_coronal_and_split_by_slab(void **state)
{
    write_head(*state, NY);
    Dataset *ds = open_or_fail((DatasetConfig){ .name = "mri", .dir = *state, .size = 8 });
    assert_int_equal(dataset_count(ds, SPLIT_TRAIN), 100);
    assert_int_equal(dataset_count(ds, SPLIT_TEST), NY - 110);
    assert_int_equal(dataset_classes(ds), 2);
    assert_string_equal(dataset_class_name(ds, 1), "brain");
    for (int i = 0; i < 104; i++) {
        Split split = i < 100 ? SPLIT_TRAIN : SPLIT_TEST;
        int y = i < 100 ? i : i + 10;
        uint8_t pixels[64 * 3], mask[64];
        data_read_mask_or_fail(ds, split, y - (i < 100 ? 0 : 110), pixels, mask);
        for (int p = 0; p < 64; p++) {
            int x = p % 8, z = 7 - p / 8;
            double grey = (head_value(x, y, z) + 20) * 255 / 99; /* the training slab spans -20..79 */
            assert_int_equal(pixels[3 * p], grey > 255 ? 255 : (int)(grey + 0.5));
            assert_int_equal(pixels[3 * p], pixels[3 * p + 2]);
            assert_int_equal(mask[p], brain_at(x, y, z));
        }
    }
    dataset_close(ds);
}

static void mri_files_must_fit(void **state)
{
    char *dir = *state, path[SAMPLE_PATH_BYTES];
    DatasetConfig config = { .name = "mri", .dir = dir, .size = 16 };
    write_head(dir, NY - 1);
    data_expect_refusal(config, STATUS_INPUT, "8 x 114 x 8", "ch2bet.nii.gz is 8 x 113 x 8");
    double few[2 * 110 * 2] = { 0 };
    NiftiSample sample = { .dim = { 3, 2, 110, 2 }, .datatype = 2, .bits = 8, .offset = 352, .values = few };
    nifti_sample_write(&sample, sample_path(path, dir, "ch2.nii.gz"), true);
    nifti_sample_write(&sample, sample_path(path, dir, "ch2bet.nii.gz"), true);
    data_expect_refusal(config, STATUS_INPUT, "dim[2] is 110", "ch2.nii.gz");
    sample_write(sample_path(path, dir, "ch2bet.nii.gz"), "\x1F\x8B\x08", 3);
    data_expect_refusal(config, STATUS_INPUT, "ch2bet.nii.gz", "cut short");
    assert_int_equal(unlink(path), 0);
    data_expect_refusal(config, STATUS_INPUT, "ch2bet.nii.gz", "No such file");
    config.dir = "/nonexistent";
    data_expect_refusal(config, STATUS_INPUT, "/nonexistent/ch2.nii.gz", "No such file");
    if (access("/usr/share/mricron/templates", F_OK) != 0)
        data_expect_refusal((DatasetConfig){ .name = "mri", .size = 16 }, STATUS_INPUT, "apt install mricron-data",
                            "--data-dir");
    write_head(dir, NY);
}

/* ---- floors: what a rule without a net scores ---- */

typedef struct Floors {
    double all, threshold; /* Dice of "everything is foreground", and of the best threshold on the grey value */
    int    empty, count;   /* masks without foreground, of this many */
} Floors;

static Floors measure_floors(const Dataset *ds, Split split, int64_t most)
{
    int64_t size = dataset_size(ds), area = size * size, n = dataset_count(ds, split) < most ? dataset_count(ds, split) : most;
    uint8_t *pixels = malloc((size_t)area * 3), *mask = malloc((size_t)area);
    assert_true(pixels && mask);
    double seen[256] = { 0 }, hits[256] = { 0 }, targets = 0;
    Floors floors = { .count = (int)n };
    for (int64_t i = 0; i < n; i++) {
        data_read_mask_or_fail(ds, split, i, pixels, mask);
        int64_t found = 0, wrong = 0;
        for (int64_t p = 0; p < area; p++) {
            wrong += mask[p] > 1;
            seen[pixels[3 * p + 1]]++;
            hits[pixels[3 * p + 1]] += mask[p];
            found += mask[p];
        }
        assert_int_equal(wrong, 0);
        targets += (double)found;
        floors.empty += found == 0;
    }
    floors.all = 2 * targets / (targets + (double)(n * area));
    double low_seen = 0, low_hits = 0;
    for (int t = 0; t < 256; t++) { /* values 0..t, or t + 1..255 */
        low_seen += seen[t];
        low_hits += hits[t];
        double below = 2 * low_hits / (low_seen + targets);
        double above = 2 * (targets - low_hits) / ((double)(n * area) - low_seen + targets);
        double better = t < 255 && below < above ? above : t < 255 ? below : 0;
        floors.threshold = better > floors.threshold ? better : floors.threshold;
    }
    free(mask);
    free(pixels);
    return floors;
}

static void expect_between(const char *what, double value, double low, double high)
{
    if (!(value >= low && value <= high))
        fail_msg("%s is %.4f, expected %.3f..%.3f", what, value, low, high);
}

static void the_real_head_if_installed(void **state)
{
    (void)state;
    if (access("/usr/share/mricron/templates/ch2.nii.gz", F_OK) != 0) {
        print_message("skipped: mricron-data is not installed\n");
        skip();
    }
    Dataset *ds = open_or_fail((DatasetConfig){ .name = "mri", .size = 64 });
    assert_int_equal(dataset_count(ds, SPLIT_TRAIN), 100);
    assert_int_equal(dataset_count(ds, SPLIT_TEST), 107);
    Floors train = measure_floors(ds, SPLIT_TRAIN, 200), test = measure_floors(ds, SPLIT_TEST, 200);
    print_message("mri: everything foreground %.3f and %.3f, best threshold %.3f and %.3f\n", train.all, test.all,
                  train.threshold, test.threshold);
    expect_between("all foreground, train", train.all, 0.39, 0.42);
    expect_between("all foreground, test", test.all, 0.34, 0.37);
    expect_between("best threshold, test", test.threshold, 0.62, 0.72);
    float mean[3], deviation[3];
    dataset_channel_stats(ds, mean, deviation);
    expect_between("mean", (double)mean[0], 0.19, 0.24);
    dataset_close(ds);
}

/* ---- the generators ---- */

static uint64_t hash_sample(const Dataset *ds, Split split, int64_t index)
{
    static uint8_t pixels[128 * 128 * 3], mask[128 * 128];
    size_t area = (size_t)(dataset_size(ds) * dataset_size(ds));
    data_read_mask_or_fail(ds, split, index, pixels, mask);
    return data_hash(data_hash(1, pixels, area * 3), mask, area);
}

/* The values are those of x86-64; another machine must find the same. */
static void generators_draw_the_same_everywhere(void **state)
{
    (void)state;
    static const struct { const char *name; uint64_t hash; } known[] = {
        { "ellipses", UINT64_C(0xB5977288BE4CC643) },
        { "vessels", UINT64_C(0xCB52D0822D6381A6) },
    };
    for (size_t i = 0; i < COUNT_OF(known); i++) {
        DatasetConfig config = { .name = known[i].name, .size = 48, .seed = 7 };
        Dataset *a = open_or_fail(config), *b = open_or_fail(config);
        config.seed = 8;
        Dataset *other = open_or_fail(config);
        uint64_t hash = 1;
        for (int64_t k = 0; k < 20; k++) {
            uint64_t train = hash_sample(a, SPLIT_TRAIN, k), test = hash_sample(a, SPLIT_TEST, k);
            assert_true(train == hash_sample(b, SPLIT_TRAIN, k));
            assert_true(train != test && train != hash_sample(other, SPLIT_TRAIN, k));
            assert_true(train != hash_sample(a, SPLIT_TRAIN, k + 1));
            hash = data_hash(data_hash(hash, &train, sizeof train), &test, sizeof test);
        }
        if (hash != known[i].hash)
            fail_msg("%s: hash 0x%016llX", known[i].name, (unsigned long long)hash);
        dataset_close(other);
        dataset_close(b);
        dataset_close(a);
    }
}

static void generators_leave_something_to_learn(void **state)
{
    (void)state;
    static const struct { const char *name; double all, threshold; int every_empty; } want[] = {
        { "ellipses", 0.12, 0.21, 0 }, { "vessels", 0.20, 0.33, 8 },
    };
    for (size_t i = 0; i < COUNT_OF(want); i++) {
        Dataset *ds = open_or_fail((DatasetConfig){ .name = want[i].name, .size = 128, .seed = 1 });
        for (Split split = SPLIT_TRAIN; split < SPLIT_COUNT; split++) {
            Floors floors = measure_floors(ds, split, 104);
            print_message("%s: everything foreground %.3f, best threshold %.3f, %d of %d empty\n", want[i].name, floors.all,
                          floors.threshold, floors.empty, floors.count);
            expect_between("all foreground", floors.all, want[i].all - 0.03, want[i].all + 0.03);
            expect_between("best threshold", floors.threshold, want[i].threshold - 0.05, want[i].threshold + 0.05);
            assert_int_equal(floors.empty, want[i].every_empty ? 104 / want[i].every_empty : 0);
        }
        dataset_close(ds);
    }
}

/* Averaged down to 32 pixels, the masks of two sizes nearly agree: the scene is the same. */
static void a_scene_does_not_depend_on_the_size(void **state)
{
    (void)state;
    enum { A = 128, B = 256, CELLS = 32 };
    static uint8_t pixels[B * B * 3], mask[2][B * B];
    static const char *const names[] = { "ellipses", "vessels" };
    for (size_t n = 0; n < COUNT_OF(names); n++) {
        double difference = 0, total = 0;
        for (int s = 0; s < 2; s++) {
            Dataset *ds = open_or_fail((DatasetConfig){ .name = names[n], .size = s ? B : A, .seed = 1 });
            data_read_mask_or_fail(ds, SPLIT_TRAIN, 2, pixels, mask[s]);
            dataset_close(ds);
        }
        for (int cell = 0; cell < CELLS * CELLS; cell++) {
            double part[2] = { 0, 0 };
            for (int s = 0; s < 2; s++) {
                int side = s ? B : A, step = side / CELLS;
                for (int i = 0; i < step * step; i++)
                    part[s] += mask[s][(cell / CELLS * step + i / step) * side + cell % CELLS * step + i % step];
                part[s] /= step * step;
            }
            difference += part[0] > part[1] ? part[0] - part[1] : part[1] - part[0];
            total += part[0];
        }
        assert_true(total > 10);
        expect_between(names[n], difference / total, 0, 0.12);
    }
}

static void generators_refuse_what_is_not_for_them(void **state)
{
    (void)state;
    static const char *const names[] = { "ellipses", "vessels" };
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        data_expect_refusal((DatasetConfig){ .name = names[i], .size = 32, .label_noise = 0.1 }, STATUS_USAGE,
                            names[i], "label noise");
        data_expect_refusal((DatasetConfig){ .name = names[i], .size = 32, .classes = 2 }, STATUS_USAGE, names[i],
                            "classes");
        data_expect_refusal((DatasetConfig){ .name = names[i], .size = 32, .dir = "/" }, STATUS_USAGE, names[i],
                            "generated");
        assert_non_null(strstr(dataset_names(), names[i]));
    }
    data_expect_refusal((DatasetConfig){ .name = "shapes", .size = 32, .classes = 10 }, STATUS_USAGE, "shapes", "classes");
    data_expect_refusal((DatasetConfig){ .name = "mri", .size = 32, .label_noise = 0.1 }, STATUS_USAGE, "mri",
                        "label noise");
}

/* ---- memory ---- */

static void no_memory_is_an_error_everywhere(void **state)
{
    write_head(*state, NY);
    DatasetConfig head = { .name = "mri", .dir = *state, .size = 16, .limit = 3 };
    DatasetConfig ellipses = { .name = "ellipses", .size = 16, .limit = 3 };
    DatasetConfig vessels = { .name = "vessels", .size = 16, .limit = 3 };
    assert_true(fault_alloc_sweep(open_read_close, &head) > 20);
    assert_true(fault_alloc_sweep(open_read_close, &ellipses) > 4);
    assert_true(fault_alloc_sweep(open_read_close, &vessels) > 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mri_slices_are_coronal_and_split_by_slab),
        cmocka_unit_test(mri_files_must_fit),
        cmocka_unit_test(the_real_head_if_installed),
        cmocka_unit_test(generators_draw_the_same_everywhere),
        cmocka_unit_test(generators_leave_something_to_learn),
        cmocka_unit_test(a_scene_does_not_depend_on_the_size),
        cmocka_unit_test(generators_refuse_what_is_not_for_them),
        cmocka_unit_test(no_memory_is_an_error_everywhere),
    };
    return cmocka_run_group_tests(tests, sample_setup, sample_teardown);
}
