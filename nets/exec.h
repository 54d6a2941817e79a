/* exec.h - binds a graph to a backend: settles layouts, plans memory, prepares kernels, runs segments.
 *
 * All memory is taken in exec_create: one persistent block and one arena. Running a segment allocates nothing. */
#ifndef BATCHMARK_NETS_EXEC_H
#define BATCHMARK_NETS_EXEC_H

#include "../kernels/backend.h"
#include "graph.h"
#include "plan.h"

typedef struct ExecOptions {
    bool separate;   /* planner off: every value in memory of its own */
    bool poison;     /* fill the arena and every freed value with NaN bytes, so that a read of stale memory shows */
    bool check_nan;  /* after every node, look for NaN or infinity in its outputs; the first, or a weight that it comes from, is
                        STATUS_NUMERIC with its name */
    bool eager;      /* enqueue every node on every run, also where the backend can replay a recorded segment */
} ExecOptions;

/* Memory by category, in bytes. activations and workspace share the arena: the arena's peak is split by what is alive
 * at the fullest node, so that the categories add up to total. */
typedef struct MemPlan {
    size_t kind[MEM_KIND_COUNT];
    size_t total;
    size_t arena_peak, arena_lower_bound, arena_naive;
    int    peak_node; /* the node at which the arena is fullest */
} MemPlan;

/* The memory a graph needs on this backend, without allocating or preparing anything. Milliseconds. */
Status exec_plan_memory(const Graph *g, Backend *be, const ExecOptions *options, MemPlan *out);

typedef struct Exec Exec;

/* Plans, allocates, prepares and tunes. The graph and the backend must outlive it. Errors: STATUS_OOM with bytes needed and
 * where; STATUS_UNSUPPORTED; STATUS_BACKEND. On error nothing stays allocated. options may be NULL. */
Status exec_create(const Graph *g, Backend *be, const ExecOptions *options, Exec **out);
void   exec_destroy(Exec *ex); /* NULL is fine */

/* Sets parameters and persistent values to their start, momenta and statistics too, fills the tables of spans, and makes the
 * compute copies. The same seed gives the same bits; the stream of a random value is how many were drawn before it, so that
 * nets that differ in their other values start alike. */
Status exec_init(Exec *ex, uint64_t seed);

/* After parameters were written from outside: makes the compute copies anew. */
Status exec_refresh_copies(Exec *ex);

/* Copy a whole value from or to host memory, row-major in its own type (activations only inside a segment's lifetime:
 * for tests with options.separate). */
Status exec_write(Exec *ex, Value v, const void *host);
Status exec_read(Exec *ex, Value v, void *host);

/* Runs every node of the segment in order. The first failing node ends it; the status names scope and op. Where the backend can
 * record (and without eager, poison, check_nan and a clock) only the first run goes node by node; the second is recorded, and
 * replayed from then on. */
Status exec_run(Exec *ex, Segment segment);

/* The same with check_nan on for this run, to find where a value that is not finite comes from. */
Status exec_run_checked(Exec *ex, Segment segment);

/* For timing ops alone: the op of a node with its settled layouts (NULL if the node does nothing on this backend), and one
 * run of it on whatever is in memory. */
const OpDesc *exec_op(const Exec *ex, int node);
Status exec_run_node(Exec *ex, int node);

const MemPlan *exec_memory(const Exec *ex);

/* High-water mark of what was really allocated for tensors, bytes. */
size_t exec_allocated_peak(const Exec *ex);

/* Clock of every node: calls note(context, node index, start, end) in seconds of clock_seconds() after each node. For
 * profiles only; NULL turns it off. Never on while throughput is timed. */
typedef void ExecClock(void *context, int node, double start, double end);
void exec_set_clock(Exec *ex, ExecClock *note, void *context);

/* Tags what each node enqueues with the node's index (trace_tag of the backend, -1 after the last), for a profile of the device.
 * Work that was recorded before carries no tags, so both turning this on and off forgets recordings: the next run of a
 * segment makes them anew. Never on while throughput is timed. */
void exec_set_tags(Exec *ex, bool on);

#endif
