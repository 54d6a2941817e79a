/* data.h - samples from real files and from generators, and the loader that turns them into batches.
 *
 * A Dataset knows how to produce sample i of a split as 8-bit RGB pixels and a label; it holds no position and is
 * safe to read from many threads. A Loader owns threads, the order of an epoch, augmentation and a bounded queue of
 * finished batches. Depends on kernels/base.h alone. */
#ifndef BATCHMARK_DATASETS_DATA_H
#define BATCHMARK_DATASETS_DATA_H

#include "../kernels/base.h"

typedef enum Split { SPLIT_TRAIN, SPLIT_TEST, SPLIT_COUNT } Split;

typedef struct DatasetConfig {
    const char *name;   /* "fashion-mnist", "folder", "shapes": see dataset_names() */
    const char *dir;    /* where its files are; NULL = the set's usual place (folder: required) */
    int64_t     size;   /* height = width of the images handed out, pixels, 8..4096 */
    uint64_t    seed;   /* which world a generator draws, which samples `limit` keeps, how a flat folder is split */
    int64_t     limit;  /* use only the first n samples of each split after a seeded shuffle; 0 = all */
    double      label_noise; /* generators only: share of training AND test labels redrawn at random, 0..1 */
} DatasetConfig;

typedef struct Dataset Dataset;

/* Opens and validates every header of the set (not every image of a folder). Errors: STATUS_USAGE unknown name or
 * bad size; STATUS_INPUT missing, cut, swapped or wrong file, naming file and field; STATUS_OOM. The caller closes it. */
Status dataset_open(const DatasetConfig *config, Dataset **out);
void   dataset_close(Dataset *ds); /* NULL is fine */

int64_t     dataset_count(const Dataset *ds, Split split);
int64_t     dataset_classes(const Dataset *ds);
const char *dataset_class_name(const Dataset *ds, int64_t label); /* owned by ds */
int64_t     dataset_size(const Dataset *ds);
const char *dataset_describe(const Dataset *ds); /* one line: source, counts; owned by ds */

/* Mean and standard deviation of each RGB channel in units of 0..1, from the training split only. */
void dataset_channel_stats(const Dataset *ds, float mean[3], float deviation[3]);

/* Sample `index` of a split, not augmented: pixels (size, size, 3) row-major, label 0..classes-1.
 * STATUS_INPUT names the file that cannot be decoded. Thread-safe. */
Status dataset_read(const Dataset *ds, Split split, int64_t index, uint8_t *pixels, int32_t *label);

/* Comma-separated list of the names dataset_open takes. */
const char *dataset_names(void);

typedef struct LoaderConfig {
    Split    split;
    int64_t  batch;       /* samples in a batch, >= 1 */
    int      threads;     /* 0 = decode in the caller, inside loader_next */
    int      queue;       /* finished batches kept ready, >= 1 */
    uint64_t seed;        /* order and augmentation; the same seed gives the same batches for any thread count */
    bool     shuffle;     /* false: index order (evaluation) */
    bool     augment;     /* random crop after padding by size/8, horizontal flip */
    bool     repeat;      /* true: epochs follow each other without end, drop_last applies to each; false: one epoch */
    bool     drop_last;   /* true: only whole batches; false: the last batch is filled up with label -1 (ignored) */
} LoaderConfig;

typedef struct Batch {
    int64_t  size;    /* slots = LoaderConfig.batch */
    int64_t  valid;   /* slots that hold a sample; the rest have label -1 and zero pixels */
    int64_t  epoch;   /* 0-based */
    int64_t  index;   /* 0-based within the epoch */
    uint8_t *pixels;  /* (size, H, W, 3) */
    int32_t *labels;  /* (size) */
} Batch;

typedef struct Loader Loader;

/* Starts the threads. The data set must outlive the loader. Errors: STATUS_USAGE, STATUS_OOM. */
Status loader_create(const Dataset *ds, const LoaderConfig *config, Loader **out);

/* The next batch in order; *out is NULL after the last one of a non-repeating loader. The batch stays valid until
 * the next loader_next on this loader. An unreadable sample ends the loader with that sample's error. */
Status loader_next(Loader *loader, const Batch **out);

/* Whole batches in one epoch (drop_last) or batches including the filled-up last one. */
int64_t loader_batches(const Loader *loader);

/* Seconds callers have spent waiting inside loader_next so far: the "waiting for data" of the profile. */
double loader_wait_seconds(const Loader *loader);

void loader_destroy(Loader *loader); /* stops threads, frees; NULL is fine */

#endif
