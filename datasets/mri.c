/* mri.c - the set "mri": slices of one head (T1-weighted MRI, the "Colin 27" average, Holmes et al. 1998), segmented into
 * brain and the rest, from the Debian package mricron-data.
 *
 * ch2.nii.gz is the head and ch2bet.nii.gz the same with all but the brain set to 0, both 181 x 217 x 181 voxels of
 * 1 mm on one grid: the mask is ch2bet > 0. A sample is a coronal slice, top of the head up, x from left to right.
 * Neighbouring slices are nearly equal (a neighbour's mask scores a Dice of 0.974), so the splits are slabs with a gap
 * between them: y < 100 trains (the back of the head), y >= 110 tests (the front).
 *
 * Grey values are scaled so that the training slab's lowest and highest become 0 and 255. Both volumes stay in memory,
 * one byte a voxel, ordered so that a slice is contiguous. */
#include "image.h"
#include "nifti.h"
#include "source.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TRAIN_END = 100, TEST_START = 110 };

static const char usual_dir[] = "/usr/share/mricron/templates";
static const char head_file[] = "ch2.nii.gz", brain_file[] = "ch2bet.nii.gz";

typedef struct Mri {
    int64_t  width, height; /* of a slice: the volume's x and z */
    uint8_t *head, *brain;  /* (y, height, width) grey values; 1 = brain */
} Mri;

static Status read_volume(const char *dir, const char *name, Volume *out)
{
    char *path = dataset_join_path(dir, name, NULL);
    if (!path)
        return status_error(STATUS_OOM, "mri: no memory for a path");
    Status status = nifti_read(path, out);
    free(path);
    return status;
}

static Status check_dims(const char *dir, const Volume *head, const Volume *brain)
{
    const int64_t *a = head->dim, *b = brain->dim;
    if (memcmp(a, b, sizeof head->dim) != 0)
        return status_error(STATUS_INPUT, "%s: %s is %" PRId64 " x %" PRId64 " x %" PRId64 " but %s is %" PRId64
                            " x %" PRId64 " x %" PRId64, dataset_shown_path(dir), head_file, a[0], a[1], a[2], brain_file,
                            b[0], b[1], b[2]);
    if (a[1] <= TEST_START)
        return status_error(STATUS_INPUT, "%s/%s: dim[2] is %" PRId64 ": no slices at y >= %d for the test split", dataset_shown_path(dir),
                            head_file, a[1], TEST_START);
    return status_ok();
}

/* Lowest and highest grey value of the training slab. */
static void find_window(const Volume *head, float *low, float *high)
{
    int64_t nx = head->dim[0], ny = head->dim[1], nz = head->dim[2];
    *low = *high = head->voxels[0];
    for (int64_t z = 0; z < nz; z++) {
        const float *slab = head->voxels + z * ny * nx;
        for (int64_t i = 0; i < TRAIN_END * nx; i++) {
            *low = slab[i] < *low ? slab[i] : *low;
            *high = slab[i] > *high ? slab[i] : *high;
        }
    }
}

static uint8_t grey_value(double value, double low, double high)
{
    double scaled = high > low ? (value - low) * 255 / (high - low) : 0;
    return (uint8_t)(scaled <= 0 ? 0 : scaled >= 255 ? 255 : scaled + 0.5);
}

/* (z, y, x) to (y, z downwards, x). */
static Status cut_slices(const Volume *head, const Volume *brain, Mri *mri)
{
    int64_t nx = head->dim[0], ny = head->dim[1], nz = head->dim[2];
    mri->width = nx;
    mri->height = nz;
    mri->head = malloc((size_t)(nx * ny * nz));
    mri->brain = malloc((size_t)(nx * ny * nz));
    if (!mri->head || !mri->brain)
        return status_error(STATUS_OOM, "mri: no memory for the slices");
    float low, high;
    find_window(head, &low, &high);
    for (int64_t z = 0; z < nz; z++) {
        for (int64_t y = 0; y < ny; y++) {
            int64_t from = (z * ny + y) * nx, to = (y * nz + nz - 1 - z) * nx;
            for (int64_t x = 0; x < nx; x++) {
                mri->head[to + x] = grey_value((double)head->voxels[from + x], (double)low, (double)high);
                mri->brain[to + x] = brain->voxels[from + x] > 0;
            }
        }
    }
    return status_ok();
}

/* ---- the source ---- */

static Status mri_open(const DatasetConfig *config, void **out, int64_t count[SPLIT_COUNT], int64_t *classes, char *origin,
                       size_t origin_bytes)
{
    const char *dir = config->dir ? config->dir : usual_dir;
    Mri *mri = calloc(1, sizeof *mri);
    if (!mri)
        return status_error(STATUS_OOM, "mri: no memory for the data set");
    *out = mri;
    Volume head = { { 0, 0, 0 }, NULL }, brain = head;
    Status status = read_volume(dir, head_file, &head);
    if (status.code == STATUS_OK)
        status = read_volume(dir, brain_file, &brain);
    if (status.code == STATUS_INPUT && !config->dir && access(usual_dir, F_OK) != 0)
        status = status_error(STATUS_INPUT, "mri: %s is missing: apt install mricron-data, or name its folder with --data-dir",
                              usual_dir);
    if (status.code == STATUS_OK)
        status = check_dims(dir, &head, &brain);
    if (status.code == STATUS_OK)
        status = cut_slices(&head, &brain, mri);
    count[SPLIT_TRAIN] = TRAIN_END;
    count[SPLIT_TEST] = head.dim[1] - TEST_START;
    *classes = 2;
    snprintf(origin, origin_bytes, "%s", dataset_shown_path(dir));
    free(brain.voxels);
    free(head.voxels);
    return status;
}

static void mri_close(void *state)
{
    Mri *mri = state;
    if (!mri)
        return;
    free(mri->brain);
    free(mri->head);
    free(mri);
}

static const char *mri_class_name(const void *state, int64_t label)
{
    (void)state;
    return label ? "brain" : "background";
}

static Status mri_read(const void *state, Split split, int64_t index, int64_t size, uint8_t *pixels, uint8_t *mask)
{
    const Mri *mri = state;
    int64_t y = split == SPLIT_TRAIN ? index : TEST_START + index, at = y * mri->height * mri->width;
    TRY(image_resize_grey(mri->head + at, mri->height, mri->width, size, pixels));
    image_resize_mask(mri->brain + at, mri->height, mri->width, size, mask);
    return status_ok();
}

const Source source_mri = {
    .name = "mri",
    .flip_keeps_truth = true, /* a mirrored head is a head */
    .stats_samples = TRAIN_END,
    .stats_size = 128,
    .open = mri_open,
    .close = mri_close,
    .class_name = mri_class_name,
    .read_mask = mri_read,
};
