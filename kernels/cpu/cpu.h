/* cpu.h - what the files of the CPU backend share: the backend itself, layouts, views of activations, oneDNN primitives.
 *
 * Threads: OpenMP's thread count is a process-wide setting that oneDNN reads, so the backend owns it: opening one sets it,
 * and two backends open at once with different counts would disturb each other. */
#ifndef BATCHMARK_KERNELS_CPU_CPU_H
#define BATCHMARK_KERNELS_CPU_CPU_H

#include "../backend.h"
#include "dnnl_compat.h"

typedef struct CpuBackend {
    Backend       base;
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    int           threads;
    bool          amx;                  /* oneDNN uses AMX tiles */
    bool          blocked[DTYPE_COUNT]; /* activations of this type are nChw16c where C is a multiple of 16, else nhwc */
    MemDesc      *layouts;              /* [layout_count]: LAYOUT_PRIVATE + i means layouts[i] */
    int           layout_count, layout_capacity;
} CpuBackend;

static inline CpuBackend *cpu_of(Backend *be) { return (CpuBackend *)be; }

extern const BackendVtable cpu_backend;
extern const Kernel *const cpu_kernels[OP_COUNT];       /* of the backend: f16 too (half.h) */
extern const Kernel *const cpu_float_kernels[OP_COUNT]; /* what they rest on: f32 and bf16 */

/* ---- errors */

/* oneDNN's status as ours; `what` is the call. */
Status cpu_dnnl_status(dnnl_status_t s, const char *what);
#define DNNL_TRY(call) TRY(cpu_dnnl_status((call), #call))
#define DNNL_TRY_GOTO(status, call, label) TRY_GOTO(status, cpu_dnnl_status((call), #call), label)

/* STATUS_UNSUPPORTED for a query: "the CPU backend does not <what> for <type>". */
Status cpu_unsupported(const char *what, Dtype dtype);

/* For the query of ops on matrices: wishes LAYOUT_PLAIN for every slot; STATUS_UNSUPPORTED if one of them is f16. */
Status cpu_query_plain(const OpDesc *op, OpNeeds *needs);

/* ---- layouts (layout.c) */

/* True if this activation is stored as nChw16c. */
bool cpu_is_blocked(const CpuBackend *be, const Tensor *t);

/* The memory descriptor of a tensor in its layout. Rank 4 has the dimensions (N, C, H, W) or (K, C, R, S), as oneDNN
 * wants them; plain is channels-last. The caller frees it with compat_md_destroy. */
Status cpu_desc_create(const CpuBackend *be, const Tensor *t, MemDesc *out);

/* The id of a descriptor chosen by oneDNN for a tensor of t's shape and type: LAYOUT_PLAIN if it is that, the id of an
 * equal descriptor if one is known, a new one otherwise. */
Status cpu_layout_id(CpuBackend *be, const Tensor *t, ConstMemDesc md, int *id);

/* Bytes of a tensor, padding of its layout included. */
size_t cpu_tensor_bytes(const CpuBackend *be, const Tensor *t);

/* Elements of a tensor, padding included: what elementwise ops run over. */
static inline int64_t cpu_physical_count(const CpuBackend *be, const Tensor *t)
{
    return (int64_t)(cpu_tensor_bytes(be, t) * 8 / (size_t)dtype_bits(t->dtype));
}

/* A copy between two tensors of one shape that differ in layout and perhaps in type (f32 -> bf16, bf16 -> f32): tables
 * made once, used by upload, download, cast and repack. Padding of the destination becomes 0. */
typedef struct Relayout Relayout;
Status relayout_create(const CpuBackend *be, const Tensor *from, const Tensor *to, Relayout **out);
void   relayout_run(const Relayout *r, const void *from, void *to);
void   relayout_destroy(Relayout *r); /* NULL is fine */

/* ---- activations seen as rows of channel blocks (layout.c) */

/* Row = one pixel of one image, N*H*W of them; block = sixteen channels (the last one fewer if C is no multiple of 16).
 * Both layouts are this view with other strides, in elements. */
typedef struct ActView {
    int64_t n, h, w, c;
    int64_t rows, image;      /* N*H*W, H*W */
    int64_t image_stride, block_stride, row_stride;
    int     blocks;
    int     run;              /* rows that a loop over one block should take at a time to stay in the cache */
    bool    whole;            /* C is a multiple of 16 */
} ActView;

ActView act_view(const CpuBackend *be, const Tensor *t);

static inline int act_lanes(const ActView *v, int block)
{
    return v->whole || block + 1 < v->blocks ? 16 : (int)(v->c - 16 * (int64_t)block);
}

/* Element index of (image, row within the image, block). */
static inline int64_t act_index(const ActView *v, int64_t image, int64_t row, int block)
{
    return image * v->image_stride + row * v->row_stride + block * v->block_stride;
}

/* Share of `count` that belongs to a thread: [*first, *last), cut at multiples of `align`. */
static inline void thread_share(int64_t count, int align, int thread, int threads, int64_t *first, int64_t *last)
{
    int64_t units = (count + align - 1) / align;
    int64_t a = units * thread / threads * align, b = units * (thread + 1) / threads * align;
    *first = a < count ? a : count;
    *last = b < count ? b : count;
}

/* ---- oneDNN primitives (primitive.c) */

enum { PRIM_MAX_ARGS = 8, PRIM_SCRATCH = -1 };

/* A primitive with its arguments: each is slot `slot` of a kernel's buf, or scratch + offset for PRIM_SCRATCH. */
typedef struct Prim {
    dnnl_primitive_t primitive;
    int              count;
    struct { int arg, slot; size_t offset; dnnl_memory_t memory; } args[PRIM_MAX_ARGS];
} Prim;

/* Makes the primitive and its scratchpad argument, which lies at `scratch_offset`. On error, prim_release still has to be
 * called; a zeroed Prim is fine for it. */
Status prim_create(CpuBackend *be, Prim *p, const_dnnl_primitive_desc_t pd, size_t scratch_offset);
Status prim_bind(CpuBackend *be, Prim *p, int arg, ConstMemDesc md, int slot, size_t offset);
Status prim_run(CpuBackend *be, Prim *p, void *const *buf, void *scratch);
void   prim_release(Prim *p);

/* Attributes with a scratchpad given by the user, and post-ops as asked. Freed with dnnl_primitive_attr_destroy. */
Status prim_attr_create(bool relu, bool sum, dnnl_primitive_attr_t *out);

/* Scratchpad bytes of a pd, rounded up to 64. */
size_t prim_scratch_bytes(const_dnnl_primitive_desc_t pd);

dnnl_data_type_t cpu_dnnl_type(Dtype t);

#endif
