/* table.c - the kernels by op. A missing kernel is a link error, not a NULL. */
#include "cpu.h"
#include "half.h"

#define OP(name) extern const Kernel cpu_##name;
#include "../ops.def"
#undef OP

#define OP(name) [OP_##name] = &cpu_##name,
const Kernel *const cpu_float_kernels[OP_COUNT] = {
#include "../ops.def"
};
#undef OP

#define OP(name) [OP_##name] = &half_kernel,
const Kernel *const cpu_kernels[OP_COUNT] = {
#include "../ops.def"
};
#undef OP
