/* table.c - the kernels by op. A missing kernel is a link error, not a NULL. */
#include "cuda.h"

#define OP(name) extern const Kernel cuda_##name;
#include "../ops.def"
#undef OP

#define OP(name) [OP_##name] = &cuda_##name,
const Kernel *const cuda_kernels[OP_COUNT] = {
#include "../ops.def"
};
