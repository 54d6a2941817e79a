/* kernel_names.h - what the name of a kernel tells: a short form for people, and whether it uses tensor cores. */
#ifndef BATCHMARK_KERNELS_CUDA_KERNEL_NAMES_H
#define BATCHMARK_KERNELS_CUDA_KERNEL_NAMES_H

#include <stdbool.h>
#include <stddef.h>

enum { KERNEL_NAME_BYTES = 161 };

/* Demangled, without return type, parameters, casts of template arguments and anonymous namespaces; longer names are cut. Out of
 * memory for demangling: the name as it is. Returns text. */
const char *kernel_short_name(const char *mangled, char *text, size_t size);

/* Whether a kernel of this name, mangled or not, multiplies on tensor cores, as far as names tell. NVIDIA's libraries put the
 * instruction or the tile into the names of their kernels; the list in kernel_names.c says what is looked for. Kernels that a
 * library makes at run time need not follow it, so the share of tensor cores in a profile is a lower bound. */
bool kernel_uses_tensor_cores(const char *name);

#endif
