/* ref.h - the reference: what every op means, as plain loops in double, and the same as a backend.
 *
 * ref_compute is the definition that finite differences check (tests/test_ref.c) and that every other backend is
 * compared with. ref_backend wraps it so that whatever runs on a backend (one op, a whole net) also runs on the
 * reference. It is the slow one: its run() allocates, and all its layouts are row-major. */
#ifndef BATCHMARK_TESTS_REF_REF_H
#define BATCHMARK_TESTS_REF_REF_H

#include "../../kernels/backend.h"

/* The op on row-major logical arrays, one double an element whatever the types in the OpDesc (op_infer must have
 * passed). Read-and-written slots hold their old value before the call and their new one after it; that includes
 * batchnorm's running statistics, which are written through in[3] and in[4]. A mask is 0 or 1; maxpool's index is
 * row * kernel + column in the window; labels must be -1 or 0..C-1, those of pixels 255 or 0..C-1, numbers of rows -1 or in
 * the table (CHECK). Arrays must not overlap. */
void ref_compute(const OpDesc *op, const double *const *in, double *const *out);

/* name "ref". Every op for f32, bf16 and f16; sums in double, rounded once to the output's type. run() copies its inputs
 * first, so outputs may lie on inputs. STATUS_OOM if the copies do not fit; STATUS_NUMERIC for a label or a row's
 * number out of range. */
extern const BackendVtable ref_backend;

/* Between a buffer in the tensor's own type, row-major (bits: first element in the lowest bit), and doubles.
 * ref_store rounds to nearest even. */
void ref_load(const Tensor *t, const void *from, double *to);
void ref_store(const Tensor *t, const double *from, void *to);

/* The value nearest to v in the type, ties to even. i32, u8 and bit: v must be in range. */
double ref_round(Dtype dtype, double v);

#endif
