/* bench.h - the sub-commands that run something and write a record: bench, train, claims. */
#ifndef BATCHMARK_BENCH_BENCH_H
#define BATCHMARK_BENCH_BENCH_H

#include "cell.h"

/* Each returns its status and sets *partial if some cells did not run (exit code 3). gbench_init has taken its flags. */
Status run_bench(const Options *o, int argc, char **argv, bool *partial);
Status run_train(const Options *o, int argc, char **argv, bool *partial);
Status run_claims(const Options *o, int argc, char **argv, bool *partial);

/* What the options say about device, executor, stop rule and limits. */
MeasureOptions measure_from_options(const Options *o);

#endif
