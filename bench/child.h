/* child.h - run another program (gnuplot, cmark-gfm, fc-match), keep what it says, and never wait for ever. */
#ifndef BATCHMARK_BENCH_CHILD_H
#define BATCHMARK_BENCH_CHILD_H

#include "text.h"

typedef struct Child {
    const char *const *argv;   /* argv[0] is looked up in PATH; NULL-terminated */
    const char *folder;        /* working folder, or NULL: the caller's */
    const char *package;       /* the Debian package to name when the program is missing */
    unsigned    limit_seconds; /* killed after this long */
} Child;

/* Run to its end. stdin is empty; stdout and stderr are added to out and err (each may be NULL: dropped).
 * STATUS_BACKEND when it is missing (names the package), killed, or ends with another exit code than 0
 * (quotes its first words on stderr); STATUS_IO when no process or pipe could be made. */
Status child_run(const Child *child, Text *out, Text *err);

#endif
