/* stats.h - small statistics over samples; pure. n = 0 gives NaN everywhere. */
#ifndef BATCHMARK_BENCH_STATS_H
#define BATCHMARK_BENCH_STATS_H

#include <stddef.h>

double stats_mean(const double *x, size_t n);
double stats_sem(const double *x, size_t n);                 /* standard error of the mean; NaN for n < 2 */
double stats_quantile(const double *x, size_t n, double q);  /* type 7 (R, numpy default); copies, sorts; NaN if out of memory */
double stats_median(const double *x, size_t n);

/* Least squares y = a + b x; r2 is the coefficient of determination. n >= 2. */
typedef struct StatsLine { double intercept, slope, r2; } StatsLine;
StatsLine stats_line(const double *x, const double *y, size_t n);

#endif
