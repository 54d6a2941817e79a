/* ref_ops.h - inside the reference: one function an op, and the index rule they share. */
#ifndef BATCHMARK_TESTS_REF_REF_OPS_H
#define BATCHMARK_TESTS_REF_REF_OPS_H

#include "ref.h"

#define OP(name) void ref_##name(const OpDesc *op, const double *const *in, double *const *out);
#include "../../kernels/ops.def"
#undef OP

/* Position of (a, b, c, d) in a row-major rank-4 tensor: (N,H,W,C) or (K,R,S,C). */
static inline int64_t ref_at(const Tensor *t, int64_t a, int64_t b, int64_t c, int64_t d)
{
    return ((a * t->dim[1] + b) * t->dim[2] + c) * t->dim[3] + d;
}

/* STATUS_NUMERIC if a span of attention or its gradient is out of range, too long or overlaps another. */
Status ref_check_spans(const OpDesc *op, const int32_t *spans);

/* max(v, 0), but NaN stays NaN. */
static inline double ref_relu(double v) { return v <= 0 ? 0 : v; }

#endif
