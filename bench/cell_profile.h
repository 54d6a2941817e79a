/* cell_profile.h - the profiled steps of a cell, after its timed ones. */
#ifndef BATCHMARK_BENCH_CELL_PROFILE_H
#define BATCHMARK_BENCH_CELL_PROFILE_H

#include "cell.h"

/* The "profile" member, or NULL with the reason why there is none. */
typedef struct CellProfile { json_t *json; char reason[STATUS_TEXT_BYTES]; } CellProfile;

/* A few more steps, profiled by the executor's clock on a CPU and by the device's own records on a GPU (never by the clock there,
 * which would wait after every node). A device that gives no profile is no error: the reason is kept. plain_seconds: a
 * step's time without a profile. json is the caller's. */
Status cell_profile(Bench *b, const MicroBatch *data, int64_t accum, const MeasureOptions *o, double plain_seconds, CellProfile *out);

#endif
