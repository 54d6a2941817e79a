/* profile_parts.h - what profiles by the executor's clock and by the device's own records have in common: the tables of ops and
 * nodes in the record, and the file of a Chrome trace. */
#ifndef BATCHMARK_BENCH_PROFILE_PARTS_H
#define BATCHMARK_BENCH_PROFILE_PARTS_H

#include "../nets/graph.h"

#include <jansson.h>
#include <stdio.h>

enum { OP_TEXT_BYTES = 256 };

/* Over all steps. */
typedef struct NodeTime { int64_t calls; double seconds; } NodeTime;

/* Adds a member, an element; out of memory sets *ok to false. The value is taken over. */
void profile_put(json_t *object, const char *name, json_t *value, bool *ok);
void profile_append(json_t *array, json_t *value, bool *ok);

/* Per step, slowest first: one row for each kind of op; the 20 slowest nodes. times: one a node of the graph. */
json_t *profile_ops_json(const Graph *g, const NodeTime *times, int64_t steps, bool *ok);
json_t *profile_nodes_json(const Graph *g, const NodeTime *times, int64_t steps, bool *ok);

/* ---- a Chrome trace: head; a name for each lane, lane 0 (the process) first; spans; end. Write errors show in the stream. */
void   trace_write_head(FILE *to, int64_t dropped);
Status trace_write_lane(FILE *to, int lane, const char *name);
typedef struct TraceSpan { const char *name, *category; int lane; double start, end; } TraceSpan; /* seconds from the trace's origin */
Status trace_write_span(FILE *to, const TraceSpan *span, json_t *args, bool ok); /* args are taken over; ok: whether they are whole */
void   trace_write_end(FILE *to);

/* "args" of a span of this node; empty for node < 0. */
json_t *trace_node_args(const Graph *g, int node, bool *ok);

#endif
