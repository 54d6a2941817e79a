/* stats.c - the bodies of stats.h: two passes where one would lose digits, and no state. */
#include "stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

double stats_mean(const double *x, size_t n)
{
    if (n == 0)
        return (double)NAN;
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += x[i];
    double mean = sum / (double)n;
    double rest = 0; /* what rounding lost: matters when the spread is tiny beside the mean */
    for (size_t i = 0; i < n; i++)
        rest += x[i] - mean;
    return mean + rest / (double)n;
}

double stats_sem(const double *x, size_t n)
{
    if (n < 2)
        return (double)NAN;
    double mean = stats_mean(x, n), squares = 0;
    for (size_t i = 0; i < n; i++)
        squares += (x[i] - mean) * (x[i] - mean);
    return sqrt(squares / (double)(n - 1) / (double)n);
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Hyndman & Fan 1996, definition 7: linear between the order statistics around (n - 1) q. */
double stats_quantile(const double *x, size_t n, double q)
{
    if (n == 0 || !(q >= 0 && q <= 1))
        return (double)NAN;
    for (size_t i = 0; i < n; i++)
        if (isnan(x[i]))
            return (double)NAN; /* NaN has no rank */
    double *sorted = malloc(n * sizeof *sorted);
    if (!sorted)
        return (double)NAN;
    memcpy(sorted, x, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, compare_doubles);
    double place = (double)(n - 1) * q;
    size_t below = (size_t)place;
    double part = place - (double)below, value = sorted[below];
    if (part > 0)
        value += part * (sorted[below + 1] - value);
    free(sorted);
    return value;
}

double stats_median(const double *x, size_t n) { return stats_quantile(x, n, 0.5); }

StatsLine stats_line(const double *x, const double *y, size_t n)
{
    StatsLine line = { (double)NAN, (double)NAN, (double)NAN };
    if (n < 2)
        return line;
    double mx = stats_mean(x, n), my = stats_mean(y, n), xx = 0, xy = 0, yy = 0;
    for (size_t i = 0; i < n; i++) {
        xx += (x[i] - mx) * (x[i] - mx);
        xy += (x[i] - mx) * (y[i] - my);
        yy += (y[i] - my) * (y[i] - my);
    }
    if (!(xx > 0))
        return line; /* one place only: no line */
    line.slope = xy / xx;
    line.intercept = my - line.slope * mx;
    double residual = 0;
    for (size_t i = 0; i < n; i++) {
        double e = y[i] - line.intercept - line.slope * x[i];
        residual += e * e;
    }
    if (yy > 0)
        line.r2 = 1 - residual / yy; /* a constant y has no variance to explain: NaN */
    return line;
}
