/* gbench.h - all of Google Benchmark as seen from C. gbench.cpp is the only C++ of bench/.
 *
 * A sweep cell is registered under its name and run by gbench_run, which obeys every --benchmark_* flag (filter,
 * repetitions, out, format, list_tests, ...). Normally one "iteration" is the whole sampling of the cell by our own stop
 * rule and reports its median; if the user gave --benchmark_min_time, Google Benchmark decides how many single steps to
 * time. */
#ifndef BATCHMARK_BENCH_GBENCH_H
#define BATCHMARK_BENCH_GBENCH_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct GbenchRun GbenchRun;
typedef void GbenchFunction(GbenchRun *run, void *context);

/* Takes the --benchmark_* flags out of argv (the rest keeps its order, *argc is reduced). Returns false and prints the
 * library's own message if one of them is wrong. Call once, before anything else. */
bool gbench_init(int *argc, char **argv);

/* Did the user leave the number of iterations to Google Benchmark? */
bool gbench_user_min_time(void);

/* Was --benchmark_list_tests given? Then gbench_run only prints names. */
bool gbench_list_only(void);

/* Is stdout free of a JSON or CSV document of Google Benchmark's (--benchmark_format)? */
bool gbench_prints_table(void);

/* Registers a cell. Google Benchmark adds "/manual_time" to the name. context must outlive gbench_run. */
void gbench_register(const char *name, GbenchFunction *function, void *context);

/* Runs what the filter selects; returns how many benchmarks that were: 0 if none or if the filter is no regular expression
 * (the library says which), -1 if its results could not be written or memory ran out (a line says so). Results in Google Benchmark's own form go to
 * stderr if quiet is true (stdout is then free for our own), else to stdout. */
int gbench_run(bool quiet);

/* Inside a GbenchFunction: */
bool gbench_next(GbenchRun *run);                                   /* one more iteration wanted? */
int64_t gbench_iterations(const GbenchRun *run);                    /* how many gbench_next will grant */
void gbench_seconds(GbenchRun *run, double seconds);                /* the time of this iteration */
void gbench_counter(GbenchRun *run, const char *name, double value);
void gbench_label(GbenchRun *run, const char *text);
void gbench_skip(GbenchRun *run, const char *reason);               /* after this, gbench_next is false */

#ifdef __cplusplus
}
#endif
#endif
