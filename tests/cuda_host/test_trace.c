/* test_trace.c - profiling by CUPTI's records: whose work it was, also when a graph replays it; what is not of the trace; what is lost
 * and that it is told; and that whatever CUPTI refuses, the backend goes on without. */
#include "../fault_alloc.h"
#include "fake.h"
#include "fake_cupti.h"
#include "kernels/cuda/kernel_names.h"
#include "kernels/cuda/libs.h"
#include "shim_kernels.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N = 64, BYTES = N * sizeof(float) };

static struct { CudaBackend cuda; float *x, *y, *pinned; } rig;
static Backend *const be = &rig.cuda.base;

static void good(Status s) { assert_string_equal(s.text, ""); }

static int set_up(void **state)
{
    (void)state;
    fake_reset();
    fake_cupti_reset();
    fake_set_library(FAKE_CUPTI, fake_cupti_api(), NULL);
    memset(&rig, 0, sizeof rig);
    rig.cuda.base.vtable = &cuda_backend;
    assert_int_equal(cudaStreamCreateWithFlags(&rig.cuda.stream, cudaStreamNonBlocking), cudaSuccess);
    assert_int_equal(cudaMalloc((void **)&rig.x, BYTES), cudaSuccess);
    assert_int_equal(cudaMalloc((void **)&rig.y, BYTES), cudaSuccess);
    assert_int_equal(cudaMallocHost((void **)&rig.pinned, BYTES), cudaSuccess);
    memset(rig.pinned, 0, BYTES);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    fake_reset();
    assert_null(rig.cuda.trace);
    assert_int_equal(fake_cupti_open(), 0); /* no session of ours is left, whatever happened in the test */
    cudaFree(rig.x);
    cudaFree(rig.y);
    cudaFreeHost(rig.pinned);
    cudaStreamDestroy(rig.cuda.stream);
    return 0;
}

static Status launch(void) { return shim_add_one(be, rig.x, rig.y, N, 0); }

static void copy(void *to, const void *from, enum cudaMemcpyKind kind)
{
    assert_int_equal(cudaMemcpyAsync(to, from, BYTES, kind, rig.cuda.stream), cudaSuccess);
}

static DeviceTrace stop(void)
{
    DeviceTrace t;
    good(cuda_trace_stop(be, &t));
    return t;
}

static void assert_event(const DeviceTrace *t, size_t i, TraceKind kind, int tag)
{
    assert_true(i < t->count);
    assert_int_equal(t->events[i].kind, kind);
    assert_int_equal(t->events[i].tag, tag);
}

/* ---- whose work ---- */

static void work_belongs_to_the_last_tag(void **state)
{
    (void)state;
    good(cuda_trace_start(be));
    good(launch());
    cuda_trace_tag(be, 3);
    good(launch());
    good(launch());
    cuda_trace_tag(be, 0);
    copy(rig.y, rig.x, cudaMemcpyDeviceToDevice);
    cuda_trace_tag(be, -1);
    good(launch());
    DeviceTrace t = stop();
    assert_int_equal(t.count, 5);
    assert_event(&t, 0, TRACE_KERNEL, -1);
    assert_event(&t, 1, TRACE_KERNEL, 3);
    assert_event(&t, 2, TRACE_KERNEL, 3);
    assert_event(&t, 3, TRACE_COPY_WITHIN, 0);
    assert_event(&t, 4, TRACE_KERNEL, -1);
    device_trace_free(&t);
}

static void tags_without_a_trace_are_nothing(void **state)
{
    (void)state;
    cuda_trace_tag(be, 3);
    good(launch());
    assert_int_equal(fake_cupti_open(), 0);
}

static Status enqueue_two_nodes(void *context)
{
    (void)context;
    cuda_trace_tag(be, 5);
    TRY(launch());
    cuda_trace_tag(be, 6);
    TRY(launch());
    TRY(cuda_status(cudaMemsetAsync(rig.x, 0, BYTES, rig.cuda.stream), "cudaMemsetAsync"));
    cuda_trace_tag(be, -1);
    return status_ok();
}

