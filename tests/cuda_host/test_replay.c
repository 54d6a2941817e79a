/* test_replay.c - a small BERT on the CUDA backend: a replayed recording gives the bits of an eager run, in whatever order streams
 * run and threads are scheduled; and nothing is allocated once the executor is there. */
#include "fake.h"
#include "workload.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static int set_up(void **state)
{
    (void)state;
    workload_set_up();
    return 0;
}

static WorkloadResult run(const Workload *w)
{
    WorkloadResult   r;
    const FakeCounts before = fake_counts();
    expect_ok(workload_run(w, &r));
    assert_true(fake_nothing_leaked(&before));
    assert_true(isfinite(r.loss));
    return r;
}

static void a_replay_gives_the_bits_of_an_eager_run(void **state)
{
    (void)state;
    static const Dtype types[] = { DTYPE_F32, DTYPE_BF16, DTYPE_F16 };
    for (size_t t = 0; t < COUNT_OF(types); t++) {
        Workload w = { .kind = WORKLOAD_BERT, .type = types[t], .steps = 3, .options = { .eager = true } };
        const FakeCounts     start = fake_counts();
        const WorkloadResult eager = run(&w);
        assert_int_equal(fake_counts().graph_launches, start.graph_launches);
        w.options.eager = false;
        const WorkloadResult replayed = run(&w);
        assert_int_equal(fake_counts().graph_launches - start.graph_launches, 2 + 5 + 2); /* all but the first of each */
        if (replayed.hash != eager.hash || replayed.loss != eager.loss)
            fail_msg("%s: loss %g replayed, %g eager", dtype_name(types[t]), replayed.loss, eager.loss);
    }
}

static void streams_and_threads_in_any_order_give_the_same_bits(void **state)
{
    (void)state;
    static const FakeOrder orders[] = { FAKE_LATE, FAKE_AT_ONCE, FAKE_FIRST_LATE, FAKE_FIRST_AT_ONCE };
    static const int       schedules[] = { 1, 3, 4 };
    const Workload         w = { .kind = WORKLOAD_BERT, .type = DTYPE_F16, .steps = 2 };
    const WorkloadResult   want = run(&w);
    for (size_t i = 0; i < COUNT_OF(orders); i++) {
        fake_set_order(orders[i]);
        assert_true(run(&w).hash == want.hash);
    }
    for (size_t i = 0; i < COUNT_OF(schedules); i++) {
        fake_set_schedule(schedules[i]);
        assert_true(run(&w).hash == want.hash);
    }
}

static FakeCounts at_creation;
static void note_counts(void) { at_creation = fake_counts(); }

static void nothing_is_allocated_after_creation(void **state)
{
    (void)state;
    const Workload w = { .kind = WORKLOAD_BERT, .type = DTYPE_BF16, .steps = 3, .created = note_counts };
    run(&w);
    assert_true(at_creation.device_blocks > 0);
    assert_int_equal(fake_counts().device_allocations, at_creation.device_allocations);
    assert_int_equal(fake_counts().pinned_allocations, at_creation.pinned_allocations); /* slots need not grow for so little */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_replay_gives_the_bits_of_an_eager_run, set_up),
        cmocka_unit_test_setup(streams_and_threads_in_any_order_give_the_same_bits, set_up),
        cmocka_unit_test_setup(nothing_is_allocated_after_creation, set_up),
    };
    return cmocka_run_group_tests_name("cuda_host_replay", tests, NULL, NULL);
}
