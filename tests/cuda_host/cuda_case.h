/* cuda_case.h - the numerics ladder (op_case.h) for the CUDA backend on the host: an op against the reference under the thread
 * schedules of the shim (block.h), which must all give the same bits. Bit-exact on small integers where the arithmetic is
 * exact, then random inputs within the tolerances of compare.c. A mismatch prints its repro line and the run goes on, so one
 * run shows everything that is wrong. */
#ifndef BATCHMARK_TESTS_CUDA_HOST_CUDA_CASE_H
#define BATCHMARK_TESTS_CUDA_HOST_CUDA_CASE_H

#include "../op_case.h"

enum { CUDA_EXACT = 1, CUDA_RANDOM = 2, CUDA_BOTH = CUDA_EXACT | CUDA_RANDOM, CUDA_TRIVIAL = 4 /* an OpCase's `trivial` */ };

typedef struct CudaLadder {
    Backend *ref, *be;
    int      cases, failures;
    double   start; /* seconds */
} CudaLadder;

/* The CUDA backend on one fake device, with the fake cuDNN, nothing tuned, schedule 0; a failure fails the test. */
Backend *cuda_case_open(void);

/* Opens both backends. */
CudaLadder cuda_ladder_start(void);
/* Tells the counts, closes; fails the cmocka test if a case failed or there was none. */
void cuda_ladder_end(CudaLadder *l);

/* One op on these rungs, under every schedule. */
void cuda_climb(CudaLadder *l, OpDesc op, int rungs);
/* The same with layouts as op_case_run takes them, e.g. LAYOUT_PADDED; NULL for none. */
void cuda_climb_layouts(CudaLadder *l, OpDesc op, const OpNeeds *layouts, int rungs);
/* One case, whose inputs may be the test's own. */
void cuda_climb_case(CudaLadder *l, const OpCase *c, CompareMode mode);

/* Every output that may lie in the memory of an input (op_in_place_input) does so in turn, under every schedule: the bits must be
 * those of separate memory. Random inputs. Fails if the op has no such output. */
void cuda_climb_in_place(CudaLadder *l, OpDesc op);

/* The op with `bad` as element `at` of input `slot` (i32 or u8), random inputs else: it must end in STATUS_NUMERIC with
 * `text` in its message, and the same op without it must be right again after that. */
void cuda_climb_refused(CudaLadder *l, OpDesc op, int slot, int64_t at, int bad, const char *text);

#endif
