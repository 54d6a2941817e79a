/* entry.h - writes a claim's part of the record: verdict, tables, charts (results/SCHEMA.md).
 *
 * A table or chart is built by calls that cannot fail: a lack of memory is kept until entry_add_*, which takes the thing
 * over in any case. */
#ifndef BATCHMARK_BENCH_CLAIMS_ENTRY_H
#define BATCHMARK_BENCH_CLAIMS_ENTRY_H

#include "../../kernels/base.h"

#include <jansson.h>

typedef enum Verdict {
    VERDICT_REPRODUCED,   /* measured here; direction and size agree within the tolerance */
    VERDICT_PARTLY,       /* the direction agrees, the size or a part of the claim does not, or a part is not covered */
    VERDICT_CONTRADICTED, /* measured here, and it does not hold */
    VERDICT_MODELLED,     /* computed, since this machine cannot run it */
    VERDICT_NOT_RUN,
    VERDICT_COUNT
} Verdict;

extern const char *const verdict_names[VERDICT_COUNT];

enum { SUMMARY_BYTES = 1024 };

/* Sets verdict, tolerance (NULL = none) and summary of the entry. STATUS_OOM. */
Status entry_conclude(json_t *entry, Verdict verdict, const char *tolerance, const char *format, ...) PRINTF_LIKE(4, 5);

typedef struct ClaimTable { json_t *json, *rows, *row; bool failed; } ClaimTable;
typedef struct ColumnHead { const char *name, *unit; } ColumnHead; /* unit "" = none */

void   claim_table_begin(ClaimTable *t, const char *title, const ColumnHead *heads, size_t count);
void   claim_table_row(ClaimTable *t);                   /* the next cells belong to a new row */
void   claim_table_real(ClaimTable *t, double x);        /* NaN = missing */
void   claim_table_integer(ClaimTable *t, int64_t x);
void   claim_table_text(ClaimTable *t, const char *text); /* NULL = missing */
Status entry_add_table(json_t *entry, ClaimTable *t);

typedef struct ClaimChart { json_t *json, *series, *points; bool failed; } ClaimChart;
typedef enum ChartStyle { CHART_POINTS, CHART_LINE, CHART_BOTH } ChartStyle;

/* x and y are the axes' labels with their units. */
void   claim_chart_begin(ClaimChart *c, const char *title, const char *x, const char *y, bool logx, bool logy);
void   claim_chart_series(ClaimChart *c, ChartStyle style, const char *format, ...) PRINTF_LIKE(3, 4);
void   claim_chart_point(ClaimChart *c, double x, double y); /* y NaN = missing: left out as null */
Status entry_add_chart(json_t *entry, ClaimChart *c);

#endif
