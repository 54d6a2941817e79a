/* op_case.h - one op, its inputs from a seed, run through any backend: the tests' way to put one question to two
 * backends and compare the answers.
 *
 * A run follows the life of a kernel as the executor does: query, settle layouts, allocate, upload, prepare, run,
 * sync, download. On the way it checks what every kernel owes: bytes before and after each buffer untouched, plain
 * inputs unchanged, every output written (buffers and scratch start as NaN bytes), and the same bits in a second run. */
#ifndef BATCHMARK_TESTS_OP_CASE_H
#define BATCHMARK_TESTS_OP_CASE_H

#include "../kernels/backend.h"
#include "compare.h"

typedef enum FillKind {
    FILL_INTEGER, /* -2..2: products and sums are exact in f32 in every order (nccl-tests' idea) */
    FILL_RANDOM   /* standard normal */
} FillKind;

typedef struct OpCase {
    OpDesc   op;               /* inferred; layouts plain or act */
    FillKind fill;
    uint64_t seed;
    bool     trivial;          /* the right outputs may be all zero or constant (compare.h) */
    void    *in[OP_MAX_IN];    /* host, row-major, own type; NULL for the slot that `maker` fills */
    void    *out[OP_MAX_OUT];  /* what read-and-written outputs hold before; NULL for the others */
    /* A mask or a pooling index means something to its own backend only, so it comes from a forward op run there. */
    struct OpCase *maker;      /* NULL if not needed */
    int      maker_out, made_in;
} OpCase;

typedef struct OpResult {
    void *in[OP_MAX_IN];   /* inputs that the op updates; NULL for the others */
    void *out[OP_MAX_OUT]; /* NULL for masks and pooling indices */
} OpResult;

/* Infers the op (its in[], attr, n_in, n_out as op_infer wants them) and makes its inputs. The same arguments give
 * the same bits. Errors: op_infer's, STATUS_OOM. Freed with op_case_destroy. */
Status op_case_create(const OpDesc *op, FillKind fill, uint64_t seed, OpCase **out);
void   op_case_destroy(OpCase *c); /* NULL is fine */

/* Runs it. layouts: physical layouts for weights slots where they are not LAYOUT_ANY, before what query wishes; NULL for
 * none. Errors: the backend's, or STATUS_NUMERIC for a broken promise from the list above. The result is the caller's
 * (op_result_release), empty after an error. */
Status op_case_run(const OpCase *c, Backend *be, const OpNeeds *layouts, OpResult *result);
void   op_result_release(OpResult *result);

/* got against want (from the reference), every slot that can be compared; the first that is wrong. */
Status op_case_compare(const OpCase *c, CompareMode mode, const OpResult *want, const OpResult *got);

#endif