static void replayed_work_belongs_to_the_tag_of_its_recording(void **state)
{
    (void)state;
    void *recording = NULL;
    good(cuda_trace_start(be));
    good(cuda_record(be, enqueue_two_nodes, NULL, &recording));
    for (int i = 0; i < 3; i++)
        good(cuda_replay(be, recording));
    DeviceTrace t = stop();
    assert_int_equal(t.count, 9); /* recording itself runs nothing */
    for (size_t i = 0; i < 9; i += 3) {
        assert_event(&t, i, TRACE_KERNEL, 5);
        assert_event(&t, i + 1, TRACE_KERNEL, 6);
        assert_event(&t, i + 2, TRACE_SET, 6);
    }
    device_trace_free(&t);
    cuda_recording_free(be, recording);
}

static void what_was_recorded_before_the_trace_has_no_tag(void **state)
{
    (void)state;
    void *recording = NULL;
    good(cuda_record(be, enqueue_two_nodes, NULL, &recording));
    good(cuda_trace_start(be));
    cuda_trace_tag(be, 9); /* of the launch of the graph, not of its nodes */
    good(cuda_replay(be, recording));
    DeviceTrace t = stop();
    assert_int_equal(t.count, 3);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(t.events[i].tag, -1);
    device_trace_free(&t);
    cuda_recording_free(be, recording);
}

/* ---- what ---- */

static void copies_have_directions_and_bytes(void **state)
{
    (void)state;
    good(cuda_trace_start(be));
    copy(rig.x, rig.pinned, cudaMemcpyHostToDevice);
    copy(rig.y, rig.x, cudaMemcpyDeviceToDevice);
    copy(rig.pinned, rig.y, cudaMemcpyDeviceToHost);
    assert_int_equal(cudaMemsetAsync(rig.x, 0, 16, rig.cuda.stream), cudaSuccess);
    DeviceTrace t = stop();
    assert_int_equal(t.count, 4);
    assert_event(&t, 0, TRACE_COPY_IN, -1);
    assert_event(&t, 1, TRACE_COPY_WITHIN, -1);
    assert_event(&t, 2, TRACE_COPY_OUT, -1);
    assert_event(&t, 3, TRACE_SET, -1);
    assert_int_equal(t.events[0].bytes, BYTES);
    assert_int_equal(t.events[3].bytes, 16);
    assert_string_equal(t.events[0].name, "copy host to device");
    assert_string_equal(t.events[3].name, "set memory");
    device_trace_free(&t);
}

static void times_are_on_the_hosts_clock_and_in_order(void **state)
{
    (void)state;
    double before = clock_seconds();
    good(cuda_trace_start(be));
    for (int i = 0; i < 20; i++)
        good(launch());
    DeviceTrace t = stop();
    double after = clock_seconds();
    for (size_t i = 0; i < t.count; i++) {
        const TraceEvent *e = &t.events[i];
        assert_true(e->start > before - 1e-4 && e->end < after + 1e-4); /* the two clocks are 5000 s apart */
        assert_true(fabs(e->end - e->start - 1e-6) < 1e-7);
        assert_true(i == 0 || e->start >= t.events[i - 1].start);
    }
    device_trace_free(&t);
}

/* ---- what is of the trace, and what is lost (tests/CASES.md D17) ---- */

static void a_thousand_launches_are_a_thousand_records(void **state)
{
    (void)state;
    for (int i = 0; i < 100; i++)
        good(launch()); /* enqueued before, and still waiting */
    good(cuda_trace_start(be));
    fake_cupti_set_buffer_records(37);
    cuda_trace_tag(be, 1);
    for (int i = 0; i < 1000; i++)
        good(launch());
    DeviceTrace t = stop();
    assert_int_equal(t.count, 1000);
    assert_int_equal(t.dropped, 0);
    for (size_t i = 0; i < t.count; i++)
        assert_int_equal(t.events[i].tag, 1);
    device_trace_free(&t);
}

static void traces_follow_each_other(void **state)
{
    (void)state;
    for (int round = 1; round <= 3; round++) {
        good(cuda_trace_start(be));
        cuda_trace_tag(be, round);
        for (int i = 0; i < round; i++)
            good(launch());
        DeviceTrace t = stop();
        assert_int_equal(t.count, round);
        assert_event(&t, 0, TRACE_KERNEL, round);
        device_trace_free(&t);
        good(launch());
    }
}

static void lost_records_are_counted(void **state)
{
    (void)state;
    good(cuda_trace_start(be));
    for (int i = 0; i < 10; i++)
        good(launch());
    fake_cupti_drop(7); /* the kernels run when stop waits for them */
    DeviceTrace t = stop();
    assert_int_equal(t.dropped, 7);
    assert_int_equal(t.count, 3);
    device_trace_free(&t);
}

