/* test_runtime.c - the fake runtime behaves as CUDA's: what is late, what errors stick, what a capture takes; and its counts. */
#include "fake.h"
#include "shim_kernels.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N = 100, BYTES = N * sizeof(float) };

/* Two streams with an event, two blocks of device memory, one of pinned memory. */
typedef struct Rig {
    CudaBackend  first, second; /* no more than their streams */
    cudaEvent_t  event;
    float       *x, *y, *pinned;
    FakeCounts   before;
} Rig;

static Rig rig;

static void good(cudaError_t e) { assert_int_equal(e, cudaSuccess); }

static int set_up(void **state)
{
    (void)state;
    fake_reset();
    memset(&rig, 0, sizeof rig);
    rig.before = fake_counts();
    good(cudaStreamCreateWithFlags(&rig.first.stream, cudaStreamNonBlocking));
    good(cudaStreamCreateWithFlags(&rig.second.stream, cudaStreamNonBlocking));
    good(cudaEventCreateWithFlags(&rig.event, cudaEventDefault));
    good(cudaMalloc((void **)&rig.x, BYTES));
    good(cudaMalloc((void **)&rig.y, BYTES));
    good(cudaMallocHost((void **)&rig.pinned, BYTES));
    for (int i = 0; i < N; i++)
        rig.x[i] = rig.y[i] = rig.pinned[i] = (float)i;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    cudaFree(rig.x);
    cudaFree(rig.y);
    cudaFreeHost(rig.pinned);
    cudaEventDestroy(rig.event);
    cudaStreamDestroy(rig.first.stream);
    cudaStreamDestroy(rig.second.stream);
    assert_true(fake_nothing_leaked(&rig.before));
    return 0;
}

/* y = x + 1 in a stream. */
static void add_one(CudaBackend *in, const float *x, float *y)
{
    assert_int_equal(shim_add_one(&in->base, x, y, N, 0).code, STATUS_OK);
}

/* ---- streams ---- */

static void work_is_late_until_it_is_waited_for(void **state)
{
    (void)state;
    add_one(&rig.first, rig.x, rig.y);
    assert_true(rig.y[3] == 3);
    assert_int_equal(cudaStreamQuery(rig.second.stream), cudaSuccess);
    good(cudaStreamSynchronize(rig.second.stream));
    assert_true(rig.y[3] == 3); /* another stream's */
    good(cudaStreamSynchronize(rig.first.stream));
    assert_true(rig.y[3] == 4);
}

static void work_runs_at_once_on_request(void **state)
{
    (void)state;
    fake_set_order(FAKE_AT_ONCE);
    add_one(&rig.first, rig.x, rig.y);
    assert_true(rig.y[3] == 4);
    fake_set_order(FAKE_FIRST_LATE);
    add_one(&rig.first, rig.y, rig.x);
    add_one(&rig.second, rig.y, rig.y);
    assert_true(rig.x[3] == 3 && rig.y[3] == 5);
    good(cudaDeviceSynchronize());
    assert_true(rig.x[3] == 6); /* it read y after the other had written: nothing told them apart */
}

/* Writes y in the first stream, reads it in the second. */
static float read_in_second(bool wait)
{
    rig.y[3] = 3;
    add_one(&rig.first, rig.x, rig.y);
    good(cudaEventRecord(rig.event, rig.first.stream));
    if (wait)
        good(cudaStreamWaitEvent(rig.second.stream, rig.event, 0));
    good(cudaMemcpyAsync(rig.pinned, rig.y, BYTES, cudaMemcpyDeviceToHost, rig.second.stream));
    good(cudaStreamSynchronize(rig.second.stream));
    const float seen = rig.pinned[3];
    good(cudaDeviceSynchronize());
    return seen;
}

static void a_missing_wait_between_streams_shows(void **state)
{
    (void)state;
    assert_true(read_in_second(true) == 4);
    assert_true(read_in_second(false) == 3);
}

