/* dnn.h - cuDNN as this backend uses it: an operation graph is described with a few calls, then asked what workspace it needs,
 * made into a plan, tuned, and executed. The only door to cuDNN's backend API ("cuDNN Backend API", NVIDIA docs).
 *
 * A graph is built by the same calls for a device that is here and for a GpuModel. The builder has a sticky error: the first
 * mistake, ours or cuDNN's, is kept with the graph's name; every call after it does nothing; dnn_query and dnn_prepare return it.
 *
 * Tensors are bound to memory by slot: the number of a buffer in the `buf` that a kernel's run() gets, or an offset into its
 * scratch. The workspace of the plan lies in scratch behind what the graph itself uses there. */
#ifndef BATCHMARK_KERNELS_CUDA_DNN_H
#define BATCHMARK_KERNELS_CUDA_DNN_H

#include "cuda.h"
#include "libs.h"

typedef struct DnnGraph DnnGraph;
typedef struct DnnPlan DnnPlan;
typedef struct DnnTensor { int id; } DnnTensor; /* id < 0: none */
#define DNN_NONE ((DnnTensor){ -1 })

/* Where a tensor lives. */
typedef struct DnnPlace { enum { DNN_AT_SLOT, DNN_AT_SCRATCH, DNN_VIRTUAL } kind; int slot; size_t offset; } DnnPlace;
static inline DnnPlace dnn_slot(int slot) { return (DnnPlace){ .kind = DNN_AT_SLOT, .slot = slot }; }
static inline DnnPlace dnn_slot_at(int slot, size_t bytes) { return (DnnPlace){ .kind = DNN_AT_SLOT, .slot = slot, .offset = bytes }; }
static inline DnnPlace dnn_scratch(size_t offset) { return (DnnPlace){ .kind = DNN_AT_SCRATCH, .offset = offset }; }
static inline DnnPlace dnn_virtual(void) { return (DnnPlace){ .kind = DNN_VIRTUAL }; } /* between two ops of the graph: no memory */

/* The name tells graphs apart in messages and in the choice cache: the op's text (op_format) and what kind of graph.
 * `scratch` bytes at the start of the kernel's scratch belong to the caller (tensors placed there, other uses). */
Status dnn_graph_create(CudaBackend *be, const OpDesc *op, const char *name, size_t scratch, DnnGraph **out);
void   dnn_graph_destroy(DnnGraph *g); /* NULL is fine */

/* ---- tensors. Dimensions in cuDNN's order: N, C, H, W; K, C, R, S; B, M, N or B, H, S, D. Strides in elements. */
DnnTensor dnn_tensor(DnnGraph *g, cudnnDataType_t type, int rank, const int64_t *dim, const int64_t *stride, DnnPlace place);
DnnTensor dnn_tensor_nhwc(DnnGraph *g, cudnnDataType_t type, int64_t n, int64_t c, int64_t h, int64_t w, DnnPlace place);
DnnTensor dnn_tensor_channel(DnnGraph *g, cudnnDataType_t type, int64_t c, DnnPlace place); /* (1, C, 1, 1) */
DnnTensor dnn_scalar(DnnGraph *g, float value);                                             /* f32, given by value */
DnnTensor dnn_scalar_i64(DnnGraph *g, int64_t value);
/* A rank-4 tensor of an op: (N,H,W,C) as N, C, H, W, (K,R,S,C) as K, C, R, S. The zeros of LAYOUT_PADDED are channels to cuDNN. */
DnnTensor dnn_tensor_of(DnnGraph *g, const Tensor *t, DnnPlace place);
/* A ragged tensor: sequence b begins `ragged`[b] elements after the start; ragged is i32 (B+1,1,1,1). */
void      dnn_tensor_ragged(DnnGraph *g, DnnTensor t, DnnTensor ragged);
cudnnDataType_t dnn_type(Dtype dtype);

