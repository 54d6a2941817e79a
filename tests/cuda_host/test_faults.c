/* test_faults.c - calls of CUDA's runtime, cuDNN and cuBLASLt fail, one in each run of a small net from opening the device to closing
 * it. Each run must end in a clean message or in the very numbers of a run without faults, leave nothing behind, and not hurt the
 * next run in the same process, if the device is still there (tests/CASES.md D5). */
#include "../../kernels/cuda/libs.h"
#include "fake.h"
#include "workload.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const Workload small = { .kind = WORKLOAD_BERT, .type = DTYPE_BF16, .steps = 2 };

static int set_up(void **state)
{
    (void)state;
    workload_set_up();
    return 0;
}

/* How a call fails, by library. */
typedef struct Way { const char *name; FakeFault fault; bool loses_device; } Way;

static const Way ways[] = {
    { "unknown error",
      { .error = { cudaErrorUnknown, CUDNN_STATUS_INTERNAL_ERROR, CUBLAS_STATUS_INTERNAL_ERROR, 0, 0 } }, false },
    { "out of memory",
      { .error = { cudaErrorMemoryAllocation, CUDNN_STATUS_ALLOC_FAILED, CUBLAS_STATUS_ALLOC_FAILED, 0, 0 } }, false },
    { "illegal address", { .error = { cudaErrorIllegalAddress, 0, 0, 0, 0 } }, true },
};

/* Numbers of the calls to let fail: of each function the first, those whose turn is a power of four, and the last. Every call
 * would be thousands of runs; what is left out repeats what is tried. */
typedef struct Choice { int64_t *call; int count; } Choice;

/* After a run that only counted. */
static Choice choose_calls(void)
{
    const int64_t calls = fake_fault_calls();
    Choice        c = { malloc((size_t)calls * sizeof *c.call), 0 };
    assert_non_null(c.call);
    for (int64_t n = 1; n <= calls; n++) {
        int64_t turn = 1, power = 1;
        bool    last = true;
        for (int64_t k = 1; k < n; k++)
            turn += !strcmp(fake_fault_name(k), fake_fault_name(n));
        for (int64_t k = n + 1; k <= calls && last; k++)
            last = strcmp(fake_fault_name(k), fake_fault_name(n)) != 0;
        while (power < turn)
            power *= 4;
        if (power == turn || last)
            c.call[c.count++] = n;
    }
    return c;
}

static void expect_clean(const char *where, Status s, const WorkloadResult *got, const WorkloadResult *want)
{
    if (s.code == STATUS_OK) {
        if (got->hash != want->hash)
            fail_msg("%s: nobody saw it, and the numbers are others", where);
        return;
    }
    if (!s.text[0] || strchr(s.text, '\n') || strlen(s.text) > 400)
        fail_msg("%s: not a clean line: '%s'", where, s.text);
    if (s.code != STATUS_BACKEND && s.code != STATUS_OOM && s.code != STATUS_UNSUPPORTED)
        fail_msg("%s: %s is no error of a device: %s", where, status_code_name(s.code), s.text);
}

/* One run in which that call fails, and one after it. */
static bool run_with(const Way *way, int64_t at, const WorkloadResult *want)
{
    const FakeCounts before = fake_counts();
    FakeFault        fault = way->fault;
    WorkloadResult   got;
    char             where[120];
    fault.at = at;
    fake_set_fault(&fault);
    Status s = workload_run(&small, &got);
    snprintf(where, sizeof where, "call %lld, %s, %s", (long long)at, fake_fault_call(), way->name);
    assert_true(fake_fault_met());
    fake_set_fault(NULL);
    expect_clean(where, s, &got, want);
    if (!fake_nothing_leaked(&before))
        fail_msg("%s: something leaked", where);
    if (way->loses_device) {
        if (workload_run(&small, &got).code != STATUS_BACKEND)
            fail_msg("%s: the device is lost, and the next run did not say so", where);
        assert_true(fake_nothing_leaked(&before));
        workload_set_up();
    } else if (cudaPeekAtLastError() != cudaSuccess)
        fail_msg("%s: the error is still waiting for somebody", where);
    return s.code != STATUS_OK;
}

