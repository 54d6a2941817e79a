/* trace.c - profiling of a device by CUPTI's activity records: starts and ends a session, tags what is enqueued, and says in
 * words why there can be none. What the records say is trace_records.c's.
 *
 * A session: subscribe (one tool a process: another profiler shows here), follow the making of graph nodes by callbacks, hand
 * out buffers, enable the kinds of records. At the end: wait for the device, flush, disable. Whatever CUPTI refuses is
 * STATUS_UNSUPPORTED and leaves the backend as it was. */
#include "cuda.h"
#include "libs.h"
#include "trace_records.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { BUFFER_BYTES = 4 << 20, BUFFER_ALIGN = 64 /* CUPTI asks for 8 */, NO_TAG = -1 };

/* Runtime and driver calls: external correlation is tied to their records. */
static const CUpti_ActivityKind kinds[] = {
    CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION, CUPTI_ACTIVITY_KIND_RUNTIME, CUPTI_ACTIVITY_KIND_DRIVER, CUPTI_ACTIVITY_KIND_MEMCPY,
    CUPTI_ACTIVITY_KIND_MEMSET, CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
};
static const CUpti_CallbackId callbacks[] = { CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED, CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED };

struct CudaTrace {
    const CuptiApi       *cupti;
    CUpti_SubscriberHandle subscriber;
    size_t                enabled;     /* of kinds */
    size_t                subscribed;  /* 1 + of callbacks; 0 = not at all */
    bool                  listening;   /* sink.trace is this */
    TraceRecords         *records;
    ClockPair             start;
    int                   tag;
    CUptiResult           tag_error;   /* the first of pushing, popping or naming a node */
    size_t                refused;     /* buffers that there was no memory for */
};

/* CUPTI's buffer callbacks carry no context, and come from a thread of its own, also after the end of a session: this is where
 * they find the one that runs. CUPTI may hold locks of its own in a callback and want them in any call, so none of these two
 * is held over a call of CUPTI that asks for a buffer or makes a graph node: `lock` is only ever held for a moment, `reading`
 * only by those who read. */
static struct {
    pthread_mutex_t lock, reading;
    pthread_cond_t  idle;     /* readers became 0 */
    CudaTrace      *trace;
    int             readers;
} sink = { .lock = PTHREAD_MUTEX_INITIALIZER, .reading = PTHREAD_MUTEX_INITIALIZER, .idle = PTHREAD_COND_INITIALIZER };

/* ---- errors ---- */

static const char *remedy(CUptiResult e)
{
    switch (e) {
    case CUPTI_ERROR_INSUFFICIENT_PRIVILEGES:
    case CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES:
        return "; the driver lets only administrators profile: load it with NVreg_RestrictProfilingToAdminUsers=0, or give this "
               "process CAP_SYS_ADMIN";
    case CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED:
        return "; another profiler, debugger or sanitizer is attached: run without it";
    case CUPTI_ERROR_NOT_INITIALIZED:
        return "; the driver may be older than the toolkit's CUPTI";
    case CUPTI_ERROR_MIG_DEVICE_NOT_SUPPORTED:
        return "; the GPU is cut into slices (MIG)";
    case CUPTI_ERROR_OUT_OF_MEMORY:
        return "; CUPTI needs some device memory of its own: leave it some";
    default:
        return "";
    }
}

static Status cupti_status(const CuptiApi *cupti, CUptiResult e, const char *what)
{
    const char *text = NULL;
    if (e == CUPTI_SUCCESS)
        return status_ok();
    if (cupti->cuptiGetResultString(e, &text) != CUPTI_SUCCESS || !text)
        text = "no description";
    return status_error(STATUS_UNSUPPORTED, "%s: %s (CUPTI error %d)%s", what, text, (int)e, remedy(e));
}

#define CUPTI_TRY(call) TRY(cupti_status(t->cupti, t->cupti->call, #call))

/* ---- what CUPTI calls ---- */

static void CUPTIAPI request_buffer(uint8_t **buffer, size_t *size, size_t *most)
{
    pthread_mutex_lock(&sink.lock);
    *buffer = sink.trace ? aligned_alloc(BUFFER_ALIGN, BUFFER_BYTES) : NULL;
    if (sink.trace && !*buffer)
        sink.trace->refused++;
    *size = *buffer ? BUFFER_BYTES : 0; /* none: the records are dropped, and counted by CUPTI */
    *most = 0;
    pthread_mutex_unlock(&sink.lock);
}

