/* half.h - fp16 on CPUs: numerics alone. */
#ifndef BATCHMARK_KERNELS_CPU_HALF_H
#define BATCHMARK_KERNELS_CPU_HALF_H

#include "../backend.h"

/* The kernel of every op: passes ops without an f16 tensor on to the op's own kernel, and runs the others in f32 (half.c). */
extern const Kernel half_kernel;

/* n elements: exactly; to nearest even, what is too large to infinity. The bits of f16_to_f32 and f16_from_f32, except that
 * NaN comes out quiet. */
void half_to_floats(const uint16_t *from, float *to, int64_t n);
void half_from_floats(const float *from, uint16_t *to, int64_t n);

#endif
