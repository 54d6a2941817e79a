/* ladder.h - the second and third rungs of the numerics ladder: an op of the CPU backend against the reference, in both
 * activation layouts, with one and two threads. Bit-exact on small integers where the arithmetic is exact, then random
 * inputs within the tolerances of compare.c.
 *
 * A mismatch prints its repro line and the run goes on, so one run shows everything that is wrong. */
#ifndef BATCHMARK_TESTS_LADDER_H
#define BATCHMARK_TESTS_LADDER_H

#include "op_case.h"

enum { EXACT = 1, RANDOM = 2, BOTH = EXACT | RANDOM, TRIVIAL = 4 /* an OpCase's `trivial` */ };

typedef struct Ladder {
    Backend *ref;
    int      cases, failures, skips;
    double   start; /* seconds */
} Ladder;

Ladder ladder_start(void);
/* Tells the counts; fails the cmocka test if a case failed or all were skipped. */
void ladder_end(Ladder *l);

/* One op on these rungs, by every variant of the backend. */
void climb(Ladder *l, OpDesc op, int rungs);

/* The CPU backend's variants: layout and number of threads. The thread count is the process's, so a backend is opened for
 * a case and closed after it. */
enum { LADDER_VARIANTS = 4 };
Backend *ladder_open_variant(int v);

/* bf16 may be refused on a machine that does not multiply it, and only there. */
bool ladder_may_skip(Backend *be, const OpDesc *op, Status s);

#endif
