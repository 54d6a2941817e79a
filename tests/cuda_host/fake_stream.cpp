/* fake_stream.cpp - the fake runtime: streams, events, captured graphs.
 *
 * A stream is a queue. Its tasks run when the host waits for it, in order; a task that waits for an event first makes that
 * event's stream run up to it. So whatever is not ordered by a wait runs in the order that is worst for the one who forgot it. */
#include "fake_runtime.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace {

struct Streams {
    FakeOrder                  order = fake_first_order();
    CUstream_st                standard;          /* the default stream */
    std::vector<CUstream_st *> others;            /* in order of creation */
    int64_t                    created = 0;
    double                     clock = 0;         /* of the device, microseconds */
};

/* Never destroyed: static objects of tests may outlive it. */
Streams &streams()
{
    static Streams *all = new Streams;
    return *all;
}

CUstream_st *stream_of(cudaStream_t stream)
{
    Streams &all = streams();
    if (!stream || stream == cudaStreamLegacy)
        return &all.standard;
    return std::find(all.others.begin(), all.others.end(), stream) == all.others.end() ? nullptr : stream;
}

void run_task(const Task &task)
{
    if (task.work && fake_broken() == cudaSuccess)
        task.work();
    streams().clock += task.microseconds;
    if (task.told.any)
        fake_cupti_ran(task.told.kind, task.told.name, task.told.bytes, static_cast<int>(task.told.stream), task.told.call, task.told.node);
    if (task.marks) {
        task.marks->done = true;
        task.marks->at = streams().clock;
        task.marks->stream = nullptr;
    }
}

void run_up_to(const std::shared_ptr<Mark> &mark);

void run_first(CUstream_st *stream)
{
    const Task task = stream->tasks.front();
    if (task.waits)
        run_up_to(task.waits);
    stream->tasks.pop_front();
    run_task(task);
}

void run_up_to(const std::shared_ptr<Mark> &mark)
{
    while (!mark->done && mark->stream)
        run_first(mark->stream);
}

bool runs_at_once(const CUstream_st *stream)
{
    const bool first = !streams().others.empty() && stream == streams().others.front();
    switch (streams().order) {
    case FAKE_AT_ONCE:       return true;
    case FAKE_FIRST_LATE:    return !first;
    case FAKE_FIRST_AT_ONCE: return first;
    default:                 return false;
    }
}

/* The default stream and the blocking ones wait for each other: nothing of the other side may be left. */
void settle_default(CUstream_st *stream)
{
    if (stream == &streams().standard) {
        for (CUstream_st *other : streams().others)
            if (other->blocking)
                fake_finish(other);
    } else if (stream->blocking)
        fake_finish(&streams().standard);
}

/* What stands for a node of a graph: an address that nothing else has. */
const void *new_node()
{
    static uintptr_t last = 0x1000;
    return reinterpret_cast<const void *>(++last);
}

} // namespace

/* ---- for the other files */

void fake_finish(CUstream_st *stream)
{
    while (!stream->tasks.empty())
        run_first(stream);
}

void fake_finish_all()
{
    Streams &all = streams();
    for (size_t i = all.others.size(); i-- > 0;) /* the last created first */
        fake_finish(all.others[i]);
    fake_finish(&all.standard);
}

void fake_set_order(FakeOrder order)
{
    fake_finish_all();
    streams().order = order;
}

FakeOrder fake_first_order()
{
    const char *const names[] = { "late", "at-once", "first-late", "first-at-once" }; /* as in FakeOrder */
    const char *name = getenv("CUDA_HOST_STREAMS");
    for (int i = 0; name && i < 4; i++)
        if (!strcmp(name, names[i]))
            return static_cast<FakeOrder>(i);
    return FAKE_LATE;
}

bool fake_is_capturing(cudaStream_t stream)
{
    const CUstream_st *s = stream_of(stream);
    return s && s->captures;
}

cudaError_t fake_refuse_capture()
{
    cudaError_t e = cudaSuccess;
    for (CUstream_st *s : streams().others)
        if (s->captures && !s->capture_relaxed) {
            s->capture_broken = true;
            e = cudaErrorStreamCaptureUnsupported;
        }
    return e;
}

cudaError_t fake_submit(cudaStream_t stream, Task task)
{
    CUstream_st *s = stream_of(stream);
    if (!s)
        return cudaErrorInvalidResourceHandle;
    if (s->captures) {
        if (s->capture_broken)
            return cudaErrorStreamCaptureInvalidated;
        if (task.told.any) {
            task.told.node = new_node();
            fake_cupti_node_created(task.told.node);
        }
        s->captures->tasks.push_back(task);
        return cudaSuccess;
    }
    task.told.stream = s->number;
    if (task.told.any && !task.told.call)
        task.told.call = fake_cupti_call();
    settle_default(s);
    if (task.marks)
        task.marks->stream = s;
    s->tasks.push_back(task);
    if (runs_at_once(s))
        fake_finish(s);
    return cudaSuccess;
}

