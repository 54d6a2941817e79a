/* cuda.h - what the C files of the CUDA backend share: the backend itself, errors, layouts, the way to its libraries.
 *
 * A device is opened in one of two forms. With a GPU: everything works. Planning (BackendOptions.gpu): there is a GpuModel
 * instead of a device; query works and asks the real cuDNN for workspace sizes where it is installed; nothing can be allocated
 * or run.
 *
 * Layouts: activations are NHWC, weights (K,R,S,C): row-major, LAYOUT_ACT = LAYOUT_PLAIN in memory. The one private layout is
 * LAYOUT_PADDED, a rank-4 tensor whose last dimension is rounded up to 8 and filled with zeros: convolutions of images with 1
 * to 4 channels want it where it makes tensor cores usable.
 *
 * Everything is enqueued on one stream; copies between host and device go through pinned buffers on another, ordered by events. */
#ifndef BATCHMARK_KERNELS_CUDA_CUDA_H
#define BATCHMARK_KERNELS_CUDA_CUDA_H

#include "../backend.h"
#include "../gpus.h"
#include "fault.h"

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { LAYOUT_PADDED = LAYOUT_PRIVATE, CUDA_PAD = 8, CUDA_ALIGN = 256 };

struct CudnnApi;                        /* libs.h; not for .cu files */
struct CublasLtApi;
struct cudnnContext;                    /* cudnnHandle_t */
struct cublasLtContext;                 /* cublasLtHandle_t */
typedef struct ChoiceCache ChoiceCache; /* choice_cache.h */
typedef struct Staging Staging;         /* transfer.c */
typedef struct CudaTrace CudaTrace;     /* trace.c */

typedef struct CudaBackend {
    Backend             base;
    int                 device;       /* ordinal; -1 when planning */
    const GpuModel     *model;        /* when planning, else NULL */
    char                dnn_json[1024]; /* when planning: the device for cuDNN */
    int                 capability;   /* 90 */
    char                title[64];    /* the device's name */
    bool                tf32, tune;
    const struct CudnnApi    *dnn;    /* NULL only when planning without cuDNN */
    const struct CublasLtApi *blas;   /* NULL when planning */
    struct cudnnContext      *dnn_handle; /* NULL when planning */
    struct cublasLtContext   *blas_handle;
    cudaStream_t        stream;       /* all kernels */
    CudaFault          *fault;        /* device memory: the first bad number that a kernel met */
    Staging            *staging;
    ChoiceCache        *choices;      /* NULL when planning */
    struct DnnSet      *dnn_sets;     /* dnn_engines.h: what cuDNN can do for the graphs seen so far */
    CudaTrace          *trace;        /* NULL while nothing is profiled */
    char                uuid[48], note[160]; /* as in BackendInfo */
    size_t              allocated;    /* bytes, in these blocks */
    struct CudaBlock   *blocks;
    int                 block_count, block_capacity;
} CudaBackend;

static inline CudaBackend *cuda_of(Backend *be) { return (CudaBackend *)be; }
static inline bool cuda_is_planning(const CudaBackend *be) { return be->model != NULL; }

extern const BackendVtable cuda_backend;
extern const Kernel *const cuda_kernels[OP_COUNT];

/* ---- errors: a library's status as ours, in the library's own words; `what` is the call. The runtime's sticky last error is
 * read away here if the device is still usable (tests/CASES.md D5); after an error that ended the context everything fails. */
Status cuda_status(cudaError_t e, const char *what);
Status cuda_dnn_status(const CudaBackend *be, int cudnn_status, const char *what);
Status cuda_blas_status(const CudaBackend *be, int cublas_status, const char *what);
#define CUDA_TRY(call) TRY(cuda_status((call), #call))
#define CUDA_TRY_GOTO(status, call, label) TRY_GOTO(status, cuda_status((call), #call), label)

/* STATUS_UNSUPPORTED: "the CUDA backend does not <what> for <type>". */
Status cuda_unsupported(const char *what, Dtype dtype);

/* STATUS_UNSUPPORTED when planning: alloc, prepare, run and the like begin with it. */
Status cuda_need_device(const CudaBackend *be);

/* ---- tensors */

/* Bytes in memory, padding included. */
size_t cuda_tensor_bytes(const Tensor *t);

/* Elements from one row of the last dimension to the next. */
static inline int64_t cuda_pitch(const Tensor *t)
{
    int64_t last = t->dim[t->rank - 1];
    return t->layout == LAYOUT_PADDED ? (last + CUDA_PAD - 1) / CUDA_PAD * CUDA_PAD : last;
}

/* For query: LAYOUT_ANY everywhere but STATUS_UNSUPPORTED if a slot has a layout that the kernel cannot read. */
Status cuda_query_rows(const OpDesc *op);

/* ---- device.c's parts */
Status cuda_upload(Backend *be, const Tensor *t, void *device, const void *host);   /* transfer.c */
Status cuda_download(Backend *be, const Tensor *t, const void *device, void *host); /* waits, as sync does */
Status cuda_sync(Backend *be);
Status staging_create(CudaBackend *be, Staging **out);
void   staging_destroy(CudaBackend *be, Staging *s); /* NULL is fine */
Status cuda_record(Backend *be, Status (*enqueue)(void *), void *context, void **recording); /* recording.c */
Status cuda_replay(Backend *be, void *recording);
void   cuda_recording_free(Backend *be, void *recording);
size_t cuda_process_bytes(const char *uuid); /* nvml.c: of this process on that device; 0 = the driver does not tell */
void   cuda_sensors(Backend *be, BackendSensors *out);
Status cuda_trace_start(Backend *be); /* trace.c */
void   cuda_trace_tag(Backend *be, int tag);
Status cuda_trace_stop(Backend *be, DeviceTrace *out);

#ifdef __cplusplus
}
#endif
#endif
