/* b2_memory_kinds.h - the analysis behind claim B2: pure functions of measured points. */
#ifndef BATCHMARK_BENCH_CLAIMS_B2_MEMORY_KINDS_H
#define BATCHMARK_BENCH_CLAIMS_B2_MEMORY_KINDS_H

#include "curves.h"
#include "entry.h"

/* The article's sum for one cell, with our numbers: weights and optimiser state as planned, activations per sample from
 * the slope of measured memory over the batch. */
typedef struct FormulaRow {
    const CellPoint *point;
    double per_sample; /* bytes; NaN with fewer than two batches */
    double formula;    /* bytes */
    double error;      /* (formula - measured) / measured */
} FormulaRow;

enum { FORMULA_ROWS_MAX = 192 };

/* Rows of one curve, appended to rows[*count]. */
void formula_rows(const Curve *curve, FormulaRow rows[FORMULA_ROWS_MAX], size_t *count);

/* What one optimiser keeps more than another, by measurement: the peak with it less the peak with the other, over the weights, at
 * the largest batch that both curves have; NaN if there is none. */
double optimizer_state_ratio(const Curve *with, const Curve *without);

/* adam: AdamW's state over the parameters, NaN = not measured. NOT_RUN without rows; CONTRADICTED if the formula misses more than
 * half of the memory at some curve's largest batch, or gets worse as the batch grows; REPRODUCED if it is within 10 % there and
 * Adam's state is two to three times the parameters; else PARTLY. */
Verdict memory_kinds_judge(const FormulaRow *rows, size_t count, double adam);

#endif
