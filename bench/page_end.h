/* page_end.h - the closing part of the page. */
#ifndef BATCHMARK_BENCH_PAGE_END_H
#define BATCHMARK_BENCH_PAGE_END_H

#include "page.h"

/* What has no value and why; doubtful results; environment; how to reproduce; how to read the page. */
void page_write_end(Text *t, const PageInput *in);

#endif
