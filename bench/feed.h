/* feed.h - what a training reads: sets of images and of text, and their loaders, behind one interface.
 *
 * The data decide a part of the net: classes, normalisation, vocabulary, which head. A window of an update is up to `accum`
 * micro-batches; they are fetched before the first runs, since the loss is a mean over what is labelled in all of them
 * (tests/CASES.md D12). */
#ifndef BATCHMARK_BENCH_FEED_H
#define BATCHMARK_BENCH_FEED_H

#include "../datasets/data.h"
#include "../datasets/text.h"
#include "../nets/nets.h"

typedef struct FeedConfig {
    const char *data;        /* name of the set; NULL = the one that suits the net */
    const char *dir;         /* where its files are; NULL = the usual place */
    const char *vocab;       /* text: a vocab.txt; NULL = the set's own */
    int64_t     limit;       /* samples of each split; 0 = all */
    double      label_noise; /* shapes only */
    TextPolicy  policy;      /* text */
    int         loaders;     /* loader threads */
    bool        augment;     /* images */
    uint64_t    seed;
} FeedConfig;

typedef struct Feed Feed;

/* The set that suits a net where none is named: "fashion-mnist", "mri", "bible". */
const char *feed_default_data(const NetConfig *net);

/* Opens the set and its training loader and sets in `net` what they decide. Errors: STATUS_USAGE for a set that the net
 * cannot be trained on, a batch larger than the split; the sets' own. The caller closes it. */
Status feed_open(const FeedConfig *config, int64_t accum, NetConfig *net, Feed **out);
void   feed_close(Feed *feed); /* NULL is fine */

const char *feed_describe(const Feed *feed);
int64_t     feed_batches(const Feed *feed);      /* micro-batches in an epoch of training */
double      feed_wait_seconds(const Feed *feed); /* spent waiting for training data so far */

/* The next training micro-batch and the samples in it; epochs follow each other without end. It stays valid until `accum`
 * more have been fetched. */
Status feed_next(Feed *feed, MicroBatch *batch, int64_t *samples);

/* Rows of text so far and how many of them were real tokens: what is not is padding. Zeros for images. */
void feed_rows(const Feed *feed, int64_t *rows, int64_t *tokens);

/* The test split from its beginning, batch by batch, one pass at a time: *more is false after the last. */
Status feed_eval_begin(Feed *feed);
Status feed_eval_next(Feed *feed, MicroBatch *batch, bool *more);

#endif
