/* plan.h - offsets in one arena from lifetimes. Pure: no graph, no backend. */
#ifndef BATCHMARK_NETS_PLAN_H
#define BATCHMARK_NETS_PLAN_H

#include "../kernels/base.h"

typedef struct PlanItem {
    size_t bytes;        /* rounded up to PLAN_ALIGN by the planner */
    int    first, last;  /* node indices, inclusive: alive from first to last */
    size_t offset;       /* out */
} PlanItem;

enum { PLAN_ALIGN = 64 };

typedef struct PlanResult {
    size_t peak;         /* bytes of the arena */
    size_t lower_bound;  /* most bytes alive at one node: no plan can be smaller */
    size_t naive;        /* every item in memory of its own */
} PlanResult;

/* Gives every item an offset such that no two that are alive at the same node overlap. `separate` puts every item in
 * memory of its own instead (the switch that turns the planner off, to find bugs). STATUS_OOM if its own tables
 * cannot be had. O(n^2) in the worst case; milliseconds for a thousand items. */
Status plan_place(PlanItem *items, int count, bool separate, PlanResult *result);

/* STATUS_NUMERIC naming two items if any pair overlaps in space and time; for tests and --check. */
Status plan_check(const PlanItem *items, int count);

#endif
