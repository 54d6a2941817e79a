/* raw_graph.h - operation graphs built straight through cuDNN's backend interface, for tests of the stand-in for cuDNN: nothing of
 * the backend's own builder is in here. The same calls go to the real library or to the stand-in. */
#ifndef BATCHMARK_TESTS_RAW_GRAPH_H
#define BATCHMARK_TESTS_RAW_GRAPH_H

#include "../../kernels/cuda/libs.h"

typedef cudnnBackendDescriptor_t Desc;

enum { RAW_DESCS = 256, RAW_OPS = 64 };

/* The first error is kept, and nothing is done after it. */
typedef struct RawGraph {
    const CudnnApi *api;
    cudnnStatus_t   status;
    char            words[512]; /* cuDNN's, after what failed */
    Desc            desc[RAW_DESCS], op[RAW_OPS], graph; /* all that were made; the graph's ops */
    int             descs, ops;
} RawGraph;

RawGraph raw_begin(const CudnnApi *api);
void     raw_end(RawGraph *g); /* destroys every descriptor */

Desc raw_create(RawGraph *g, cudnnBackendDescriptorType_t type);
void raw_set(RawGraph *g, Desc d, int name, cudnnBackendAttributeType_t type, int64_t count, const void *data);
void raw_set_desc(RawGraph *g, Desc d, int name, Desc value); /* NULL: leaves it out */
void raw_set_int(RawGraph *g, Desc d, int name, cudnnBackendAttributeType_t type,
                 int64_t value); /* INT64, BOOLEAN or an enumeration */
void raw_set_real(RawGraph *g, Desc d, int name, cudnnBackendAttributeType_t type, double value); /* FLOAT or DOUBLE */
void raw_finalize(RawGraph *g, Desc d, const char *what);
void raw_add(RawGraph *g, Desc op, const char *what); /* finalizes an op and puts it into the graph */
void raw_finish(RawGraph *g);                         /* makes the graph of the ops */

/* What a tensor is. Zero strides: row-major; RAW_NHWC: rank 4 with channels last. */
typedef struct RawTensor {
    int64_t uid;
    cudnnDataType_t type;
    int     rank;
    int64_t dim[8], stride[8];
    bool    nhwc, is_virtual, by_value;
    int64_t alignment; /* 0: 16 */
    Desc    ragged;
} RawTensor;
Desc raw_tensor(RawGraph *g, RawTensor t);
Desc raw_nhwc(RawGraph *g, int64_t uid, cudnnDataType_t type, int64_t n, int64_t c, int64_t h, int64_t w);
Desc raw_virtual_nhwc(RawGraph *g, int64_t uid, cudnnDataType_t type, int64_t n, int64_t c, int64_t h, int64_t w);
Desc raw_scalar(RawGraph *g, int64_t uid, cudnnDataType_t type); /* (1,1,1,1) by value */

typedef enum RawConvKind { RAW_FORWARD, RAW_DGRAD, RAW_WGRAD } RawConvKind;
typedef struct RawConv {
    int64_t pre[2], post[2], stride[2], dilation[2]; /* zero strides and dilations: 1 */
    double  alpha, beta;                             /* alpha 0: 1 */
    bool    flip, in_double;                         /* alpha and beta given as doubles */
} RawConv;
/* x, w, y of the forward convolution, whichever of them is the output. */
void raw_conv(RawGraph *g, RawConvKind kind, Desc x, Desc w, Desc y, RawConv c);

typedef struct RawPoint {
    cudnnDataType_t compute;
    int axis;
    double alpha1, alpha2, lower, upper, slope;
    bool scaled, clipped, keeps_nan;
} RawPoint;
void raw_point(RawGraph *g, cudnnPointwiseMode_t mode, Desc x, Desc b, Desc t, Desc y); /* f32; b, t may be NULL */
void raw_point_as(RawGraph *g, cudnnPointwiseMode_t mode, Desc x, Desc b, Desc t, Desc y, RawPoint p);
void raw_point_backward(RawGraph *g, cudnnPointwiseMode_t mode, Desc dy, Desc x, Desc dx);
void raw_reduce(RawGraph *g, cudnnReduceTensorOp_t mode, Desc x, Desc y);
void raw_matmul(RawGraph *g, Desc a, Desc b, Desc c, Desc m, Desc n, Desc k);
void raw_reshape(RawGraph *g, Desc x, Desc y);

typedef struct RawNorm { Desc x, scale, bias, epsilon, factor, run_mean, run_var, mean, invstd, next_mean, next_var, y; } RawNorm;
void raw_norm(RawGraph *g, cudnnBackendNormMode_t mode, cudnnBackendNormFwdPhase_t phase, RawNorm n);
typedef struct RawNormGrad { Desc x, mean, invstd, dy, scale, dscale, dbias, dx; } RawNormGrad;
void raw_norm_backward(RawGraph *g, cudnnBackendNormMode_t mode, RawNormGrad n);

typedef struct RawPool { cudnnResampleMode_t mode; int64_t window, pre, post, stride; bool keeps_nan; } RawPool;
void raw_pool(RawGraph *g, RawPool p, Desc x, Desc y, Desc index);
void raw_pool_backward(RawGraph *g, RawPool p, Desc dx, Desc dy, Desc index);
void raw_genstats(RawGraph *g, Desc x, Desc sum, Desc squares);

#endif
