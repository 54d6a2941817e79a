/* cuda_absent.c - the CUDA backend of a build without NVIDIA's toolkit: it cannot run anything, but it can still plan memory for the
 * GPUs of gpus.h, as far as that does not depend on the libraries. */
#include "backend.h"
#include "gpus.h"

#include <stdio.h>
#include <stdlib.h>

extern const BackendVtable cuda_backend;

typedef struct AbsentBackend { Backend base; const GpuModel *model; } AbsentBackend;

static Status absent(void)
{
    return status_error(STATUS_UNSUPPORTED, "this build has no CUDA backend: NVIDIA's toolkit with cuDNN was not there when it was configured");
}

static Status absent_run(Backend *be, const OpDesc *op, void *state, void *const *buf, void *scratch)
{
    (void)be, (void)op, (void)state, (void)buf, (void)scratch;
    return absent();
}

/* No query: an op needs nothing but its tensors. */
#define OP(name) [OP_##name] = &(const Kernel){ .run = absent_run },
static const Kernel *const absent_kernels[OP_COUNT] = {
#include "ops.def"
};
#undef OP

static Status absent_open(const BackendOptions *options, Backend **out)
{
    *out = NULL;
    if (!options->gpu)
        return absent();
    const GpuModel *model = gpu_find(options->gpu);
    if (!model) {
        char list[320];
        return status_error(STATUS_USAGE, "there is no GPU '%s' in the table: use one of %s", options->gpu, gpu_names(list, sizeof list));
    }
    AbsentBackend *be = malloc(sizeof *be);
    if (!be)
        return status_error(STATUS_OOM, "no memory for a backend");
    *be = (AbsentBackend){ { &cuda_backend }, model };
    *out = &be->base;
    return status_ok();
}

static void absent_close(Backend *be) { free(be); }

static void absent_describe(Backend *be, BackendInfo *info)
{
    const GpuModel *m = ((AbsentBackend *)be)->model;
    *info = (BackendInfo){ .memory_bytes = (size_t)m->memory_bytes, .fast_bf16 = m->bf16_flops > 0, .fast_fp16 = m->f16_flops > 0,
                           .fast_tf32 = m->tf32_flops > 0, .is_gpu = true, .gpu_capability = m->capability };
    snprintf(info->name, sizeof info->name, "%s", m->title);
    snprintf(info->note, sizeof info->note, "workspaces are not counted: this build is without NVIDIA's toolkit");
}

static Status absent_alloc(Backend *be, size_t bytes, void **address)
{
    (void)be, (void)bytes;
    *address = NULL;
    return absent();
}

static void   absent_free(Backend *be, void *address) { (void)be, (void)address; }
static size_t absent_bytes(Backend *be, const Tensor *t) { (void)be; return tensor_bytes(t); }

static Status absent_upload(Backend *be, const Tensor *t, void *device, const void *host)
{
    (void)be, (void)t, (void)device, (void)host;
    return absent();
}

static Status absent_download(Backend *be, const Tensor *t, const void *device, void *host)
{
    (void)be, (void)t, (void)device, (void)host;
    return absent();
}

static Status absent_sync(Backend *be) { (void)be; return status_ok(); }

const BackendVtable cuda_backend = {
    .name = "cuda", .open = absent_open, .close = absent_close, .describe = absent_describe, .alloc = absent_alloc, .free = absent_free,
    .bytes = absent_bytes, .upload = absent_upload, .download = absent_download, .sync = absent_sync, .kernels = absent_kernels,
};
