/* idx.c - Fashion-MNIST (Xiao et al. 2017, arXiv 1708.07747) from its four gzipped IDX files.
 *
 * The pixels stay in memory as they are in the files, 28 x 28 grey bytes, 55 MB for both splits; a read resizes one
 * of them (image_resize_grey: bilinear, or a plain copy at size 28) and repeats it to RGB. Opening takes half a
 * second in all, most of it unpacking, so there is no cache file on disk: it would not pay.
 *
 * IDX (LeCun's MNIST page): big-endian 32-bit magic, whose third byte is the type (8 = unsigned byte) and whose fourth
 * is the number of dimensions, then each dimension as 32 bits, then the data. */
#include "idx.h"
#include "gunzip.h"
#include "image.h"
#include "source.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SIDE = 28, AREA = SIDE * SIDE, CLASSES = 10 };
enum { MAX_COUNT = 10 * 1000 * 1000 }; /* 7.8 GB of pixels; a header that says more is broken */

static const char usual_dir[] = "/usr/share/datasets/fashion-mnist";
static const char *const image_files[SPLIT_COUNT] = { "train-images-idx3-ubyte.gz", "t10k-images-idx3-ubyte.gz" };
static const char *const label_files[SPLIT_COUNT] = { "train-labels-idx1-ubyte.gz", "t10k-labels-idx1-ubyte.gz" };
static const char *const class_names[CLASSES] = {
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
};

typedef struct FashionMnist {
    uint8_t *images[SPLIT_COUNT]; /* (count, 28, 28) */
    uint8_t *labels[SPLIT_COUNT]; /* (count) */
} FashionMnist;

/* ---- IDX ---- */

