/* capacity.h - how much memory this process may use. */
#ifndef BATCHMARK_KERNELS_CPU_CAPACITY_H
#define BATCHMARK_KERNELS_CPU_CAPACITY_H

#include <stddef.h>

/* Bytes: physical memory, or the lowest limit of the process's control groups (v1 or v2) where that is lower. */
size_t capacity_bytes(void);

/* The limit in a file of the kind memory.max or memory.limit_in_bytes: SIZE_MAX for "max" or an unreadable file. */
size_t capacity_limit_in(const char *path);

#endif