static void CUPTIAPI complete_buffer(CUcontext context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid)
{
    (void)context, (void)stream, (void)size;
    pthread_mutex_lock(&sink.lock);
    CudaTrace *t = sink.trace;
    sink.readers += t != NULL;
    pthread_mutex_unlock(&sink.lock);
    if (t) {
        pthread_mutex_lock(&sink.reading);
        if (buffer)
            trace_records_read(t->records, buffer, valid);
        pthread_mutex_unlock(&sink.reading);
        pthread_mutex_lock(&sink.lock);
        if (--sink.readers == 0)
            pthread_cond_signal(&sink.idle);
        pthread_mutex_unlock(&sink.lock);
    }
    free(buffer);
}

static void note_tag_error(CudaTrace *t, CUptiResult e)
{
    if (t->tag_error == CUPTI_SUCCESS)
        t->tag_error = e;
}

/* A graph node was made by the thread that enqueues: it belongs to the current tag; a clone to what its original belongs to. */
static void CUPTIAPI graph_changed(void *context, CUpti_CallbackDomain domain, CUpti_CallbackId id, const void *data)
{
    CudaTrace *t = context;
    if (domain != CUPTI_CB_DOMAIN_RESOURCE)
        return;
    const CUpti_GraphData *graph = ((const CUpti_ResourceData *)data)->resourceDescriptor;
    uint64_t node = 0, original = 0;
    CUptiResult e = t->cupti->cuptiGetGraphNodeId(graph->node, &node);
    if (e == CUPTI_SUCCESS && id == CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED)
        e = t->cupti->cuptiGetGraphNodeId(graph->originalNode, &original);
    pthread_mutex_lock(&sink.lock);
    if (e != CUPTI_SUCCESS)
        note_tag_error(t, e);
    else if (id == CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED)
        trace_records_tag_node(t->records, node, t->tag);
    else if (id == CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED)
        trace_records_clone_node(t->records, original, node);
    pthread_mutex_unlock(&sink.lock);
}

/* ---- clocks ---- */

/* CUPTI's clock between two readings of the host's; the tightest of a few tries. */
static Status match_clocks(const CudaTrace *t, ClockPair *out)
{
    double best = 1e30;
    for (int i = 0; i < 8; i++) {
        uint64_t ns;
        double before = clock_seconds();
        CUPTI_TRY(cuptiGetTimestamp(&ns));
        double after = clock_seconds();
        if (after - before < best) {
            best = after - before;
            *out = (ClockPair){ 0.5 * (before + after), ns };
        }
    }
    return status_ok();
}

/* ---- the session ---- */

static Status listen(CudaTrace *t)
{
    pthread_mutex_lock(&sink.lock);
    t->listening = !sink.trace;
    if (t->listening)
        sink.trace = t;
    pthread_mutex_unlock(&sink.lock);
    return t->listening ? status_ok() : status_error(STATUS_UNSUPPORTED, "another device of this process is being profiled");
}

static Status begin(CudaTrace *t)
{
    TRY(listen(t));
    CUPTI_TRY(cuptiSubscribe(&t->subscriber, graph_changed, t));
    for (t->subscribed = 1; t->subscribed <= COUNT_OF(callbacks); t->subscribed++)
        CUPTI_TRY(cuptiEnableCallback(1, t->subscriber, CUPTI_CB_DOMAIN_RESOURCE, callbacks[t->subscribed - 1]));
    CUPTI_TRY(cuptiActivityRegisterCallbacks(request_buffer, complete_buffer));
    CUPTI_TRY(cuptiActivityFlushAll(0)); /* what an earlier session left comes now, and is of before the start */
    TRY(match_clocks(t, &t->start));
    for (; t->enabled < COUNT_OF(kinds); t->enabled++)
        CUPTI_TRY(cuptiActivityEnable(kinds[t->enabled]));
    return status_ok();
}