static uint32_t big_endian(const uint8_t *b)
{
    return (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
}

/* Checks the header of an image file (three dimensions) or label file (one); *count is its first dimension. */
static Status read_idx_header(Gunzip *g, uint32_t magic, int64_t *count)
{
    uint8_t header[16];
    TRY(gunzip_exactly(g, header, magic == MAGIC_IMAGES ? 16 : 8, "the IDX header"));
    uint32_t found = big_endian(header);
    if (found != magic) {
        bool swapped = found == MAGIC_IMAGES || found == MAGIC_LABELS;
        return status_error(STATUS_INPUT, "%s: magic 0x%08" PRIX32 ", expected 0x%08" PRIX32 "%s", g->path, found,
                            magic, swapped ? "; the image and label files are swapped" : "");
    }
    uint32_t n = big_endian(header + 4);
    if (n < 1 || n > MAX_COUNT)
        return status_error(STATUS_INPUT, "%s: count %" PRIu32 ", expected 1..%d", g->path, n, MAX_COUNT);
    static const char *const field[2] = { "rows", "columns" };
    for (int i = 0; magic == MAGIC_IMAGES && i < 2; i++) {
        uint32_t side = big_endian(header + 8 + 4 * i);
        if (side != SIDE)
            return status_error(STATUS_INPUT, "%s: %s %" PRIu32 ", expected %d", g->path, field[i], side, SIDE);
    }
    *count = n;
    return status_ok();
}

static Status read_idx_data(Gunzip *g, uint32_t magic, uint8_t **data, int64_t *count)
{
    TRY(read_idx_header(g, magic, count));
    size_t bytes = (size_t)*count * (magic == MAGIC_IMAGES ? AREA : 1);
    if (!gunzip_can_hold(g, bytes))
        return status_error(STATUS_INPUT, "%s: count %" PRId64 " needs %zu bytes, more than the %zu packed ones can hold",
                            g->path, *count, bytes, g->packed_bytes);
    *data = malloc(bytes);
    if (!*data)
        return status_error(STATUS_OOM, "%s: no memory for %zu bytes", g->path, bytes);
    TRY(gunzip_exactly(g, *data, bytes, magic == MAGIC_IMAGES ? "the pixel data" : "the label data"));
    return gunzip_expect_end(g);
}

Status idx_read_memory(const char *name, const uint8_t *file, size_t bytes, uint32_t magic, uint8_t **data,
                       int64_t *count)
{
    *data = NULL;
    Gunzip *g = malloc(sizeof *g); /* 33 kB: not on the stack */
    if (!g)
        return status_error(STATUS_OOM, "%s: no memory to unpack", name);
    Status status = gunzip_open_memory(g, name, file, bytes);
    if (status.code == STATUS_OK)
        status = read_idx_data(g, magic, data, count);
    gunzip_close(g);
    free(g);
    return status;
}

/* *data may be set on failure too; the caller's close frees it. */
static Status read_idx_file(const char *dir, const char *name, uint32_t magic, uint8_t **data, int64_t *count)
{
    char *path = dataset_join_path(dir, name, NULL);
    if (!path)
        return status_error(STATUS_OOM, "fashion-mnist: no memory for a path");
    Gunzip *g = malloc(sizeof *g);
    Status status;
    if (!g) {
        status = status_error(STATUS_OOM, "%s: no memory to unpack", dataset_shown_path(path));
        goto out;
    }
    status = gunzip_open(g, path);
    if (status.code == STATUS_OK)
        status = read_idx_data(g, magic, data, count);
    gunzip_close(g);
out:
    free(g);
    free(path);
    return status;
}

static Status check_labels(const char *dir, Split split, const uint8_t *labels, int64_t images, int64_t count)
{
    const char *shown = dataset_shown_path(dir);
    if (images != count)
        return status_error(STATUS_INPUT, "%s: %s holds %" PRId64 " images but %s holds %" PRId64 " labels", shown,
                            image_files[split], images, label_files[split], count);
    for (int64_t i = 0; i < count; i++)
        if (labels[i] >= CLASSES)
            return status_error(STATUS_INPUT, "%s/%s: label %" PRId64 " is %d, expected 0..%d", shown,
                                label_files[split], i, labels[i], CLASSES - 1);
    return status_ok();
}

/* ---- the source ---- */

static Status fashion_open(const DatasetConfig *config, void **out, int64_t count[SPLIT_COUNT], int64_t *classes,
                           char *origin, size_t origin_bytes)
{
    const char *dir = config->dir ? config->dir : usual_dir;
    FashionMnist *set = calloc(1, sizeof *set);
    if (!set)
        return status_error(STATUS_OOM, "fashion-mnist: no memory for the data set");
    *out = set;
    for (Split split = SPLIT_TRAIN; split < SPLIT_COUNT; split++) {
        int64_t labels = 0;
        Status status = read_idx_file(dir, image_files[split], MAGIC_IMAGES, &set->images[split], &count[split]);
        if (status.code == STATUS_OK)
            status = read_idx_file(dir, label_files[split], MAGIC_LABELS, &set->labels[split], &labels);
        if (status.code == STATUS_INPUT && !config->dir && access(usual_dir, F_OK) != 0)
            return status_error(STATUS_INPUT, "fashion-mnist: %s is missing: apt install dataset-fashion-mnist, or name its folder with --data-dir",
                                usual_dir);
        TRY(status);
        TRY(check_labels(dir, split, set->labels[split], count[split], labels));
    }
    *classes = CLASSES;
    snprintf(origin, origin_bytes, "%s", dataset_shown_path(dir));
    return status_ok();
}

static void fashion_close(void *state)
{
    FashionMnist *set = state;
    if (!set)
        return;
    for (int split = 0; split < SPLIT_COUNT; split++) {
        free(set->images[split]);
        free(set->labels[split]);
    }
    free(set);
}

static const char *fashion_class_name(const void *state, int64_t label)
{
    (void)state;
    return class_names[label];
}

static Status fashion_read(const void *state, Split split, int64_t index, int64_t size, uint8_t *pixels,
                           int32_t *label)
{
    const FashionMnist *set = state;
    TRY(image_resize_grey(set->images[split] + index * AREA, SIDE, SIDE, size, pixels));
    *label = set->labels[split][index];
    return status_ok();
}

const Source source_fashion_mnist = {
    .name = "fashion-mnist",
    .generator = false,
    .flip_keeps_truth = true, /* a mirrored shoe is a shoe */
    .stats_samples = INT64_MAX, /* all of them, unscaled: exact, and still quick */
    .stats_size = SIDE,
    .open = fashion_open,
    .close = fashion_close,
    .class_name = fashion_class_name,
    .read = fashion_read,
};
