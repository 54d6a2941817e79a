/* train.h - one training run: data set, loader, schedule, progress, evaluation, its entry for the record. */
#ifndef BATCHMARK_BENCH_TRAIN_H
#define BATCHMARK_BENCH_TRAIN_H

#include "../datasets/data.h"
#include "cell.h"

typedef struct TrainConfig {
    NetConfig     net;           /* classes, mean and deviation are set from the data */
    DatasetConfig data;          /* size is set from the net */
    int64_t       accum, epochs;
    double        lr;            /* peak; 0 = 0.1 x effective batch / 256 (Goyal et al. 2017) */
    Schedule      schedule;
    double        warmup;        /* epochs of linear warm-up */
    int           loaders;
    bool          augment;
    double        target_acc;    /* percent of the test split; 0 = none */
    double        max_seconds;   /* 0 = no limit */
    uint64_t      seed;
} TrainConfig;

/* "resnet50/data:fashion-mnist/size:28/batch:64/accum:2/amp:bf16/seed:1" and what differs from the standard. */
const char *train_name(const TrainConfig *t, char *text, size_t size);

/* Opens the data set once, so that a wrong name, folder or file is known before a record is begun. */
Status train_check_data(const TrainConfig *t);

/* Trains in this process and gives the entry for the record. An interrupt ends it early: the entry is complete up to
 * there, with status "failed" and the reason. progress: print a line on stderr. */
Status train_run(const TrainConfig *t, const MeasureOptions *options, bool progress, json_t **entry);

/* The entry of a training that could not start or broke off. NULL if out of memory. */
json_t *train_failed(const TrainConfig *t, const Status *why);

#endif
