/* device.c - opens and closes the CUDA backend, says what it is, hands out memory. */
#include "choice_cache.h"
#include "dnn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

cudaError_t cuda_find_image(void); /* image.cu */

/* One block of cuda_alloc. */
struct CudaBlock { void *address; size_t bytes; };

/* ---- opening and closing */

/* The device, or the one reason why there is none. */
static Status find_device(int ordinal, struct cudaDeviceProp *found)
{
    int driver = 0, runtime = 0, count = 0;
    CUDA_TRY(cudaDriverGetVersion(&driver));
    CUDA_TRY(cudaRuntimeGetVersion(&runtime));
    if (driver == 0)
        return status_error(STATUS_UNSUPPORTED, "there is no NVIDIA driver here (libcuda.so.1)");
    if (driver / 1000 < runtime / 1000)
        return status_error(STATUS_BACKEND, "the NVIDIA driver is for CUDA %d.%d, this build for CUDA %d.%d: it needs a newer driver",
                            driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
    cudaError_t e = cudaGetDeviceCount(&count);
    if (e == cudaErrorNoDevice || (e == cudaSuccess && count == 0)) {
        (void)cudaGetLastError();
        return status_error(STATUS_UNSUPPORTED, "the NVIDIA driver shows no GPU (CUDA_VISIBLE_DEVICES may hide them)");
    }
    TRY(cuda_status(e, "cudaGetDeviceCount"));
    if (ordinal >= count)
        return status_error(STATUS_UNSUPPORTED, "there is no GPU cuda:%d here: the last is cuda:%d", ordinal, count - 1);
    CUDA_TRY(cudaSetDevice(ordinal));
    CUDA_TRY(cudaGetDeviceProperties(found, ordinal));
    e = cuda_find_image();
    if (e == cudaErrorNoKernelImageForDevice) {
        (void)cudaGetLastError();
        return status_error(STATUS_UNSUPPORTED, "this build has no kernels for %s, compute capability %d.%d: configure it with "
                            "-DBATCHMARK_CUDA_ARCHITECTURES=%d%d", found->name, found->major, found->minor, found->major, found->minor);
    }
    return cuda_status(e, "cudaFuncGetAttributes");
}

/* A slice of a GPU has its own name, memory and UUID: "NVIDIA H100 80GB HBM3 MIG 1g.10gb". */
static bool is_slice(const char *name)
{
    return strstr(name, " MIG ") != NULL;
}

static void keep_properties(CudaBackend *be, const struct cudaDeviceProp *p)
{
    const unsigned char *u = (const unsigned char *)p->uuid.bytes;
    be->capability = 10 * p->major + p->minor;
    snprintf(be->title, sizeof be->title, "%.*s", (int)sizeof be->title - 1, p->name);
    snprintf(be->uuid, sizeof be->uuid, "%s-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
             is_slice(p->name) ? "MIG" : "GPU", u[0], u[1], u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12],
             u[13], u[14], u[15]);
    if (is_slice(p->name))
        snprintf(be->note, sizeof be->note, "a MIG slice of a GPU: bandwidth and clocks depend on what runs in its other slices");
}

/* What needs a device, in the order in which cuda_close gives it back. */
static Status start_device(CudaBackend *be)
{
    const char *reason = "";
    void       *fault;
    be->dnn = cuda_load_cudnn(&reason);
    if (!be->dnn)
        return status_error(STATUS_BACKEND, "cuDNN 9 is needed: %s", reason);
    be->blas = cuda_load_cublaslt(&reason);
    if (!be->blas)
        return status_error(STATUS_BACKEND, "cuBLASLt is needed: %s", reason);
    CUDA_TRY(cudaStreamCreateWithFlags(&be->stream, cudaStreamNonBlocking));
    CUDA_TRY(cudaMalloc(&fault, sizeof *be->fault));
    be->fault = fault;
    CUDA_TRY(cudaMemsetAsync(be->fault, 0, sizeof *be->fault, be->stream));
    TRY(staging_create(be, &be->staging));
    TRY(cuda_dnn_status(be, be->dnn->cudnnCreate(&be->dnn_handle), "cudnnCreate"));
    TRY(cuda_dnn_status(be, be->dnn->cudnnSetStream(be->dnn_handle, be->stream), "cudnnSetStream"));
    return cuda_blas_status(be, be->blas->cublasLtCreate(&be->blas_handle), "cublasLtCreate");
}

