/* test_device.c - the CUDA backend as a device: opening, what it says of itself, memory, copies, recordings, and their faults. */
#include "../../kernels/cuda/cuda.h"
#include "../../kernels/cuda/libs.h"
#include "fake.h"
#include "idle_libs.h"
#include "shim_kernels.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static FakeCounts before;

static int set_up(void **state)
{
    (void)state;
    fake_reset();
    idle_libs_use();
    fake_set_library(FAKE_NVML, NULL, NULL);
    before = fake_counts();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    assert_true(fake_nothing_leaked(&before));
    assert_int_equal(idle_libs_handles(), 0);
    return 0;
}

static void expect_ok(Status s)
{
    if (s.code != STATUS_OK)
        fail_msg("%s", s.text);
}

static void expect_error(Status s, StatusCode code, const char *words)
{
    if (s.code != code || !strstr(s.text, words))
        fail_msg("wanted %s with '%s', got %s: %s", status_code_name(code), words, status_code_name(s.code), s.text);
}

static Backend *open_one(void)
{
    Backend *be;
    expect_ok(backend_open("cuda", NULL, &be));
    return be;
}

static void *take(Backend *be, size_t bytes)
{
    void *p;
    expect_ok(backend_alloc(be, bytes, &p));
    return p;
}

/* ---- opening and what it says ---- */

static void a_device_describes_itself(void **state)
{
    (void)state;
    Backend    *be = open_one();
    BackendInfo info;
    backend_describe(be, &info);
    assert_string_equal(info.name, "NVIDIA H100 80GB HBM3");
    assert_string_equal(info.library, "cuDNN 9.19.0, cuBLASLt 13.0.0");
    assert_string_equal(info.gpu_uuid, "GPU-12345678-9abc-def0-0123-456789abcdef");
    assert_true(info.is_gpu && info.fast_bf16 && info.fast_fp16 && info.fast_tf32);
    assert_int_equal(info.gpu_capability, 90);
    assert_int_equal(info.memory_bytes, fake_default_device().memory);
    assert_int_equal(info.driver_version, CUDART_VERSION);
    assert_int_equal(info.runtime_version, CUDART_VERSION);
    assert_string_equal(info.note, "");
    backend_close(be);
}

static void older_devices_say_what_is_slow_and_why(void **state)
{
    (void)state;
    FakeDevice  t4 = fake_default_device();
    BackendInfo info;
    t4.name = "Tesla T4";
    t4.capability = 75;
    fake_set_devices(1, &t4, CUDART_VERSION);
    Backend *be = open_one();
    backend_describe(be, &info);
    assert_true(info.fast_fp16 && !info.fast_bf16 && !info.fast_tf32);
    assert_string_equal(info.fp16_reason, "");
    assert_string_equal(info.bf16_reason, "compute capability 7.5 has no bf16 tensor cores (8.0 has)");
    assert_string_equal(info.tf32_reason, "compute capability 7.5 has no tf32 tensor cores (8.0 has)");
    backend_close(be);
}

static void a_slice_is_used_and_noted(void **state)
{
    (void)state;
    FakeDevice  slice = fake_default_device();
    BackendInfo info;
    slice.name = "NVIDIA H100 80GB HBM3 MIG 1g.10gb";
    fake_set_devices(1, &slice, CUDART_VERSION);
    Backend *be = open_one();
    backend_describe(be, &info);
    assert_memory_equal(info.gpu_uuid, "MIG-1234", 8);
    assert_non_null(strstr(info.note, "MIG slice"));
    assert_int_equal(info.memory_bytes, slice.memory);
    backend_close(be);
}

static void the_ordinal_chooses_the_device(void **state)
{
    (void)state;
    FakeDevice  two[2] = { fake_default_device(), fake_default_device() };
    BackendInfo info;
    Backend    *be;
    two[1].name = "NVIDIA A100-SXM4-40GB";
    two[1].capability = 80;
    fake_set_devices(2, two, CUDART_VERSION);
    expect_ok(backend_open("cuda:1", NULL, &be));
    backend_describe(be, &info);
    assert_string_equal(info.name, "NVIDIA A100-SXM4-40GB");
    assert_int_equal(info.gpu_capability, 80);
    backend_close(be);
    expect_error(backend_open("cuda:2", NULL, &be), STATUS_UNSUPPORTED, "there is no GPU cuda:2 here: the last is cuda:1");
}

