/* files.h - private to datasets/: paths, the file system's errors, and whole files in memory. */
#ifndef BATCHMARK_DATASETS_FILES_H
#define BATCHMARK_DATASETS_FILES_H

#include "../kernels/base.h"

typedef struct Bytes {
    uint8_t *data; /* free() */
    size_t   size;
} Bytes;

/* A path as error lines show it: a very long one loses its beginning, so that the reason after it still fits. */
const char *dataset_shown_path(const char *path);

/* STATUS_INPUT (the file is missing or of the wrong kind) or STATUS_IO, "path: the system's words for errno". */
Status dataset_file_error(const char *path, int system_error);

/* dir + "/" + name (+ "/" + last, unless last is NULL) in one block that the caller frees; NULL without memory. */
char *dataset_join_path(const char *dir, const char *name, const char *last);

/* The whole of a regular file of 1..most bytes. out->data may be set on failure too: the caller frees it either way.
 * Errors: those of dataset_file_error; STATUS_INPUT also for an empty or larger file; STATUS_OOM. */
Status dataset_read_file(const char *path, int64_t most, Bytes *out);

#endif