/* Errors are read away: what is lost with the device is lost. */
static void cuda_close(Backend *base)
{
    CudaBackend *be = cuda_of(base);
    if (be->stream)
        (void)cuda_status(cudaStreamSynchronize(be->stream), "cudaStreamSynchronize");
    dnn_sets_destroy(be);
    if (be->blas_handle)
        (void)cuda_blas_status(be, be->blas->cublasLtDestroy(be->blas_handle), "cublasLtDestroy");
    if (be->dnn_handle)
        (void)cuda_dnn_status(be, be->dnn->cudnnDestroy(be->dnn_handle), "cudnnDestroy");
    staging_destroy(be, be->staging);
    if (be->fault)
        (void)cuda_status(cudaFree(be->fault), "cudaFree");
    if (be->stream)
        (void)cuda_status(cudaStreamDestroy(be->stream), "cudaStreamDestroy");
    choice_cache_destroy(be->choices);
    free(be->blocks);
    free(be);
}

/* For a GPU that need not be here: no call of CUDA's runtime. cuDNN knows workspaces, where it is. */
static Status open_model(CudaBackend *be, const char *name)
{
    char        names[400];
    const char *reason = "";
    be->device = -1;
    be->model = gpu_find(name);
    if (!be->model)
        return status_error(STATUS_USAGE, "GPU '%s' is not known: use one of %s", name, gpu_names(names, sizeof names));
    be->capability = be->model->capability;
    snprintf(be->title, sizeof be->title, "%s", be->model->title);
    gpu_describe_json(be->model, be->dnn_json, sizeof be->dnn_json);
    be->dnn = cuda_load_cudnn(&reason);
    if (!be->dnn)
        snprintf(be->note, sizeof be->note, "workspaces of convolutions are not counted: no cuDNN here (%.80s)", reason);
    return status_ok();
}

static Status open_device(CudaBackend *be, int ordinal)
{
    struct cudaDeviceProp properties;
    be->device = ordinal;
    TRY(find_device(ordinal, &properties));
    keep_properties(be, &properties);
    return status_context(start_device(be), "%s", be->title);
}

static Status cuda_open(const BackendOptions *options, Backend **out)
{
    *out = NULL;
    CudaBackend *be = calloc(1, sizeof *be);
    if (!be)
        return status_error(STATUS_OOM, "no memory for the CUDA backend");
    be->base.vtable = &cuda_backend;
    be->tf32 = options && options->tf32;
    be->tune = !options || !options->no_tune;
    Status status = choice_cache_create(NULL, &be->choices);
    if (status.code == STATUS_OK)
        status = options && options->gpu ? open_model(be, options->gpu) : open_device(be, options ? options->ordinal : 0);
    if (status.code == STATUS_OK)
        *out = &be->base;
    else
        cuda_close(&be->base);
    return status;
}

/* ---- description */

/* Fast from this compute capability on: tensor cores for the type. */
static bool describe_type(const CudaBackend *be, const char *type, int since, char *reason, size_t size)
{
    if (be->capability >= since)
        return true;
    snprintf(reason, size, "compute capability %d.%d has no %s tensor cores (%d.%d has)", be->capability / 10, be->capability % 10, type,
             since / 10, since % 10);
    return false;
}

static void describe_libraries(const CudaBackend *be, char *text, size_t size)
{
    const size_t dnn = be->dnn ? be->dnn->cudnnGetVersion() : 0, blas = be->blas ? be->blas->cublasLtGetVersion() : 0;
    size_t       n = 0;
    text[0] = '\0';
    if (dnn)
        n = (size_t)snprintf(text, size, "cuDNN %zu.%zu.%zu", dnn / 10000, dnn % 10000 / 100, dnn % 100);
    if (blas)
        snprintf(text + n, size - n, "%scuBLASLt %zu.%zu.%zu", n ? ", " : "", blas / 10000, blas % 10000 / 100, blas % 100);
}

