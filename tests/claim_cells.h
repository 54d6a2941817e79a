/* claim_cells.h - cells, points and curves made up for the tests of claims (FIXTURE: no measurement). */
#ifndef BATCHMARK_TESTS_CLAIM_CELLS_H
#define BATCHMARK_TESTS_CLAIM_CELLS_H

#include "../bench/claims/curves.h"

static const double MIB = 1048576.0;

/* Fail the running test. */
void assert_ok(Status s);
void assert_close(double a, double b, double relative);

/* A cell as the schema has it, of resnet50 before axes named the optimiser, and of a small bert. Negative numbers become null. */
json_t *fixture_cell(const char *amp, int64_t size, int64_t batch, int64_t accum, double peak, double throughput);
json_t *fixture_text_cell(const char *amp, int64_t size, int64_t batch, double peak, double throughput);

/* Adds a cell and drops it. */
void add(CellPoints *p, json_t *cell);

/* Peak memory or throughput over the batch. */
typedef double Shape(int64_t batch);
Shape straight, bent, level, rising, saturating, falling;

/* The curve over these batches (0 ends). */
Curve fixture_curve(const int64_t *batches, Shape *peak, Shape *throughput);

#endif
