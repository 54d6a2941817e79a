/* test_op_list.c - every op of the list against the reference, on the device of test_device.h: the same bits where the arithmetic is exact, and
 * within the tolerances of compare.c on random numbers. */
#include "op_list.h"
#include "ref/ref.h"
#include "test_device.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

typedef struct Tally { int cases, failures, refusals; double start; } Tally;

static void need(Status s)
{
    if (s.code != STATUS_OK)
        fail_msg("%s", s.text);
}

static Backend *open_device(void)
{
    Backend *be;
    need(backend_open(test_device(), &(BackendOptions){ .threads = 1, .no_tune = true }, &be));
    return be;
}

static void run_case(const ListedOp *listed, CompareMode mode, Backend *ref, Backend *be, Tally *tally)
{
    OpCase  *c;
    OpResult want = { 0 }, got = { 0 };
    need(op_list_case(listed, mode, 20, ref, &c));
    need(op_case_run(c, ref, NULL, &want));
    Status s = op_case_run(c, be, NULL, &got);
    if (s.code == STATUS_OK)
        s = op_case_compare(c, mode, &want, &got);
    tally->cases++;
    if (s.code == STATUS_UNSUPPORTED) {
        tally->refusals++;
        print_message("not done: %s\n", s.text);
    } else if (s.code != STATUS_OK) {
        tally->failures++;
        print_error("FAILED: %s\n", s.text);
    }
    op_result_release(&want);
    op_result_release(&got);
    op_case_destroy(c);
}

static bool multiplies(Backend *be, Dtype type)
{
    BackendInfo info;
    backend_describe(be, &info);
    return type == DTYPE_F32 || (type == DTYPE_BF16 ? info.fast_bf16 : info.fast_fp16 || !info.is_gpu); /* a CPU does fp16 in f32 */
}

static void agree(Dtype type)
{
    static ListedOp list[OP_LIST_MAX];
    const int count = op_list_make(type, list);
    Backend  *ref, *be = open_device();
    Tally     tally = { .start = clock_seconds() };
    need(ref_backend.open(&(BackendOptions){ .threads = test_device_is_gpu() ? 8 : 2 }, &ref));
    if (!multiplies(be, type)) {
        backend_close(ref);
        backend_close(be);
        print_message("%s is not for this device\n", dtype_name(type));
        skip();
    }
    for (int i = 0; i < count; i++) {
        if (list[i].exact)
            run_case(&list[i], COMPARE_EXACT, ref, be, &tally);
        run_case(&list[i], COMPARE_TOLERANCE, ref, be, &tally);
    }
    backend_close(ref);
    backend_close(be);
    print_message("%s on %s: %d cases, %d failed, %d not done, %.1f s\n", dtype_name(type), test_device(), tally.cases, tally.failures,
                  tally.refusals, clock_seconds() - tally.start);
    assert_int_equal(tally.failures, 0);
    assert_true(tally.refusals <= tally.cases / 20); /* a few shapes may be beyond a library, a kind of op may not */
}

static void f32_agrees(void **state) { (void)state; agree(DTYPE_F32); }
static void bf16_agrees(void **state) { (void)state; agree(DTYPE_BF16); }
static void f16_agrees(void **state) { (void)state; agree(DTYPE_F16); }

static void no_op_is_left_out(void **state)
{
    (void)state;
    static ListedOp list[OP_LIST_MAX];
    bool      seen[OP_COUNT] = { false };
    const int count = op_list_make(DTYPE_F32, list);
    for (int i = 0; i < count; i++)
        seen[list[i].op.kind] = true;
    for (int kind = 0; kind < OP_COUNT; kind++)
        if (!seen[kind])
            fail_msg("%s is not in the list", op_names[kind]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_op_is_left_out),
        cmocka_unit_test(f32_agrees),
        cmocka_unit_test(bf16_agrees),
        cmocka_unit_test(f16_agrees),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
