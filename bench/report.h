/* report.h - everything that is derived from a record: report.html, report.md, tables/ and charts/.
 *
 * Needs gnuplot (apt: gnuplot-nox) for the charts, cmark-gfm (apt: cmark-gfm) for the HTML, and for the PNG charts
 * fc-match and a font (apt: fontconfig fonts-dejavu-core); all are run as programs when a report is written. */
#ifndef BATCHMARK_BENCH_REPORT_H
#define BATCHMARK_BENCH_REPORT_H

#include "kernels/base.h"

typedef struct ReportOptions {
    const char *gnuplot;      /* the program; NULL: "gnuplot" */
    const char *cmark;        /* NULL: "cmark-gfm" */
    const char *fc_match;     /* NULL: "fc-match" */
    const char *plots_folder; /* where style.gp and report.css are; NULL: the source tree's plots/ */
    bool        no_png;       /* SVG only */
    bool        quiet;        /* do not log where the report is */
} ReportOptions;

/* Read the record (results/SCHEMA.md, format 1) and write into out_folder, which is made if its parent exists:
 *   report.html            one self-contained file
 *   report.md              the same page, with the charts as links into charts/
 *   tables/ *.md *.csv     see tables.h
 *   charts/ *.svg *.png *.gp *.dat, style.gp    see chart.h
 * options may be NULL. Every file is written under a temporary name and renamed.
 *
 * Nothing is written when the record is not readable: STATUS_INPUT names file and place. STATUS_IO: out_folder cannot
 * be written, or the disk is full. STATUS_OOM. STATUS_BACKEND: gnuplot or cmark-gfm is missing or failed; all the
 * rest is written all the same, and the page says which charts could not be drawn. Without a font the PNG files are left
 * out with a warning on stderr; that is no error. */
Status report_write(const char *record_path, const char *out_folder, const ReportOptions *options);

#endif
