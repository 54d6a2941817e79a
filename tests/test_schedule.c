/* Learning rates: values at the ends and at the drops, and that only updates count. */
#include "../bench/schedule.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { UPDATES = 100, WARMUP = 10 };

static void expect(double got, double want)
{
    if (!(fabs(got - want) <= 1e-12 * fabs(want) + 1e-18))
        fail_msg("got %.17g, expected %.17g", got, want);
}

static double rate(Schedule schedule, int64_t update)
{
    return schedule_rate(schedule, 0.4, update, UPDATES, WARMUP);
}

static void every_schedule_warms_up_to_its_peak(void **state)
{
    (void)state;
    for (int s = 0; s < SCHEDULE_COUNT; s++) {
        expect(rate((Schedule)s, 0), 0.04);
        expect(rate((Schedule)s, 4), 0.2);
        expect(rate((Schedule)s, 9), 0.4);
        expect(rate((Schedule)s, 10), 0.4);
        expect(schedule_rate((Schedule)s, 0.4, 0, UPDATES, 0), 0.4); /* without a warm-up */
        expect(schedule_rate((Schedule)s, 0.4, 0, 1, 1), 0.4);       /* nothing else than warm-up */
    }
}

static void schedules_reach_their_end(void **state)
{
    (void)state;
    expect(rate(SCHEDULE_CONSTANT, 99), 0.4);
    expect(rate(SCHEDULE_LINEAR, 55), 0.2);
    expect(rate(SCHEDULE_LINEAR, 99), 0.4 / 90); /* one step above the end, which is 0 after the last update */
    expect(rate(SCHEDULE_LINEAR, 100), 0);
    expect(rate(SCHEDULE_COSINE, 55), 0.2);
    assert_true(rate(SCHEDULE_COSINE, 99) < 0.4 * 3.1e-4); /* (pi / 90)^2 / 4 */
    assert_true(rate(SCHEDULE_COSINE, 100) < 1e-12);
    assert_true(rate(SCHEDULE_COSINE, 500) < 1e-12);       /* past the end it stays there */
    expect(rate(SCHEDULE_LINEAR, 500), 0);
    expect(rate(SCHEDULE_STEP, 99), 0.4e-3);
    expect(rate(SCHEDULE_STEP, 500), 0.4e-3);
}

/* 90 epochs of 5004 updates with 5 of warm-up, as in the paper: drops at the first update of epochs 30, 60 and 80. */
static void steps_come_where_the_paper_has_them(void **state)
{
    (void)state;
    static const struct { int64_t epoch; double before, from; } drops[] = { { 30, 3.2, 0.32 }, { 60, 0.32, 0.032 }, { 80, 0.032, 0.0032 } };
    const int64_t epoch = 5004;
    for (size_t i = 0; i < sizeof drops / sizeof *drops; i++) {
        expect(schedule_rate(SCHEDULE_STEP, 3.2, drops[i].epoch * epoch - 1, 90 * epoch, 5 * epoch), drops[i].before);
        expect(schedule_rate(SCHEDULE_STEP, 3.2, drops[i].epoch * epoch, 90 * epoch, 5 * epoch), drops[i].from);
    }
}

/* tests/CASES.md D6, D11: twice the micro-batches with the same number of updates is the same list of rates, and a run of half
 * the updates goes through the same schedule in half the time, to the same end. */
static void rates_depend_on_the_share_of_updates_done(void **state)
{
    (void)state;
    for (int s = 0; s < SCHEDULE_COUNT; s++)
        for (int64_t update = 0; update <= 45; update++)
            expect(schedule_rate((Schedule)s, 1, update, 45, 0), schedule_rate((Schedule)s, 1, 2 * update, 90, 0));
    for (int s = 0; s < SCHEDULE_COUNT; s++)
        for (int64_t update = WARMUP; update < UPDATES; update++)
            assert_true(rate((Schedule)s, update + 1) <= rate((Schedule)s, update));
}

static void the_peak_follows_the_batch_by_its_rule(void **state)
{
    (void)state;
    expect(scaled_rate(0.1, 1024, 256, RATE_NONE), 0.1);
    expect(scaled_rate(0.1, 1024, 256, RATE_LINEAR), 0.4);
    expect(scaled_rate(0.1, 1024, 256, RATE_SQRT), 0.2);
    expect(scaled_rate(0.1, 64, 256, RATE_LINEAR), 0.025);
    expect(scaled_rate(0.1, 64, 256, RATE_SQRT), 0.05);
    for (int rule = 0; rule < RATE_RULE_COUNT; rule++)
        expect(scaled_rate(0.1, 256, 256, (RateRule)rule), 0.1);
}

static void names_end_with_null(void **state)
{
    (void)state;
    assert_string_equal(schedule_names[SCHEDULE_STEP], "step");
    assert_null(schedule_names[SCHEDULE_COUNT]);
    assert_string_equal(rate_rule_names[RATE_SQRT], "sqrt");
    assert_null(rate_rule_names[RATE_RULE_COUNT]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_schedule_warms_up_to_its_peak),
        cmocka_unit_test(schedules_reach_their_end),
        cmocka_unit_test(steps_come_where_the_paper_has_them),
        cmocka_unit_test(rates_depend_on_the_share_of_updates_done),
        cmocka_unit_test(the_peak_follows_the_batch_by_its_rule),
        cmocka_unit_test(names_end_with_null),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
