/* dnn_graph.h - what dnn_graph.c and dnn_plan.c share: the graph while it is built, and its descriptors. */
#ifndef BATCHMARK_KERNELS_CUDA_DNN_GRAPH_H
#define BATCHMARK_KERNELS_CUDA_DNN_GRAPH_H

#include "dnn.h"

enum { DNN_MOST_TENSORS = 128, DNN_MOST_OPS = 64, DNN_MOST_PARTS = 96, DNN_RANK = 4, DNN_NAME_BYTES = 320 };

typedef cudnnBackendDescriptor_t DnnDesc;

/* A tensor's number in the graph + 1 is its unique id for cuDNN, so equal graphs have equal ids. */
typedef struct DnnTensorRecord {
    DnnDesc         desc;   /* NULL until an operation uses it */
    cudnnDataType_t type;
    int             rank;
    int64_t         dim[DNN_RANK], stride[DNN_RANK];
    DnnPlace        place;
    bool            by_value, used; /* used: by an operation */
    union { float f32; int64_t i64; } value;
    int             ragged; /* tensor of offsets, or -1 */
} DnnTensorRecord;

struct DnnGraph {
    CudaBackend    *be;
    char            name[DNN_NAME_BYTES]; /* "conv2d f32[...] ... / forward" */
    char            op_text[DNN_NAME_BYTES - 64];
    Status          status;               /* the first mistake */
    size_t          scratch;              /* the caller's part */
    DnnTensorRecord tensor[DNN_MOST_TENSORS];
    int             tensors;
    DnnDesc         op[DNN_MOST_OPS], part[DNN_MOST_PARTS]; /* part: descriptors that operations refer to */
    int             ops, parts;
    uint64_t        hash;                 /* of everything but the places */
};

/* Descriptors of cuDNN, through the backend's function table. A failed set or finalise leaves *desc to be destroyed. */
Status dnn_desc_create(const CudaBackend *be, cudnnBackendDescriptorType_t type, DnnDesc *desc);
Status dnn_desc_set(const CudaBackend *be, DnnDesc desc, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                    int64_t count, const void *values);
Status dnn_desc_finish(const CudaBackend *be, DnnDesc desc, const char *what);
void   dnn_desc_destroy(const CudaBackend *be, DnnDesc *desc); /* NULL is fine; becomes NULL */

/* The graph's operations as one descriptor; the graph has to live as long. */
Status dnn_graph_finish(DnnGraph *g, DnnDesc *out);

#endif