static void what_is_missing_is_said_in_one_line(void **state)
{
    (void)state;
    FakeDevice volta = fake_default_device();
    Backend   *be;
    fake_set_devices(0, NULL, 0);
    expect_error(backend_open("cuda", NULL, &be), STATUS_UNSUPPORTED, "there is no NVIDIA driver here");
    fake_set_devices(0, NULL, CUDART_VERSION);
    expect_error(backend_open("cuda", NULL, &be), STATUS_UNSUPPORTED, "shows no GPU");
    fake_set_devices(1, &volta, CUDART_VERSION - 1000);
    expect_error(backend_open("cuda", NULL, &be), STATUS_BACKEND, "it needs a newer driver");
    fake_set_devices(1, &volta, CUDART_VERSION);
    expect_error(backend_open("cuda:7", NULL, &be), STATUS_UNSUPPORTED, "there is no GPU cuda:7 here: the last is cuda:0");
    volta.capability = 70;
    fake_set_devices(1, &volta, CUDART_VERSION);
    expect_error(backend_open("cuda", NULL, &be), STATUS_UNSUPPORTED, "no kernels for NVIDIA H100 80GB HBM3, compute capability 7.0");
    fake_reset();
    fake_set_library(FAKE_CUDNN, NULL, "libcudnn.so.9: cannot open shared object file");
    expect_error(backend_open("cuda", NULL, &be), STATUS_BACKEND, "cuDNN 9 is needed: libcudnn.so.9: cannot open");
    idle_libs_use();
    fake_set_library(FAKE_CUBLASLT, NULL, "no such file");
    expect_error(backend_open("cuda", NULL, &be), STATUS_BACKEND, "cuBLASLt is needed: no such file");
    assert_null(be);
}

static void without_a_gpu_auto_is_the_cpu(void **state)
{
    (void)state;
    Backend *be;
    fake_set_devices(0, NULL, 0);
    expect_ok(backend_open("auto", NULL, &be));
    assert_string_equal(be->vtable->name, "cpu");
    backend_close(be);
    fake_reset();
    expect_ok(backend_open("auto", NULL, &be));
    assert_string_equal(be->vtable->name, "cuda");
    backend_close(be);
}

static void a_model_is_planned_for_without_cuda(void **state)
{
    (void)state;
    BackendOptions options = { .gpu = "h100-80g" };
    BackendInfo    info;
    BackendMemory  memory;
    Backend       *be;
    void          *p = &p, *recording;
    Tensor         t = tensor_1d(DTYPE_F32, 1);
    float          x = 0;
    fake_set_devices(0, NULL, 0);
    expect_ok(backend_open("auto", &options, &be));
    backend_describe(be, &info);
    assert_string_equal(info.name, gpu_find("h100-80g")->title);
    assert_int_equal(info.memory_bytes, (size_t)gpu_find("h100-80g")->memory_bytes);
    assert_string_equal(info.gpu_uuid, "");
    assert_true(info.is_gpu && info.fast_bf16 && info.driver_version == 0);
    assert_string_equal(info.note, "");
    expect_error(backend_alloc(be, 4, &p), STATUS_UNSUPPORTED, "is only planned for");
    assert_null(p);
    expect_error(backend_upload(be, &t, &x, &x), STATUS_UNSUPPORTED, "is only planned for");
    expect_error(backend_download(be, &t, &x, &x), STATUS_UNSUPPORTED, "is only planned for");
    expect_error(backend_sync(be), STATUS_UNSUPPORTED, "is only planned for");
    expect_error(be->vtable->record(be, NULL, NULL, &recording), STATUS_UNSUPPORTED, "is only planned for");
    expect_error(be->vtable->memory(be, &memory), STATUS_UNSUPPORTED, "is only planned for");
    backend_close(be);
    fake_set_library(FAKE_CUDNN, NULL, "libcudnn.so.9 is not there");
    expect_ok(backend_open("cuda", &options, &be));
    backend_describe(be, &info);
    assert_string_equal(info.note, "workspaces of convolutions are not counted: no cuDNN here (libcudnn.so.9 is not there)");
    backend_close(be);
    options.gpu = "abacus";
    expect_error(backend_open("cuda", &options, &be), STATUS_USAGE, "GPU 'abacus' is not known: use one of");
}

/* ---- memory ---- */

