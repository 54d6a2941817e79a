/* text.h - text that grows, the escapes of every format the report writes, and files that appear whole or not at all.
 *
 * A Text starts as {0}. Adding to it never fails visibly: when memory runs out it is marked, further additions do
 * nothing, and writing it to a file reports the failure. So a page is composed without a check on every line.
 *
 * Numbers are printed with printf and read with strtod: the caller has set the thread's LC_NUMERIC to "C"
 * (report_write does), so '.' is the decimal point whatever the user's locale. */
#ifndef BATCHMARK_BENCH_TEXT_H
#define BATCHMARK_BENCH_TEXT_H

#include "kernels/base.h"

typedef struct Text {
    char  *bytes;    /* NUL-terminated once anything was added; NULL before */
    size_t length;
    size_t capacity;
    bool   failed;   /* an allocation failed; the content is incomplete */
} Text;

void text_free(Text *t);
const char *text_bytes(const Text *t); /* never NULL */

void text_add(Text *t, const char *s);
void text_add_bytes(Text *t, const char *s, size_t length);
void text_format(Text *t, const char *format, ...) PRINTF_LIKE(2, 3);

/* The string as literal text in one format. Control characters, line breaks among them, become spaces, so that
 * nothing in a record can start a new line of a table, a script or a data file. A NULL string adds an en dash. */
void text_add_plain(Text *t, const char *s);    /* comments of data files, messages */
void text_add_markdown(Text *t, const char *s); /* inside a line; not for its first word */
void text_add_html(Text *t, const char *s);     /* also right inside a "quoted" attribute */
void text_add_gnuplot(Text *t, const char *s);  /* with its single quotes: no escapes, no back-tick commands in those */
void text_add_csv(Text *t, const char *s);      /* RFC 4180; quoted where necessary; NULL adds nothing */
void text_add_shell(Text *t, const char *s);    /* one word for a POSIX shell */
void text_add_slug(Text *t, const char *s);     /* a-z 0-9 '.' only, other runs become one '-': parts of file names */

enum { NUMBER_BYTES = 40 };

/* A number for people into out: four significant digits, thousands grouped, powers of ten outside 1e-4..1e9;
 * an en dash when it is not finite. Returns out. */
const char *number_format(double x, char out[NUMBER_BYTES]);
const char *number_format_digits(double x, int digits, char out[NUMBER_BYTES]);

/* Copy into a fixed buffer; what does not fit is cut between UTF-8 characters and ends in an ellipsis. */
void text_copy(char *out, size_t size, const char *s);

/* Write folder/name whole: to a temporary name, then renamed. STATUS_IO with the system's words, STATUS_OOM. */
Status text_write_file(const Text *t, const char *folder, const char *name);

/* Read a whole file. STATUS_INPUT when it is missing, STATUS_IO, STATUS_OOM. */
Status text_read_file(Text *t, const char *path);

/* folder + "/" + name into out; STATUS_INPUT when it is longer than size. */
Status path_join(char *out, size_t size, const char *folder, const char *name);

enum { PATH_BYTES = 2048 };

#endif
