/* memory.c - the persistent block by groups, the arena by lifetimes; and the account of both by category.
 *
 * Time is the index of a node. MICRO and EVAL never run at once and lie at different indices, so they share the arena.
 * The scratch of a node is an item that lives for that node alone. */
#include "memory.h"

#include <stdlib.h>
#include <string.h>

typedef struct Lifetime { int first, last; } Lifetime; /* nodes; first = -1: never used */

static Status allocate(const Graph *g, Memory *m)
{
    const size_t values = (size_t)g->value_count + 1, nodes = (size_t)g->node_count + 1; /* never 0 */
    m->home = calloc(values, sizeof *m->home);
    m->offset = calloc(values, sizeof *m->offset);
    m->last = calloc(values, sizeof *m->last);
    m->scratch_offset = calloc(nodes, sizeof *m->scratch_offset);
    return m->home && m->offset && m->last && m->scratch_offset
               ? status_ok() : status_error(STATUS_OOM, "no memory for the plan of %d values", g->value_count);
}

void memory_free(Memory *m)
{
    free(m->home);
    free(m->offset);
    free(m->last);
    free(m->scratch_offset);
    *m = (Memory){ 0 };
}

static bool in_arena(const Graph *g, int value)
{
    return !graph_is_persistent(&g->values[value]);
}

/* Groups in order of their number, each in order of id; then what is in no group. Spans get their group's offset. */
static void place_persistent(const Graph *g, const Layout *l, Memory *m)
{
    int groups = 0;
    for (int i = 0; i < g->value_count; i++)
        if (g->values[i].group > groups)
            groups = g->values[i].group;
    for (int turn = 1; turn <= groups + 1; turn++) {
        const int group = turn <= groups ? turn : GROUP_NONE;
        for (int i = 0; i < g->value_count && group != GROUP_NONE; i++)
            if (g->values[i].span_group == group)
                m->offset[i] = m->persistent_bytes;
        for (int i = 0; i < g->value_count; i++) {
            const GraphValue *v = &g->values[i];
            if (in_arena(g, i) || v->group != group || v->span_group != GROUP_NONE || m->home[i] != i)
                continue;
            m->offset[i] = m->persistent_bytes;
            m->persistent_bytes += layout_padded(l->bytes[i]);
            m->plan.kind[v->kind] += layout_padded(l->bytes[i]);
        }
    }
}

static Status use(const Graph *g, Lifetime *life, int value, int node)
{
    Lifetime *t = &life[value];
    if (!in_arena(g, value))
        return status_ok();
    if (t->first < 0)
        t->first = node;
    t->last = node;
    if (g->nodes[t->first].segment != g->nodes[node].segment)
        return status_error(STATUS_USAGE, "%s: the activation '%s' of segment %s is used in segment %s",
                            g->nodes[node].scope, g->values[value].name,
                            segment_names[g->nodes[t->first].segment], segment_names[g->nodes[node].segment]);
    return status_ok();
}

static Status find_lifetimes(const Graph *g, Lifetime *life)
{
    for (int i = 0; i < g->value_count; i++)
        life[i] = (Lifetime){ -1, -1 };
    for (int i = 0; i < g->node_count; i++) {
        const GraphNode *n = &g->nodes[i];
        for (int k = 0; k < n->op.n_in; k++)
            TRY(use(g, life, n->in[k], i));
        for (int k = 0; k < n->op.n_out; k++)
            TRY(use(g, life, n->out[k], i));
    }
    return status_ok();
}

/* The home in whose memory output `slot` of node i may lie: an input that nobody reads later; -1 if there is none. */
static int home_to_take(const Graph *g, const Layout *l, const Lifetime *life, const int *home, int i, int slot)
{
    const GraphNode *n = &g->nodes[i];
    const int out = n->out[slot];
    if (!in_arena(g, out) || life[out].first != i)
        return -1;
    for (int turn = 0, k; (k = op_in_place_input(&n->op, slot, turn)) >= 0; turn++) {
        int in = home[n->in[k]];
        if (in_arena(g, in) && life[in].last == i && l->bytes[in] == l->bytes[out])
            return in;
    }
    return -1;
}