cudaError_t fake_enqueue(cudaStream_t stream, const char *name, double microseconds, void (*work)(void *), void *context,
                         void (*release)(void *))
{
    std::shared_ptr<void> kept(context, [release](void *c) {
        if (release)
            release(c);
    });
    const cudaError_t pending = fake_last_error();
    if (pending != cudaSuccess)
        return pending; /* a library that asks for the last error after its launch takes an old one for its own (tests/CASES.md D5) */
    Task task;
    task.microseconds = microseconds;
    task.work = [work, kept] { work(kept.get()); };
    task.told = { true, FAKE_KERNEL, name };
    return fake_end(fake_submit(stream, task));
}

/* ---- streams */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags)
{
    FAKE_BEGIN_CONTEXT;
    CUstream_st *s = new CUstream_st;
    s->number = ++streams().created;
    s->blocking = flags != cudaStreamNonBlocking;
    streams().others.push_back(s);
    fake_tally.streams++;
    *out = s;
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *out, unsigned flags, int priority)
{
    (void)priority;
    return cudaStreamCreateWithFlags(out, flags);
}

cudaError_t cudaStreamCreate(cudaStream_t *out)
{
    return cudaStreamCreateWithFlags(out, cudaStreamDefault);
}

/* The stream is gone whatever the call returns; what is still in it runs to its end. */
cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    const cudaError_t begun = fake_begin("cudaStreamDestroy");
    CUstream_st      *s = stream_of(stream);
    Streams          &all = streams();
    if (!s || s == &all.standard)
        return fake_end(cudaErrorInvalidResourceHandle);
    if (begun == cudaSuccess)
        fake_finish(s);
    for (const Task &task : s->tasks)
        if (task.marks)
            task.marks->stream = nullptr;
    if (s->captures)
        fake_tally.graphs--;
    delete s->captures;
    all.others.erase(std::find(all.others.begin(), all.others.end(), s));
    delete s;
    fake_tally.streams--;
    return fake_end(begun);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    FAKE_BEGIN_CONTEXT;
    CUstream_st *s = stream_of(stream);
    if (!s)
        return fake_end(cudaErrorInvalidResourceHandle);
    if (s->captures)
        return fake_end(fake_refuse_capture());
    settle_default(s);
    fake_finish(s);
    return fake_end(fake_broken());
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    FAKE_BEGIN_CONTEXT;
    CUstream_st *s = stream_of(stream);
    if (!s)
        return fake_end(cudaErrorInvalidResourceHandle);
    if (s->captures)
        return fake_end(fake_refuse_capture());
    if (s->tasks.empty())
        return cudaSuccess;
    run_first(s); /* so that asking again and again comes to an end */
    return cudaErrorNotReady;
}

cudaError_t cudaDeviceSynchronize()
{
    FAKE_BEGIN_CONTEXT;
    const cudaError_t refused = fake_refuse_capture();
    if (refused != cudaSuccess)
        return fake_end(refused);
    fake_finish_all();
    return fake_end(fake_broken());
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    (void)flags;
    FAKE_BEGIN_CONTEXT;
    CUstream_st *s = stream_of(stream);
    if (!s || !event)
        return fake_end(cudaErrorInvalidResourceHandle);
    if (!event->mark)
        return cudaSuccess; /* never recorded */
    if (s->captures) {
        if (event->mark->graph == s->captures)
            return cudaSuccess; /* a captured graph keeps the order of its one stream */
        s->capture_broken = true;
        return fake_end(cudaErrorStreamCaptureIsolation);
    }
    if (event->mark->graph)
        return fake_end(cudaErrorStreamCaptureUnsupported); /* a second stream that joins a capture: not done here */
    Task task;
    task.waits = event->mark;
    return fake_end(fake_submit(stream, task));
}

