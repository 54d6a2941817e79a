/* claims.h - the claims of the two articles as code: one row each, one function for those that can be run.
 *
 * A claim reads the record's cells where the sweep has what it needs and measures only what is missing. */
#ifndef BATCHMARK_BENCH_CLAIMS_CLAIMS_H
#define BATCHMARK_BENCH_CLAIMS_CLAIMS_H

#include "../cell.h"
#include "../record.h"

typedef struct ClaimContext {
    const MeasureOptions *measure;
    const Record *record;     /* finished cells of this run */
    const char   *preset;     /* "smoke", "quick" or "full": how much to run */
    bool          progress;
} ClaimContext;

/* Fills in verdict, summary, tolerance, tables, charts of the entry (results/SCHEMA.md). Runs in a process of its own. */
typedef Status ClaimRun(const ClaimContext *context, json_t *entry);

typedef struct Claim {
    const char *id;            /* "A1" */
    const char *title;         /* a few words */
    const char *statement;     /* what the article claims */
    const char *source_figures;/* the article's numbers, or NULL */
    const char *formulas[3];   /* that must stand in the report exactly; NULL-terminated */
    const char *waits_for;     /* why it cannot run yet; NULL if run is set */
    ClaimRun   *run;
} Claim;

enum { CLAIM_COUNT = 24 };
extern const Claim claims[CLAIM_COUNT];

const Claim *claim_find(const char *id); /* NULL if there is none; upper or lower case */

/* The entry of a claim: run in a child process, or "not run" with what it waits for. A run that fails gives an entry "not
 * run" whose summary is the error; only an interrupt or lack of memory is an error status. */
Status claim_entry(const Claim *claim, const ClaimContext *context, json_t **entry);

/* Runs of the claims, one file each or a close pair. */
ClaimRun claim_a1_memory_line, claim_a4_accumulation, claim_a5_mixed_precision, claim_b2_memory_kinds,
         claim_b5_accumulation_details, claim_b16_rules_of_thumb;

#endif
