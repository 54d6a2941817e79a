/* idle_libs.h - a cuDNN and a cuBLASLt that can be opened and closed, no more: for tests of the device itself. */
#ifndef BATCHMARK_TESTS_CUDA_HOST_IDLE_LIBS_H
#define BATCHMARK_TESTS_CUDA_HOST_IDLE_LIBS_H

/* From now on they are what the backend loads. */
void idle_libs_use(void);

/* Handles that live. */
int idle_libs_handles(void);

#endif
