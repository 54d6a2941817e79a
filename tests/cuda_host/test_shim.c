/* test_shim.c - the shim runs kernels as a GPU may: all threads, barriers, warps, memory; and shows what is wrong with one. */
#include "fake.h"
#include "shim_kernels.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define WITH_ASAN 1
#endif
#endif
#ifdef __SANITIZE_ADDRESS__
#define WITH_ASAN 1
#endif
#ifndef WITH_ASAN
#define WITH_ASAN 0
#endif

static const int schedules[] = { 0, 1, 2, 3, 4 };

static CudaBackend device; /* no more than cuda_launch wants: the default stream */
static Backend *const be = &device.base;

static void expect_ok(Status s)
{
    if (s.code != STATUS_OK)
        fail_msg("%s", s.text);
}

static void *take(size_t bytes)
{
    void *p = NULL;
    assert_int_equal(cudaMalloc(&p, bytes), cudaSuccess);
    memset(p, 0, bytes); /* no stream is busy: host memory like any other */
    return p;
}

static void give_back(void *p) { assert_int_equal(cudaFree(p), cudaSuccess); }
static void wait_for_it(void) { assert_int_equal(cudaDeviceSynchronize(), cudaSuccess); }

static int start(void **state)
{
    (void)state;
    fake_reset();
    return 0;
}

/* ---- what must work, under every schedule ---- */

static void every_thread_of_a_grid_runs_once(void **state)
{
    (void)state;
    const dim3 grids[] = { { 1, 1, 1 }, { 3, 4, 5 }, { 70000, 1, 1 } };
    for (size_t k = 0; k < COUNT_OF(schedules); k++)
        for (size_t g = 0; g < COUNT_OF(grids); g++) {
            const size_t n = (size_t)grids[g].x * grids[g].y * grids[g].z * 48;
            int *out = take(n * sizeof *out);
            fake_set_schedule(schedules[k]);
            expect_ok(shim_number(be, grids[g], out));
            wait_for_it();
            for (size_t i = 0; i < n; i++)
                assert_int_equal(out[i], (int)i + 1);
            give_back(out);
        }
}

static void block_sums_are_right(void **state)
{
    (void)state;
    static const int sizes[] = { 0, 1, 31, 33, 1000 }, threads[] = { 32, 256, 1024 };
    enum { ROWS = 3 };
    for (size_t k = 0; k < COUNT_OF(schedules); k++)
        for (size_t s = 0; s < COUNT_OF(sizes); s++)
            for (size_t t = 0; t < COUNT_OF(threads); t++) {
                const int n = sizes[s];
                float *x = take((size_t)(ROWS * n + 1) * sizeof *x), *out = take(ROWS * sizeof *out);
                for (int i = 0; i < ROWS * n; i++)
                    x[i] = (float)(i % 7 - 3 + i / (n ? n : 1));
                fake_set_schedule(schedules[k]);
                expect_ok(shim_row_sums(be, x, out, ROWS, n, threads[t]));
                wait_for_it();
                for (int row = 0; row < ROWS; row++) {
                    float want = 0;
                    for (int i = 0; i < n; i++)
                        want += x[row * n + i];
                    assert_true(out[row] == want);
                }
                give_back(x);
                give_back(out);
            }
}

static void lanes_of_a_warp_see_each_other(void **state)
{
    (void)state;
    for (size_t k = 0; k < COUNT_OF(schedules); k++) {
        int *out = take(SHIM_WARP_TESTS * 32 * sizeof *out);
        fake_set_schedule(schedules[k]);
        expect_ok(shim_warp(be, out));
        wait_for_it();
        for (int lane = 0; lane < 32; lane++) {
            assert_int_equal(out[lane], 100 + (lane ^ 5));
            assert_int_equal(out[32 + lane], 100 + (lane + 3 < 32 ? lane + 3 : lane));
            assert_int_equal(out[64 + lane], 100 + (lane >= 2 ? lane - 2 : lane));
            assert_int_equal(out[96 + lane], 107);
            assert_int_equal(out[128 + lane], 100 + (lane % 8 < 7 ? lane + 1 : lane));
            assert_int_equal((unsigned)out[160 + lane], 0xaaaaaaaau);
            assert_int_equal(out[192 + lane], lane < 8 ? 0xff : 0);
        }
        give_back(out);
    }
}

static void atomics_count_everything(void **state)
{
    (void)state;
    for (size_t k = 0; k < COUNT_OF(schedules); k++) {
        int *counts = take(10 * sizeof *counts), *came = take(sizeof *came), *last = take(sizeof *last);
        fake_set_schedule(schedules[k]);
        expect_ok(shim_count(be, counts, 10, 12345, came, last));
        wait_for_it();
        for (int i = 0; i < 10; i++)
            assert_int_equal(counts[i], 1234 + (i < 5));
        assert_int_equal(*last, schedules[k] == 1 ? 0 : 6);
        give_back(counts);
        give_back(came);
        give_back(last);
    }
}

static void halves_are_rounded_to_nearest_even(void **state)
{
    (void)state;
    const float x[] = { 0, -0.0f, 1, 2049, 2051, 65504, 65520, 1e-8f, 0x1p-24f, 257, 259, 3.0e38f, -INFINITY };
    enum { N = COUNT_OF(x) };
    float *in = take(sizeof x), *f16 = take(sizeof x), *bf16 = take(sizeof x);
    memcpy(in, x, sizeof x);
    expect_ok(shim_round(be, in, f16, bf16, N));
    wait_for_it();
    for (int i = 0; i < N; i++) {
        assert_true(f16[i] == f16_to_f32(f16_from_f32(x[i])));
        assert_true(bf16[i] == bf16_to_f32(bf16_from_f32(x[i])));
    }
    give_back(in);
    give_back(f16);
    give_back(bf16);
}