static unsigned nvml_mode;
static int nvml_ok(void) { return 0; }
static int nvml_handle(const char *uuid, void **device)
{
    *device = &nvml_mode;
    return strcmp(uuid, "GPU-12345678-9abc-def0-0123-456789abcdef") != 0;
}
static int nvml_processes(void *device, unsigned *count, void *infos)
{
    struct { unsigned pid; unsigned long long used; unsigned gpu, compute; } two[2] = {
        { .pid = 1, .used = 5 }, { .pid = (unsigned)getpid(), .used = 777 },
    };
    (void)device;
    if (nvml_mode == 1)
        return 4; /* NVML_ERROR_NO_PERMISSION */
    *count = nvml_mode == 2 ? 1 : 2;
    memcpy(infos, two, sizeof two);
    return 0;
}

static void memory_is_told_under_separate_names(void **state)
{
    (void)state;
    static const NvmlApi nvml = { .nvmlInit_v2 = nvml_ok, .nvmlShutdown = nvml_ok, .nvmlDeviceGetHandleByUUID = nvml_handle,
                                  .nvmlDeviceGetComputeRunningProcesses_v3 = nvml_processes };
    BackendMemory m, more;
    Backend      *be = open_one();
    expect_ok(be->vtable->memory(be, &m));
    assert_int_equal(m.allocated, 0);
    assert_int_equal(m.device_total, fake_default_device().memory);
    assert_true(m.device_used >= fake_default_device().context);
    assert_int_equal(m.process_used, 0); /* no NVML: not known */
    void *p = take(be, 1 << 20);
    for (nvml_mode = 0; nvml_mode < 3; nvml_mode++) {
        fake_set_library(FAKE_NVML, &nvml, NULL);
        expect_ok(be->vtable->memory(be, &more));
        assert_int_equal(more.allocated, 1 << 20);
        assert_int_equal(more.device_used, m.device_used + (1 << 20));
        assert_int_equal(more.process_used, nvml_mode == 0 ? 777 : 0);
    }
    backend_free(be, p);
    expect_ok(be->vtable->memory(be, &more));
    assert_int_equal(more.allocated, 0);
    assert_int_equal(more.device_used, m.device_used);
    backend_close(be);
}

static void out_of_memory_is_told_and_forgotten(void **state)
{
    (void)state;
    Backend *be = open_one();
    void    *p = &p;
    expect_error(backend_alloc(be, (size_t)1 << 40, &p), STATUS_OOM, "the GPU has no 1048576.0 MiB: ");
    assert_null(p);
    assert_int_equal(cudaPeekAtLastError(), cudaSuccess); /* D5: what comes next must not find it */
    float *x = take(be, 400), *y = take(be, 400);
    expect_ok(shim_add_one(be, x, y, 100, 0));
    expect_ok(backend_sync(be));
    backend_free(be, x);
    backend_free(be, y);
    backend_free(be, NULL);
    backend_close(be);
}

/* ---- copies ---- */

/* Bytes that differ from one element to the next. */
static uint8_t *pattern(size_t bytes, unsigned seed)
{
    uint8_t *p = malloc(bytes + 1);
    uint32_t state = seed;
    for (size_t i = 0; i < bytes; i++) {
        state = state * 1664525u + 1013904223u;
        p[i] = (uint8_t)(state >> 24);
    }
    return p;
}

static void round_trip(Backend *be, const Tensor *t)
{
    const size_t host_bytes = tensor_bytes(t), bytes = backend_bytes(be, t);
    uint8_t     *in = pattern(host_bytes, 1), *out = malloc(host_bytes + 1), *kept = malloc(host_bytes + 1);
    void        *device = take(be, bytes);
    memcpy(kept, in, host_bytes);
    expect_ok(backend_upload(be, t, device, in));
    memset(in, 0x77, host_bytes); /* the host's memory is free again */
    expect_ok(backend_download(be, t, device, out));
    assert_memory_equal(out, kept, host_bytes);
    backend_free(be, device);
    free(in);
    free(out);
    free(kept);
}

static const FakeOrder orders[] = { FAKE_LATE, FAKE_AT_ONCE, FAKE_FIRST_LATE, FAKE_FIRST_AT_ONCE };