static void an_event_that_was_recorded_again_means_the_last_time(void **state)
{
    (void)state;
    add_one(&rig.first, rig.x, rig.y);
    good(cudaEventRecord(rig.event, rig.first.stream));
    add_one(&rig.first, rig.y, rig.y);
    good(cudaEventRecord(rig.event, rig.first.stream));
    add_one(&rig.first, rig.y, rig.y);
    good(cudaEventSynchronize(rig.event));
    assert_true(rig.y[0] == 2);
    assert_int_equal(cudaEventQuery(rig.event), cudaSuccess);
    good(cudaStreamSynchronize(rig.first.stream));
    assert_true(rig.y[0] == 3);
}

static void asking_again_comes_to_an_end(void **state)
{
    (void)state;
    int asked = 0;
    add_one(&rig.first, rig.x, rig.y);
    good(cudaEventRecord(rig.event, rig.first.stream));
    while (cudaEventQuery(rig.event) == cudaErrorNotReady)
        assert_true(++asked < 10);
    assert_true(asked > 0 && rig.y[3] == 4);
    assert_int_equal(cudaGetLastError(), cudaSuccess); /* "not ready" is no error */
}

static void copies_from_pinned_memory_read_it_late(void **state)
{
    (void)state;
    float ordinary[N];
    memcpy(ordinary, rig.pinned, BYTES);
    good(cudaMemcpyAsync(rig.x, rig.pinned, BYTES, cudaMemcpyHostToDevice, rig.first.stream));
    good(cudaMemcpyAsync(rig.y, ordinary, BYTES, cudaMemcpyHostToDevice, rig.first.stream));
    rig.pinned[3] = ordinary[3] = 77;
    good(cudaStreamSynchronize(rig.first.stream));
    assert_true(rig.x[3] == 77 && rig.y[3] == 3);
    good(cudaMemcpyAsync(ordinary, rig.x, BYTES, cudaMemcpyDeviceToHost, rig.first.stream)); /* waits */
    assert_true(ordinary[3] == 77);
}

