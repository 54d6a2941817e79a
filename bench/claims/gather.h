/* gather.h - the cells a claim needs: from the record where they are, else measured, each in a process of its own. */
#ifndef BATCHMARK_BENCH_CLAIMS_GATHER_H
#define BATCHMARK_BENCH_CLAIMS_GATHER_H

#include "claims.h"
#include "curves.h"

typedef struct Gather {
    const ClaimContext *context;
    CellPoints points;
    int        from_record, measured;   /* cells with a result */
    json_t    *verified[AMP_COUNT][2];  /* by type and accumulation; owned */
} Gather;

/* What a claim needs a cell for. Memory takes three steps; time is sampled as in the sweep, after verification. */
typedef enum Purpose { FOR_MEMORY, FOR_TIME } Purpose;

/* Takes over the record's cells. gather_end may be called in any state after this was tried. STATUS_OOM. */
Status gather_begin(Gather *g, const ClaimContext *context);
void   gather_end(Gather *g);

/* One cell: known already, or measured now. A cell that cannot run is a point that is not ok, with the reason; only an
 * interrupt or lack of memory for the point is an error. out may be NULL. */
Status gather_cell(Gather *g, const NetConfig *net, int64_t accum, Purpose purpose, CellPoint *out);

/* The preset's net: smoke a quarter of the width at 64 pixels, else the standard net at 224. fp32, batch 1. */
NetConfig gather_net(const ClaimContext *context);

/* Is this the preset of the run? */
bool gather_is(const ClaimContext *context, const char *preset);

/* "5 cells of this run and 2 measured for this claim", for times with ", 3 of them disturbed by other processes". */
const char *gather_sources(const Gather *g, Purpose purpose, char *text, size_t size);

#endif
