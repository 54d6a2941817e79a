/* conv.h - convolutions as graphs of cuDNN: what conv.c prepares, and what tests look at without a GPU. */
#ifndef BATCHMARK_KERNELS_CUDA_CONV_H
#define BATCHMARK_KERNELS_CUDA_CONV_H

#include "dnn.h"

/* The graph of conv2d, conv2d_dgrad or conv2d_wgrad as conv.c runs it, with the layouts that it wishes for. NULL for an op that an
 * own kernel does (conv_narrow.h). The caller destroys it. */
Status conv_graph_create(CudaBackend *be, const OpDesc *op, DnnGraph **out);

#endif
