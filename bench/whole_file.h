/* whole_file.h - a file that appears whole or not at all: a temporary file beside it, fsync, rename. */
#ifndef BATCHMARK_BENCH_WHOLE_FILE_H
#define BATCHMARK_BENCH_WHOLE_FILE_H

#include "../kernels/base.h"

#include <stdio.h>

typedef struct WholeFile {
    FILE *to;        /* write here */
    char *path;      /* where it will be */
    char *temporary; /* path + ".tmp" */
} WholeFile;

/* Opens the temporary file; what a killed run left under that name is replaced. STATUS_IO with path and reason, STATUS_OOM.
 * After an error nothing is open and whole_file_close must not be called. */
Status whole_file_open(const char *path, WholeFile *out);

/* With STATUS_OK: flushes, syncs, renames. With an error, or if one of these fails, the temporary file is removed and what
 * was at path before is untouched. Returns the first error, with the path. Frees everything in either case. */
Status whole_file_close(WholeFile *f, Status written);

/* "path: reason" of a failed system call: STATUS_OOM for ENOMEM, else STATUS_IO. */
Status whole_file_error(const char *doing, const char *path, int error);

#endif
