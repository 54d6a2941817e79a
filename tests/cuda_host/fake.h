/* fake.h - the fake CUDA runtime of tests: what it counts, and how to make it fail.
 *
 * Device memory is host memory, and kernels run on the CPU (block.h). What is enqueued runs late: only when the host waits for
 * it, or when something that it waits for needs it, so that a missing wait between streams or with the host shows as wrong
 * numbers. The host must not touch device memory, but nothing stops it here.
 * Everything is for one OS thread. The environment sets where a program starts: CUDA_HOST_SCHEDULE=0..4 (block.h),
 * CUDA_HOST_STREAMS=at-once|late|first-late|first-at-once. */
#ifndef BATCHMARK_TESTS_CUDA_HOST_FAKE_H
#define BATCHMARK_TESTS_CUDA_HOST_FAKE_H

#include <cuda_runtime_api.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Everything below as it is when a program starts: one device, no faults, no pending error. What is allocated stays. */
void fake_reset(void);

/* ---- how things run */

enum { FAKE_SCHEDULES = 5 };
void fake_set_schedule(int schedule); /* 0..4, see block.h; tests of kernels go through 0, 1, 3, 4 */

typedef enum FakeOrder {
    FAKE_LATE,          /* nothing runs before it has to: how a program starts */
    FAKE_AT_ONCE,       /* everything runs when it is enqueued */
    FAKE_FIRST_LATE,    /* the stream that was created first runs late, the others at once (and what they wait for, then) */
    FAKE_FIRST_AT_ONCE  /* the other way round */
} FakeOrder;
void fake_set_order(FakeOrder order);

/* ---- devices */

typedef struct FakeDevice {
    const char *name;       /* "NVIDIA H100 80GB HBM3"; with " MIG 1g.10gb" at its end it is a slice */
    int         capability; /* 90 */
    int         sms;
    size_t      memory;     /* capacity, bytes */
    size_t      context;    /* of it, taken by a context */
    uint8_t     uuid[16];
} FakeDevice;

FakeDevice fake_default_device(void); /* an H100 with 1 GiB; capability 90 */

/* count 0..2. driver: the CUDA version that the driver supports, 13000; 0 = no driver here. */
void fake_set_devices(int count, const FakeDevice *devices, int driver);

/* ---- faults */

typedef enum FakeLibrary { FAKE_RUNTIME, FAKE_CUDNN, FAKE_CUBLASLT, FAKE_CUPTI, FAKE_NVML, FAKE_LIBRARY_COUNT } FakeLibrary;

/* Lets a call fail: the `at`-th from now on among those that count, and only that. 0 = none. */
typedef struct FakeFault {
    int64_t     at;
    const char *call;                      /* only this function's calls count; NULL = every function's */
    int         error[FAKE_LIBRARY_COUNT]; /* what it returns, by the library that it belongs to; 0 = its calls do not count */
    bool        inside;                    /* a library met the runtime's error in a call of its own: it is the last error too */
    bool        later;                     /* the call succeeds, the error comes with all that follow (of the runtime: breaks it) */
} FakeFault;
void fake_set_fault(const FakeFault *fault); /* NULL = none; restarts the count */
bool    fake_fault_met(void);                /* since then */
int64_t fake_fault_calls(void);              /* that counted since then */
const char *fake_fault_call(void);           /* the function that failed */
const char *fake_fault_name(int64_t n);      /* the function of the n-th call that counted since then, from 1 */

/* An error that ends the context, like an illegal address: every call of the runtime returns it until fake_reset. */
void fake_break_device(cudaError_t error);

/* ---- counts */

typedef struct FakeCounts {
    int64_t device_blocks, pinned_blocks, streams, events, graphs, graph_execs; /* that live */
    size_t  device_bytes, pinned_bytes;
    int64_t device_allocations, pinned_allocations; /* ever */
    int64_t launches, copies, graph_launches;        /* ever; replayed ones count once for the graph */
    int64_t overruns;     /* blocks found with bytes written before or behind them when they were freed */
    int64_t calls;        /* of the runtime */
} FakeCounts;
FakeCounts fake_counts(void);

/* True where nothing lives that did not in `before`. */
bool fake_nothing_leaked(const FakeCounts *before);

/* True if all these bytes are in one block of device memory (pinned: of pinned host memory). */
bool fake_is_device(const void *address, size_t bytes);
bool fake_is_pinned(const void *address, size_t bytes);

/* ---- for the fakes of other libraries */

/* What cuda_load_cudnn and its kin (libs.h) give: a CudnnApi, CublasLtApi, CuptiApi or NvmlApi; or NULL for a reason. */
void fake_set_library(FakeLibrary library, const void *functions, const char *reason);

/* The first thing in each function of a fake library: 0, or the error to return. */
int fake_enter(FakeLibrary library, const char *call);

/* Enqueues work(context) on a stream, as a kernel is; also into a graph, so it may run often. release(context), if not NULL, once
 * when it can run no more, also after an error. `microseconds` is the time it takes on the clock that events read. */
cudaError_t fake_enqueue(cudaStream_t stream, const char *name, double microseconds, void (*work)(void *), void *context,
                         void (*release)(void *));

/* The runtime's last error, as a library finds it that looks after its launches: cudaSuccess if there is none. */
cudaError_t fake_last_error(void);

#ifdef __cplusplus
}
#endif
#endif