/* ---- what is wrong with a kernel must show ---- */

/* The rows come out reversed, or the launch fails. */
static bool reverses(ShimBarrier barrier, int schedule, Status *end)
{
    enum { ROWS = 4, N = 96 };
    float *x = take(ROWS * N * sizeof *x), *y = take(ROWS * N * sizeof *y);
    bool   right = true;
    for (int i = 0; i < ROWS * N; i++)
        x[i] = (float)i;
    fake_set_schedule(schedule);
    expect_ok(shim_reverse(be, x, y, ROWS, N, barrier));
    *end = cuda_status(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    for (int i = 0; i < ROWS * N; i++)
        right &= y[i] == x[i / N * N + N - 1 - i % N];
    fake_reset(); /* the device may be broken */
    give_back(x);
    give_back(y);
    return right;
}

static void a_missing_barrier_shows(void **state)
{
    (void)state;
    Status end;
    for (size_t k = 0; k < COUNT_OF(schedules); k++) {
        assert_true(reverses(SHIM_RIGHT, schedules[k], &end));
        assert_int_equal(end.code, STATUS_OK);
        assert_false(reverses(SHIM_NONE_BEFORE_READ, schedules[k], &end));
    }
    assert_false(reverses(SHIM_NONE_BEFORE_WRITE, 3, &end));
    assert_false(reverses(SHIM_NONE_BEFORE_WRITE, 4, &end));
}

static void threads_that_wait_for_ever_break_the_device(void **state)
{
    (void)state;
    Status end;
    for (size_t k = 0; k < COUNT_OF(schedules); k++) {
        assert_false(reverses(SHIM_DIVERGENT, schedules[k], &end));
        assert_int_equal(end.code, STATUS_BACKEND);
        assert_non_null(strstr(end.text, "cudaErrorLaunchFailure"));
        assert_true(reverses(SHIM_RIGHT, schedules[k], &end)); /* a new device works */
    }
}

static void wrong_masks_break_the_device(void **state)
{
    (void)state;
    for (int wrong = 0; wrong < 2; wrong++) {
        int *out = take(32 * sizeof *out);
        expect_ok(shim_wrong_warp(be, wrong, out));
        assert_int_equal(cudaDeviceSynchronize(), cudaErrorLaunchFailure);
        fake_reset();
        give_back(out);
    }
}

static void a_kernel_that_was_not_named_cannot_be_launched(void **state)
{
    (void)state;
    Status s = shim_unknown(be);
    assert_int_equal(s.code, STATUS_BACKEND);
    assert_non_null(strstr(s.text, "invalid device function"));
    assert_int_equal(cudaGetLastError(), cudaSuccess); /* cuda_status has read it away */
}

static void limits_of_a_launch_are_kept(void **state)
{
    (void)state;
    int *out = take(sizeof *out);
    assert_int_equal(shim_number(be, (dim3){ 1, 65536, 1 }, out).code, STATUS_BACKEND);
    assert_int_equal(shim_row_sums(be, NULL, NULL, 1, 0, 2048).code, STATUS_BACKEND);
    assert_int_equal(shim_shared_overrun(be, 48 * 1024 + 1, NULL).code, STATUS_BACKEND); /* more must be asked for */
    assert_int_equal(shim_number(be, (dim3){ 0, 1, 1 }, out).code, STATUS_OK);           /* nothing to do */
    give_back(out);
}

/* In a child, that the sanitizer may end. */
static bool survives(void (*action)(void))
{
    int status;
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (WITH_ASAN)
            (void)!freopen("/dev/null", "w", stderr);
        action();
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static void write_behind(void)
{
    float *x = take(80 * sizeof *x), *y = take(70 * sizeof *y);
    if (shim_add_one(be, x, y, 70, 1).code || cudaDeviceSynchronize())
        _exit(2);
    cudaFree(y);
    _exit(fake_counts().overruns == 1 ? 3 : 0);
}

static void write_behind_shared(void)
{
    float *y = take(sizeof *y);
    if (shim_shared_overrun(be, 100, y).code || cudaDeviceSynchronize())
        _exit(2);
}

static void bytes_behind_a_block_are_watched(void **state)
{
    (void)state;
    assert_false(survives(write_behind));
    if (WITH_ASAN)
        assert_false(survives(write_behind_shared));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(every_thread_of_a_grid_runs_once, start),
        cmocka_unit_test_setup(block_sums_are_right, start),
        cmocka_unit_test_setup(lanes_of_a_warp_see_each_other, start),
        cmocka_unit_test_setup(atomics_count_everything, start),
        cmocka_unit_test_setup(halves_are_rounded_to_nearest_even, start),
        cmocka_unit_test_setup(a_missing_barrier_shows, start),
        cmocka_unit_test_setup(threads_that_wait_for_ever_break_the_device, start),
        cmocka_unit_test_setup(wrong_masks_break_the_device, start),
        cmocka_unit_test_setup(a_kernel_that_was_not_named_cannot_be_launched, start),
        cmocka_unit_test_setup(limits_of_a_launch_are_kept, start),
        cmocka_unit_test_setup(bytes_behind_a_block_are_watched, start),
    };
    return cmocka_run_group_tests_name("cuda_host_shim", tests, NULL, NULL);
}
