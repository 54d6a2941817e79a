/* html.h - the Markdown page as one self-contained HTML file. */
#ifndef BATCHMARK_BENCH_HTML_H
#define BATCHMARK_BENCH_HTML_H

#include "text.h"

/* Convert folder/report.md with the program cmark-gfm and add the whole HTML document to out: css inline, each chart
 * (an image link charts/NAME.svg) replaced by the drawing itself, tables in boxes that scroll. Raw HTML in the page is
 * not passed on. STATUS_BACKEND: cmark-gfm is missing or failed; STATUS_IO, STATUS_OOM. */
Status html_from_markdown(const char *cmark, const char *folder, const char *title, const Text *css, Text *out);

#endif
