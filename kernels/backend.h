/* backend.h - the one interface between nets and the libraries that compute.
 *
 * A Backend is a device opened with a set of kernels, one per op. A kernel is used in four steps:
 *   query    what the op will need: scratch bytes and, for weights, the physical layouts it wants. Cheap, no search,
 *            no allocation that outlives the call; enough to plan memory without running anything. An op that this
 *            backend does not do for these types returns STATUS_UNSUPPORTED with the reason.
 *   prepare  may be slow (search, code generation). Called once, after the layouts of all tensors are settled.
 *   tune     may be slow too: chooses between ways to do the op by timing them on the memory that run() will use, whose
 *            contents are of no value yet. With BackendOptions.no_tune it times nothing.
 *   run      only enqueues (the CPU backend computes in place): no allocation, no search, no waiting.
 *   release  frees what prepare made.
 * NULL members mean "nothing to do" (run is never NULL). */
#ifndef BATCHMARK_KERNELS_BACKEND_H
#define BATCHMARK_KERNELS_BACKEND_H

#include "ops.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct Backend Backend;

enum { LAYOUT_ANY = -1 }; /* in OpNeeds: whatever the value already has */

typedef struct OpNeeds {
    size_t scratch;                 /* bytes run() may use, alive for this call only */
    int    in_layout[OP_MAX_IN];    /* layout this slot must have; LAYOUT_ANY = no wish */
    int    out_layout[OP_MAX_OUT];
    bool   in_master[OP_MAX_IN];    /* the weight in this slot may as well be f32: the kernel rounds it as it reads, and there
                                     * need be no copy in the op's type */
} OpNeeds;

typedef struct Kernel {
    Status (*query)(Backend *be, const OpDesc *op, OpNeeds *needs); /* needs arrives zeroed, layouts LAYOUT_ANY */
    Status (*prepare)(Backend *be, const OpDesc *op, void **state);
    /* buf: n_in input addresses, then n_out output addresses; scratch: as asked for, 64-byte aligned. */
    Status (*run)(Backend *be, const OpDesc *op, void *state, void *const *buf, void *scratch);
    void   (*release)(void *state);
    Status (*tune)(Backend *be, const OpDesc *op, void *state, void *const *buf, void *scratch); /* arguments as of run */
} Kernel;

typedef struct BackendOptions {
    int         threads; /* CPU threads; 0 = all cores this process may use */
    const char *layout;  /* activations, for experiments: NULL or "auto", "blocked", "nhwc" */
    int         ordinal; /* which GPU; set by backend_open from "cuda:1" */
    const char *gpu;     /* NULL, or a name of gpus.h: a GPU that need not be here, to plan memory for; nothing can run on it */
    bool        tf32;    /* products of f32 tensors may round their inputs to TF32 (10 bits); false = full f32 */
    bool        no_tune; /* take each library's first proposal instead of timing them */
} BackendOptions;

typedef struct BackendInfo {
    char   name[64];          /* of the device */
    char   library[64];       /* "oneDNN 2.6.3" */
    char   isa[128];          /* instruction sets in use, space-separated */
    int    threads;
    size_t memory_bytes;      /* capacity: physical memory, or the cgroup's limit where that is lower */
    bool   fast_bf16;         /* the hardware multiplies bf16; without it bf16 cells are skipped */
    char   bf16_reason[96];   /* why not, "" if fast */
    bool   fast_fp16;         /* the same for fp16, which every backend computes, fast or not */
    char   fp16_reason[96];
    bool   fast_tf32;
    char   tf32_reason[96];
    bool   is_gpu;
    char   gpu_uuid[48];      /* "" unless a GPU that is here */
    int    gpu_capability;    /* 90 for compute capability 9.0 */
    int    driver_version, runtime_version; /* of CUDA: 13000; 0 = none */
    char   note[160];         /* what a reader of the numbers should know ("workspaces not counted: ..."), or "" */
} BackendInfo;

/* Memory of a device, each number under its own name (never one for two of them); 0 = not known. */
typedef struct BackendMemory {
    size_t allocated;    /* what this backend asked for and has not freed */
    size_t device_used;  /* of the whole device, every process, context and library included: cudaMemGetInfo */
    size_t device_total;
    size_t process_used; /* of this process, by the driver's book-keeping: NVML */
} BackendMemory;

/* How a device is at this moment, by its driver. */
typedef struct BackendSensors {
    int  clock_mhz;      /* of its multiprocessors; -1 = not known */
    int  temperature;    /* degrees Celsius; -1 = not known */
    bool throttle_known;
    char throttled[128]; /* what holds the clock back: "power cap, thermal (hardware)"; "" = nothing, where that is known */
} BackendSensors;

