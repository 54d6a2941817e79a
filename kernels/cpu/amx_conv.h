/* amx_conv.h - convolutions and the gradients of their inputs on AMX tiles, for bf16 nhwc activations. */
#ifndef BATCHMARK_KERNELS_CPU_AMX_CONV_H
#define BATCHMARK_KERNELS_CPU_AMX_CONV_H

#include "cpu.h"

/* True where this build and this machine can do the conv2d or conv2d_dgrad here. */
bool amx_conv_fits(const CpuBackend *be, const OpDesc *op);

/* The layout of w: what is summed over in pairs and padded to 32 with zeros, what is made in blocks of 16: OIhw16i16o2i
 * forward, OIhw16o16i2o for dgrad. The caller frees the descriptor. */
Status amx_conv_desc(const OpDesc *op, MemDesc *out);

size_t amx_conv_scratch(const CpuBackend *be, const OpDesc *op);

/* buf and scratch as for a kernel's run. */
void amx_conv_run(const CpuBackend *be, const OpDesc *op, void *const *buf, void *scratch);

#endif
