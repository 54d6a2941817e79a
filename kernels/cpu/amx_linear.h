/* amx_linear.h - fully connected layers and their gradients on AMX tiles, bf16, every matrix row-major. */
#ifndef BATCHMARK_KERNELS_CPU_AMX_LINEAR_H
#define BATCHMARK_KERNELS_CPU_AMX_LINEAR_H

#include "cpu.h"

/* True where this build and this machine can do the linear, linear_dgrad or linear_wgrad here. */
bool amx_linear_fits(const CpuBackend *be, const OpDesc *op);

size_t amx_linear_scratch(const CpuBackend *be, const OpDesc *op);

/* buf and scratch as for a kernel's run. Leaves dbias to the caller. */
void amx_linear_run(const CpuBackend *be, const OpDesc *op, void *const *buf, void *scratch);

#endif