static void cuda_describe(Backend *base, BackendInfo *info)
{
    const CudaBackend *be = cuda_of(base);
    size_t             unused;
    memset(info, 0, sizeof *info);
    snprintf(info->name, sizeof info->name, "%s", be->title);
    describe_libraries(be, info->library, sizeof info->library);
    snprintf(info->isa, sizeof info->isa, "sm_%d", be->capability);
    info->fast_fp16 = describe_type(be, "fp16", 70, info->fp16_reason, sizeof info->fp16_reason);
    info->fast_bf16 = describe_type(be, "bf16", 80, info->bf16_reason, sizeof info->bf16_reason);
    info->fast_tf32 = describe_type(be, "tf32", 80, info->tf32_reason, sizeof info->tf32_reason);
    info->is_gpu = true;
    info->gpu_capability = be->capability;
    snprintf(info->note, sizeof info->note, "%s", be->note);
    if (cuda_is_planning(be)) {
        info->memory_bytes = (size_t)be->model->memory_bytes;
        return;
    }
    snprintf(info->gpu_uuid, sizeof info->gpu_uuid, "%s", be->uuid);
    (void)cuda_status(cudaMemGetInfo(&unused, &info->memory_bytes), "cudaMemGetInfo"); /* of the slice, where it is one: D18 */
    (void)cuda_status(cudaDriverGetVersion(&info->driver_version), "cudaDriverGetVersion");
    (void)cuda_status(cudaRuntimeGetVersion(&info->runtime_version), "cudaRuntimeGetVersion");
}

/* ---- memory */

static Status no_memory(size_t bytes)
{
    size_t unused = 0, total = 0;
    (void)cuda_status(cudaMemGetInfo(&unused, &total), "cudaMemGetInfo");
    return status_error(STATUS_OOM, "the GPU has no %.1f MiB: %.1f of %.1f MiB are free", (double)bytes / 0x1p20,
                        (double)unused / 0x1p20, (double)total / 0x1p20);
}

static Status cuda_alloc(Backend *base, size_t bytes, void **address)
{
    CudaBackend *be = cuda_of(base);
    *address = NULL;
    TRY(cuda_need_device(be));
    if (be->block_count == be->block_capacity) {
        int               capacity = be->block_capacity ? 2 * be->block_capacity : 8;
        struct CudaBlock *blocks = realloc(be->blocks, (size_t)capacity * sizeof *blocks);
        if (!blocks)
            return status_error(STATUS_OOM, "no host memory for a list of %d blocks", capacity);
        be->blocks = blocks;
        be->block_capacity = capacity;
    }
    cudaError_t e = cudaMalloc(address, bytes ? bytes : CUDA_ALIGN); /* 256-byte aligned: "CUDA C++ Programming Guide" */
    if (e != cudaSuccess) {
        *address = NULL;
        Status status = cuda_status(e, "cudaMalloc");
        return status.code == STATUS_OOM ? no_memory(bytes) : status;
    }
    be->blocks[be->block_count++] = (struct CudaBlock){ *address, bytes };
    be->allocated += bytes;
    return status_ok();
}

static void cuda_free(Backend *base, void *address)
{
    CudaBackend *be = cuda_of(base);
    int          i = 0;
    if (!address)
        return;
    while (i < be->block_count && be->blocks[i].address != address)
        i++;
    CHECK(i < be->block_count);
    be->allocated -= be->blocks[i].bytes;
    be->blocks[i] = be->blocks[--be->block_count];
    (void)cuda_status(cudaFree(address), "cudaFree");
}

static size_t cuda_bytes(Backend *be, const Tensor *t)
{
    (void)be;
    return cuda_tensor_bytes(t);
}

static Status cuda_memory(Backend *base, BackendMemory *out)
{
    CudaBackend *be = cuda_of(base);
    size_t       unused = 0, total = 0;
    *out = (BackendMemory){ 0 };
    TRY(cuda_need_device(be));
    CUDA_TRY(cudaMemGetInfo(&unused, &total));
    *out = (BackendMemory){ .allocated = be->allocated, .device_used = total - unused, .device_total = total,
                            .process_used = cuda_process_bytes(be->uuid) };
    return status_ok();
}

const BackendVtable cuda_backend = {
    .name = "cuda",
    .open = cuda_open,
    .close = cuda_close,
    .describe = cuda_describe,
    .alloc = cuda_alloc,
    .free = cuda_free,
    .bytes = cuda_bytes,
    .upload = cuda_upload,
    .download = cuda_download,
    .sync = cuda_sync,
    .kernels = cuda_kernels,
    .record = cuda_record,
    .replay = cuda_replay,
    .recording_free = cuda_recording_free,
    .memory = cuda_memory,
    .sensors = cuda_sensors,
    .trace_start = cuda_trace_start,
    .trace_tag = cuda_trace_tag,
    .trace_stop = cuda_trace_stop,
    .choices = cuda_choices,
};