/* ---- operations; compute type f32. Outputs are given, not made. */
typedef enum DnnConv { DNN_CONV_FORWARD, DNN_CONV_DGRAD, DNN_CONV_WGRAD } DnnConv;
/* x is also dx, w also dw, y also dy. */
void dnn_conv(DnnGraph *g, DnnConv kind, DnnTensor x, DnnTensor w, DnnTensor y, int pad, int stride);
/* Adds to its output instead of overwriting it. Only for f32: for 16-bit types write the convolution to a virtual f32 tensor and add. */
void dnn_conv_accumulate(DnnGraph *g, DnnConv kind, DnnTensor x, DnnTensor w, DnnTensor y, int pad, int stride);
void dnn_pointwise(DnnGraph *g, cudnnPointwiseMode_t mode, DnnTensor x, DnnTensor b, DnnTensor y); /* b: DNN_NONE for unary modes */
void dnn_pointwise_select(DnnGraph *g, DnnTensor x, DnnTensor b, DnnTensor mask, DnnTensor y);       /* y = mask ? x : b */
void dnn_pointwise_index(DnnGraph *g, int axis, DnnTensor like, DnnTensor y);                        /* y = index along axis, i32 */
void dnn_pointwise_backward(DnnGraph *g, cudnnPointwiseMode_t mode, DnnTensor dy, DnnTensor x, DnnTensor dx);
void dnn_reduce(DnnGraph *g, cudnnReduceTensorOp_t mode, DnnTensor x, DnnTensor y);
/* m, n, k: i32 tensors (B,1,1,1) with the true extents of each batch entry, or DNN_NONE. */
void dnn_matmul(DnnGraph *g, DnnTensor a, DnnTensor b, DnnTensor c, DnnTensor m, DnnTensor n, DnnTensor k);
void dnn_reshape(DnnGraph *g, DnnTensor x, DnnTensor y);
typedef struct DnnNorm { DnnTensor x, scale, bias, mean, invstd, eps, momentum, run_mean, run_var, next_mean, next_var, y; } DnnNorm;
void dnn_norm_forward(DnnGraph *g, cudnnBackendNormMode_t mode, cudnnBackendNormFwdPhase_t phase, const DnnNorm *n);
typedef struct DnnNormGrad { DnnTensor x, mean, invstd, dy, scale, dscale, dbias, dx; } DnnNormGrad;
void dnn_norm_backward(DnnGraph *g, cudnnBackendNormMode_t mode, const DnnNormGrad *n);
typedef struct DnnPool { cudnnResampleMode_t mode; int window, pad, stride; } DnnPool;
void dnn_pool_forward(DnnGraph *g, const DnnPool *p, DnnTensor x, DnnTensor y, DnnTensor index); /* index int8, or DNN_NONE */
void dnn_pool_backward(DnnGraph *g, const DnnPool *p, DnnTensor dx, DnnTensor dy, DnnTensor index);

/* ---- plans (dnn_plan.c) */

/* Scratch of the whole kernel: the graph's own and the largest workspace among the candidates, or that of the choice once it is
 * known. The engines of a graph are looked up once for a device, however often it is asked for. Without cuDNN (planning), or where
 * cuDNN has nothing that needs no driver: the graph's own, and *counted is set to false (it is left alone otherwise). Also the
 * check that cuDNN can do this graph at all: STATUS_UNSUPPORTED if not. The graph stays the caller's. */
Status dnn_query(CudaBackend *be, DnnGraph *g, size_t *scratch, bool *counted);

/* Makes the candidates' plans: heuristics mode A, then fallback; none above the workspace cap; none that rounds f32 inputs unless the
 * backend allows TF32, nor any whose bits may differ from run to run. Works when planning too. Takes the graph over, also on
 * error. */
Status dnn_prepare(CudaBackend *be, DnnGraph *g, DnnPlan **out);

/* Times the candidates in turns and keeps the fastest, unless that is done or known for an equal graph. Without tuning: nothing. */
Status dnn_tune(CudaBackend *be, DnnPlan *p, void *const *buf, void *scratch);
Status dnn_run(CudaBackend *be, DnnPlan *p, void *const *buf, void *scratch);
void   dnn_plan_destroy(DnnPlan *p); /* NULL is fine */

/* Before the backend closes cuDNN's handle; every plan has to be destroyed by then. */
void dnn_sets_destroy(CudaBackend *be);

/* What a plan is, for the table of tests and the record. */
typedef struct DnnFacts {
    int    engine, candidates;
    size_t workspace;
    bool   tensor_cores, rounds_inputs, runtime_compiled, fallback;
} DnnFacts;
void dnn_plan_facts(const DnnPlan *p, DnnFacts *out);

#endif