static void copies_of_any_size_come_back(void **state)
{
    (void)state;
    for (size_t k = 0; k < COUNT_OF(orders); k++) {
        fake_set_order(orders[k]);
        Backend *be = open_one();
        const int64_t sizes[] = { 0, 1, 262144, 262145, (1 << 20) + 5, 5 << 20 };
        for (size_t i = 0; i < COUNT_OF(sizes); i++) {
            Tensor t = tensor_1d(DTYPE_U8, sizes[i]);
            round_trip(be, &t);
        }
        Tensor padded[] = { tensor_4d(DTYPE_F16, 2, 5, 7, 3), tensor_4d(DTYPE_F32, 3, 50, 70, 1), tensor_4d(DTYPE_BF16, 400, 40, 40, 4) };
        for (size_t i = 0; i < COUNT_OF(padded); i++) {
            padded[i].layout = LAYOUT_PADDED;
            round_trip(be, &padded[i]);
        }
        backend_close(be);
    }
}

static void padding_is_zero(void **state)
{
    (void)state;
    Backend *be = open_one();
    Tensor   t = tensor_4d(DTYPE_F16, 1, 1, 3, 3);
    uint16_t in[9] = { 1, 2, 3, 4, 5, 6, 7, 8, 9 };
    const uint16_t want[24] = { 1, 2, 3, 0, 0, 0, 0, 0, 4, 5, 6, 0, 0, 0, 0, 0, 7, 8, 9 };
    t.layout = LAYOUT_PADDED;
    assert_int_equal(backend_bytes(be, &t), sizeof want);
    void *device = take(be, sizeof want);
    expect_ok(backend_upload(be, &t, device, in));
    expect_ok(backend_sync(be));
    assert_memory_equal(device, want, sizeof want);
    backend_free(be, device);
    backend_close(be);
}

/* x is written from the host while a kernel that was enqueued before still has to read it, and one after reads it: large copies
 * (of their own stream) and small ones. */
static void uploads_keep_their_place_among_kernels(void **state)
{
    (void)state;
    const int sizes[] = { 100, 100000 };
    for (size_t k = 0; k < COUNT_OF(orders); k++)
        for (size_t s = 0; s < COUNT_OF(sizes); s++) {
            const int n = sizes[s];
            fake_set_order(orders[k]);
            Backend *be = open_one();
            Tensor   t = tensor_1d(DTYPE_F32, n);
            float   *host = malloc((size_t)n * sizeof *host), *x = take(be, (size_t)n * 4), *y[4];
            for (int i = 0; i < 4; i++) {
                y[i] = take(be, (size_t)n * 4);
                for (int j = 0; j < n; j++)
                    host[j] = (float)(10 * i + j % 7);
                expect_ok(backend_upload(be, &t, x, host));
                expect_ok(shim_add_one(be, x, y[i], n, 0));
            }
            for (int i = 0; i < 4; i++) {
                expect_ok(backend_download(be, &t, y[i], host));
                for (int j = 0; j < n; j++)
                    assert_true(host[j] == (float)(10 * i + j % 7 + 1));
                backend_free(be, y[i]);
            }
            backend_free(be, x);
            free(host);
            backend_close(be);
        }
}

static void uploads_do_not_wait_while_a_slot_is_free(void **state)
{
    (void)state;
    enum { N = 3 << 20 };
    Backend *be = open_one();
    Tensor   t = tensor_1d(DTYPE_U8, N);
    uint8_t *host = pattern(N, 2), *x = take(be, N);
    expect_ok(backend_upload(be, &t, x, host)); /* the slots grow */
    expect_ok(backend_upload(be, &t, x, host));
    expect_ok(backend_sync(be));
    const FakeCounts grown = fake_counts();
    for (int i = 0; i < 20; i++) {
        memset(x, 0, N);
        expect_ok(backend_upload(be, &t, x, host));
        expect_ok(backend_upload(be, &t, x, host));
        assert_false(memcmp(x, host, N) == 0); /* both slots are in use, and nobody has waited */
        expect_ok(backend_upload(be, &t, x, host));
        assert_memory_equal(x, host, N);       /* the third has waited for the first */
        expect_ok(backend_sync(be));
    }
    assert_int_equal(fake_counts().pinned_allocations, grown.pinned_allocations);
    assert_int_equal(fake_counts().device_allocations, grown.device_allocations);
    free(host);
    backend_free(be, x);
    backend_close(be);
}

static void bits_cannot_be_moved(void **state)
{
    (void)state;
    Backend *be = open_one();
    Tensor   t = tensor_1d(DTYPE_BIT, 64);
    uint64_t x = 0;
    void    *p = take(be, 8);
    expect_error(backend_upload(be, &t, p, &x), STATUS_USAGE, "bit tensor");
    expect_error(backend_download(be, &t, p, &x), STATUS_USAGE, "bit tensor");
    backend_free(be, p);
    backend_close(be);
}