static void calls_fail_one_after_the_other(void **state)
{
    (void)state;
    WorkloadResult want, got;
    expect_ok(workload_run(&small, &want));
    for (size_t k = 0; k < COUNT_OF(ways); k++) {
        fake_set_fault(&ways[k].fault);
        expect_ok(workload_run(&small, &got));
        assert_true(got.hash == want.hash);
        const int64_t calls = fake_fault_calls();
        Choice        c = choose_calls();
        int           told = 0;
        for (int i = 0; i < c.count; i++)
            told += run_with(&ways[k], c.call[i], &want);
        print_message("%s: %d of %lld calls failed in turn, %d ended the run\n", ways[k].name, c.count, (long long)calls, told);
        assert_true(told > c.count / 3);
        free(c.call);
        expect_ok(workload_run(&small, &got)); /* the next run in this process works */
        assert_true(got.hash == want.hash);
    }
}

/* ---- out of memory ---- */

static void memory_that_ends_anywhere_is_out_of_memory(void **state)
{
    (void)state;
    const FakeCounts before = fake_counts();
    WorkloadResult   want, got;
    size_t           least = 0, enough = 64 << 20;
    FakeDevice       device = fake_default_device();
    expect_ok(workload_run(&small, &want));
    while (enough - least > 65536) { /* the least capacity that is enough, by halving */
        device.memory = device.context + (least + enough) / 2;
        fake_set_devices(1, &device, CUDART_VERSION);
        Status s = workload_run(&small, &got);
        if (s.code != STATUS_OK && s.code != STATUS_OOM)
            fail_msg("%zu bytes: %s: %s", (least + enough) / 2, status_code_name(s.code), s.text);
        *(s.code == STATUS_OK ? &enough : &least) = (least + enough) / 2;
        assert_true(fake_nothing_leaked(&before));
        assert_int_equal(cudaPeekAtLastError(), cudaSuccess);
        assert_true(s.code == STATUS_OOM || got.hash == want.hash);
    }
    assert_true(least > 10000);
    device.memory = device.context + 100; /* not even the device can be opened */
    fake_set_devices(1, &device, CUDART_VERSION);
    expect_error(workload_run(&small, &got), STATUS_OOM, "");
}

/* ---- a device that is lost ---- */

static void a_device_lost_in_the_middle_is_told_to_the_end(void **state)
{
    (void)state;
    static const char *const calls[] = { "cudaLaunchKernel", "cudaGraphLaunch", "cudaMemcpyAsync", "cudaStreamSynchronize" };
    for (size_t i = 0; i < COUNT_OF(calls); i++)
        for (int64_t at = 1; at <= 64; at *= 4) { /* the call succeeds: what it started ends the context later */
            const FakeCounts before = fake_counts();
            const FakeFault  later = { .at = at, .call = calls[i], .later = true, .error = { [FAKE_RUNTIME] = cudaErrorIllegalAddress } };
            WorkloadResult   got;
            fake_set_fault(&later);
            Status s = workload_run(&small, &got);
            if (!fake_fault_met()) {
                expect_ok(s);
                continue;
            }
            expect_error(s, STATUS_BACKEND, "an illegal memory access was encountered");
            expect_error(s, STATUS_BACKEND, "cannot be used any more by this process");
            expect_error(workload_run(&small, &got), STATUS_BACKEND, "an illegal memory access was encountered");
            assert_true(fake_nothing_leaked(&before));
            workload_set_up();
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(calls_fail_one_after_the_other, set_up),
        cmocka_unit_test_setup(memory_that_ends_anywhere_is_out_of_memory, set_up),
        cmocka_unit_test_setup(a_device_lost_in_the_middle_is_told_to_the_end, set_up),
    };
    return cmocka_run_group_tests_name("cuda_host_faults", tests, NULL, NULL);
}
