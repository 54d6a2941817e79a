/* interp.h - executes cuDNN operation graphs on the host: what the stand-in for cuDNN (fake_cudnn.h) does instead of a GPU.
 *
 * A graph is compiled once from its descriptors into tensors and ops in an order in which they can run, and executed by jobs.
 * A job owns one dense, row-major array of doubles a tensor, so ops are plain loops over logical indices, and strides, ragged
 * offsets, packed bits and number types are the business of loading and storing alone (interp_tensor.c). Every value is rounded to
 * the op's compute type and then to its tensor's type, virtual tensors too: a double holds all of them exactly, and the double
 * rounding is harmless for + - x / sqrt of floats (2 x 24 + 2 <= 53 bits).
 *
 * Meaning of the ops: "cuDNN Backend API" and "Graph API" of NVIDIA's documentation; where these are silent, the choice is
 * said at the op, and is the one that shows a wrong use. */
#ifndef BATCHMARK_TESTS_INTERP_H
#define BATCHMARK_TESTS_INTERP_H

#include "../../kernels/base.h"

#include <cudnn.h>

enum { INTERP_RANK = 8, INTERP_SLOTS = 16, INTERP_SPACE = 3 /* spatial dimensions */ };

typedef struct InterpTensor {
    cudnnDataType_t type;
    int     rank;
    int64_t dim[INTERP_RANK], stride[INTERP_RANK], count;
    int64_t uid, alignment;
    bool    is_virtual, by_value;
    bool    read, written; /* by an op of the graph; a virtual tensor is both */
    int     ragged;        /* the tensor with its offsets, in elements, one more than dim[0]; -1: none */
} InterpTensor;

typedef enum InterpKind {
    INTERP_CONV, INTERP_CONV_DGRAD, INTERP_CONV_WGRAD, INTERP_POINTWISE, INTERP_REDUCE, INTERP_MATMUL, INTERP_RESHAPE,
    INTERP_NORM, INTERP_NORM_GRAD, INTERP_POOL, INTERP_POOL_GRAD, INTERP_GENSTATS, INTERP_KINDS
} InterpKind;

/* Slots of each kind, in the order of this list; what is read comes first:
 *   conv           x, w, y             conv_dgrad  dy, w, dx         conv_wgrad   x, dy, dw
 *   pointwise      x, b, t, dy, y      reduce      x, y              matmul       a, b, m, n, k, c
 *   reshape        x, y                pool        x, y, index       pool_grad    dy, index, dx
 *   norm           x, scale, bias, epsilon, factor, run_mean, run_var, mean, invstd, y, next_mean, next_var, mean', invstd'
 *                  (mean and invstd are read in inference, mean' and invstd' written in training)
 *   norm_grad      x, mean, invstd, dy, scale, dx, dscale, dbias
 *   genstats       x, sum, sqsum */
enum { CONV_X, CONV_W, CONV_Y };
enum { POINT_X, POINT_B, POINT_T, POINT_DY, POINT_Y };
enum { MATMUL_A, MATMUL_B, MATMUL_M, MATMUL_N, MATMUL_K, MATMUL_C };
enum { NORM_X, NORM_SCALE, NORM_BIAS, NORM_EPSILON, NORM_FACTOR, NORM_RUN_MEAN, NORM_RUN_VAR, NORM_MEAN_IN, NORM_INVSTD_IN, NORM_Y,
       NORM_NEXT_MEAN, NORM_NEXT_VAR, NORM_MEAN_OUT, NORM_INVSTD_OUT };
enum { GRAD_X, GRAD_MEAN, GRAD_INVSTD, GRAD_DY, GRAD_SCALE, GRAD_DX, GRAD_DSCALE, GRAD_DBIAS };
enum { POOL_X, POOL_Y, POOL_INDEX };
enum { POOLG_DY, POOLG_INDEX, POOLG_DX };
extern const int interp_inputs[INTERP_KINDS]; /* how many slots of a kind are read; the others are written */

