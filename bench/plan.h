/* plan.h - `batchmark plan`: memory by category without running anything, on this device or on any GPU of gpus.h. */
#ifndef BATCHMARK_BENCH_PLAN_H
#define BATCHMARK_BENCH_PLAN_H

#include "cell.h"

/* Prints the plan of the configuration that the options say; *partial if it does not fit (exit code 3). */
Status run_plan(const Options *o, bool *partial);

/* The largest batch whose total is within the limit, and that total; *batch = 0 if not even 1 is, then total is that of 1.
 * total(context, batch, &bytes) may be slow and has to rise with the batch; it is asked for few batches if it rises evenly.
 * Nothing above `most` is tried. */
typedef Status PlanTotal(void *context, int64_t batch, size_t *bytes);
Status plan_largest_batch(PlanTotal *total, void *context, size_t limit, int64_t most, int64_t *batch, size_t *bytes);

#endif
