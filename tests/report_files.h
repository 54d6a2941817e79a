/* report_files.h - what the report's tests share: a folder for a test, reports written into it, and what their files hold.
 * Failures end the cmocka test. */
#ifndef BATCHMARK_TESTS_REPORT_FILES_H
#define BATCHMARK_TESTS_REPORT_FILES_H

#include "bench/report.h"
#include "bench/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum { NAME_BYTES = PATH_BYTES };

/* cmocka set-up and tear-down: *state is the path of a new empty folder. It is under /tmp and not in memory as that of
 * scratch.h, because programs are run from it. */
int make_scratch(void **state);
int remove_scratch(void **state);
#define IN_SCRATCH(test) cmocka_unit_test_setup_teardown(test, make_scratch, remove_scratch)

/* "folder/name" in out: of the test's folder, or of any. */
const char *at(void **state, const char *name, char out[NAME_BYTES]);
const char *inside(const char *folder, const char *name, char out[NAME_BYTES]);

void write_file(const char *path, const char *content, mode_t mode);
bool exists(const char *folder, const char *name);
Text read_in(const char *folder, const char *name); /* the caller frees it */

/* Call `visit` (or nothing) for every file of a folder with this ending. Returns how many there are. */
size_t each_file(const char *folder, const char *ending, void (*visit)(const char *folder, const char *name));

extern const ReportOptions quiet_svg;
void write_ok(const char *record, const char *out, const ReportOptions *options);

/* The fixture with some members emptied, as a file of its own: fewer charts, a faster test. */
void write_part(const char *path, bool cells, bool trainings, bool claims);

/* No number of the C library's kind of nothing, as a word of its own, in whatever case. */
void holds_no_nan(const char *folder, const char *name);
void is_no_temporary(const char *folder, const char *name);

void holds(const Text *t, const char *what);
void lacks(const Text *t, const char *what);

#endif
