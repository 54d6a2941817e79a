/* profile.h - where the time of a step goes: the executor's clock by op, host copies, waiting for data. CPU backend.
 *
 * Collected in extra steps after the timed ones, never during them. */
#ifndef BATCHMARK_BENCH_PROFILE_H
#define BATCHMARK_BENCH_PROFILE_H

#include "../nets/exec.h"

#include <jansson.h>

typedef struct Profile Profile;

/* The graph must outlive it. trace: also keep every event for a Chrome trace (a few hundred bytes each). */
Status profile_create(const Graph *g, bool trace, Profile **out);
void   profile_destroy(Profile *p); /* NULL is fine */

/* An ExecClock: pass with the Profile as context. Events that no longer fit in memory are counted and reported. */
void profile_note_node(void *profile, int node, double start, double end);

/* Host time outside nodes. */
typedef enum ProfileSpan { PROFILE_COPY, PROFILE_WAIT } ProfileSpan;
void profile_note_span(Profile *p, ProfileSpan kind, double start, double end);

/* One whole step (update) ended; seconds from its start to its end. */
void profile_note_step(Profile *p, double start, double end);

/* The "profile" member of a cell: per step; ops sorted by time; "other" = step less compute, copy and wait. Also
 * "nodes": the 20 slowest nodes with scope, op text, seconds, GFLOP/s, GB/s. */
Status profile_json(const Profile *p, json_t **out);

/* Chrome trace event format (chrome://tracing, Perfetto), atomically. */
Status profile_write_trace(const Profile *p, const char *path);

#endif
