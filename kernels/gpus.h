/* gpus.h - what is known of GPU models: enough to plan memory for one that is not here, to describe it to cuDNN, and to model
 * a floor. Plain data with sources; no CUDA needed. */
#ifndef BATCHMARK_KERNELS_GPUS_H
#define BATCHMARK_KERNELS_GPUS_H

#include "base.h"

typedef struct GpuModel {
    const char *name;          /* "h100-80g", as --gpu takes it */
    const char *title;         /* "NVIDIA H100 80GB HBM3" */
    int     capability;        /* 90 */
    int     sms;
    double  memory_bytes;      /* what the driver reports as total; 0.98 of the nominal where no report was found: see source */
    double  copy_bytes;        /* peak bandwidth, bytes/s */
    double  f32_flops, tf32_flops, f16_flops, bf16_flops; /* dense peaks; tensor cores but for f32; 0 = not supported */
    int     shared_bytes_sm, shared_bytes_block; /* largest shared memory of an SM, and of a block by opt-in */
    int     l2_bytes, sm_clock_khz, memory_clock_khz;
    const char *source;        /* data sheet or white paper, with table or page */
} GpuModel;

/* The table; the end has name NULL. */
extern const GpuModel gpu_models[];

/* By name; NULL if there is none. */
const GpuModel *gpu_find(const char *name);

/* "h100-80g, h200-141g, ..." for messages. */
const char *gpu_names(char *text, size_t size);

/* The device description that cuDNN takes instead of a handle (CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION): all 23 members. */
const char *gpu_describe_json(const GpuModel *gpu, char *text, size_t size);

#endif