/* What a device did, as its own clock saw it. */
typedef enum TraceKind { TRACE_KERNEL, TRACE_COPY_IN, TRACE_COPY_OUT, TRACE_COPY_WITHIN, TRACE_SET, TRACE_KIND_COUNT } TraceKind;
typedef struct TraceEvent {
    TraceKind kind;
    int       tag;          /* of the last trace_tag before it was enqueued, -1 if none; also when a graph replays it */
    int       stream;
    double    start, end;   /* seconds, on the clock of clock_seconds() as well as the two can be matched */
    size_t    bytes;        /* of copies and sets */
    bool      tensor_cores; /* of kernels, as far as their name tells */
    const char *name;       /* in DeviceTrace.names */
} TraceEvent;
typedef struct DeviceTrace {
    TraceEvent *events;     /* by start */
    size_t      count;
    int64_t     dropped;    /* events that the profiler lost */
    char       *names;      /* one block for all names */
} DeviceTrace;
void device_trace_free(DeviceTrace *trace);

typedef struct BackendVtable {
    const char *name;         /* "cpu" */
    Status (*open)(const BackendOptions *options, Backend **out);
    void   (*close)(Backend *be);
    void   (*describe)(Backend *be, BackendInfo *info);
    Status (*alloc)(Backend *be, size_t bytes, void **address); /* 64-byte aligned at least; contents undefined */
    void   (*free)(Backend *be, void *address);                 /* NULL is fine */
    size_t (*bytes)(Backend *be, const Tensor *t);              /* physical size, padding included */
    /* Between host row-major memory in the tensor's own type and its physical form. DTYPE_BIT cannot be moved. */
    Status (*upload)(Backend *be, const Tensor *t, void *device, const void *host);
    Status (*download)(Backend *be, const Tensor *t, const void *device, void *host);
    /* Waits for everything enqueued. STATUS_NUMERIC if a kernel met a number out of range (a label, an id, a span) since the last
     * sync: on a device that is only found out now. */
    Status (*sync)(Backend *be);
    const Kernel *const *kernels;                               /* [OP_COUNT] */

    /* NULL where a device has no such thing. */
    /* Calls enqueue(context), which runs kernels, without anything being done; *recording then stands for that work. */
    Status (*record)(Backend *be, Status (*enqueue)(void *context), void *context, void **recording);
    Status (*replay)(Backend *be, void *recording);
    void   (*recording_free)(Backend *be, void *recording);     /* NULL is fine */
    Status (*memory)(Backend *be, BackendMemory *out);
    void   (*sensors)(Backend *be, BackendSensors *out);
    /* Profiling. STATUS_UNSUPPORTED with the reason if it cannot be had; the run goes on without. trace_stop waits. */
    Status (*trace_start)(Backend *be);
    void   (*trace_tag)(Backend *be, int tag);                  /* what is enqueued next belongs to this */
    Status (*trace_stop)(Backend *be, DeviceTrace *out);        /* out: the caller's, device_trace_free */
    /* What tuning chose, for the record: calls note(context, op text, choice, workspace bytes, microseconds or NaN). */
    void   (*choices)(Backend *be, void (*note)(void *context, const char *op, const char *choice, size_t bytes, double us), void *context);
} BackendVtable;

struct Backend { const BackendVtable *vtable; }; /* each backend's own struct begins with this */

/* By name: "cpu", "cuda" or "cuda:1"; "auto" is the best this build and machine have, and logs why not a GPU if there seems to
 * be one. STATUS_USAGE lists the names otherwise; STATUS_UNSUPPORTED if there is no such device here, with the reason. */
Status backend_open(const char *name, const BackendOptions *options, Backend **out);

static inline void   backend_close(Backend *be) { if (be) be->vtable->close(be); }
static inline void   backend_describe(Backend *be, BackendInfo *info) { be->vtable->describe(be, info); }
static inline Status backend_alloc(Backend *be, size_t bytes, void **address) { return be->vtable->alloc(be, bytes, address); }
static inline void   backend_free(Backend *be, void *address) { be->vtable->free(be, address); }
static inline size_t backend_bytes(Backend *be, const Tensor *t) { return be->vtable->bytes(be, t); }
static inline Status backend_upload(Backend *be, const Tensor *t, void *device, const void *host)
{
    return be->vtable->upload(be, t, device, host);
}
static inline Status backend_download(Backend *be, const Tensor *t, const void *device, void *host)
{
    return be->vtable->download(be, t, device, host);
}
static inline Status backend_sync(Backend *be) { return be->vtable->sync(be); }

/* query with needs set up first; a kernel without query needs nothing. */
Status backend_query(Backend *be, const OpDesc *op, OpNeeds *needs);

#ifdef __cplusplus
}
#endif
#endif
