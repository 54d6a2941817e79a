/* a1_memory_line.h - the analysis behind claim A1: pure functions of measured points and of a planner. */
#ifndef BATCHMARK_BENCH_CLAIMS_A1_MEMORY_LINE_H
#define BATCHMARK_BENCH_CLAIMS_A1_MEMORY_LINE_H

#include "../stats.h"
#include "curves.h"
#include "entry.h"

/* memory = model + per_sample x batch, by least squares over the batches with a measured peak. */
typedef struct MemoryLine {
    size_t points;
    bool   fitted;         /* from at least three batches; the members below are NaN if not */
    double model;          /* bytes: the intercept */
    double per_sample;     /* bytes: the slope */
    double r2;
    double max_residual;   /* largest |line - measured| / measured */
    double max_plan_error; /* largest |planned - measured| / measured */
    double outside;        /* bytes: most the process held beside its tensors; NaN if not measured */
} MemoryLine;

MemoryLine memory_line_fit(const Curve *curve);

/* The article's arithmetic, cut to whole samples: (card - model) / per_sample; 0 if not even the model fits. */
int64_t memory_line_batch(double card, double model, double per_sample);

/* What the planner says about a batch. */
typedef Status BytesOfBatch(void *context, int64_t batch, double *bytes);

/* A batch that fits into the limit while the next one does not, searched outwards from a guess by interpolation and
 * bisection; 0 if a single sample does not fit, BATCH_MAX if everything does. Errors of `bytes` pass through. */
enum { BATCH_MAX = 65536 };
Status largest_batch(BytesOfBatch *bytes, void *context, double limit, int64_t guess, int64_t *batch);

/* One card size. */
typedef struct CardFit {
    double  card;           /* bytes */
    int64_t by_formula;     /* with all of the card */
    int64_t with_reserve;   /* the formula with 80 % of it */
    int64_t largest;        /* what really fits: the plan plus what the process needs besides */
    double  left;           /* share of the card left over by the formula's batch; negative = too much */
    double  reserve_needed; /* least share to hold back for the formula to give a batch that fits */
} CardFit;

/* Fills in all but card of one row. */
Status card_fit(BytesOfBatch *bytes, void *context, const MemoryLine *line, CardFit *row);

/* The verdict over all lines and cards; NOT_RUN if no line could be fitted. */
Verdict memory_line_judge(const MemoryLine *lines, size_t line_count, const CardFit *cards, size_t card_count);

#endif
