/* profile.c - the bodies of profile.h: sums per node while it runs, everything else afterwards. */
#include "profile.h"

#include "record.h"
#include "whole_file.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    SLOWEST_NODES = 20,
    EVENT_LIMIT = 1 << 20, /* 24 MiB; a trace of more is of no use to a viewer */
    OP_TEXT_BYTES = 256,
    /* Event.what: a node's index, or one of these. */
    WHAT_STEP = -1, WHAT_COPY = -2, WHAT_WAIT = -3
};

typedef struct NodeTime { int64_t calls; double seconds; } NodeTime;

typedef struct Event { double start, end; int what; } Event;

struct Profile {
    const Graph *graph;
    NodeTime    *nodes;        /* [node_count] */
    double       copy, wait, step;
    int64_t      steps;
    bool         trace;
    Event       *events;
    size_t       event_count, event_capacity;
    int64_t      dropped;      /* events for which there was no room, or whose times cannot be */
};

Status profile_create(const Graph *g, bool trace, Profile **out)
{
    Profile *p = calloc(1, sizeof *p);
    *out = NULL;
    if (p)
        p->nodes = calloc(g->node_count > 0 ? (size_t)g->node_count : 1, sizeof *p->nodes);
    if (!p || !p->nodes) {
        profile_destroy(p);
        return status_error(STATUS_OOM, "out of memory for the profile of %d nodes", g->node_count);
    }
    p->graph = g;
    p->trace = trace;
    *out = p;
    return status_ok();
}

void profile_destroy(Profile *p)
{
    if (!p)
        return;
    free(p->events);
    free(p->nodes);
    free(p);
}

/* ---- while it runs ---- */

static void keep_event(Profile *p, int what, double start, double end)
{
    if (!p->trace)
        return;
    if (p->event_count == p->event_capacity) {
        size_t capacity = p->event_capacity ? 2 * p->event_capacity : 1024;
        Event *events = capacity <= EVENT_LIMIT ? realloc(p->events, capacity * sizeof *events) : NULL;
        if (!events) {
            p->dropped++;
            return;
        }
        p->events = events;
        p->event_capacity = capacity;
    }
    p->events[p->event_count++] = (Event){ start, end, what };
}

/* A time that cannot be must not enter a sum, nor vanish. */
static bool is_span(Profile *p, double start, double end)
{
    bool good = end >= start && isfinite(start) && isfinite(end);
    p->dropped += !good;
    return good;
}

void profile_note_node(void *profile, int node, double start, double end)
{
    Profile *p = profile;
    CHECK(node >= 0 && node < p->graph->node_count);
    if (!is_span(p, start, end))
        return;
    p->nodes[node].calls++;
    p->nodes[node].seconds += end - start;
    keep_event(p, node, start, end);
}

void profile_note_span(Profile *p, ProfileSpan kind, double start, double end)
{
    if (!is_span(p, start, end))
        return;
    *(kind == PROFILE_COPY ? &p->copy : &p->wait) += end - start;
    keep_event(p, kind == PROFILE_COPY ? WHAT_COPY : WHAT_WAIT, start, end);
}

void profile_note_step(Profile *p, double start, double end)
{
    if (!is_span(p, start, end))
        return;
    p->steps++;
    p->step += end - start;
    keep_event(p, WHAT_STEP, start, end);
}

/* ---- the "profile" member ---- */

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

/* Adds a member, or marks the whole as failed; the value is taken over. */
static void put(json_t *object, const char *name, json_t *value, bool *ok)
{
    if (json_object_set_new(object, name, value) != 0)
        *ok = false;
}

static void append(json_t *array, json_t *value, bool *ok)
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

static json_t *ops_json(const Profile *p, bool *ok)
{
    Row     rows[OP_COUNT];
    double  steps = (double)p->steps;
    json_t *array = json_array();
    for (int kind = 0; kind < OP_COUNT; kind++)
        rows[kind] = (Row){ .id = kind };
    for (int i = 0; i < p->graph->node_count; i++)
        add_node(&rows[p->graph->nodes[i].op.kind], &p->graph->nodes[i], &p->nodes[i]);
    qsort(rows, OP_COUNT, sizeof *rows, by_time);
    for (int i = 0; i < OP_COUNT; i++) {
        if (rows[i].calls == 0)
            continue;
        json_t *op = json_object();
        put(op, "op", json_string(op_names[rows[i].id]), ok);
        put(op, "calls", calls_json(rows[i].calls, p->steps), ok);
        put(op, "seconds", record_real(rows[i].seconds / steps), ok);
        put(op, "flops", record_real(rows[i].flops / steps), ok);
        put(op, "bytes", record_real(rows[i].bytes / steps), ok);
        append(array, op, ok);
    }
    return array;
}

static json_t *node_json(const Profile *p, const Row *row, bool *ok)
{
    const GraphNode *node = &p->graph->nodes[row->id];
    char             text[OP_TEXT_BYTES];
    json_t          *object = json_object();
    put(object, "scope", json_string(node->scope), ok);
    put(object, "op", json_string(op_format(&node->op, text, sizeof text)), ok);
    put(object, "calls", calls_json(row->calls, p->steps), ok);
    put(object, "seconds", record_real(row->seconds / (double)p->steps), ok);
    put(object, "gflop_per_s", record_real(1e-9 * row->flops / row->seconds), ok);
    put(object, "gb_per_s", record_real(1e-9 * row->bytes / row->seconds), ok);
    return object;
}

