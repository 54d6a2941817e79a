/* gemm_f32.h - fully connected layers in fp32 on AVX-512: forward, dgrad and wgrad. */
#ifndef BATCHMARK_KERNELS_CPU_GEMM_F32_H
#define BATCHMARK_KERNELS_CPU_GEMM_F32_H

#include "cpu.h"

/* True where this build can do the op here, faster than oneDNN. Operands are plain, row-major, of any size. */
bool gemm_f32_fits(const OpDesc *op);

/* Scratch bytes of one run. */
size_t gemm_f32_scratch(const CpuBackend *be, const OpDesc *op);

/* The product of linear, linear_dgrad or linear_wgrad (without dbias), slots as in ops.h. The same bits for every number
 * of threads. */
void gemm_f32_run(const CpuBackend *be, const OpDesc *op, void *const *buf, void *scratch);

#endif
