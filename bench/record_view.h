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

/* Whether an item is of a net that reads text: its size is a length in tokens, its samples are sequences, and it has no batch
 * norm (all nets of images here have). */
bool        record_is_text(const json_t *item);
const char *sample_word(const json_t *item); /* "samples" or "sequences" */

/* Whether a training was judged by its masks: by Dice. */
bool record_has_masks(const json_t *training);

/* Tokens in a second; NAN for images. */
double cell_tokens_per_second(const json_t *cell);

/* "SGD", "AdamW", ...; NULL where the record does not say. */
const char *optimizer_name(const json_t *item);

/* The quartiles' median of a cell's step in seconds as a share of its floor, in percent; NAN when either is missing. */
double cell_floor_percent(const json_t *cell);

enum { GROUP_TEXT_BYTES = 160, GROUP_KEY_BYTES = 1024, SERIES_TEXT_BYTES = 64 };

/* Cells (or trainings) that differ only in the axes that a chart shows. */
typedef struct Group {
    char           key[GROUP_KEY_BYTES];    /* the shared axes as text; unique */
    char           title[GROUP_TEXT_BYTES]; /* "resnet50, 224 px, width 1, 1000 classes, standard stem", "bert, 128 tokens" */
    char           slug[GROUP_TEXT_BYTES];  /* for file names; unique */
    const json_t **items;                   /* borrowed from the record; sorted, see below */
    size_t         count;
} Group;

typedef struct Groups {
    Group *groups;
    size_t count;
} Groups;

/* Cells by everything but batch, amp and accum, so that no chart mixes nets, sizes or optimisers; sorted by precision, accumulation, batch. A configuration that stands in
 * the record twice is taken once: the last one that is ok, else the last. */
Status groups_of_cells(const json_t *record, Groups *out);

/* Trainings by net, data and what else the data and the net fix; batch, precision, optimiser and the rest of the recipe may differ
 * in a group and stand in its table; sorted by precision, batch, accumulation. */
Status groups_of_trainings(const json_t *record, Groups *out);

void groups_free(Groups *g);

/* "bf16, accumulation 4": a cell's line on a chart. */
void cell_series_name(const json_t *cell, char out[SERIES_TEXT_BYTES]);
bool cell_same_series(const json_t *a, const json_t *b);

#endif
