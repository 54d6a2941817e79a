/* profile.c - the bodies of profile.h: sums per node while it runs, everything else afterwards. */
#include "profile.h"

#include "profile_parts.h"
#include "record.h"
#include "whole_file.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    EVENT_LIMIT = 1 << 20, /* 24 MiB; a trace of more is of no use to a viewer */
    /* Event.what: a node's index, or one of these. */
    WHAT_STEP = -1, WHAT_COPY = -2, WHAT_WAIT = -3
};

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

Status profile_json(const Profile *p, json_t **out)
{
    bool    ok = true;
    double  compute = 0, steps = (double)p->steps;
    json_t *object = json_object();
    for (int i = 0; i < p->graph->node_count; i++)
        compute += p->nodes[i].seconds;
    profile_put(object, "source", json_string("clock"), &ok);
    profile_put(object, "steps", json_integer(p->steps), &ok);
    profile_put(object, "compute_seconds", record_real(compute / steps), &ok); /* no steps: 0 / 0, null */
    profile_put(object, "copy_seconds", record_real(p->copy / steps), &ok);
    profile_put(object, "wait_seconds", record_real(p->wait / steps), &ok);
    profile_put(object, "other_seconds", record_real((p->step - compute - p->copy - p->wait) / steps), &ok);
    profile_put(object, "dropped_events", json_integer(p->dropped), &ok);
    profile_put(object, "ops", profile_ops_json(p->graph, p->nodes, p->steps, &ok), &ok);
    profile_put(object, "nodes", profile_nodes_json(p->graph, p->nodes, p->steps, &ok), &ok);
    if (!ok) {
        json_decref(object);
        object = NULL;
    }
    *out = object;
    return ok ? status_ok() : status_error(STATUS_OOM, "out of memory for the profile");
}

/* ---- the trace ---- */

enum { LANE_STEP = 1, LANE_COMPUTE, LANE_DATA };

static Status write_span(const Profile *p, FILE *to, const Event *e, double origin)
{
    bool      ok = true, is_node = e->what >= 0;
    TraceSpan span = {
        .name = is_node ? op_names[p->graph->nodes[e->what].op.kind]
                : e->what == WHAT_STEP ? "step" : e->what == WHAT_COPY ? "copy" : "wait",
        .category = is_node ? "compute" : e->what == WHAT_STEP ? "step" : "data",
        .lane = is_node ? LANE_COMPUTE : e->what == WHAT_STEP ? LANE_STEP : LANE_DATA,
        .start = e->start - origin, .end = e->end - origin,
    };
    json_t *args = trace_node_args(p->graph, e->what, &ok);
    return trace_write_span(to, &span, args, ok);
}

static Status write_trace(const Profile *p, FILE *to)
{
    double origin = INFINITY;
    for (size_t i = 0; i < p->event_count; i++)
        origin = fmin(origin, p->events[i].start);
    trace_write_head(to, p->dropped);
    TRY(trace_write_lane(to, 0, "batchmark"));
    TRY(trace_write_lane(to, LANE_STEP, "step"));
    TRY(trace_write_lane(to, LANE_COMPUTE, "compute"));
    TRY(trace_write_lane(to, LANE_DATA, "data"));
    for (size_t i = 0; i < p->event_count; i++)
        TRY(write_span(p, to, &p->events[i], origin));
    trace_write_end(to);
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
