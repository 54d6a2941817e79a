/* fault.h - how a kernel on the device says that it met a number out of range; read when the host waits (cuda sync). */
#ifndef BATCHMARK_KERNELS_CUDA_FAULT_H
#define BATCHMARK_KERNELS_CUDA_FAULT_H

/* All zero = none. The first to set `op` wins; the others are not written. */
typedef struct CudaFault {
    int op;           /* OpKind + 1 */
    int value, limit; /* what was met, and the first number above what is allowed */
    int place;        /* row, element or sequence */
} CudaFault;

#endif
