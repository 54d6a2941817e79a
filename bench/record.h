/* record.h - the record of a run: results/SCHEMA.md as a file that is always whole.
 *
 * The document lives in memory as jansson values and is written to <dir>/record.json after every change (temporary
 * file, fsync, rename), so that Ctrl-C, a crash or a full disk loses at most what was running. */
#ifndef BATCHMARK_BENCH_RECORD_H
#define BATCHMARK_BENCH_RECORD_H

#include "../kernels/base.h"

#include <jansson.h>
#include <stdio.h>

typedef struct Record Record;

/* A new record in a folder that is made if it is missing (parents too). `run` and `environment` are the members of the
 * schema; both references are taken over, also on failure. STATUS_USAGE if the folder already holds a record;
 * STATUS_IO if it cannot be written; STATUS_OOM. */
Status record_create(const char *dir, json_t *run, json_t *environment, Record **out);

/* An existing one, to go on from. STATUS_INPUT if it is missing, cut, not ours, or of another format. Sets
 * run.finished back to null. */
Status record_open(const char *dir, Record **out);

/* Read-only load of a record file (a path to the file, or to its folder), checked like record_open. The caller owns
 * *root (json_decref). */
Status record_load(const char *path, json_t **root);

/* The same from an open stream, to its end; `path` is its name in messages. */
Status record_read(FILE *from, const char *path, json_t **root);

void record_close(Record *r); /* NULL is fine; writes nothing */

const char   *record_dir(const Record *r);
const json_t *record_root(const Record *r);

/* The entry of this name in "cells" / "trainings" (by "name") or "claims" (by "id"), or NULL. Borrowed. */
typedef enum RecordList { RECORD_CELLS, RECORD_TRAININGS, RECORD_CLAIMS } RecordList;
json_t *record_find(const Record *r, RecordList list, const char *name);

/* Adds the entry, or replaces the one of the same name, and saves. The reference is taken over, also on failure. */
Status record_put(Record *r, RecordList list, json_t *entry);

/* Sets environment.peaks and saves. The reference is taken over, also on failure. */
Status record_set_peaks(Record *r, json_t *peaks);

/* Sets run.finished to now and saves. */
Status record_finish(Record *r);

/* A real that may be missing: NaN and infinities become null (JSON has neither). Never NULL but out of memory. */
json_t *record_real(double x);

/* Writes a JSON document to a stream or atomically to a path, 17 significant digits, '.' whatever the locale. */
Status record_dump(const json_t *root, FILE *to);
Status record_save(const json_t *root, const char *path);

#endif
