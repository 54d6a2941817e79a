/* idx.c - Fashion-MNIST (Xiao et al. 2017, arXiv 1708.07747) from its four gzipped IDX files.
 *
 * The pixels stay in memory as they are in the files, 28 x 28 grey bytes, 55 MB for both splits; a read resizes one
 * of them (image_resize_square: bilinear, or a plain copy at size 28) and repeats it to RGB. Opening takes half a
 * second in all, most of it unpacking, so there is no cache file on disk: it would not pay.
 *
 * IDX (LeCun's MNIST page): big-endian 32-bit magic, whose third byte is the type (8 = unsigned byte) and whose fourth
 * is the number of dimensions, then each dimension as 32 bits, then the data. */
#include "image.h"
#include "source.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <zlib.h>

enum { SIDE = 28, AREA = SIDE * SIDE, CLASSES = 10 };
enum { MAGIC_IMAGES = 0x803, MAGIC_LABELS = 0x801 };
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

/* ---- reading a gzip file, strictly ---- */

/* zlib's own gzread is not used: it passes files that are not gzip, and ignores what follows the packed data. */
typedef struct Gunzip {
    int         file;
    const char *path; /* as shown in errors */
    z_stream    z;
    bool        started, ended; /* inflateInit2 was called; the end of the gzip member was reached */
    uint8_t     in[32768];
} Gunzip;

static void *allocate_for_zlib(void *unused, unsigned items, unsigned size)
{
    (void)unused;
    return calloc(items, size);
}

static void free_for_zlib(void *unused, void *block)
{
    (void)unused;
    free(block);
}

static Status gunzip_open(Gunzip *g, const char *path)
{
    memset(g, 0, sizeof *g);
    g->path = dataset_shown_path(path);
    g->file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe must not hang it */
    if (g->file < 0)
        return dataset_file_error(path, errno);
    g->z.zalloc = allocate_for_zlib;
    g->z.zfree = free_for_zlib;
    int result = inflateInit2(&g->z, 15 + 16); /* window 2^15; + 16: a gzip header is required */
    if (result != Z_OK)
        return status_error(STATUS_OOM, "%s: zlib cannot start: %s", g->path, zError(result));
    g->started = true;
    return status_ok();
}

static void gunzip_close(Gunzip *g)
{
    if (g->started)
        inflateEnd(&g->z);
    if (g->file >= 0)
        close(g->file);
}

/* More packed bytes into g->in; leaves avail_in 0 at the end of the file. */
static Status gunzip_refill(Gunzip *g)
{
    ssize_t n;
    do
        n = read(g->file, g->in, sizeof g->in);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return dataset_file_error(g->path, errno);
    g->z.next_in = g->in;
    g->z.avail_in = (unsigned)n;
    return status_ok();
}

/* Unpacks up to `bytes` into out; *got is less only when the packed data ended, whole and with a right checksum. */
static Status gunzip_some(Gunzip *g, uint8_t *out, size_t bytes, size_t *got)
{
    size_t done = 0;
    while (done < bytes && !g->ended) {
        if (g->z.avail_in == 0) {
            TRY(gunzip_refill(g));
            if (g->z.avail_in == 0)
                return status_error(STATUS_INPUT, "%s: the gzip data is cut short", g->path);
        }
        size_t room = bytes - done < (size_t)1 << 30 ? bytes - done : (size_t)1 << 30; /* avail_out is 32 bits */
        g->z.next_out = out + done;
        g->z.avail_out = (unsigned)room;
        int result = inflate(&g->z, Z_NO_FLUSH);
        done += room - g->z.avail_out;
        if (result == Z_MEM_ERROR)
            return status_error(STATUS_OOM, "%s: no memory to unpack", g->path);
        if (result != Z_OK && result != Z_STREAM_END)
            return status_error(STATUS_INPUT, "%s: gzip data: %s", g->path, g->z.msg ? g->z.msg : zError(result));
        g->ended = result == Z_STREAM_END;
    }
    *got = done;
    return status_ok();
}

static Status gunzip_exactly(Gunzip *g, uint8_t *out, size_t bytes, const char *what)
{
    size_t got;
    TRY(gunzip_some(g, out, bytes, &got));
    if (got != bytes)
        return status_error(STATUS_INPUT, "%s: %s ends after %zu of %zu bytes", g->path, what, got, bytes);
    return status_ok();
}

/* Nothing may follow, neither unpacked nor behind the gzip data. */
static Status gunzip_expect_end(Gunzip *g)
{
    uint8_t extra;
    size_t got;
    TRY(gunzip_some(g, &extra, 1, &got));
    if (got != 0)
        return status_error(STATUS_INPUT, "%s: more data than the header's counts say", g->path);
    if (g->z.avail_in == 0)
        TRY(gunzip_refill(g));
    if (g->z.avail_in != 0)
        return status_error(STATUS_INPUT, "%s: trailing bytes after the gzip data", g->path);
    return status_ok();
}

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
    *data = malloc(bytes);
    if (!*data)
        return status_error(STATUS_OOM, "%s: no memory for %zu bytes", g->path, bytes);
    TRY(gunzip_exactly(g, *data, bytes, magic == MAGIC_IMAGES ? "the pixel data" : "the label data"));
    return gunzip_expect_end(g);
}

/* *data may be set on failure too; the caller's close frees it. */
static Status read_idx_file(const char *dir, const char *name, uint32_t magic, uint8_t **data, int64_t *count)
{
    char *path = dataset_join_path(dir, name, NULL);
    if (!path)
        return status_error(STATUS_OOM, "fashion-mnist: no memory for a path");
    Gunzip *g = malloc(sizeof *g); /* 33 kB: not on the stack */
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
    /* The grey picture is resized into the last third of the RGB one; walking forward, a grey value is read before
     * or when its place is overwritten: 3 i + 2 <= 2 area + i for every i < area. */
    int64_t area = size * size;
    uint8_t *grey = pixels + 2 * area;
    TRY(image_resize_square(set->images[split] + index * AREA, SIDE, SIDE, 1, size, grey));
    for (int64_t i = 0; i < area; i++) {
        uint8_t value = grey[i];
        pixels[3 * i] = value;
        pixels[3 * i + 1] = value;
        pixels[3 * i + 2] = value;
    }
    *label = set->labels[split][index];
    return status_ok();
}

const Source source_fashion_mnist = {
    .name = "fashion-mnist",
    .generator = false,
    .flip_keeps_label = true, /* a mirrored shoe is a shoe */
    .stats_samples = INT64_MAX, /* all of them, unscaled: exact, and still quick */
    .stats_size = SIDE,
    .open = fashion_open,
    .close = fashion_close,
    .class_name = fashion_class_name,
    .read = fashion_read,
};
