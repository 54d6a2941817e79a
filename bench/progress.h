/* progress.h - one line on stderr that says what runs, how far, and the time left; plain lines without a terminal. */
#ifndef BATCHMARK_BENCH_PROGRESS_H
#define BATCHMARK_BENCH_PROGRESS_H

#include "../kernels/base.h"

typedef struct Progress {
    bool   enabled, terminal;
    double started, last_print;
    double interval;      /* seconds between prints: 0.2 on a terminal, 10 without */
} Progress;

void progress_start(Progress *p, bool enabled);
/* done in 0..1 (NaN: unknown, no time left is shown); the text says the rest. Prints if the interval is over or done >= 1. */
void progress_update(Progress *p, double done, const char *format, ...) PRINTF_LIKE(3, 4);
void progress_end(Progress *p); /* clears the line on a terminal */

/* "1 h 02 min", "3 min 20 s", "12 s" into text. */
const char *progress_duration(double seconds, char *text, size_t size);

#endif
