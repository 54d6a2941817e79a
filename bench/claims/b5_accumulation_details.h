/* b5_accumulation_details.h - the analysis behind claim B5: pure functions of measured trainings, and the comparison of running
 * statistics on any backend. */
#ifndef BATCHMARK_BENCH_CLAIMS_B5_ACCUMULATION_DETAILS_H
#define BATCHMARK_BENCH_CLAIMS_B5_ACCUMULATION_DETAILS_H

#include "../train.h"
#include "entry.h"

/* One epoch of n micro-batches in windows of k, n not always divisible by k. */
typedef struct WindowRow {
    int64_t n, k, updates, samples, given; /* given: samples in the split */
    double  last_weight;  /* gradient norm of a last window of one micro-batch over that of the same alone: 1 if the mean is over what
                           * the window holds, 1 / k if over what it should hold; NaN = the last window is another */
    double  rate_error;   /* largest |rate - schedule by updates| over the peak */
} WindowRow;

/* From the entry of a training of one epoch under the linear schedule. alone: that with k = 1, or NULL. */
WindowRow window_read(const json_t *training, const json_t *alone, int64_t n, int64_t k, int64_t given);

/* Kept whole: ceil(n / k) updates, every sample used, the last window weighted by what it holds, the rate moved per update. */
bool window_is_whole(const WindowRow *w);

/* The same samples with k = 1 at `lr`, and with k at `lr` and at k lr: the loss on the test split. */
typedef struct RateRow { int64_t k; double lr, single, unscaled, scaled; } RateRow;

/* Whether k lr came closer to the run without accumulation than lr did; false if a loss is missing. */
bool rate_scaling_helps(const RateRow *r);

/* |s_k - s_1| / |s_1| over all running means or variances of a net with batch norm, after one window of the same samples in k
 * micro-batches and as one batch, each moved off its start; NaN from a net without. variance: which of the two. */
typedef struct NormRow { int64_t k; double mean, variance; } NormRow;
Status norm_statistics_distance(Backend *be, const NetConfig *config, int64_t k, uint64_t seed, NormRow *row);

/* Of three parts - the samples must divide by k; the rate times k; batch norm sees the micro-batch - REPRODUCED if all hold here,
 * CONTRADICTED if none does, else PARTLY; NOT_RUN without any row. */
Verdict accumulation_details_judge(const WindowRow *windows, size_t window_count, const RateRow *rates, size_t rate_count,
                                   const NormRow *norms, size_t norm_count);

#endif
