/* device.c - opens and closes the CPU backend, says what it is, hands out memory, moves tensors in and out. */
#define _DEFAULT_SOURCE /* madvise */
#include "amx.h"
#include "capacity.h"
#include "cpu.h"

#include <omp.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

enum { HUGE_PAGE = 2 << 20 };

static bool isa_has(dnnl_cpu_isa_t wanted)
{
    unsigned isa = (unsigned)dnnl_get_effective_cpu_isa();
    return (isa & (unsigned)wanted) == (unsigned)wanted;
}

/* Measured with oneDNN 2.6.3 (ResNet-50, batch 8, 224): nChw16c wins where convolutions are AVX-512 kernels; the AMX ones
 * only exist for nhwc, and below AVX-512 there are no kernels for blocks of sixteen. */
static Status choose_layouts(CpuBackend *be, const char *layout)
{
    bool blocked = isa_has(dnnl_cpu_isa_avx512_core);
    be->blocked[DTYPE_F32] = be->blocked[DTYPE_F16] = be->blocked[DTYPE_U8] = blocked;
    be->blocked[DTYPE_BF16] = blocked && !be->amx;
    if (!layout || !strcmp(layout, "auto"))
        return status_ok();
    if (strcmp(layout, "blocked") && strcmp(layout, "nhwc"))
        return status_error(STATUS_USAGE, "layout '%s' is not known: use auto, blocked or nhwc", layout);
    for (int t = 0; t < DTYPE_COUNT; t++)
        be->blocked[t] = !strcmp(layout, "blocked");
    return status_ok();
}

/* Without own AMX kernels oneDNN 2's would run: its 2.6.3 reads past the end of a table when it makes a convolution of kernel
 * and stride 2 (UNet's up-convolution), and may crash. Then AVX-512 does the work. */
static void avoid_faulty_amx(void)
{
    if (!HAVE_AMX && dnnl_version()->major < 3)
        dnnl_set_max_cpu_isa(dnnl_cpu_isa_avx512_core_bf16); /* refused once oneDNN is in use: then it was set before */
}

static void cpu_close(Backend *base)
{
    CpuBackend *be = cpu_of(base);
    for (int i = 0; i < be->layout_count; i++)
        compat_md_destroy(be->layouts[i]);
    free(be->layouts);
    if (be->stream)
        dnnl_stream_destroy(be->stream);
    if (be->engine)
        dnnl_engine_destroy(be->engine);
    free(be);
}

static Status cpu_open(const BackendOptions *options, Backend **out)
{
    *out = NULL;
    int threads = options ? options->threads : 0;
    if (threads < 0)
        return status_error(STATUS_USAGE, "%d threads cannot be had: use 1 or more, or 0 for all cores", threads);
    CpuBackend *be = calloc(1, sizeof *be);
    if (!be)
        return status_error(STATUS_OOM, "no memory for the CPU backend");
    Status status;
    be->base.vtable = &cpu_backend;
    be->threads = threads ? threads : omp_get_num_procs();
    avoid_faulty_amx();
    be->amx = isa_has(dnnl_cpu_isa_avx512_core_amx);
    TRY_GOTO(status, choose_layouts(be, options ? options->layout : NULL), fail);
    DNNL_TRY_GOTO(status, dnnl_engine_create(&be->engine, dnnl_cpu, 0), fail);
    DNNL_TRY_GOTO(status, dnnl_stream_create(&be->stream, be->engine, dnnl_stream_default_flags), fail);
    omp_set_num_threads(be->threads);
    *out = &be->base;
    return status_ok();
fail:
    cpu_close(&be->base);
    return status;
}

static void describe_cpu_name(char *name, size_t size)
{
    snprintf(name, size, "unknown CPU");
    FILE *f = fopen("/proc/cpuinfo", "r");
    if (!f)
        return;
    char line[256];
    while (fgets(line, sizeof line, f)) {
        char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) || !colon)
            continue;
        line[strcspn(line, "\n")] = '\0';
        snprintf(name, size, "%.*s", (int)size - 1, colon[1] == ' ' ? colon + 2 : colon + 1);
        break;
    }
    fclose(f);
}

