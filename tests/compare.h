/* compare.h - is this result right? The one place that says how far a backend may be from the reference.
 *
 * The expected values are rounded to the result's type first, so a bf16 result is not blamed for being bf16. What is
 * not finite fails, and so does what proves nothing: a result that is nearly all zeros or one constant is "mistrusted"
 * (a kernel that wrote nothing would look the same), unless the case says that it has to be so. */
#ifndef BATCHMARK_TESTS_COMPARE_H
#define BATCHMARK_TESTS_COMPARE_H

#include "../kernels/ops.h"

typedef enum CompareMode {
    COMPARE_EXACT,    /* equal values (0 and -0 are) */
    COMPARE_TOLERANCE /* within the table in compare.c */
} CompareMode;

typedef struct CompareSlot {
    const OpDesc *op;
    bool          input;   /* the slot is an input that the op updates, not an output */
    int           slot;
    uint64_t      seed;    /* of the inputs: for the repro line */
    bool          trivial; /* zeros or a constant are the right answer here */
} CompareSlot;

/* want: row-major doubles; got: row-major in the slot's own type (not DTYPE_BIT). STATUS_NUMERIC with the op, how many
 * elements differ, the first and the worst of them, and the line that repeats the case. */
Status compare_slot(const CompareSlot *what, CompareMode mode, const double *want, const void *got);

/* The distance allowed between got and want, where scale is the largest |want| of the slot. */
double compare_tolerance(const OpDesc *op, Dtype dtype, double scale, double want);

#endif
