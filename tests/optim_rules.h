/* optim_rules.h - what the ops of an update must do, on any backend: values worked out by hand or by PyTorch, the course of the
 * loss scale, and what a skipped update may touch (nothing). */
#ifndef BATCHMARK_TESTS_OPTIM_RULES_H
#define BATCHMARK_TESTS_OPTIM_RULES_H

#include "../kernels/backend.h"

/* How to open each of `count` backends; a failure to do so fails the test. */
typedef struct OptimBackends {
    int count;
    Backend *(*open[4])(void);
} OptimBackends;

/* Runs the tests on each, as a group of cmocka; the number that failed. */
int optim_rules_run(const char *group, const OptimBackends *backends);

#endif
