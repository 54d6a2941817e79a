/* amx_wgrad.h - the gradient of a convolution's weights on AMX tiles, for bf16 nhwc activations. */
#ifndef BATCHMARK_KERNELS_CPU_AMX_WGRAD_H
#define BATCHMARK_KERNELS_CPU_AMX_WGRAD_H

#include "cpu.h"

/* True where this build and this machine can do the op here. */
bool amx_wgrad_fits(const CpuBackend *be, const OpDesc *op);

/* The layout of dw: OIhw16i16o, both channel counts padded to 16 with zeros. The caller frees the descriptor. */
Status amx_wgrad_desc(const OpDesc *op, MemDesc *out);

size_t amx_wgrad_scratch(const CpuBackend *be, const OpDesc *op);

/* dw = or += gradient; x, dy as in ops.h. */
void amx_wgrad_run(const CpuBackend *be, const OpDesc *op, const void *x, const void *dy, float *dw, void *scratch);

#endif