/* ---- events */

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags)
{
    FAKE_BEGIN_CONTEXT;
    CUevent_st *event = new CUevent_st;
    event->timed = !(flags & cudaEventDisableTiming);
    fake_tally.events++;
    *out = event;
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *out)
{
    return cudaEventCreateWithFlags(out, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    const cudaError_t begun = fake_begin("cudaEventDestroy");
    if (!event)
        return fake_end(cudaErrorInvalidResourceHandle);
    delete event;
    fake_tally.events--;
    return fake_end(begun);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    FAKE_BEGIN_CONTEXT;
    CUstream_st *s = stream_of(stream);
    if (!s || !event)
        return fake_end(cudaErrorInvalidResourceHandle);
    event->mark = std::make_shared<Mark>();
    event->mark->graph = s->captures;
    if (s->captures)
        return cudaSuccess;
    Task task;
    task.marks = event->mark;
    return fake_end(fake_submit(stream, task));
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    FAKE_BEGIN_CONTEXT;
    if (!event)
        return fake_end(cudaErrorInvalidResourceHandle);
    if (event->mark && event->mark->graph)
        return fake_end(cudaErrorCapturedEvent);
    if (event->mark)
        run_up_to(event->mark);
    return fake_end(fake_broken());
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    FAKE_BEGIN_CONTEXT;
    if (!event)
        return fake_end(cudaErrorInvalidResourceHandle);
    if (event->mark && event->mark->graph)
        return fake_end(cudaErrorCapturedEvent);
    if (!event->mark || event->mark->done)
        return cudaSuccess;
    run_first(event->mark->stream); /* so that asking again and again comes to an end */
    return cudaErrorNotReady;
}

cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t from, cudaEvent_t to)
{
    FAKE_BEGIN_CONTEXT;
    if (!from || !to || !from->timed || !to->timed || !from->mark || !to->mark)
        return fake_end(cudaErrorInvalidResourceHandle);
    if (!from->mark->done || !to->mark->done)
        return cudaErrorNotReady;
    *milliseconds = static_cast<float>((to->mark->at - from->mark->at) * 1e-3);
    return cudaSuccess;
}

/* ---- capture and graphs */

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode)
{
    FAKE_BEGIN_CONTEXT;
    CUstream_st *s = stream_of(stream);
    if (!s)
        return fake_end(cudaErrorInvalidResourceHandle);
    if (s->captures || s == &streams().standard)
        return fake_end(cudaErrorStreamCaptureUnsupported);
    s->captures = new CUgraph_st;
    s->capture_broken = false;
    s->capture_relaxed = mode == cudaStreamCaptureModeRelaxed;
    fake_tally.graphs++;
    return cudaSuccess;
}

/* A capture that was spoilt ends too, without a graph. */
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *out)
{
    const cudaError_t begun = fake_begin("cudaStreamEndCapture");
    CUstream_st      *s = stream_of(stream);
    *out = nullptr;
    if (!s || !s->captures)
        return fake_end(begun != cudaSuccess ? begun : cudaErrorInvalidValue);
    CUgraph_st *graph = s->captures;
    s->captures = nullptr;
    if (begun != cudaSuccess || s->capture_broken) {
        delete graph;
        fake_tally.graphs--;
        return fake_end(begun != cudaSuccess ? begun : cudaErrorStreamCaptureInvalidated);
    }
    *out = graph;
    return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus *status)
{
    FAKE_BEGIN_CONTEXT;
    const CUstream_st *s = stream_of(stream);
    if (!s)
        return fake_end(cudaErrorInvalidResourceHandle);
    *status = !s->captures ? cudaStreamCaptureStatusNone : s->capture_broken ? cudaStreamCaptureStatusInvalidated :
              cudaStreamCaptureStatusActive;
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    const cudaError_t begun = fake_begin("cudaGraphDestroy");
    delete graph;
    fake_tally.graphs--;
    return fake_end(begun);
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t graph, unsigned long long flags)
{
    (void)flags;
    FAKE_BEGIN_CONTEXT;
    *out = new CUgraphExec_st{ graph->tasks };
    for (Task &task : (*out)->tasks)
        if (task.told.any) {
            const void *original = task.told.node;
            task.told.node = new_node();
            fake_cupti_node_cloned(original, task.told.node);
        }
    fake_tally.graph_execs++;
    return cudaSuccess;
}

cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream)
{
    (void)exec;
    FAKE_BEGIN_CONTEXT;
    return stream_of(stream) ? cudaSuccess : fake_end(cudaErrorInvalidResourceHandle);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    FAKE_BEGIN_CONTEXT;
    const CUstream_st *s = stream_of(stream);
    Task task;
    task.work = [tasks = exec->tasks, call = fake_cupti_call(), number = s ? s->number : 0] {
        for (Task t : tasks) {
            t.told.call = call;
            t.told.stream = number;
            run_task(t);
        }
    };
    fake_tally.graph_launches++;
    return fake_end(fake_submit(stream, task));
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    const cudaError_t begun = fake_begin("cudaGraphExecDestroy");
    delete exec;
    fake_tally.graph_execs--;
    return fake_end(begun);
}
