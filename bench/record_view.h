/* record_view.h - a stored record as the report sees it (record.h reads and checks it): numbers that may be missing, and cells
 * in groups that belong on one chart. results/SCHEMA.md says what a record holds; this reads format 1. */
#ifndef BATCHMARK_BENCH_RECORD_VIEW_H
#define BATCHMARK_BENCH_RECORD_VIEW_H

#include <jansson.h>

#include "text.h"

/* A member found by a dotted path ("memory.planned.total"); NULL when absent or null. */
const json_t *record_get(const json_t *object, const char *path);

/* The same as a number (NAN when absent, null or no number), a string (NULL) or an array (NULL). */
double      record_number(const json_t *object, const char *path);
const char *record_string(const json_t *object, const char *path);
const json_t *record_array(const json_t *object, const char *path);
size_t      record_count(const json_t *object, const char *path); /* length of that array, 0 when absent */

/* Whether "status" is "ok". */
bool record_ok(const json_t *cell);

/* "fp32" for the axis value "off", else the value. */
const char *precision_name(const json_t *cell);

/* The quartiles' median of a cell's step in seconds as a share of its floor, in percent; NAN when either is missing. */
double cell_floor_percent(const json_t *cell);

enum { GROUP_TEXT_BYTES = 160, SERIES_TEXT_BYTES = 64 };

/* Cells (or trainings) that differ only in the axes that a chart shows. */
typedef struct Group {
    char           key[GROUP_TEXT_BYTES];   /* the shared axes as text; unique */
    char           title[GROUP_TEXT_BYTES]; /* "resnet50, 224 px, width 1, standard stem, 1000 classes" */
    char           slug[GROUP_TEXT_BYTES];  /* for file names; unique */
    const json_t **items;                   /* borrowed from the record; sorted, see below */
    size_t         count;
} Group;

typedef struct Groups {
    Group *groups;
    size_t count;
} Groups;

/* Cells by everything but batch, amp and accum; sorted by precision, accumulation, batch. A configuration that stands in
 * the record twice is taken once: the last one that is ok, else the last. */
Status groups_of_cells(const json_t *record, Groups *out);

/* Trainings by everything but batch, accum, amp, lr, seed and epochs; sorted by precision, batch, accumulation. */
Status groups_of_trainings(const json_t *record, Groups *out);

void groups_free(Groups *g);

/* "bf16, accumulation 4": a cell's line on a chart. */
void cell_series_name(const json_t *cell, char out[SERIES_TEXT_BYTES]);
bool cell_same_series(const json_t *a, const json_t *b);

#endif
