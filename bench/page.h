/* page.h - the report as one Markdown page, in the order in which a reader wants to know. */
#ifndef BATCHMARK_BENCH_PAGE_H
#define BATCHMARK_BENCH_PAGE_H

#include "chart.h"
#include "record_view.h"

typedef struct PageInput {
    const json_t     *record;
    const Groups     *cells, *trainings;
    const DrawnChart *charts;
    size_t            chart_count;
    const char       *chart_trouble; /* why charts are missing, or NULL */
    const char       *record_path;
} PageInput;

void page_write(Text *t, const PageInput *in);

/* "batchmark: resnet50 on <cpu>": the page's title, plain text. */
void page_title(Text *t, const json_t *record);

#endif
