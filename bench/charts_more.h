/* charts_more.h - the two halves of charts.h's work that stand in files of their own, and what they share with it. */
#ifndef BATCHMARK_BENCH_CHARTS_MORE_H
#define BATCHMARK_BENCH_CHARTS_MORE_H

#include "charts.h"

/* Accuracy and loss of a group's trainings: by epoch, by update, by time. charts_training.c */
Status charts_draw_trainings(const Group *g, size_t number, ChartSetup *setup);

/* The charts that the claims brought themselves. charts_claims.c */
Status charts_draw_claims(const json_t *record, ChartSetup *setup);

/* Start a chart named "<kind>-<group>" and titled "<what>: <group>". charts.c */
void chart_start_group(Chart *c, const Group *g, const char *section, const char *kind, const char *what,
                       const char *x_label, const char *y_label);

/* A tick for every distinct finite value of x, ascending. charts.c */
void chart_add_ticks_sorted(Chart *c, const double *x, size_t count);

#endif
