/* profile_parts.c - the bodies of profile_parts.h. */
#include "profile_parts.h"

#include "record.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { SLOWEST_NODES = 20 };

/* ---- tables of ops and nodes ---- */

/* Time and work of one kind of op, or of one node, over all steps. */
typedef struct Row { int id; int64_t calls; double seconds, flops, bytes; } Row;

static int by_time(const void *a, const void *b)
{
    const Row *x = a, *y = b;
    if (x->seconds != y->seconds)
        return x->seconds < y->seconds ? 1 : -1;
    return (x->id > y->id) - (x->id < y->id);
}

static void add_node(Row *row, const GraphNode *node, const NodeTime *time)
{
    OpCost cost = op_cost(&node->op);
    row->calls += time->calls;
    row->seconds += time->seconds;
    row->flops += cost.flops * (double)time->calls;
    row->bytes += cost.bytes * (double)time->calls;
}

void profile_put(json_t *object, const char *name, json_t *value, bool *ok)
{
    if (json_object_set_new(object, name, value) != 0)
        *ok = false;
}

void profile_append(json_t *array, json_t *value, bool *ok)
{
    if (json_array_append_new(array, value) != 0)
        *ok = false;
}

/* Per step; whole where it is whole. */
static json_t *calls_json(int64_t calls, int64_t steps)
{
    if (steps > 0 && calls % steps == 0)
        return json_integer(calls / steps);
    return record_real((double)calls / (double)steps);
}

json_t *profile_ops_json(const Graph *g, const NodeTime *times, int64_t steps, bool *ok)
{
    Row     rows[OP_COUNT];
    json_t *array = json_array();
    for (int kind = 0; kind < OP_COUNT; kind++)
        rows[kind] = (Row){ .id = kind };
    for (int i = 0; i < g->node_count; i++)
        add_node(&rows[g->nodes[i].op.kind], &g->nodes[i], &times[i]);
    qsort(rows, OP_COUNT, sizeof *rows, by_time);
    for (int i = 0; i < OP_COUNT; i++) {
        if (rows[i].calls == 0)
            continue;
        json_t *op = json_object();
        profile_put(op, "op", json_string(op_names[rows[i].id]), ok);
        profile_put(op, "calls", calls_json(rows[i].calls, steps), ok);
        profile_put(op, "seconds", record_real(rows[i].seconds / (double)steps), ok);
        profile_put(op, "flops", record_real(rows[i].flops / (double)steps), ok);
        profile_put(op, "bytes", record_real(rows[i].bytes / (double)steps), ok);
        profile_append(array, op, ok);
    }
    return array;
}

static json_t *node_json(const Graph *g, const Row *row, int64_t steps, bool *ok)
{
    const GraphNode *node = &g->nodes[row->id];
    char             text[OP_TEXT_BYTES];
    json_t          *object = json_object();
    profile_put(object, "scope", json_string(node->scope), ok);
    profile_put(object, "op", json_string(op_format(&node->op, text, sizeof text)), ok);
    profile_put(object, "calls", calls_json(row->calls, steps), ok);
    profile_put(object, "seconds", record_real(row->seconds / (double)steps), ok);
    profile_put(object, "gflop_per_s", record_real(1e-9 * row->flops / row->seconds), ok);
    profile_put(object, "gb_per_s", record_real(1e-9 * row->bytes / row->seconds), ok);
    return object;
}

json_t *profile_nodes_json(const Graph *g, const NodeTime *times, int64_t steps, bool *ok)
{
    json_t *array = json_array();
    int     count = g->node_count, used = 0;
    Row    *rows = malloc(count > 0 ? (size_t)count * sizeof *rows : sizeof *rows);
    if (!rows) {
        *ok = false;
        return array;
    }
    for (int i = 0; i < count; i++)
        if (times[i].calls > 0) {
            rows[used] = (Row){ .id = i };
            add_node(&rows[used++], &g->nodes[i], &times[i]);
        }
    qsort(rows, (size_t)used, sizeof *rows, by_time);
    for (int i = 0; i < used && i < SLOWEST_NODES; i++)
        profile_append(array, node_json(g, &rows[i], steps, ok), ok);
    free(rows);
    return array;
}

/* ---- the trace: "Trace Event Format" (Chromium project), complete events (ph X), microseconds ---- */

/* Writes one event; first: no comma before it. */
static Status write_event(FILE *to, json_t *event, bool ok, bool first)
{
    Status s = status_ok();
    if (!ok || !event)
        s = status_error(STATUS_OOM, "out of memory for the trace");
    else if (fputs(first ? "\n" : ",\n", to) == EOF || json_dumpf(event, to, JSON_COMPACT | JSON_REAL_PRECISION(15)) != 0)
        s = ferror(to) ? status_error(STATUS_IO, "%s", strerror(errno)) : status_error(STATUS_OOM, "out of memory for the trace");
    json_decref(event);
    return s;
}

Status trace_write_lane(FILE *to, int lane, const char *name)
{
    bool    ok = true;
    json_t *event = json_object(), *args = json_object();
    profile_put(args, "name", json_string(name), &ok);
    profile_put(event, "name", json_string(lane ? "thread_name" : "process_name"), &ok);
    profile_put(event, "ph", json_string("M"), &ok);
    profile_put(event, "pid", json_integer(1), &ok);
    profile_put(event, "tid", json_integer(lane), &ok);
    profile_put(event, "args", args, &ok);
    return write_event(to, event, ok, lane == 0);
}

json_t *trace_node_args(const Graph *g, int node, bool *ok)
{
    char    text[OP_TEXT_BYTES];
    json_t *args = json_object();
    if (node >= 0) {
        const GraphNode *n = &g->nodes[node];
        profile_put(args, "op", json_string(op_format(&n->op, text, sizeof text)), ok);
        profile_put(args, "scope", json_string(n->scope), ok);
        profile_put(args, "node", json_integer(node), ok);
    }
    return args;
}

Status trace_write_span(FILE *to, const TraceSpan *span, json_t *args, bool ok)
{
    json_t *event = json_object();
    profile_put(event, "name", json_string(span->name), &ok);
    profile_put(event, "cat", json_string(span->category), &ok);
    profile_put(event, "ph", json_string("X"), &ok);
    profile_put(event, "ts", json_real(1e6 * span->start), &ok);
    profile_put(event, "dur", json_real(1e6 * (span->end - span->start)), &ok);
    profile_put(event, "pid", json_integer(1), &ok);
    profile_put(event, "tid", json_integer(span->lane), &ok);
    profile_put(event, "args", args, &ok);
    return write_event(to, event, ok, false);
}

void trace_write_head(FILE *to, int64_t dropped)
{
    fprintf(to, "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"dropped_events\":\"%lld\"},\"traceEvents\":[", (long long)dropped);
}

void trace_write_end(FILE *to)
{
    fputs("\n]}\n", to);
}
