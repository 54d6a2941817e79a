/* scratch.h - a folder for a test's files, and what tests do with files. Failures end the cmocka test. */
#ifndef BATCHMARK_TESTS_SCRATCH_H
#define BATCHMARK_TESTS_SCRATCH_H

#include <stddef.h>

/* cmocka set-up and tear-down: *state is the path of a new empty folder; it is removed with all that is in it. */
int scratch_setup(void **state);
int scratch_teardown(void **state);

/* "folder/name", into one of a few buffers that take turns: good until the fourth call after it. */
const char *scratch_path(const char *folder, const char *name);

void  scratch_write(const char *path, const char *text, size_t length);
char *scratch_read(const char *path);   /* whole, NUL-terminated; the caller frees it */
int   scratch_entries(const char *path); /* files and folders in a folder */

#endif
