/* conv_narrow.h - 1x1 convolutions to a few channels, such as the classes of a segmentation, in all three directions: nothing but
 * x's way through memory counts there, and tensor cores would wait for padded columns. */
#ifndef BATCHMARK_KERNELS_CUDA_CONV_NARROW_H
#define BATCHMARK_KERNELS_CUDA_CONV_NARROW_H

#include "cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* True where these kernels do the op: 1x1, stride 1, at most 8 channels out, and x's channels a multiple of 8 up to 1024. */
bool conv_narrow_fits(const OpDesc *op);

size_t conv_narrow_scratch(const OpDesc *op);

/* buf as the op's run gets it; conv2d_wgrad without its dbias. */
Status conv_narrow_run(Backend *be, const OpDesc *op, void *const *buf, void *scratch);

#ifdef __cplusplus
}
#endif
#endif
