/* ops_rules.h - private to the ops_*.c files: one shape rule an op, and the checks that they share. */
#ifndef BATCHMARK_KERNELS_OPS_RULES_H
#define BATCHMARK_KERNELS_OPS_RULES_H

#include "ops.h"

#define OP(name) Status infer_##name(OpDesc *op);
#include "ops.def"
#undef OP

/* STATUS_USAGE: the op's name, what is wrong, the op as op_format writes it. */
Status op_bad(const OpDesc *op, const char *what);

Status op_need_inputs(const OpDesc *op, int low, int high);

bool op_is_act(const Tensor *t);                /* rank 4, LAYOUT_ACT, f32, bf16 or f16 */
bool op_is_matrix(const Tensor *t);             /* rank 2 of a float type */
bool op_is_vector(const Tensor *t, int64_t n);  /* f32 (n) */
bool op_is_ids(const Tensor *t, int64_t n);     /* i32 (n) */
bool op_same_type_and_shape(const Tensor *a, const Tensor *b);

#endif