/* ---- numbers out of range ---- */

static void a_fault_on_the_device_is_told_once(void **state)
{
    (void)state;
    Backend  *be = open_one();
    Tensor    t = tensor_1d(DTYPE_F32, 1);
    float     x;
    void     *p = take(be, 4);
    CudaFault fault = { .op = OP_softmax_xent + 1, .value = 1000, .limit = 10, .place = 7 };
    for (int by_download = 0; by_download < 2; by_download++) {
        expect_ok(backend_sync(be));
        memcpy(cuda_of(be)->fault, &fault, sizeof fault); /* as a kernel does */
        Status s = by_download ? backend_download(be, &t, p, &x) : backend_sync(be);
        expect_error(s, STATUS_NUMERIC, "softmax_xent: 1000 at position 7 is out of range: it must be below 10");
        expect_ok(backend_sync(be));
    }
    backend_free(be, p);
    backend_close(be);
}

/* ---- recordings ---- */

typedef struct Twice { Backend *be; float *x, *y; int n; Status end; bool alloc, sync; } Twice;

/* y = x + 1, x = y + 1 */
static Status enqueue_twice(void *context)
{
    Twice *t = context;
    void  *p;
    TRY(shim_add_one(t->be, t->x, t->y, t->n, 0));
    if (t->alloc)
        TRY(backend_alloc(t->be, 16, &p));
    if (t->sync)
        (void)backend_sync(t->be); /* and hides it */
    TRY(shim_add_one(t->be, t->y, t->x, t->n, 0));
    return t->end;
}

static void recordings_do_the_work_again(void **state)
{
    (void)state;
    enum { N = 100 };
    float    host[N] = { 5 };
    Tensor   t = tensor_1d(DTYPE_F32, N);
    Backend *be = open_one();
    void    *recording;
    Twice    twice = { .be = be, .x = take(be, sizeof host), .y = take(be, sizeof host), .n = N, .end = status_ok() };
    expect_ok(backend_upload(be, &t, twice.x, host));
    expect_ok(be->vtable->record(be, enqueue_twice, &twice, &recording));
    expect_ok(backend_download(be, &t, twice.x, host));
    assert_true(host[0] == 5);
    for (int i = 1; i <= 5; i++) {
        expect_ok(be->vtable->replay(be, recording));
        expect_ok(backend_download(be, &t, twice.x, host));
        assert_true(host[0] == 5 + 2 * (float)i && host[1] == 2 * (float)i);
        host[0]++; /* uploads come between */
        expect_ok(backend_upload(be, &t, twice.x, host));
        host[0]--;
        expect_ok(backend_upload(be, &t, twice.x, host));
    }
    be->vtable->recording_free(be, recording);
    be->vtable->recording_free(be, NULL);
    backend_free(be, twice.x);
    backend_free(be, twice.y);
    backend_close(be);
}

static void a_recording_that_fails_leaves_the_stream_as_it_was(void **state)
{
    (void)state;
    Backend *be = open_one();
    float   *x = take(be, 400), *y = take(be, 400);
    void    *recording;
    const struct { Twice twice; StatusCode code; const char *words; } cases[] = {
        { { be, x, y, 100, status_error(STATUS_NUMERIC, "a test's own"), false, false }, STATUS_NUMERIC, "recording: a test's own" },
        { { be, x, y, 100, status_ok(), true, false }, STATUS_UNSUPPORTED, "operation not permitted when stream is capturing" },
        { { be, x, y, 100, status_ok(), false, true }, STATUS_UNSUPPORTED, "previous error during capture" },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        Twice twice = cases[i].twice;
        recording = &recording;
        expect_error(be->vtable->record(be, enqueue_twice, &twice, &recording), cases[i].code, cases[i].words);
        assert_null(recording);
        assert_int_equal(cudaPeekAtLastError(), cudaSuccess);
        expect_ok(shim_add_one(be, x, y, 100, 0));
        expect_ok(backend_sync(be));
        Twice right = { be, x, y, 100, status_ok(), false, false };
        expect_ok(be->vtable->record(be, enqueue_twice, &right, &recording));
        be->vtable->recording_free(be, recording);
    }
    backend_free(be, x);
    backend_free(be, y);
    backend_close(be);
}