static void copies_must_be_where_they_say(void **state)
{
    (void)state;
    float ordinary[N];
    assert_int_equal(cudaMemcpyAsync(rig.x, rig.y, BYTES, cudaMemcpyHostToDevice, rig.first.stream), cudaErrorInvalidValue);
    assert_int_equal(cudaMemcpyAsync(rig.x, rig.pinned, BYTES + 4, cudaMemcpyHostToDevice, rig.first.stream), cudaErrorInvalidValue);
    assert_int_equal(cudaMemcpy(ordinary, rig.pinned, BYTES, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
    assert_int_equal(cudaMemsetAsync(rig.x + N, 0, 1, rig.first.stream), cudaErrorInvalidValue);
    assert_int_equal(cudaMemsetAsync(ordinary, 0, 1, rig.first.stream), cudaErrorInvalidValue);
    good(cudaMemcpy(ordinary, rig.x, BYTES, cudaMemcpyDeviceToHost));
    assert_true(ordinary[3] == 3);
}

static void events_tell_the_time_of_the_work(void **state)
{
    (void)state;
    cudaEvent_t start;
    float       ms = -1;
    good(cudaEventCreate(&start));
    good(cudaEventRecord(start, rig.first.stream));
    add_one(&rig.first, rig.x, rig.y);
    good(cudaEventRecord(rig.event, rig.first.stream));
    assert_int_equal(cudaEventElapsedTime(&ms, start, rig.event), cudaErrorNotReady);
    good(cudaStreamSynchronize(rig.first.stream));
    good(cudaEventElapsedTime(&ms, start, rig.event));
    assert_true(ms > 0.0019f && ms < 0.0021f); /* a launch takes two microseconds */
    good(cudaEventDestroy(start));
}

/* ---- capture ---- */

static cudaGraphExec_t capture_two(void)
{
    cudaGraph_t     graph;
    cudaGraphExec_t exec;
    good(cudaStreamBeginCapture(rig.first.stream, cudaStreamCaptureModeThreadLocal));
    add_one(&rig.first, rig.x, rig.y);
    add_one(&rig.first, rig.y, rig.x);
    good(cudaStreamEndCapture(rig.first.stream, &graph));
    good(cudaGraphInstantiate(&exec, graph, 0));
    good(cudaGraphDestroy(graph));
    return exec;
}

static void a_captured_graph_runs_when_it_is_launched(void **state)
{
    (void)state;
    cudaGraphExec_t exec = capture_two();
    good(cudaDeviceSynchronize());
    assert_true(rig.x[3] == 3);
    for (int i = 1; i <= 3; i++) {
        good(cudaGraphLaunch(exec, rig.first.stream));
        assert_true(rig.x[3] == (float)(2 * i + 1)); /* late too */
        good(cudaStreamSynchronize(rig.first.stream));
        assert_true(rig.x[3] == (float)(2 * i + 3));
    }
    good(cudaGraphExecDestroy(exec));
}

static void what_a_capture_cannot_take_spoils_it(void **state)
{
    (void)state;
    cudaGraph_t graph;
    void       *p;
    for (int what = 0; what < 4; what++) {
        good(cudaEventRecord(rig.event, rig.second.stream));
        good(cudaStreamBeginCapture(rig.first.stream, cudaStreamCaptureModeThreadLocal));
        cudaError_t e = what == 0 ? cudaMalloc(&p, 16) : what == 1 ? cudaStreamSynchronize(rig.first.stream) :
                        what == 2 ? cudaStreamWaitEvent(rig.first.stream, rig.event, 0) : cudaDeviceSynchronize();
        assert_int_equal(e, what == 2 ? cudaErrorStreamCaptureIsolation : cudaErrorStreamCaptureUnsupported);
        assert_int_equal(shim_add_one(&rig.first.base, rig.x, rig.y, N, 0).code, STATUS_BACKEND);
        assert_int_equal(cudaStreamEndCapture(rig.first.stream, &graph), cudaErrorStreamCaptureInvalidated);
        assert_null(graph);
        (void)cudaGetLastError();
        add_one(&rig.first, rig.x, rig.y); /* the stream is as before */
        good(cudaStreamSynchronize(rig.first.stream));
    }
}

/* ---- errors ---- */

static void the_last_error_sticks_until_it_is_read(void **state)
{
    (void)state;
    void *p;
    assert_int_equal(cudaMalloc(&p, (size_t)1 << 40), cudaErrorMemoryAllocation);
    good(cudaStreamSynchronize(rig.first.stream));
    assert_int_equal(cudaPeekAtLastError(), cudaErrorMemoryAllocation);
    assert_int_equal(cudaGetLastError(), cudaErrorMemoryAllocation);
    assert_int_equal(cudaGetLastError(), cudaSuccess);
}

static void memory_ends_at_the_capacity(void **state)
{
    (void)state;
    FakeDevice small = fake_default_device();
    size_t     left, total;
    void      *all, *more;
    small.memory = small.context + (1 << 20);
    fake_set_devices(1, &small, CUDART_VERSION);
    good(cudaMemGetInfo(&left, &total));
    assert_int_equal(total, small.memory);
    assert_int_equal(total - left, small.context + 2 * BYTES);
    good(cudaMalloc(&all, left));
    assert_int_equal(cudaMalloc(&more, 1), cudaErrorMemoryAllocation);
    good(cudaFree(all));
    good(cudaMalloc(&more, left));
    good(cudaFree(more));
}

static void the_nth_call_fails_and_no_other(void **state)
{
    (void)state;
    const FakeFault any = { .at = 2, .error = { [FAKE_RUNTIME] = cudaErrorUnknown } };
    const FakeFault one = { .at = 1, .call = "cudaMemsetAsync", .error = { [FAKE_RUNTIME] = cudaErrorInvalidValue } };
    fake_set_fault(&any);
    good(cudaStreamSynchronize(rig.first.stream));
    assert_int_equal(cudaStreamSynchronize(rig.first.stream), cudaErrorUnknown);
    good(cudaStreamSynchronize(rig.first.stream));
    assert_true(fake_fault_met());
    assert_string_equal(fake_fault_call(), "cudaStreamSynchronize");
    fake_set_fault(&one);
    good(cudaStreamSynchronize(rig.first.stream));
    assert_int_equal(cudaMemsetAsync(rig.x, 0, 4, rig.first.stream), cudaErrorInvalidValue);
    good(cudaMemsetAsync(rig.x, 0, 4, rig.first.stream));
    fake_set_fault(NULL);
    assert_false(fake_fault_met());
}

static void an_error_of_the_context_stays(void **state)
{
    (void)state;
    const FakeFault later = { .at = 1, .call = "cudaLaunchKernel", .later = true,
                              .error = { [FAKE_RUNTIME] = cudaErrorIllegalAddress } };
    fake_set_fault(&later);
    add_one(&rig.first, rig.x, rig.y);
    assert_int_equal(cudaStreamSynchronize(rig.first.stream), cudaErrorIllegalAddress);
    assert_int_equal(cudaGetLastError(), cudaErrorIllegalAddress);
    assert_int_equal(cudaGetLastError(), cudaErrorIllegalAddress);
    assert_int_equal(cudaMemsetAsync(rig.x, 0, 4, rig.first.stream), cudaErrorIllegalAddress);
    Status s = cuda_status(cudaErrorIllegalAddress, "cudaMemsetAsync(x, 0)");
    assert_non_null(strstr(s.text, "cudaMemsetAsync: an illegal memory access"));
    assert_non_null(strstr(s.text, "cannot be used any more"));
    fake_reset();
}

typedef struct Work { int runs, releases; } Work;
static void run_work(void *context) { ((Work *)context)->runs++; }
static void release_work(void *context) { ((Work *)context)->releases++; }

static void work_of_other_libraries_is_enqueued_like_a_kernel(void **state)
{
    (void)state;
    Work        w = { 0 }, refused = { 0 };
    cudaGraph_t graph;
    good(fake_enqueue(rig.first.stream, "gemm", 5, run_work, &w, release_work));
    assert_int_equal(w.runs, 0);
    good(cudaStreamSynchronize(rig.first.stream));
    assert_int_equal(w.runs, 1);
    assert_int_equal(w.releases, 1);

    good(cudaStreamBeginCapture(rig.first.stream, cudaStreamCaptureModeThreadLocal));
    good(fake_enqueue(rig.first.stream, "gemm", 5, run_work, &w, release_work));
    good(cudaStreamEndCapture(rig.first.stream, &graph));
    cudaGraphExec_t exec;
    good(cudaGraphInstantiate(&exec, graph, 0));
    good(cudaGraphDestroy(graph));
    good(cudaGraphLaunch(exec, rig.first.stream));
    good(cudaGraphLaunch(exec, rig.first.stream));
    good(cudaStreamSynchronize(rig.first.stream));
    assert_int_equal(w.runs, 3);
    assert_int_equal(w.releases, 1);
    good(cudaGraphExecDestroy(exec));
    assert_int_equal(w.releases, 2);

    void *p;
    assert_int_equal(cudaMalloc(&p, (size_t)1 << 40), cudaErrorMemoryAllocation);
    assert_int_equal(fake_enqueue(rig.first.stream, "gemm", 5, run_work, &refused, release_work), cudaErrorMemoryAllocation);
    assert_int_equal(refused.releases, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(work_is_late_until_it_is_waited_for, set_up, tear_down),
        cmocka_unit_test_setup_teardown(work_runs_at_once_on_request, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_missing_wait_between_streams_shows, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_event_that_was_recorded_again_means_the_last_time, set_up, tear_down),
        cmocka_unit_test_setup_teardown(asking_again_comes_to_an_end, set_up, tear_down),
        cmocka_unit_test_setup_teardown(copies_from_pinned_memory_read_it_late, set_up, tear_down),
        cmocka_unit_test_setup_teardown(copies_must_be_where_they_say, set_up, tear_down),
        cmocka_unit_test_setup_teardown(events_tell_the_time_of_the_work, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_captured_graph_runs_when_it_is_launched, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_a_capture_cannot_take_spoils_it, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_last_error_sticks_until_it_is_read, set_up, tear_down),
        cmocka_unit_test_setup_teardown(memory_ends_at_the_capacity, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_nth_call_fails_and_no_other, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_error_of_the_context_stays, set_up, tear_down),
        cmocka_unit_test_setup_teardown(work_of_other_libraries_is_enqueued_like_a_kernel, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("cuda_host_runtime", tests, NULL, NULL);
}
