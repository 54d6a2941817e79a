/* conv_narrow.h - 1x1 convolutions to a few channels, such as the classes of a segmentation, in all three directions. */
#ifndef BATCHMARK_KERNELS_CPU_CONV_NARROW_H
#define BATCHMARK_KERNELS_CPU_CONV_NARROW_H

#include "cpu.h"

/* True where these kernels do the op: 1x1, stride 1, x in whole blocks of channels, y nhwc with so few that nothing but x's
 * way through memory counts, or where x is nChw16c and y is not, which oneDNN only has reference loops for. The weights and
 * their gradient are plain. */
bool narrow_conv_fits(const CpuBackend *be, const OpDesc *op);

size_t narrow_conv_scratch(const CpuBackend *be, const OpDesc *op);

/* buf as the op's run gets it. */
void narrow_conv_run(const CpuBackend *be, const OpDesc *op, void *const *buf, void *scratch);

#endif