typedef struct InterpOp {
    InterpKind      kind;
    cudnnDataType_t compute; /* FLOAT or DOUBLE; INT32, BOOLEAN for some pointwise modes */
    int             slot[INTERP_SLOTS]; /* numbers of tensors, -1: none */
    union {
        struct {
            int64_t pre[INTERP_SPACE], post[INTERP_SPACE], stride[INTERP_SPACE], dilation[INTERP_SPACE];
            bool flip;
            double alpha, beta;
        } conv;
        struct {
            cudnnPointwiseMode_t mode;
            double alpha1, alpha2, lower, upper, slope, elu, softplus, swish;
            int axis;
            bool keeps_nan;
        } point;
        struct { cudnnReduceTensorOp_t mode; } reduce;
        struct { double padding; } matmul;
        struct { bool training; } norm;
        struct {
            cudnnResampleMode_t mode;
            int64_t window[INTERP_SPACE], pre[INTERP_SPACE], stride[INTERP_SPACE];
            bool keeps_nan;
        } pool;
    } as;
} InterpOp;

typedef struct InterpGraph {
    int           tensors, ops;
    InterpTensor *tensor;
    InterpOp     *op; /* in the order of execution */
} InterpGraph;

/* One execution. memory[i] is where tensor i lies, NULL for a virtual one; values given by value are read by interp_job_create. */
typedef struct InterpJob {
    const InterpGraph *graph;
    bool               rounds_inputs; /* f32 inputs of products are rounded to TF32, as an engine that down-converts does */
    void             **memory;
    double           **value;         /* dense, row-major, [tensor][count] */
    double            *scratch;       /* for one op at a time */
    void              *workspace;
    size_t             workspace_bytes;
} InterpJob;

/* NULL if memory is out. The graph must outlive the job. */
InterpJob *interp_job_create(const InterpGraph *graph, void *const *memory);
void       interp_job_run(InterpJob *job); /* loads, computes, stores; may run many times (a replayed CUDA graph) */
void       interp_job_destroy(InterpJob *job); /* NULL is fine */

/* ---- numbers (interp_tensor.c) */

/* What stands for an element that does not exist: past the end of a ragged sequence, or outside what a matmul with overrides
 * computes. A NaN of its own; it passes through pointwise ops and is never stored. */
double interp_hole(void);
bool   interp_is_hole(double v);

double interp_round(cudnnDataType_t type, double v); /* to the nearest value of the type */
double interp_round_tf32(double v);
int    interp_type_bits(cudnnDataType_t type);       /* 0: a type that is not known here */
void   interp_load(const InterpTensor *t, const void *memory, const double *ragged, double *value);
void   interp_store(const InterpTensor *t, void *memory, const double *ragged, const double *value);
bool   interp_offsets_differ(const InterpTensor *t); /* no two elements at one place */
int64_t interp_extent(const InterpTensor *t);        /* elements from the first to the last in memory; not for ragged ones */

/* Row-major offset in `of` of index `at` of a tensor it is broadcast to: dimensions of 1 stay at 0. */
int64_t interp_broadcast(const InterpTensor *of, const int64_t *at, int rank);
/* To the next index in row-major order. */
void    interp_next(const InterpTensor *t, int64_t *at);

/* ---- ops */
static inline const InterpTensor *interp_tensor(const InterpJob *job, const InterpOp *op, int slot)
{
    return op->slot[slot] < 0 ? NULL : &job->graph->tensor[op->slot[slot]];
}
static inline double *interp_value(const InterpJob *job, const InterpOp *op, int slot)
{
    return op->slot[slot] < 0 ? NULL : job->value[op->slot[slot]];
}
static inline double interp_compute(const InterpOp *op, double v)
{
    return op->compute == CUDNN_DATA_FLOAT ? (double)(float)v : v;
}
void interp_conv(const InterpJob *job, const InterpOp *op);      /* interp_conv.c */
void interp_matmul(const InterpJob *job, const InterpOp *op);
void interp_pointwise(const InterpJob *job, const InterpOp *op); /* interp_pointwise.c */
void interp_reduce(const InterpJob *job, const InterpOp *op);
void interp_reshape(const InterpJob *job, const InterpOp *op);
void interp_norm(const InterpJob *job, const InterpOp *op);      /* interp_norm.c */
void interp_norm_grad(const InterpJob *job, const InterpOp *op);
void interp_genstats(const InterpJob *job, const InterpOp *op);
void interp_pool(const InterpJob *job, const InterpOp *op);      /* interp_pool.c */
void interp_pool_grad(const InterpJob *job, const InterpOp *op);

/* What a pointwise mode takes: how many inputs (1 to 3), or -1 if the mode is not known here; a backward mode takes dy and x. */
int  interp_pointwise_inputs(cudnnPointwiseMode_t mode);
bool interp_pointwise_is_backward(cudnnPointwiseMode_t mode);

#endif