/* ---- every call fails once ---- */

/* All that a device does; closed at the end whatever happens. */
static Status live(void)
{
    enum { N = 80000 }; /* more than what goes through the stream of the kernels */
    static float host[N];
    Backend *be;
    void    *recording = NULL;
    BackendMemory memory;
    BackendInfo   info;
    Tensor   large = tensor_1d(DTYPE_F32, N), small = tensor_1d(DTYPE_F32, 10);
    TRY(backend_open("cuda", NULL, &be));
    Status   status;
    Twice    twice = { .be = be, .n = N, .end = status_ok() };
    void    *x = NULL, *y = NULL;
    TRY_GOTO(status, backend_alloc(be, sizeof host, &x), out);
    TRY_GOTO(status, backend_alloc(be, sizeof host, &y), out);
    twice.x = x;
    twice.y = y;
    for (int i = 0; i < 3; i++) {
        TRY_GOTO(status, backend_upload(be, &small, x, host), out);
        TRY_GOTO(status, backend_upload(be, &large, x, host), out);
    }
    TRY_GOTO(status, enqueue_twice(&twice), out);
    TRY_GOTO(status, be->vtable->record(be, enqueue_twice, &twice, &recording), out);
    TRY_GOTO(status, be->vtable->replay(be, recording), out);
    TRY_GOTO(status, be->vtable->memory(be, &memory), out);
    backend_describe(be, &info);
    TRY_GOTO(status, backend_sync(be), out);
    status = backend_download(be, &large, x, host);
out:
    be->vtable->recording_free(be, recording);
    backend_free(be, x);
    backend_free(be, y);
    backend_close(be);
    return status;
}

/* Calls whose failure changes nothing: of giving back and of describing. */
static bool may_fail_silently(const char *call)
{
    static const char *const calls[] = { "Destroy", "Free", "cudaStreamSynchronize", "cudaMemGetInfo", "GetVersion" };
    for (size_t i = 0; i < COUNT_OF(calls); i++)
        if (strstr(call, calls[i]))
            return true;
    return false;
}

static void every_call_fails_once(void **state)
{
    (void)state;
    static const cudaError_t errors[] = { cudaErrorUnknown, cudaErrorMemoryAllocation, cudaErrorIllegalAddress };
    int64_t calls = 0;
    fake_set_order(FAKE_AT_ONCE);
    for (size_t k = 0; k < COUNT_OF(errors); k++)
        for (int64_t at = 1;; at++) {
            const FakeFault fault = { .at = at, .error = { errors[k], CUDNN_STATUS_INTERNAL_ERROR, CUBLAS_STATUS_ALLOC_FAILED, 0, 0 } };
            fake_set_fault(&fault);
            Status s = live();
            const bool met = fake_fault_met();
            char call[64];
            snprintf(call, sizeof call, "%s", fake_fault_call());
            if (!met) {
                expect_ok(s);
                calls = at - 1;
                break;
            }
            if (s.code == STATUS_OK && !may_fail_silently(call))
                fail_msg("call %lld, %s, failed with %s and nobody saw", (long long)at, call, cudaGetErrorName(errors[k]));
            if (s.code != STATUS_OK)
                assert_true(s.text[0] && !strchr(s.text, '\n'));
            if (errors[k] == cudaErrorMemoryAllocation && !strcmp(call, "cudaMalloc"))
                assert_int_equal(s.code, STATUS_OOM);
            if (!fake_nothing_leaked(&before))
                fail_msg("call %lld, %s: something leaked", (long long)at, call);
            fake_set_fault(NULL);
            if (errors[k] == cudaErrorIllegalAddress)
                fake_reset();
            else {
                if (cudaPeekAtLastError() != cudaSuccess)
                    fail_msg("call %lld, %s: its error was not read away", (long long)at, call);
                expect_ok(live()); /* the next run in this process works */
            }
            fake_set_order(FAKE_AT_ONCE);
        }
    assert_true(calls > 60);
}

