/* curves.h - the record's cells as numbers: what the claims analyse.
 *
 * A member that is null or missing in the record is NaN here, never 0. */
#ifndef BATCHMARK_BENCH_CLAIMS_CURVES_H
#define BATCHMARK_BENCH_CLAIMS_CURVES_H

#include "../cell.h"

#include <jansson.h>

typedef struct CellPoint {
    char    net[32], amp[8], stem[16];
    int64_t size, classes, batch, accum;
    double  width, momentum;
    NetConfig config;                      /* what ran: everything above and the rest of it */
    char    extra[96];                     /* what is not the net's standard in it, see cell_name_extra */
    bool    ok, disturbed;                 /* disturbed: other processes kept cores busy while it was timed */
    char    reason[96];                    /* why not ok */
    double  throughput, step_seconds;
    double  measured_peak, process_peak;   /* bytes: tensors; resident set of the process */
    double  planned, kind[MEM_KIND_COUNT]; /* bytes */
} CellPoint;

typedef struct CellPoints { CellPoint *list; size_t count, capacity; } CellPoints;

/* Takes over one cell of the record; cells without usable axes are passed over. momentum: of cells whose axes do
 * not say it. A cell of the same axes replaces the earlier one
 * only if that was not ok. STATUS_OOM. */
Status points_add(CellPoints *p, const json_t *cell, double momentum);

/* All cells of a record's document (NULL = none). */
Status points_add_record(CellPoints *p, const json_t *root, double momentum);
void   points_free(CellPoints *p);

/* The cell of these axes, or NULL. */
const CellPoint *points_find(const CellPoints *p, const CellPoint *axes);

enum { CURVE_POINTS_MAX = 24, CURVES_MAX = 32 };

/* All cells that differ in batch alone, in order of batch: the ok ones, and how many others there are. */
typedef struct Curve {
    CellPoint axes; /* of any of its cells */
    CellPoint points[CURVE_POINTS_MAX];
    size_t    count, not_ok;
    char      reason[96]; /* of the last that is not ok */
} Curve;
typedef struct Curves { Curve list[CURVES_MAX]; size_t count; } Curves;

/* Curves without accumulation, net by net as recorded, of a net the largest size first, then as recorded; more than fit are left
 * out. The caller frees *out with free(). STATUS_OOM. */
Status curves_collect(const CellPoints *p, Curves **out);

/* The curve of these axes, whatever its batches, or NULL. */
const Curve *curves_find(const Curves *c, const CellPoint *axes);

/* Whether this is the first curve of its net among those before it; and whether it has the size of that first one. */
bool curves_net_begins(const Curves *c, size_t i);
bool curves_main_size(const Curves *c, size_t i);

enum { LABEL_BYTES = 160 };

/* "resnet50 224 px fp32", "bert 64 tokens bf16 (layers 2, hidden 128)": what is not the net's standard stands in brackets. The
 * second without the precision, for titles; the third the precision alone. */
const char *curve_label(const CellPoint *p, char *text, size_t size);
const char *curve_net_label(const CellPoint *p, char *text, size_t size);
const char *curve_precision(const CellPoint *p);

/* The same of a configuration. */
CellPoint point_of_net(const NetConfig *net, int64_t accum);

#endif
