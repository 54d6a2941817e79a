/* source.h - private to datasets/: what a source of samples implements, and the Dataset that wraps one.
 *
 * A Source is a table of functions, one table a kind of data (idx.c, folder.c, mri.c, shapes.c, ...). dataset.c owns everything
 * the kinds share: checking the config, `limit`, channel statistics, the look-up by name. */
#ifndef BATCHMARK_DATASETS_SOURCE_H
#define BATCHMARK_DATASETS_SOURCE_H

#include "data.h"
#include "files.h"

/* Streams of rng_block, one a purpose, so that no two draws share a block. The low 32 bits are free for an epoch,
 * split or class number. */
#define STREAM_LIMIT   (UINT64_C(0xDA7A0001) << 32) /* + split: which samples `limit` keeps */
#define STREAM_FOLDER  (UINT64_C(0xDA7A0002) << 32) /* + class: which images of a flat folder are the test split */
#define STREAM_SHAPES  (UINT64_C(0xDA7A0003) << 32) /* + split: the generator's scenes */
#define STREAM_ORDER   (UINT64_C(0xDA7A0004) << 32) /* + epoch: the order of samples */
#define STREAM_AUGMENT (UINT64_C(0xDA7A0005) << 32) /* + epoch: crops and flips */
#define STREAM_MASKS   (UINT64_C(0xDA7A0006) << 32) /* which pairs of a folder of masks are the test split */
#define STREAM_ELLIPSES (UINT64_C(0xDA7A0007) << 32) /* + split: the generator's scenes */
#define STREAM_VESSELS (UINT64_C(0xDA7A0008) << 32) /* + split: the generator's trees */
#define STREAM_GRAIN   (UINT64_C(0xDA7A0009) << 32) /* + split, + 2 for vessels: noise of single pixels */

typedef struct Source {
    const char *name;
    bool        generator;        /* makes its samples; takes no dir, and label_noise if it makes labels */
    bool        takes_classes;    /* DatasetConfig.classes is for it */
    bool        flip_keeps_truth; /* may the loader mirror an image (and its mask) left to right? */
    int64_t     stats_samples;    /* channel statistics come from this many training samples, evenly spaced ... */
    int64_t     stats_size;       /* ... read at this size, or the configured one where that is smaller */

    /* Fills in *out (even on failure, where there is something to close), the two counts and the class count;
     * writes where the samples come from, for dataset_describe, to origin. */
    Status (*open)(const DatasetConfig *config, void **out, int64_t count[SPLIT_COUNT], int64_t *classes,
                   char *origin, size_t origin_bytes);
    void (*close)(void *state); /* state may be NULL or half open */
    const char *(*class_name)(const void *state, int64_t label);
    /* Sample index (0..count-1, before `limit`) as (size, size, 3) pixels and a label, or a (size, size) mask. One of
     * the two, which says what task the set is for; the other is NULL. Thread-safe. */
    Status (*read)(const void *state, Split split, int64_t index, int64_t size, uint8_t *pixels, int32_t *label);
    Status (*read_mask)(const void *state, Split split, int64_t index, int64_t size, uint8_t *pixels, uint8_t *mask);
} Source;

extern const Source source_fashion_mnist, source_folder, source_shapes, source_mri, source_masks, source_ellipses, source_vessels;

struct Dataset {
    const Source *source;
    void         *state;              /* the source's own */
    int64_t       size;               /* pixels of a side */
    int64_t       count[SPLIT_COUNT]; /* samples handed out */
    int64_t      *pick[SPLIT_COUNT];  /* source index of each sample handed out; NULL = all, in order */
    int64_t       classes;
    float         mean[3], deviation[3];
    char          description[512];
};

/* Moves a random choice of `keep` of the `count` items to the front, in random order (Fisher-Yates, Knuth vol. 2,
 * 3.4.2 P, stopped after `keep` steps). keep == count shuffles everything. */
void dataset_shuffle(int64_t *items, int64_t count, int64_t keep, uint64_t seed, uint64_t stream);

#endif
