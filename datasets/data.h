/* data.h - samples from real files and from generators, and the loader that turns them into batches.
 *
 * A Dataset knows how to produce sample i of a split as 8-bit RGB pixels and the truth about them: one label
 * (classification) or a class for every pixel (segmentation). It holds no position and is safe to read from many
 * threads. A Loader owns threads, the order of an epoch, augmentation and a bounded queue of finished batches. Depends
 * on kernels/base.h alone. */
#ifndef BATCHMARK_DATASETS_DATA_H
#define BATCHMARK_DATASETS_DATA_H

#include "../kernels/base.h"

typedef enum Split { SPLIT_TRAIN, SPLIT_TEST, SPLIT_COUNT } Split;

typedef enum DataTask { TASK_CLASSIFY, TASK_SEGMENT } DataTask;

enum { MASK_IGNORE = 255 }; /* a mask pixel without a class: neither trained on nor counted */

typedef struct DatasetConfig {
    const char *name;   /* "fashion-mnist", "folder", "shapes", "mri", "masks", ...: see dataset_names() */
    const char *dir;    /* where its files are; NULL = the set's usual place (folder, masks: required) */
    int64_t     size;   /* height = width of the images handed out, pixels, 8..4096 */
    uint64_t    seed;   /* which world a generator draws, which samples `limit` keeps, how a flat folder is split */
    int64_t     limit;  /* use only the first n samples of each split after a seeded shuffle; 0 = all */
    double      label_noise; /* shapes only: share of training AND test labels redrawn at random, 0..1 */
    int64_t     classes; /* masks only: classes in the user's masks, background included, 2..255; 0 = 2 */
} DatasetConfig;

typedef struct Dataset Dataset;

/* Opens and validates every header of the set (not every image of a folder). Errors: STATUS_USAGE unknown name or
 * bad size; STATUS_INPUT missing, cut, swapped or wrong file, naming file and field; STATUS_OOM. The caller closes it. */
Status dataset_open(const DatasetConfig *config, Dataset **out);
void   dataset_close(Dataset *ds); /* NULL is fine */

DataTask    dataset_task(const Dataset *ds);
int64_t     dataset_count(const Dataset *ds, Split split);
int64_t     dataset_classes(const Dataset *ds); /* of a segmentation set: background (0) included, so 2 for a binary one */
const char *dataset_class_name(const Dataset *ds, int64_t label); /* owned by ds */
int64_t     dataset_size(const Dataset *ds);
const char *dataset_describe(const Dataset *ds); /* one line: source, counts; owned by ds */

/* Mean and standard deviation of each RGB channel in units of 0..1, from the training split only. */
void dataset_channel_stats(const Dataset *ds, float mean[3], float deviation[3]);

/* Sample `index` of a split of a classification set, not augmented: pixels (size, size, 3) row-major, label
 * 0..classes-1. STATUS_INPUT names the file that cannot be decoded. Thread-safe. */
Status dataset_read(const Dataset *ds, Split split, int64_t index, uint8_t *pixels, int32_t *label);

/* The same for a segmentation set: mask (size, size), each pixel 0..classes-1 or MASK_IGNORE. */
Status dataset_read_mask(const Dataset *ds, Split split, int64_t index, uint8_t *pixels, uint8_t *mask);

/* Comma-separated list of the names dataset_open takes. */
const char *dataset_names(void);

typedef struct LoaderConfig {
    Split    split;
    int64_t  batch;       /* samples in a batch, >= 1 */
    int      threads;     /* 0 = decode in the caller, inside loader_next */
    int      queue;       /* finished batches kept ready, >= 1 */
    uint64_t seed;        /* order and augmentation; the same seed gives the same batches for any thread count */
    bool     shuffle;     /* false: index order (evaluation) */
    bool     augment;     /* random crop after padding by size/8, horizontal flip; of image and mask alike. The padding
                           * is black and, in a mask, background (0). */
    bool     repeat;      /* true: epochs follow each other without end, drop_last applies to each; false: one epoch */
    bool     drop_last;   /* true: only whole batches; false: the last batch is filled up with label -1 or masks of
                           * MASK_IGNORE */
    int      hold;        /* batches that the caller may keep at once: one stays valid until `hold` further calls of
                           * loader_next; 0 = 1 */
} LoaderConfig;

typedef struct Batch {
    int64_t  size;    /* slots = LoaderConfig.batch */
    int64_t  valid;   /* slots that hold a sample; the rest have label -1 or a mask of MASK_IGNORE, and zero pixels */
    int64_t  labelled; /* what a mean loss is divided by: `valid` labels, or the mask pixels that are not MASK_IGNORE */
    int64_t  epoch;   /* 0-based */
    int64_t  index;   /* 0-based within the epoch */
    uint8_t *pixels;  /* (size, H, W, 3) */
    int32_t *labels;  /* (size); NULL for a segmentation set */
    uint8_t *mask;    /* (size, H, W) class indices; NULL for a classification set */
} Batch;

typedef struct Loader Loader;

/* Starts the threads. The data set must outlive the loader. Errors: STATUS_USAGE, STATUS_OOM. */
Status loader_create(const Dataset *ds, const LoaderConfig *config, Loader **out);

/* The next batch in order; *out is NULL after the last one of a non-repeating loader. The batch stays valid until
 * `hold` further calls of loader_next on this loader. An unreadable sample ends the loader with that sample's error. */
Status loader_next(Loader *loader, const Batch **out);

/* Whole batches in one epoch (drop_last) or batches including the filled-up last one. */
int64_t loader_batches(const Loader *loader);

/* Seconds callers have spent waiting inside loader_next so far: the "waiting for data" of the profile. */
double loader_wait_seconds(const Loader *loader);

void loader_destroy(Loader *loader); /* stops threads, frees; NULL is fine */

#endif