/* Undoes what begin did, as far as it came; the first error of that. The device is idle. */
static Status end(CudaTrace *t)
{
    Status first = status_ok(), s;
#define KEEP_FIRST(expression) do { s = (expression); if (first.code == STATUS_OK) first = s; } while (0)
    const bool flush = t->enabled > 0;
    while (t->enabled > 0) {
        t->enabled--;
        KEEP_FIRST(cupti_status(t->cupti, t->cupti->cuptiActivityDisable(kinds[t->enabled]), "cuptiActivityDisable"));
    }
    if (flush)
        KEEP_FIRST(cupti_status(t->cupti, t->cupti->cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED), "cuptiActivityFlushAll"));
    if (t->subscribed)
        KEEP_FIRST(cupti_status(t->cupti, t->cupti->cuptiUnsubscribe(t->subscriber), "cuptiUnsubscribe"));
#undef KEEP_FIRST
    t->subscribed = 0;
    pthread_mutex_lock(&sink.lock);
    if (t->listening)
        sink.trace = NULL;
    while (t->listening && sink.readers > 0)
        pthread_cond_wait(&sink.idle, &sink.lock);
    pthread_mutex_unlock(&sink.lock);
    return first;
}

static void trace_destroy(CudaTrace *t)
{
    trace_records_destroy(t->records);
    free(t);
}

Status cuda_trace_start(Backend *be)
{
    CudaBackend *cuda = cuda_of(be);
    const char  *reason = "no reason given";
    TRY(cuda_need_device(cuda));
    CHECK(!cuda->trace);
    const CuptiApi *cupti = cuda_load_cupti(&reason);
    if (!cupti)
        return status_error(STATUS_UNSUPPORTED, "CUPTI cannot be loaded: %s", reason);
    CUDA_TRY(cudaDeviceSynchronize()); /* what was enqueued before is not of the trace */
    CudaTrace *t = calloc(1, sizeof *t);
    if (!t)
        return status_error(STATUS_OOM, "out of memory for a profile");
    t->cupti = cupti;
    t->tag = NO_TAG;
    Status s = trace_records_create(cupti, &t->records);
    if (s.code == STATUS_OK)
        s = begin(t);
    if (s.code != STATUS_OK) {
        Status undone = end(t);
        (void)undone; /* the first error is the one to report */
        trace_destroy(t);
        return s;
    }
    cuda->trace = t;
    return status_ok();
}

void cuda_trace_tag(Backend *be, int tag)
{
    CudaTrace *t = cuda_of(be)->trace;
    CUptiResult e = CUPTI_SUCCESS;
    uint64_t before;
    if (!t || tag == t->tag)
        return;
    if (t->tag != NO_TAG)
        e = t->cupti->cuptiActivityPopExternalCorrelationId(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, &before);
    t->tag = tag;
    if (e == CUPTI_SUCCESS && tag != NO_TAG)
        e = t->cupti->cuptiActivityPushExternalCorrelationId(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, (uint64_t)tag);
    if (e != CUPTI_SUCCESS) {
        pthread_mutex_lock(&sink.lock);
        note_tag_error(t, e);
        pthread_mutex_unlock(&sink.lock);
    }
}

/* After the session's end: the records, if they can be trusted. */
static Status collect(CudaTrace *t, DeviceTrace *out)
{
    ClockPair last;
    size_t dropped = 0;
    TRY(cupti_status(t->cupti, t->tag_error, "tagging the work of an op"));
    CUPTI_TRY(cuptiActivityGetNumDroppedRecords(NULL, 0, &dropped));
    TRY(match_clocks(t, &last));
    TRY(trace_records_finish(t->records, t->start, last, dropped, out));
    if (out->dropped)
        log_warn("the profiler lost %lld of %lld records%s", (long long)out->dropped, (long long)(out->dropped + (int64_t)out->count),
                 t->refused ? ": no host memory for its buffers" : "");
    if (trace_records_untagged(t->records))
        log_warn("%lld tags of ops were lost for want of memory", (long long)trace_records_untagged(t->records));
    return status_ok();
}

Status cuda_trace_stop(Backend *be, DeviceTrace *out)
{
    CudaBackend *cuda = cuda_of(be);
    CudaTrace   *t = cuda->trace;
    *out = (DeviceTrace){ 0 };
    CHECK(t);
    cuda_trace_tag(be, NO_TAG);
    cuda->trace = NULL;
    Status ran = cuda_status(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    Status s = end(t);
    if (s.code == STATUS_OK && ran.code == STATUS_OK)
        s = collect(t, out);
    trace_destroy(t);
    return ran.code != STATUS_OK ? ran : s;
}
