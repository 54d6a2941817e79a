/* transfer.c - copies between host and device, through pinned memory: two slots of it, filled in turns.
 *
 * An upload packs the host's bytes into a slot and only enqueues; it waits only when its slot still holds bytes that have not been
 * copied, which is when both are in use. A slot takes many small uploads, and grows to the largest upload there is, so that the host
 * can be a whole step ahead of the device. Large copies go through a stream of their own, behind what was enqueued before them and
 * before what comes after them (the destination may be in use until then): two events. Small ones, of which a step has several, go
 * through the stream of the kernels, where they need none.
 * A download waits. Whoever waits also looks whether a kernel met a number out of range. */
#include "cuda.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_BYTES ((size_t)1 << 20)  /* of a slot at the start */
#define MOST_BYTES  ((size_t)64 << 20) /* that a slot grows to; larger uploads go in parts */
#define SMALL_BYTES ((size_t)256 << 10) /* up to this, an upload goes through the stream of the kernels */

typedef struct Slot {
    uint8_t    *bytes;  /* pinned */
    size_t      size, used;
    cudaEvent_t done;   /* what was copied from it last, and all before that */
    bool        busy;   /* done has been recorded */
} Slot;

struct Staging {
    cudaStream_t stream;         /* of large copies */
    cudaEvent_t  before, after;  /* one of them */
    Slot         slot[2];
    int          current;
    CudaFault   *fault;          /* pinned: as the device's cell was when the host last waited */
};

/* How the rows of a tensor lie on the host and on the device, in bytes; rows without padding are one row. */
typedef struct Rows { int64_t count; size_t host, device; } Rows;

static Rows rows_of(const Tensor *t)
{
    if (t->layout != LAYOUT_PADDED)
        return (Rows){ 1, tensor_bytes(t), tensor_bytes(t) };
    const int64_t last = t->dim[t->rank - 1];
    const size_t  element = (size_t)dtype_bits(t->dtype) / 8;
    return (Rows){ last ? tensor_count(t) / last : 0, (size_t)last * element, (size_t)cuda_pitch(t) * element };
}

/* Bytes [at, at + bytes) of the device's form, from the host's; padding is 0. */
static void pack(const Rows *r, const uint8_t *host, size_t at, size_t bytes, uint8_t *packed)
{
    if (r->host == r->device) {
        memcpy(packed, host + at, bytes);
        return;
    }
    memset(packed, 0, bytes);
    for (size_t i = 0; i < bytes; i += r->device)
        memcpy(packed + i, host + (at + i) / r->device * r->host, r->host);
}

static void unpack(const Rows *r, const uint8_t *packed, size_t at, size_t bytes, uint8_t *host)
{
    if (r->host == r->device) {
        memcpy(host + at, packed, bytes);
        return;
    }
    for (size_t i = 0; i < bytes; i += r->device)
        memcpy(host + (at + i) / r->device * r->host, packed + i, r->host);
}

/* The largest part of a tensor, in whole rows where they are padded, that is at most `most` bytes. */
static size_t part_bytes(const Rows *r, size_t most)
{
    if (r->host == r->device)
        return most;
    return most / r->device * r->device; /* a padded row is a few elements long */
}

/* ---- slots */

static Status slot_resize(Slot *s, size_t size)
{
    if (s->bytes)
        CUDA_TRY(cudaFreeHost(s->bytes));
    s->bytes = NULL;
    s->size = 0;
    void *pinned;
    TRY(status_context(cuda_status(cudaMallocHost(&pinned, size), "cudaMallocHost"), "%zu bytes of pinned memory", size));
    s->bytes = pinned;
    s->size = size;
    return status_ok();
}

/* `bytes` free ones, at most MOST_BYTES, in the current slot or in the next; waits for the next if it has to be used again. */
static Status take_bytes(Staging *s, size_t bytes, uint8_t **out)
{
    Slot *slot = &s->slot[s->current];
    bytes = (bytes + CUDA_ALIGN - 1) / CUDA_ALIGN * CUDA_ALIGN;
    if (bytes > slot->size - slot->used) {
        s->current = 1 - s->current;
        slot = &s->slot[s->current];
        if (slot->busy)
            CUDA_TRY(cudaEventSynchronize(slot->done));
        slot->busy = false;
        slot->used = 0;
        size_t size = slot->size ? slot->size : FIRST_BYTES;
        while (size < bytes)
            size *= 2;
        if (size > slot->size)
            TRY(slot_resize(slot, size));
    }
    *out = slot->bytes + slot->used;
    slot->used += bytes;
    return status_ok();
}

/* What is in the current slot must stay until what `stream` has now been told is done. */
static Status hold_slot(Staging *s, cudaStream_t stream)
{
    Slot *slot = &s->slot[s->current];
    CUDA_TRY(cudaEventRecord(slot->done, stream));
    slot->busy = true;
    return status_ok();
}

static Status staging_fill(Staging *s)
{
    void *fault;
    CUDA_TRY(cudaStreamCreateWithFlags(&s->stream, cudaStreamNonBlocking));
    CUDA_TRY(cudaEventCreateWithFlags(&s->before, cudaEventDisableTiming));
    CUDA_TRY(cudaEventCreateWithFlags(&s->after, cudaEventDisableTiming));
    CUDA_TRY(cudaMallocHost(&fault, sizeof *s->fault));
    s->fault = fault;
    for (int i = 0; i < 2; i++) {
        CUDA_TRY(cudaEventCreateWithFlags(&s->slot[i].done, cudaEventDisableTiming));
        TRY(slot_resize(&s->slot[i], FIRST_BYTES));
    }
    return status_ok();
}

