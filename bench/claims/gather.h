/* gather.h - the cells a claim needs: from the record where they are, else measured, each in a process of its own. */
#ifndef BATCHMARK_BENCH_CLAIMS_GATHER_H
#define BATCHMARK_BENCH_CLAIMS_GATHER_H

#include "claims.h"
#include "curves.h"

enum { GATHER_NETS = 3, GATHER_VERIFIED_MAX = 24 };
extern const char *const gather_nets[GATHER_NETS]; /* in the order of the report: "resnet50", "unet", "bert" */

typedef struct GatherVerified { NetConfig like; json_t *result; } GatherVerified;

typedef struct Gather {
    const ClaimContext *context;
    CellPoints points;
    int        from_record, measured;   /* cells with a result */
    GatherVerified verified[GATHER_VERIFIED_MAX]; /* by kind of net; results owned */
    int        verified_count;
} Gather;

/* What a claim needs a cell for. Memory takes three steps; time is sampled as in the sweep, after verification. */
typedef enum Purpose { FOR_MEMORY, FOR_TIME } Purpose;

/* Takes over the record's cells. gather_end may be called in any state after this was tried. STATUS_OOM. */
Status gather_begin(Gather *g, const ClaimContext *context);
void   gather_end(Gather *g);

/* One cell: known already, or measured now. A cell that cannot run is a point that is not ok, with the reason; only an
 * interrupt or lack of memory for the point is an error. out may be NULL. */
Status gather_cell(Gather *g, const NetConfig *net, int64_t accum, Purpose purpose, CellPoint *out);

/* A net as the sweep of the preset has it, so that its cells are found: in smoke the small form, else the standard one. fp32,
 * batch 1. */
NetConfig gather_net(const ClaimContext *context, const char *net);

/* The same net small enough to be run at any batch in seconds on a CPU; what smoke sweeps. */
NetConfig gather_small_net(const char *net);

/* Whether a claim looks at this precision: fp32 and bf16 always, fp16 where the sweep has it. */
bool gather_uses(const Gather *g, Amp amp);

/* Is this the preset of the run? */
bool gather_is(const ClaimContext *context, const char *preset);

/* "5 cells of this run and 2 measured for this claim", for times with ", 3 of them disturbed by other processes". */
const char *gather_sources(const Gather *g, Purpose purpose, char *text, size_t size);

#endif