static void records_without_times_are_lost_not_zero(void **state)
{
    (void)state;
    good(cuda_trace_start(be));
    fake_cupti_set_times(0, 0);
    good(launch());
    assert_int_equal(cudaDeviceSynchronize(), cudaSuccess);
    fake_cupti_set_times(1u << 30, 0); /* still running when a forced flush came */
    good(launch());
    assert_int_equal(cudaDeviceSynchronize(), cudaSuccess);
    fake_cupti_set_times(1, 1001); /* of before the start */
    good(launch());
    assert_int_equal(cudaDeviceSynchronize(), cudaSuccess);
    good(launch());
    DeviceTrace t = stop();
    assert_int_equal(t.count, 1);
    assert_int_equal(t.dropped, 2);
    device_trace_free(&t);
}

/* ---- what CUPTI refuses (tests/CASES.md D16) ---- */

static void no_library_is_a_reason(void **state)
{
    (void)state;
    fake_set_library(FAKE_CUPTI, NULL, "libcupti.so.13: cannot open shared object file");
    Status s = cuda_trace_start(be);
    assert_int_equal(s.code, STATUS_UNSUPPORTED);
    assert_non_null(strstr(s.text, "libcupti.so.13: cannot open"));
    good(launch());
}

static void refusals_name_cause_and_remedy(void **state)
{
    (void)state;
    static const struct { int error; const char *words; } cases[] = {
        { CUPTI_ERROR_INSUFFICIENT_PRIVILEGES, "NVreg_RestrictProfilingToAdminUsers=0" },
        { CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED, "another profiler" },
        { CUPTI_ERROR_NOT_INITIALIZED, "driver" },
        { CUPTI_ERROR_MIG_DEVICE_NOT_SUPPORTED, "MIG" },
        { CUPTI_ERROR_UNKNOWN, "999" },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        FakeFault fault = { .at = 1, .call = i == 1 ? "cuptiSubscribe" : "cuptiActivityEnable", .error = { [FAKE_CUPTI] = cases[i].error } };
        fake_set_fault(&fault);
        Status s = cuda_trace_start(be);
        assert_int_equal(s.code, STATUS_UNSUPPORTED);
        assert_non_null(strstr(s.text, cases[i].words));
        assert_non_null(strstr(s.text, fault.call));
        assert_null(strchr(s.text, '\n'));
        assert_int_equal(fake_cupti_open(), 0);
        good(launch());
    }
    fake_set_fault(NULL);
}

/* Starts, tags, records, replays, stops. A call of CUPTI's that fails may cost the profile, never more. */
static Status whole_session(DeviceTrace *t)
{
    void *recording = NULL;
    TRY(cuda_trace_start(be));
    Status s = cuda_record(be, enqueue_two_nodes, NULL, &recording);
    if (s.code == STATUS_OK)
        s = cuda_replay(be, recording);
    cuda_trace_tag(be, 2);
    if (s.code == STATUS_OK)
        s = launch();
    Status stopped = cuda_trace_stop(be, t);
    cuda_recording_free(be, recording);
    return s.code != STATUS_OK ? s : stopped;
}

static void every_call_may_fail_once(void **state)
{
    (void)state;
    int64_t at = 1, whole = 0;
    for (;; at++) {
        DeviceTrace t = { 0 };
        FakeFault fault = { .at = at, .error = { [FAKE_CUPTI] = CUPTI_ERROR_UNKNOWN } };
        fake_set_fault(&fault);
        Status s = whole_session(&t);
        const bool met = fake_fault_met();
        fake_set_fault(NULL);
        fake_cupti_reset(); /* what could not be undone since undoing it failed */
        assert_null(rig.cuda.trace);
        if (s.code == STATUS_OK) { /* nothing failed, or it cost records alone */
            assert_true(!met || t.dropped > 0);
            device_trace_free(&t);
            whole += !met;
        } else {
            assert_int_equal(s.code, STATUS_UNSUPPORTED);
            assert_non_null(strstr(s.text, "999"));
            assert_null(t.events);
        }
        good(launch());
        if (!met)
            break;
    }
    assert_int_equal(whole, 1);
    assert_true(at > 25);
}

static void a_lost_device_is_the_devices_error(void **state)
{
    (void)state;
    DeviceTrace t;
    good(cuda_trace_start(be));
    good(launch());
    fake_break_device(cudaErrorIllegalAddress);
    Status s = cuda_trace_stop(be, &t);
    assert_int_equal(s.code, STATUS_BACKEND);
    assert_int_equal(t.count, 0);
}