static json_t *nodes_json(const Profile *p, bool *ok)
{
    json_t *array = json_array();
    int     count = p->graph->node_count, used = 0;
    Row    *rows = malloc(count > 0 ? (size_t)count * sizeof *rows : sizeof *rows);
    if (!rows) {
        *ok = false;
        return array;
    }
    for (int i = 0; i < count; i++)
        if (p->nodes[i].calls > 0) {
            rows[used] = (Row){ .id = i };
            add_node(&rows[used++], &p->graph->nodes[i], &p->nodes[i]);
        }
    qsort(rows, (size_t)used, sizeof *rows, by_time);
    for (int i = 0; i < used && i < SLOWEST_NODES; i++)
        append(array, node_json(p, &rows[i], ok), ok);
    free(rows);
    return array;
}

Status profile_json(const Profile *p, json_t **out)
{
    bool    ok = true;
    double  compute = 0, steps = (double)p->steps;
    json_t *object = json_object();
    for (int i = 0; i < p->graph->node_count; i++)
        compute += p->nodes[i].seconds;
    put(object, "steps", json_integer(p->steps), &ok);
    put(object, "compute_seconds", record_real(compute / steps), &ok); /* no steps: 0 / 0, null */
    put(object, "copy_seconds", record_real(p->copy / steps), &ok);
    put(object, "wait_seconds", record_real(p->wait / steps), &ok);
    put(object, "other_seconds", record_real((p->step - compute - p->copy - p->wait) / steps), &ok);
    put(object, "dropped_events", json_integer(p->dropped), &ok);
    put(object, "ops", ops_json(p, &ok), &ok);
    put(object, "nodes", nodes_json(p, &ok), &ok);
    if (!ok) {
        json_decref(object);
        object = NULL;
    }
    *out = object;
    return ok ? status_ok() : status_error(STATUS_OOM, "out of memory for the profile");
}

/* ---- the trace: "Trace Event Format" (Chromium project), complete events (ph X), microseconds ---- */

enum { LANE_STEP = 1, LANE_COMPUTE, LANE_DATA };

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

/* What the viewer calls a lane (and, for lane 0, the process). */
static Status write_lane(FILE *to, int lane, const char *name)
{
    bool    ok = true;
    json_t *event = json_object(), *args = json_object();
    put(args, "name", json_string(name), &ok);
    put(event, "name", json_string(lane ? "thread_name" : "process_name"), &ok);
    put(event, "ph", json_string("M"), &ok);
    put(event, "pid", json_integer(1), &ok);
    put(event, "tid", json_integer(lane), &ok);
    put(event, "args", args, &ok);
    return write_event(to, event, ok, lane == 0);
}

static json_t *event_args(const Profile *p, const Event *e, bool *ok)
{
    char    text[OP_TEXT_BYTES];
    json_t *args = json_object();
    if (e->what >= 0) {
        const GraphNode *node = &p->graph->nodes[e->what];
        put(args, "op", json_string(op_format(&node->op, text, sizeof text)), ok);
        put(args, "scope", json_string(node->scope), ok);
        put(args, "node", json_integer(e->what), ok);
    }
    return args;
}

static Status write_span(const Profile *p, FILE *to, const Event *e, double origin)
{
    bool        ok = true;
    bool        is_node = e->what >= 0;
    const char *name = is_node ? op_names[p->graph->nodes[e->what].op.kind]
                       : e->what == WHAT_STEP ? "step" : e->what == WHAT_COPY ? "copy" : "wait";
    json_t *event = json_object();
    put(event, "name", json_string(name), &ok);
    put(event, "cat", json_string(is_node ? "compute" : e->what == WHAT_STEP ? "step" : "data"), &ok);
    put(event, "ph", json_string("X"), &ok);
    put(event, "ts", json_real(1e6 * (e->start - origin)), &ok);
    put(event, "dur", json_real(1e6 * (e->end - e->start)), &ok);
    put(event, "pid", json_integer(1), &ok);
    put(event, "tid", json_integer(is_node ? LANE_COMPUTE : e->what == WHAT_STEP ? LANE_STEP : LANE_DATA), &ok);
    put(event, "args", event_args(p, e, &ok), &ok);
    return write_event(to, event, ok, false);
}

static Status write_trace(const Profile *p, FILE *to)
{
    double origin = INFINITY;
    for (size_t i = 0; i < p->event_count; i++)
        origin = fmin(origin, p->events[i].start);
    fprintf(to, "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"dropped_events\":\"%lld\"},\"traceEvents\":[", (long long)p->dropped);
    TRY(write_lane(to, 0, "batchmark"));
    TRY(write_lane(to, LANE_STEP, "step"));
    TRY(write_lane(to, LANE_COMPUTE, "compute"));
    TRY(write_lane(to, LANE_DATA, "data"));
    for (size_t i = 0; i < p->event_count; i++)
        TRY(write_span(p, to, &p->events[i], origin));
    fputs("\n]}\n", to);
    return status_ok();
}

Status profile_write_trace(const Profile *p, const char *path)
{
    WholeFile file;
    TRY(whole_file_open(path, &file));
    TRY(whole_file_close(&file, status_context(write_trace(p, file.to), "cannot write %s", path)));
    if (p->dropped > 0)
        log_warn("%s: %lld events are missing, there was no room for them", path, (long long)p->dropped);
    return status_ok();
}
