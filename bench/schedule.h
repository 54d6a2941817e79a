/* schedule.h - the learning rate of every update: schedules over a run, and how the peak follows the batch. Pure. */
#ifndef BATCHMARK_BENCH_SCHEDULE_H
#define BATCHMARK_BENCH_SCHEDULE_H

#include <stdint.h>

typedef enum Schedule { SCHEDULE_CONSTANT, SCHEDULE_LINEAR, SCHEDULE_COSINE, SCHEDULE_STEP, SCHEDULE_COUNT } Schedule;
extern const char *const schedule_names[SCHEDULE_COUNT + 1]; /* NULL-terminated, like every list of choices */

/* Learning rate of one update (0-based) of `updates`, by schedule and linear warm-up; constant after the last. linear and
 * cosine fall from the peak, at the end of the warm-up, to 0 at the end of the run; step divides by 10 at 1/3, 2/3 and 8/9
 * of the whole run, the epochs 30, 60 and 80 of 90 in Goyal et al. 2017 (arXiv 1706.02677, 5.1). Updates, not micro-batches,
 * move it. */
double schedule_rate(Schedule schedule, double peak, int64_t update, int64_t updates, int64_t warmup_updates);

typedef enum RateRule { RATE_NONE, RATE_LINEAR, RATE_SQRT, RATE_RULE_COUNT } RateRule;
extern const char *const rate_rule_names[RATE_RULE_COUNT + 1]; /* "none", "linear", "sqrt", NULL */

/* The rate for an effective batch (micro-batch x accumulation x devices), where `base` is right for base_batch, both at
 * least 1: base; base k with k = effective / base_batch (Goyal et al. 2017); base sqrt(k) (Krizhevsky 2014, arXiv 1404.5997). */
double scaled_rate(double base, int64_t effective_batch, int64_t base_batch, RateRule rule);

#endif
