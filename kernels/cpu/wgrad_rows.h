/* wgrad_rows.h - the gradient of the weights of a 3x3 convolution over large fp32 nChw16c images. */
#ifndef BATCHMARK_KERNELS_CPU_WGRAD_ROWS_H
#define BATCHMARK_KERNELS_CPU_WGRAD_ROWS_H

#include "cpu.h"

/* True where this build and this machine can do the op here, faster than oneDNN. The layout of dw is that of amx_wgrad.h,
 * OIhw16i16o. */
bool wgrad_rows_fits(const CpuBackend *be, const OpDesc *op);

/* dw = or += gradient; x, dy as in ops.h. Needs no scratch. */
void wgrad_rows_run(const CpuBackend *be, const OpDesc *op, const float *x, const float *dy, float *dw);

#endif
