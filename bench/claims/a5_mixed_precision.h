/* a5_mixed_precision.h - the analysis behind claim A5: pure functions of measured cells and trainings. */
#ifndef BATCHMARK_BENCH_CLAIMS_A5_MIXED_PRECISION_H
#define BATCHMARK_BENCH_CLAIMS_A5_MIXED_PRECISION_H

#include "curves.h"
#include "entry.h"

/* The same net, size and batch in fp32 and in half the bits, or in TF32: the largest batch that both have. */
typedef struct PrecisionPair { CellPoint full, half; } PrecisionPair;

enum { PRECISION_PAIRS_MAX = 32 };
size_t precision_pairs(const Curves *curves, PrecisionPair pairs[PRECISION_PAIRS_MAX]);

/* Of one training; NaN = did not run. */
typedef struct PrecisionRun { double loss; int64_t updates, skipped; } PrecisionRun;

/* REPRODUCED if every pair takes less memory and less time, and both halved runs end within 10 % of the loss in fp32 with at most a
 * tenth of their updates skipped; CONTRADICTED if no pair takes less of either; NOT_RUN without a pair; else PARTLY. Pairs with TF32,
 * which keeps 32 bits in memory, do not count. runs: fp32, bf16, fp16. */
Verdict mixed_precision_judge(const PrecisionPair *pairs, size_t count, const PrecisionRun runs[3]);

#endif