/* ---- memory ---- */

static Status session_of_one(void *context)
{
    DeviceTrace t = { 0 };
    (void)context;
    TRY(cuda_trace_start(be));
    Status s = launch();
    Status stopped = cuda_trace_stop(be, &t);
    const bool lost = t.dropped > 0;
    device_trace_free(&t);
    if (s.code != STATUS_OK)
        return s;
    return lost ? status_error(STATUS_OOM, "records were lost") : stopped;
}

static void memory_may_run_out_anywhere(void **state)
{
    (void)state;
    assert_true(fault_alloc_sweep(session_of_one, NULL) >= 5);
}

/* ---- names ---- */

static void names_are_short(void **state)
{
    (void)state;
    static const struct { const char *mangled, *text; } cases[] = {
        { "_ZN12_GLOBAL__N_110sgd_kernelIfLb1EEEvPT_S2_l", "sgd_kernel<float, true>" },
        { "_Z7add_onePKfPfii", "add_one" },
        { "ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x4_tn", "ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x4_tn" },
        { "_ZN5cudnn3ops16nchwToNhwcKernelI13__nv_bfloat16S2_fLb1ELb0ELi2EEEvT_", "cudnn::ops::nchwToNhwcKernel<__nv_bfloat16, __nv_bfloat16, float, true, false, 2>" },
        { "", "" },
    };
    char text[KERNEL_NAME_BYTES], small[8];
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        assert_string_equal(kernel_short_name(cases[i].mangled, text, sizeof text), cases[i].text);
    assert_string_equal(kernel_short_name("a_name_that_is_long", small, sizeof small), "a_name_");
}

static void tensor_cores_show_in_names(void **state)
{
    (void)state;
    static const char *const yes[] = {
        "sm80_xmma_fprop_implicit_gemm_indexed_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x32_stage4_warpsize2x2x1_g1_tensor16x8x16_kernel_cudnn",
        "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_128x64_64x3_nn_align8>(T1::Params)",
        "ampere_fp16_s16816gemm_fp16_256x128_ldg8_f2f_stages_64x3_nn", "volta_fp16_s884cudnn_fp16_128x128_ldg8_relu_f2f_exp",
        "turing_fp16_s1688gemm_fp16_128x128_ldg8_f2f_tn", "nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_NTT",
        "cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_32_64x128x64_4x1x1_kernel0_0",
        "sm90_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize64x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas",
    };
    static const char *const no[] = {
        "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize64x64x8_stage3_warpsize1x4x1_ffma_aligna4_alignc4_execute_kernel__5x_cublas",
        "cutlass_80_simt_sgemm_128x64_8x5_nn_align1", "ampere_sgemm_32x128_tn", "sgd_kernel<float, true>",
        "cudnn::bn_fw_tr_1C11_kernel_NCHW", "", "void at::native::vectorized_elementwise_kernel<4>",
    };
    for (size_t i = 0; i < COUNT_OF(yes); i++)
        if (!kernel_uses_tensor_cores(yes[i]))
            fail_msg("%s", yes[i]);
    for (size_t i = 0; i < COUNT_OF(no); i++)
        if (kernel_uses_tensor_cores(no[i]))
            fail_msg("%s", no[i]);
}

#define WITH_RIG(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_RIG(work_belongs_to_the_last_tag),
        WITH_RIG(tags_without_a_trace_are_nothing),
        WITH_RIG(replayed_work_belongs_to_the_tag_of_its_recording),
        WITH_RIG(what_was_recorded_before_the_trace_has_no_tag),
        WITH_RIG(copies_have_directions_and_bytes),
        WITH_RIG(times_are_on_the_hosts_clock_and_in_order),
        WITH_RIG(a_thousand_launches_are_a_thousand_records),
        WITH_RIG(traces_follow_each_other),
        WITH_RIG(lost_records_are_counted),
        WITH_RIG(records_without_times_are_lost_not_zero),
        WITH_RIG(no_library_is_a_reason),
        WITH_RIG(refusals_name_cause_and_remedy),
        WITH_RIG(every_call_may_fail_once),
        WITH_RIG(a_lost_device_is_the_devices_error),
        WITH_RIG(memory_may_run_out_anywhere),
        cmocka_unit_test(names_are_short),
        cmocka_unit_test(tensor_cores_show_in_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
