/* test_plan.c - the planner: nothing alive at the same time overlaps, and little memory is wasted. */
#include "../nets/plan.h"
#include "fault_alloc.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void expect_ok(Status s)
{
    if (s.code != STATUS_OK)
        fail_msg("%s: %s", status_code_name(s.code), s.text);
}

/* Items with random sizes (some 0, some odd) and lifetimes. */
static void random_items(uint64_t seed, PlanItem *items, int count)
{
    for (int i = 0; i < count; i++) {
        RngBlock b = rng_block(seed, 0, (uint64_t)i);
        items[i] = (PlanItem){ .bytes = b.word[0] % 10 ? b.word[1] % 100000 : 0, .first = (int)(b.word[2] % 200) };
        items[i].last = items[i].first + (int)(b.word[3] % 40);
    }
}

static void random_lifetimes_never_overlap(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 50; seed++) {
        PlanItem   items[150];
        PlanResult result;
        random_items(seed, items, COUNT_OF(items));
        expect_ok(plan_place(items, COUNT_OF(items), false, &result));
        expect_ok(plan_check(items, COUNT_OF(items)));
        assert_true(result.lower_bound <= result.peak && result.peak <= result.naive);
        assert_true(result.peak < result.lower_bound * 1.25); /* measured: 1.17 at most */
        for (size_t i = 0; i < COUNT_OF(items); i++) {
            assert_int_equal(items[i].offset % PLAN_ALIGN, 0);
            assert_true(items[i].offset + items[i].bytes <= result.peak);
        }
    }
}

static void a_chain_needs_two_buffers(void **state)
{
    (void)state;
    PlanItem   items[10];
    PlanResult result;
    for (int i = 0; i < 10; i++) /* each is written at i and read at i + 1 */
        items[i] = (PlanItem){ .bytes = 1000, .first = i, .last = i + 1 };
    expect_ok(plan_place(items, 10, false, &result));
    assert_int_equal(result.peak, 2 * 1024);
    assert_int_equal(result.lower_bound, 2 * 1024);
    assert_int_equal(result.naive, 10 * 1024);
}

static void separate_gives_everything_its_own_memory(void **state)
{
    (void)state;
    PlanItem   items[40];
    PlanResult result;
    random_items(7, items, COUNT_OF(items));
    expect_ok(plan_place(items, COUNT_OF(items), true, &result));
    assert_int_equal(result.peak, result.naive);
    for (size_t i = 0; i < COUNT_OF(items); i++) { /* as if all were alive at once */
        items[i].first = 0;
        items[i].last = 1000;
    }
    expect_ok(plan_check(items, COUNT_OF(items)));
}

static void nothing_needs_nothing(void **state)
{
    (void)state;
    PlanResult result;
    expect_ok(plan_place(NULL, 0, false, &result));
    assert_int_equal(result.peak + result.lower_bound + result.naive, 0);
}

static void the_same_items_give_the_same_plan(void **state)
{
    (void)state;
    PlanItem   a[150], b[150];
    PlanResult result;
    random_items(3, a, COUNT_OF(a));
    random_items(3, b, COUNT_OF(b));
    for (size_t i = 0; i < COUNT_OF(b); i++)
        b[i].offset = 12345; /* what was there before must not matter */
    expect_ok(plan_place(a, COUNT_OF(a), false, &result));
    expect_ok(plan_place(b, COUNT_OF(b), false, &result));
    for (size_t i = 0; i < COUNT_OF(a); i++)
        assert_int_equal(a[i].offset, b[i].offset);
}

static void the_check_finds_an_overlap(void **state)
{
    (void)state;
    PlanItem apart[] = { { 100, 0, 5, 0 }, { 100, 3, 9, 128 } };
    PlanItem in_turn[] = { { 100, 0, 5, 0 }, { 100, 6, 9, 0 } };
    PlanItem overlapping[] = { { 100, 0, 5, 0 }, { 100, 5, 9, 64 } };
    expect_ok(plan_check(apart, 2));
    expect_ok(plan_check(in_turn, 2));
    Status s = plan_check(overlapping, 2);
    assert_int_equal(s.code, STATUS_NUMERIC);
    assert_non_null(strstr(s.text, "items 0"));
}

static Status place_some(void *context)
{
    PlanItem   items[20];
    PlanResult result;
    (void)context;
    random_items(1, items, COUNT_OF(items));
    return plan_place(items, COUNT_OF(items), false, &result);
}

static void running_out_of_memory_is_an_error(void **state)
{
    (void)state;
    assert_int_equal(fault_alloc_sweep(place_some, NULL), 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_lifetimes_never_overlap),
        cmocka_unit_test(a_chain_needs_two_buffers),
        cmocka_unit_test(separate_gives_everything_its_own_memory),
        cmocka_unit_test(nothing_needs_nothing),
        cmocka_unit_test(the_same_items_give_the_same_plan),
        cmocka_unit_test(the_check_finds_an_overlap),
        cmocka_unit_test(running_out_of_memory_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
