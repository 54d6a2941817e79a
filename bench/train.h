/* train.h - one training run: data set, loader, schedule, progress, evaluation, its entry for the record. */
#ifndef BATCHMARK_BENCH_TRAIN_H
#define BATCHMARK_BENCH_TRAIN_H

#include "cell.h"
#include "feed.h"
#include "schedule.h"

typedef struct TrainConfig {
    NetConfig     net;           /* what the data decide is set from them, see feed.h */
    FeedConfig    feed;
    int64_t       accum, epochs;
    double        lr;            /* peak; 0 = the optimiser's usual one, see train_peak_rate */
    RateRule     scaling;       /* of a given lr with the effective batch ... */
    int64_t       base_batch;    /* ... from the one that it was chosen for */
    Schedule      schedule;
    double        warmup;        /* epochs of linear warm-up */
    UpdateRules   rules;         /* clipping, loss scale */
    double        target_acc;    /* percent of the test split: accuracy, or Dice where there are masks; 0 = none */
    double        max_seconds;   /* 0 = no limit */
    uint64_t      seed;
} TrainConfig;

/* "resnet50/data:fashion-mnist/size:28/batch:64/accum:2/amp:bf16/seed:1" and what differs from the standard. */
const char *train_name(const TrainConfig *t, char *text, size_t size);

/* Batch and size where the user gives none: small enough for a CPU. */
int64_t train_default_batch(const NetConfig *net);
int64_t train_default_size(const NetConfig *net);

/* Opens the data set once and sets in t->net what it decides, so that what is wrong is known before a record is begun, and that
 * is named and verified which will be trained. */
Status train_settle(TrainConfig *t);

/* Trains in this process and gives the entry for the record. An interrupt ends it early: the entry is complete up to
 * there, with status "failed" and the reason. progress: print a line on stderr. */
Status train_run(const TrainConfig *t, const MeasureOptions *options, bool progress, json_t **entry);

/* The entry of a training that could not start or broke off. NULL if out of memory. */
json_t *train_failed(const TrainConfig *t, const Status *why);

/* The learning rate after the warm-up: `lr` scaled, or by default for SGD 0.1 x effective batch / 256 (Goyal et al. 2017), for
 * LARS ten times that, for AdamW 3e-4 and for LAMB 2e-3. */
double train_peak_rate(const TrainConfig *t);

#endif