static void replace_in_place(const Graph *g, const Layout *l, Lifetime *life, int *home)
{
    for (int i = 0; i < g->node_count; i++)
        for (int k = 0; k < g->nodes[i].op.n_out; k++) {
            int in = home_to_take(g, l, life, home, i, k), out = g->nodes[i].out[k];
            if (in < 0)
                continue;
            home[out] = in;
            life[in].last = life[out].last;
            life[out] = (Lifetime){ -1, -1 };
        }
}

/* Splits the arena between activations and workspace at its fullest node. */
static void account(const Graph *g, const Layout *l, const PlanItem *items, int count, Memory *m)
{
    size_t most = 0;
    for (int i = 0; i < g->node_count; i++) {
        size_t live = 0;
        for (int k = 0; k < count; k++)
            if (items[k].first <= i && i <= items[k].last)
                live += layout_padded(items[k].bytes);
        if (live > most) {
            most = live;
            m->plan.peak_node = i;
        }
    }
    if (g->node_count)
        m->plan.kind[MEM_WORKSPACE] = layout_padded(l->needs[m->plan.peak_node].scratch);
    m->plan.kind[MEM_ACT] = m->arena_bytes - m->plan.kind[MEM_WORKSPACE];
    for (int k = 0; k < MEM_KIND_COUNT; k++)
        m->plan.total += m->plan.kind[k];
}

/* One item a value that has a lifetime, then one a node that has scratch; `owner` says where each offset goes. */
static int make_items(const Graph *g, const Layout *l, const Lifetime *life, Memory *m, PlanItem *items, size_t **owner)
{
    int count = 0;
    for (int i = 0; i < g->value_count; i++) {
        m->last[i] = life[i].last;
        if (life[i].first < 0)
            continue;
        owner[count] = &m->offset[i];
        items[count++] = (PlanItem){ .bytes = l->bytes[i], .first = life[i].first, .last = life[i].last };
    }
    for (int i = 0; i < g->node_count; i++)
        if (l->needs[i].scratch) {
            owner[count] = &m->scratch_offset[i];
            items[count++] = (PlanItem){ .bytes = l->needs[i].scratch, .first = i, .last = i };
        }
    return count;
}

static Status place_arena(const Graph *g, const Layout *l, bool separate, Memory *m)
{
    const size_t most = (size_t)g->value_count + (size_t)g->node_count + 1;
    Lifetime *life = malloc(most * sizeof *life);
    PlanItem *items = malloc(most * sizeof *items);
    size_t  **owner = malloc(most * sizeof *owner);
    Status    status = status_ok();
    if (!life || !items || !owner) {
        status = status_error(STATUS_OOM, "no memory to plan the arena");
        goto out;
    }
    TRY_GOTO(status, find_lifetimes(g, life), out);
    if (!separate)
        replace_in_place(g, l, life, m->home);

    int        count = make_items(g, l, life, m, items, owner);
    PlanResult result;
    TRY_GOTO(status, plan_place(items, count, separate, &result), out);
    for (int i = 0; i < count; i++)
        *owner[i] = items[i].offset;
    m->arena_bytes = m->plan.arena_peak = result.peak;
    m->plan.arena_lower_bound = result.lower_bound;
    m->plan.arena_naive = result.naive;
    account(g, l, items, count, m);
out:
    free(life);
    free(items);
    free(owner);
    return status;
}

Status memory_place(const Graph *g, const Layout *l, bool separate, Memory *out)
{
    *out = (Memory){ 0 };
    TRY(allocate(g, out));
    memcpy(out->home, l->same_as, (size_t)g->value_count * sizeof *out->home);
    place_persistent(g, l, out);
    return place_arena(g, l, separate, out);
}
