/* plan.c - greedy placement in several orders, the best taken.
 *
 * Items are placed one after another, each at the lowest gap that holds it between the items already placed that are
 * alive at the same time. Which order is best depends on the graph, so a few are tried and the smallest peak wins (the
 * first of them, so the plan is deterministic); a plan that reaches the lower bound ends the search. The idea is that of
 * "greedy by size" in Pisarchyk & Lee 2020, "Efficient memory management for deep neural net inference". */
#include "plan.h"

#include <stdlib.h>
#include <string.h>

static size_t aligned(size_t bytes)
{
    return (bytes + PLAN_ALIGN - 1) / PLAN_ALIGN * PLAN_ALIGN;
}

static bool alive_together(const PlanItem *a, const PlanItem *b)
{
    return a->first <= b->last && b->first <= a->last;
}

/* qsort has no context, so what an order needs travels with each entry; id makes every order total. */
typedef struct Ranked { double key; int id; } Ranked;

static int by_key_descending(const void *x, const void *y)
{
    const Ranked *a = x, *b = y;
    return a->key != b->key ? (a->key < b->key ? 1 : -1) : (a->id > b->id) - (a->id < b->id);
}

static double key_size(const PlanItem *item)     { return (double)aligned(item->bytes); }
static double key_lifetime(const PlanItem *item) { return (double)(item->last - item->first); }
static double key_area(const PlanItem *item)     { return key_size(item) * (key_lifetime(item) + 1); }
static double key_start(const PlanItem *item)    { return -(double)item->first; }
static double key_end(const PlanItem *item)      { return (double)item->last; }

static double (*const orders[])(const PlanItem *) = { key_size, key_area, key_lifetime, key_start, key_end };

/* Places the items in the order of `ranked`; offsets go to offset[], the peak is returned. `placed` holds the items
 * placed so far by rising offset, so one sweep over it finds the lowest gap. */
static size_t place_in_order(const PlanItem *items, int count, const Ranked *ranked, int *placed, size_t *offset)
{
    size_t peak = 0;
    for (int r = 0; r < count; r++) {
        const int id = ranked[r].id;
        const size_t need = aligned(items[id].bytes);
        size_t at = 0;
        for (int p = 0; p < r; p++) {
            const int other = placed[p];
            if (!alive_together(&items[id], &items[other]))
                continue;
            if (offset[other] >= at + need)
                break;
            size_t end = offset[other] + aligned(items[other].bytes);
            if (end > at)
                at = end;
        }
        offset[id] = at;
        if (at + need > peak)
            peak = at + need;
        int p = r;
        for (; p > 0 && offset[placed[p - 1]] > at; p--)
            placed[p] = placed[p - 1];
        placed[p] = id;
    }
    return peak;
}

/* Most bytes alive at one node. Only a node at which some item begins can be the fullest. */
static size_t live_bound(const PlanItem *items, int count)
{
    size_t most = 0;
    for (int i = 0; i < count; i++) {
        size_t live = 0;
        for (int k = 0; k < count; k++)
            if (items[k].first <= items[i].first && items[i].first <= items[k].last)
                live += aligned(items[k].bytes);
        if (live > most)
            most = live;
    }
    return most;
}

static Status place_best(PlanItem *items, int count, PlanResult *result)
{
    Ranked *ranked = malloc((size_t)count * sizeof *ranked);
    int    *placed = malloc((size_t)count * sizeof *placed);
    size_t *offset = malloc((size_t)count * sizeof *offset);
    Status  status = status_ok();
    if (!ranked || !placed || !offset) {
        status = status_error(STATUS_OOM, "no memory to plan %d tensors", count);
        goto out;
    }
    result->peak = SIZE_MAX;
    for (size_t o = 0; o < COUNT_OF(orders) && result->peak > result->lower_bound; o++) {
        for (int i = 0; i < count; i++)
            ranked[i] = (Ranked){ orders[o](&items[i]), i };
        qsort(ranked, (size_t)count, sizeof *ranked, by_key_descending);
        size_t peak = place_in_order(items, count, ranked, placed, offset);
        if (peak >= result->peak)
            continue;
        result->peak = peak;
        for (int i = 0; i < count; i++)
            items[i].offset = offset[i];
    }
out:
    free(ranked);
    free(placed);
    free(offset);
    return status;
}

Status plan_place(PlanItem *items, int count, bool separate, PlanResult *result)
{
    *result = (PlanResult){ 0, live_bound(items, count), 0 };
    for (int i = 0; i < count; i++) {
        CHECK(items[i].first <= items[i].last);
        items[i].offset = result->naive;
        result->naive += aligned(items[i].bytes);
    }
    result->peak = result->naive;
    return separate || count == 0 ? status_ok() : place_best(items, count, result);
}

Status plan_check(const PlanItem *items, int count)
{
    for (int i = 0; i < count; i++)
        for (int k = 0; k < i; k++) {
            const PlanItem *a = &items[k], *b = &items[i];
            if (alive_together(a, b) && a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes)
                return status_error(STATUS_NUMERIC,
                                    "items %d (bytes %zu..%zu, nodes %d..%d) and %d (bytes %zu..%zu, nodes %d..%d) overlap",
                                    k, a->offset, a->offset + a->bytes, a->first, a->last,
                                    i, b->offset, b->offset + b->bytes, b->first, b->last);
        }
    return status_ok();
}
