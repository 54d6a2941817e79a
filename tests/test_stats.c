/* Statistics against values worked out by hand or published. */
#include "bench/stats.h"

#include "fault_alloc.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

/* Equal to `digits` significant digits. */
static void assert_close(double got, double want, double relative)
{
    if (!(fabs(got - want) <= relative * fabs(want)))
        fail_msg("got %.17g, expected %.17g", got, want);
}

/* NIST StRD, data set Norris: y, x. Certified: intercept, slope, R-squared below. */
static const double norris[][2] = {
    { 0.1, 0.2 },     { 338.8, 337.4 }, { 118.1, 118.2 }, { 888.0, 884.6 }, { 9.2, 10.1 },    { 228.1, 226.5 },
    { 668.5, 666.3 }, { 998.5, 996.3 }, { 449.1, 448.6 }, { 778.9, 777.0 }, { 559.2, 558.2 }, { 0.3, 0.4 },
    { 0.1, 0.6 },     { 778.1, 775.5 }, { 668.8, 666.9 }, { 339.3, 338.0 }, { 448.9, 447.5 }, { 10.8, 11.6 },
    { 557.7, 556.0 }, { 228.3, 228.1 }, { 998.0, 995.8 }, { 888.8, 887.6 }, { 119.6, 120.2 }, { 0.3, 0.3 },
    { 0.6, 0.3 },     { 557.6, 556.8 }, { 339.3, 339.1 }, { 888.0, 887.2 }, { 998.5, 999.0 }, { 778.9, 779.0 },
    { 10.2, 11.1 },   { 117.6, 118.3 }, { 228.9, 229.2 }, { 668.4, 669.1 }, { 449.2, 448.9 }, { 0.2, 0.5 },
};

static void line_fits_as_nist_certifies(void **state)
{
    (void)state;
    double x[36], y[36];
    for (int i = 0; i < 36; i++) {
        y[i] = norris[i][0];
        x[i] = norris[i][1];
    }
    StatsLine line = stats_line(x, y, 36);
    assert_close(line.intercept, -0.262323073774029, 1e-11);
    assert_close(line.slope, 1.00211681802045, 1e-13);
    assert_close(line.r2, 0.999993745883712, 1e-13);
}

static void exact_lines_are_found_exactly(void **state)
{
    (void)state;
    static const double x[] = { 1, 2, 4, 8 }, y[] = { 5, 7, 11, 19 };
    StatsLine line = stats_line(x, y, 4);
    assert_close(line.slope, 2, 1e-14);
    assert_close(line.intercept, 3, 1e-14);
    assert_close(line.r2, 1, 1e-14);
}

static void lines_that_are_none_give_nan(void **state)
{
    (void)state;
    static const double same[] = { 3, 3, 3 }, y[] = { 1, 2, 3 };
    assert_true(isnan(stats_line(same, y, 3).slope));
    assert_true(isnan(stats_line(y, y, 1).slope));
    assert_true(isnan(stats_line(y, same, 3).r2)); /* flat: slope 0, nothing to explain */
    assert_true(stats_line(y, same, 3).slope == 0);
}

/* NIST StRD, data set NumAcc3: 1000000.2, then 500 times 1000000.1, 1000000.3. Mean 1000000.2, deviation 0.1. */
static void mean_and_error_hold_with_tiny_spread(void **state)
{
    (void)state;
    double x[1001] = { 1000000.2 };
    for (int i = 1; i < 1001; i++)
        x[i] = i % 2 ? 1000000.1 : 1000000.3;
    assert_close(stats_mean(x, 1001), 1000000.2, 1e-15);
    assert_close(stats_sem(x, 1001), 0.1 / sqrt(1001), 1e-8);
}

/* 2, 4, 4, 4, 5, 5, 7, 9: mean 5, sum of squares 32, so the error is sqrt(32 / 7 / 8). */
static void error_of_the_mean_divides_by_n_less_one(void **state)
{
    (void)state;
    static const double x[] = { 2, 4, 4, 4, 5, 5, 7, 9 };
    assert_close(stats_mean(x, 8), 5, 1e-15);
    assert_close(stats_sem(x, 8), sqrt(32.0 / 7 / 8), 1e-15);
}

/* Type 7: R's quantile(c(4, 1, 3, 2)) gives 1.00 1.75 2.50 3.25 4.00. */
static void quantiles_are_of_type_7(void **state)
{
    (void)state;
    static const double x[] = { 4, 1, 3, 2 }, want[] = { 1, 1.75, 2.5, 3.25, 4 };
    for (int i = 0; i < 5; i++)
        assert_close(stats_quantile(x, 4, 0.25 * i), want[i], 1e-15);
    assert_close(stats_quantile(x, 4, 0.1), 1.3, 1e-15);
    assert_true(x[0] == 4 && x[1] == 1); /* left as they were */
    static const double odd[] = { 9, 1, 5 };
    assert_close(stats_median(odd, 3), 5, 1e-15);
    assert_close(stats_median(odd, 1), 9, 1e-15);
}

static void nothing_gives_nan(void **state)
{
    (void)state;
    static const double one[] = { 3 }, bad[] = { 1, (double)NAN, 2 };
    assert_true(isnan(stats_mean(NULL, 0)) && isnan(stats_sem(NULL, 0)) && isnan(stats_median(NULL, 0)));
    assert_true(isnan(stats_line(NULL, NULL, 0).slope));
    assert_true(isnan(stats_sem(one, 1)));
    assert_true(stats_mean(one, 1) == 3);
    assert_true(isnan(stats_median(bad, 3)) && isnan(stats_mean(bad, 3)) && isnan(stats_sem(bad, 3)));
    assert_true(isnan(stats_quantile(one, 1, 1.5)) && isnan(stats_quantile(one, 1, -0.1)));
}

static void no_memory_gives_nan(void **state)
{
    (void)state;
    static const double x[] = { 1, 2, 3 };
    int64_t before = fault_alloc_live();
    fault_alloc_arm(1);
    double got = stats_median(x, 3);
    fault_alloc_disarm();
    assert_true(isnan(got));
    assert_int_equal(fault_alloc_live(), before);
    assert_true(stats_median(x, 3) == 2);
    assert_int_equal(fault_alloc_live(), before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(line_fits_as_nist_certifies),
        cmocka_unit_test(exact_lines_are_found_exactly),
        cmocka_unit_test(lines_that_are_none_give_nan),
        cmocka_unit_test(mean_and_error_hold_with_tiny_spread),
        cmocka_unit_test(error_of_the_mean_divides_by_n_less_one),
        cmocka_unit_test(quantiles_are_of_type_7),
        cmocka_unit_test(nothing_gives_nan),
        cmocka_unit_test(no_memory_gives_nan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