static void errors_of_libraries_carry_their_words(void **state)
{
    (void)state;
    Backend          *be = open_one();
    const CudaBackend *cuda = cuda_of(be);
    void              *p;
    expect_ok(cuda_dnn_status(cuda, 0, "cudnnBackendExecute(h, plan)"));
    expect_error(cuda_dnn_status(cuda, CUDNN_STATUS_EXECUTION_FAILED, "cudnnBackendExecute(h, plan)"), STATUS_BACKEND,
                 "cudnnBackendExecute: CUDNN_STATUS_OF_A_TEST: the test wanted it");
    expect_error(cuda_dnn_status(cuda, CUDNN_STATUS_NOT_SUPPORTED_SHAPE, "x"), STATUS_UNSUPPORTED, "x: CUDNN");
    expect_error(cuda_dnn_status(cuda, CUDNN_STATUS_ALLOC_FAILED, "x"), STATUS_OOM, "x: CUDNN");
    expect_error(cuda_blas_status(cuda, CUBLAS_STATUS_ALLOC_FAILED, "x"), STATUS_OOM, "x: CUBLAS_STATUS_ALLOC_FAILED");
    expect_error(cuda_blas_status(cuda, CUBLAS_STATUS_NOT_SUPPORTED, "x"), STATUS_UNSUPPORTED, "x: CUBLAS");
    /* out of memory in a library's clothes: the runtime's own error tells */
    assert_int_equal(cudaMalloc(&p, (size_t)1 << 40), cudaErrorMemoryAllocation);
    expect_error(cuda_dnn_status(cuda, CUDNN_STATUS_EXECUTION_FAILED, "run()"), STATUS_OOM, "run: CUDNN_STATUS_OF_A_TEST: out of memory");
    assert_int_equal(cudaPeekAtLastError(), cudaSuccess);
    assert_int_equal(cudaMalloc(&p, (size_t)1 << 40), cudaErrorMemoryAllocation);
    expect_error(cuda_blas_status(cuda, CUBLAS_STATUS_EXECUTION_FAILED, "run()"), STATUS_OOM, "out of memory");
    assert_int_equal(cudaPeekAtLastError(), cudaSuccess);
    backend_close(be);
}

static void a_lost_device_says_so_until_the_end(void **state)
{
    (void)state;
    Backend *be = open_one();
    Tensor   t = tensor_1d(DTYPE_F32, 1);
    float    x = 0;
    void    *p = take(be, 4), *q;
    fake_break_device(cudaErrorECCUncorrectable);
    const Status all[] = { backend_alloc(be, 4, &q), backend_upload(be, &t, p, &x), backend_download(be, &t, p, &x), backend_sync(be),
                           cuda_dnn_status(cuda_of(be), CUDNN_STATUS_EXECUTION_FAILED, "cudnnBackendExecute()") };
    for (size_t i = 0; i < COUNT_OF(all); i++) {
        expect_error(all[i], STATUS_BACKEND, "uncorrectable ECC error encountered");
        expect_error(all[i], STATUS_BACKEND, "the GPU cannot be used any more by this process");
    }
    backend_free(be, p);
    backend_close(be);
    expect_error(backend_open("cuda", NULL, &be), STATUS_BACKEND, "uncorrectable ECC error");
    fake_reset();
}

int main(void)
{
#define DEVICE_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        DEVICE_TEST(a_device_describes_itself),
        DEVICE_TEST(older_devices_say_what_is_slow_and_why),
        DEVICE_TEST(a_slice_is_used_and_noted),
        DEVICE_TEST(the_ordinal_chooses_the_device),
        DEVICE_TEST(what_is_missing_is_said_in_one_line),
        DEVICE_TEST(without_a_gpu_auto_is_the_cpu),
        DEVICE_TEST(a_model_is_planned_for_without_cuda),
        DEVICE_TEST(memory_is_told_under_separate_names),
        DEVICE_TEST(out_of_memory_is_told_and_forgotten),
        DEVICE_TEST(copies_of_any_size_come_back),
        DEVICE_TEST(padding_is_zero),
        DEVICE_TEST(uploads_keep_their_place_among_kernels),
        DEVICE_TEST(uploads_do_not_wait_while_a_slot_is_free),
        DEVICE_TEST(bits_cannot_be_moved),
        DEVICE_TEST(a_fault_on_the_device_is_told_once),
        DEVICE_TEST(recordings_do_the_work_again),
        DEVICE_TEST(a_recording_that_fails_leaves_the_stream_as_it_was),
        DEVICE_TEST(every_call_fails_once),
        DEVICE_TEST(errors_of_libraries_carry_their_words),
        DEVICE_TEST(a_lost_device_says_so_until_the_end),
    };
    return cmocka_run_group_tests_name("cuda_host_device", tests, NULL, NULL);
}