Status staging_create(CudaBackend *be, Staging **out)
{
    *out = NULL;
    Staging *s = calloc(1, sizeof *s);
    if (!s)
        return status_error(STATUS_OOM, "no memory for copies to the device");
    Status status = staging_fill(s);
    if (status.code == STATUS_OK)
        *out = s;
    else
        staging_destroy(be, s);
    return status;
}

void staging_destroy(CudaBackend *be, Staging *s)
{
    (void)be;
    if (!s)
        return;
    if (s->stream)
        (void)cuda_status(cudaStreamSynchronize(s->stream), "cudaStreamSynchronize"); /* pinned memory must outlive its copies */
    for (int i = 0; i < 2; i++) {
        if (s->slot[i].bytes)
            (void)cuda_status(cudaFreeHost(s->slot[i].bytes), "cudaFreeHost");
        if (s->slot[i].done)
            (void)cuda_status(cudaEventDestroy(s->slot[i].done), "cudaEventDestroy");
    }
    if (s->fault)
        (void)cuda_status(cudaFreeHost(s->fault), "cudaFreeHost");
    if (s->after)
        (void)cuda_status(cudaEventDestroy(s->after), "cudaEventDestroy");
    if (s->before)
        (void)cuda_status(cudaEventDestroy(s->before), "cudaEventDestroy");
    if (s->stream)
        (void)cuda_status(cudaStreamDestroy(s->stream), "cudaStreamDestroy");
    free(s);
}

/* ---- waiting */

/* Enqueues the copy of the fault cell, waits for all of the kernels' stream, and looks. A fault is told once. */
static Status wait_and_look(CudaBackend *be)
{
    CudaFault *seen = be->staging->fault;
    CUDA_TRY(cudaMemcpyAsync(seen, be->fault, sizeof *seen, cudaMemcpyDeviceToHost, be->stream));
    CUDA_TRY(cudaStreamSynchronize(be->stream));
    if (seen->op == 0)
        return status_ok();
    CUDA_TRY(cudaMemsetAsync(be->fault, 0, sizeof *be->fault, be->stream));
    const char *op = seen->op > 0 && seen->op <= OP_COUNT ? op_names[seen->op - 1] : "an op";
    return status_error(STATUS_NUMERIC, "%s: %d at position %d is out of range: it must be below %d", op, seen->value, seen->place,
                        seen->limit);
}

Status cuda_sync(Backend *base)
{
    CudaBackend *be = cuda_of(base);
    TRY(cuda_need_device(be));
    return wait_and_look(be);
}

/* ---- copies */

/* Enqueues one part, on its own stream between what is before and what comes after it. */
static Status copy_large(CudaBackend *be, void *device, const void *pinned, size_t bytes)
{
    Staging *s = be->staging;
    CUDA_TRY(cudaEventRecord(s->before, be->stream));
    CUDA_TRY(cudaStreamWaitEvent(s->stream, s->before, 0));
    CUDA_TRY(cudaMemcpyAsync(device, pinned, bytes, cudaMemcpyHostToDevice, s->stream));
    CUDA_TRY(cudaEventRecord(s->after, s->stream));
    CUDA_TRY(cudaStreamWaitEvent(be->stream, s->after, 0));
    return hold_slot(s, s->stream); /* which has waited for the small copies from this slot too */
}

static Status copy_small(CudaBackend *be, void *device, const void *pinned, size_t bytes)
{
    CUDA_TRY(cudaMemcpyAsync(device, pinned, bytes, cudaMemcpyHostToDevice, be->stream));
    return hold_slot(be->staging, be->stream);
}

static Status check_movable(const CudaBackend *be, const Tensor *t)
{
    TRY(cuda_need_device(be));
    if (t->dtype == DTYPE_BIT)
        return status_error(STATUS_USAGE, "a bit tensor cannot be moved: its order is the backend's own");
    return status_ok();
}

Status cuda_upload(Backend *base, const Tensor *t, void *device, const void *host)
{
    CudaBackend *be = cuda_of(base);
    TRY(check_movable(be, t));
    const Rows   rows = rows_of(t);
    const size_t all = (size_t)rows.count * rows.device, most = part_bytes(&rows, MOST_BYTES);
    for (size_t at = 0; at < all; at += most) {
        const size_t bytes = all - at < most ? all - at : most;
        uint8_t     *pinned;
        TRY(take_bytes(be->staging, bytes, &pinned));
        pack(&rows, host, at, bytes, pinned);
        TRY((bytes <= SMALL_BYTES ? copy_small : copy_large)(be, (uint8_t *)device + at, pinned, bytes));
    }
    return status_ok();
}

Status cuda_download(Backend *base, const Tensor *t, const void *device, void *host)
{
    CudaBackend *be = cuda_of(base);
    TRY(check_movable(be, t));
    const Rows   rows = rows_of(t);
    const size_t all = (size_t)rows.count * rows.device, most = part_bytes(&rows, FIRST_BYTES);
    uint8_t     *pinned;
    TRY(take_bytes(be->staging, all < most ? all : most, &pinned));
    for (size_t at = 0; at < all; at += most) {
        const size_t bytes = all - at < most ? all - at : most;
        CUDA_TRY(cudaMemcpyAsync(pinned, (const uint8_t *)device + at, bytes, cudaMemcpyDeviceToHost, be->stream));
        TRY(wait_and_look(be));
        unpack(&rows, pinned, at, bytes, host);
    }
    return status_ok();
}
