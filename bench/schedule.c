/* schedule.c - see schedule.h. */
#include "schedule.h"

#include <math.h>
#include <stddef.h>

const char *const schedule_names[SCHEDULE_COUNT + 1] = { "constant", "linear", "cosine", "step", NULL };
const char *const rate_rule_names[RATE_RULE_COUNT + 1] = { "none", "linear", "sqrt", NULL };

/* Integers, so that a drop comes at exactly its update. */
static double step_factor(int64_t update, int64_t updates)
{
    if (9 * update >= 8 * updates)
        return 1e-3;
    if (3 * update >= 2 * updates)
        return 1e-2;
    return 3 * update >= updates ? 1e-1 : 1;
}

double schedule_rate(Schedule schedule, double peak, int64_t update, int64_t updates, int64_t warmup)
{
    if (update < warmup)
        return peak * (double)(update + 1) / (double)warmup;
    double done = updates > warmup ? (double)(update - warmup) / (double)(updates - warmup) : 0;
    done = done < 1 ? done : 1;
    switch (schedule) {
    case SCHEDULE_LINEAR: return peak * (1 - done);
    case SCHEDULE_COSINE: return peak * 0.5 * (1 + cos(3.14159265358979323846 * done));
    case SCHEDULE_STEP:   return peak * step_factor(update, updates);
    default:              return peak;
    }
}

double scaled_rate(double base, int64_t effective_batch, int64_t base_batch, RateRule rule)
{
    const double k = (double)effective_batch / (double)base_batch;
    switch (rule) {
    case RATE_LINEAR: return base * k;
    case RATE_SQRT:   return base * sqrt(k);
    default:          return base;
    }
}
