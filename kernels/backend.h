/* backend.h - the one interface between nets and the libraries that compute.
 *
 * A Backend is a device opened with a set of kernels, one per op. A kernel is used in four steps:
 *   query    what the op will need: scratch bytes and, for weights, the physical layouts it wants. Cheap, no search,
 *            no allocation that outlives the call; enough to plan memory without running anything. An op that this
 *            backend does not do for these types returns STATUS_UNSUPPORTED with the reason.
 *   prepare  may be slow (search, code generation). Called once, after the layouts of all tensors are settled.
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
} Kernel;

typedef struct BackendOptions {
    int         threads; /* CPU threads; 0 = all cores this process may use */
    const char *layout;  /* activations, for experiments: NULL or "auto", "blocked", "nhwc" */
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
} BackendInfo;

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
    Status (*sync)(Backend *be);                                /* waits for everything enqueued */
    const Kernel *const *kernels;                               /* [OP_COUNT] */
} BackendVtable;

struct Backend { const BackendVtable *vtable; }; /* each backend's own struct begins with this */

/* By name: "cpu"; "auto" is the best this build and machine have. STATUS_USAGE lists the names otherwise. */
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