static void cpu_describe(Backend *base, BackendInfo *info)
{
    static const struct { dnnl_cpu_isa_t isa; const char *name; } sets[] = {
        { dnnl_cpu_isa_avx2, "avx2" },
        { dnnl_cpu_isa_avx512_core, "avx512_core" },
        { dnnl_cpu_isa_avx512_core_vnni, "avx512_vnni" },
        { dnnl_cpu_isa_avx512_core_bf16, "avx512_bf16" },
        { dnnl_cpu_isa_avx512_core_amx, "amx_bf16" },
    };
    const CpuBackend *be = cpu_of(base);
    const dnnl_version_t *version = dnnl_version();
    memset(info, 0, sizeof *info);
    describe_cpu_name(info->name, sizeof info->name);
    snprintf(info->library, sizeof info->library, "oneDNN %d.%d.%d", version->major, version->minor, version->patch);
    for (size_t i = 0, n = 0; i < COUNT_OF(sets); i++)
        if (isa_has(sets[i].isa))
            n += (size_t)snprintf(info->isa + n, sizeof info->isa - n, "%s%s", n ? " " : "", sets[i].name);
    info->threads = be->threads;
    info->memory_bytes = capacity_bytes();
    info->fast_bf16 = isa_has(dnnl_cpu_isa_avx512_core_bf16);
    if (!info->fast_bf16)
        snprintf(info->bf16_reason, sizeof info->bf16_reason, "this CPU has no bf16 arithmetic (avx512_bf16 or amx_bf16)");
    snprintf(info->fp16_reason, sizeof info->fp16_reason,
             "this CPU backend runs fp16 as numerics only: values rounded to fp16, sums in fp32");
    snprintf(info->tf32_reason, sizeof info->tf32_reason, "this CPU has no TF32");
}

/* Large blocks in 2 MiB pages where the system gives them on request: fewer TLB misses, 10-15 % on a training step. */
static Status cpu_alloc(Backend *be, size_t bytes, void **address)
{
    (void)be;
    size_t align = bytes >= HUGE_PAGE ? (size_t)HUGE_PAGE : 64;
    size_t rounded = (bytes + align - 1) / align * align;
    *address = rounded < bytes ? NULL : aligned_alloc(align, rounded ? rounded : align);
    if (!*address)
        return status_error(STATUS_OOM, "the system has no %zu bytes of memory", bytes);
    if (align == HUGE_PAGE)
        madvise(*address, rounded, MADV_HUGEPAGE); /* a wish: without it things only run slower */
    return status_ok();
}

static void cpu_free(Backend *be, void *address)
{
    (void)be;
    free(address);
}

static size_t cpu_bytes(Backend *be, const Tensor *t) { return cpu_tensor_bytes(cpu_of(be), t); }

/* Copies between the host's row-major form and the tensor's own. */
static Status move(CpuBackend *be, const Tensor *t, bool to_device, const void *from, void *to)
{
    if (t->dtype == DTYPE_BIT)
        return status_error(STATUS_USAGE, "a bit tensor cannot be moved: its order is the backend's own");
    if (t->layout == LAYOUT_PLAIN || (t->layout == LAYOUT_ACT && !cpu_is_blocked(be, t))) {
        memcpy(to, from, tensor_bytes(t));
        return status_ok();
    }
    Tensor host = *t;
    host.layout = LAYOUT_PLAIN;
    Relayout *r;
    TRY(to_device ? relayout_create(be, &host, t, &r) : relayout_create(be, t, &host, &r));
    relayout_run(r, from, to);
    relayout_destroy(r);
    return status_ok();
}

static Status cpu_upload(Backend *be, const Tensor *t, void *device, const void *host)
{
    return move(cpu_of(be), t, true, host, device);
}

static Status cpu_download(Backend *be, const Tensor *t, const void *device, void *host)
{
    return move(cpu_of(be), t, false, device, host);
}

static Status cpu_sync(Backend *be)
{
    DNNL_TRY(dnnl_stream_wait(cpu_of(be)->stream));
    return status_ok();
}

const BackendVtable cpu_backend = {
    .name = "cpu",
    .open = cpu_open,
    .close = cpu_close,
    .describe = cpu_describe,
    .alloc = cpu_alloc,
    .free = cpu_free,
    .bytes = cpu_bytes,
    .upload = cpu_upload,
    .download = cpu_download,
    .sync = cpu_sync,
    .kernels = cpu_kernels,
};
