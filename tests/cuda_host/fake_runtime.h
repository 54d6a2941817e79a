/* fake_runtime.h - what the files of the fake runtime share. */
#ifndef BATCHMARK_TESTS_CUDA_HOST_FAKE_RUNTIME_H
#define BATCHMARK_TESTS_CUDA_HOST_FAKE_RUNTIME_H

#include "fake.h"
#include "fake_cupti.h"

#include <deque>
#include <functional>
#include <memory>
#include <vector>

/* A place in a stream: an event that was recorded there. */
struct Mark {
    bool          done = false;
    double        at = 0;               /* microseconds on the device's clock */
    CUstream_st  *stream = nullptr;     /* while it is not done */
    const CUgraph_st *graph = nullptr;  /* recorded while this was being captured: never done */
};

/* What a profiler hears of a task that has run. */
struct Told {
    bool        any = false;
    FakeWork    kind = FAKE_KERNEL;
    const char *name = nullptr;         /* of a kernel; lives as long as the program */
    size_t      bytes = 0;
    int64_t     stream = 0;
    uint32_t    call = 0;
    const void *node = nullptr;         /* of the graph that it is in */
};

/* One thing in a stream. */
struct Task {
    Told                  told;
    std::function<void()> work;         /* may be empty */
    double                microseconds = 0;
    std::shared_ptr<Mark> waits, marks;
};

struct CUstream_st {
    int64_t          number = 0;        /* 0 is the default stream; the first that is created is 1 */
    bool             blocking = false;  /* waits for the default stream, and it for this */
    std::deque<Task> tasks;
    CUgraph_st      *captures = nullptr;
    bool             capture_broken = false, capture_relaxed = false;
};

struct CUevent_st { std::shared_ptr<Mark> mark; bool timed = true; };
struct CUgraph_st { std::vector<Task> tasks; };
struct CUgraphExec_st { std::vector<Task> tasks; };

/* ---- fake_device.cpp */
extern FakeCounts fake_tally;

/* The first thing in each function of the runtime: the error that it is to return at once, if any. */
cudaError_t fake_begin(const char *call);

/* The last thing: keeps an error as the runtime's last one. */
cudaError_t fake_end(cudaError_t error);

/* What ended the context; cudaSuccess while it is whole. */
cudaError_t fake_broken();

/* A context on the current device, or why there is none. */
cudaError_t fake_need_context();
const FakeDevice *fake_current_device();

#define FAKE_BEGIN                                      \
    do {                                                \
        cudaError_t begun_ = fake_begin(__func__);      \
        if (begun_ != cudaSuccess)                      \
            return fake_end(begun_);                    \
    } while (0)
#define FAKE_BEGIN_CONTEXT                              \
    do {                                                \
        FAKE_BEGIN;                                     \
        cudaError_t needed_ = fake_need_context();      \
        if (needed_ != cudaSuccess)                     \
            return fake_end(needed_);                   \
    } while (0)

/* ---- fake_stream.cpp */
cudaError_t fake_submit(cudaStream_t stream, Task task);
void fake_finish(CUstream_st *stream);
void fake_finish_all();
bool fake_is_capturing(cudaStream_t stream);

/* For calls that may not be made while a graph is captured: an error, and the capture is spoilt. */
cudaError_t fake_refuse_capture();
FakeOrder   fake_first_order(); /* from the environment */

#endif
