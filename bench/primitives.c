/* primitives.c - the sum that a training step is measured against: every op of the step timed by itself.
 *
 * Steps and single ops take turns in one process: a pass times one whole step, then each distinct op once, so that a machine
 * that changes its speed changes both. Before an op a buffer larger than the private caches is written, so that it finds
 * its inputs where a step would leave them: in memory, or in a large shared cache. Ops of equal description are timed once. */
#include "cell.h"
#include "record.h"
#include "stats.h"

#include <stdlib.h>
#include <string.h>

enum { PASSES = 7 };
static const size_t FLUSH_BYTES = (size_t)96 << 20;

typedef struct OpTotal { int64_t calls; double seconds; } OpTotal;

/* What the passes collect. twin: the earlier node of equal description, itself if there is none, -1 for a node that does
 * nothing or is not of the step. */
typedef struct Times {
    int    *twin;                /* [node_count] */
    double *node;                /* [PASSES][node_count] */
    double  step[PASSES], sum[PASSES], ratio[PASSES];
    uint8_t *flush;
} Times;

static void flush_caches(uint8_t *buffer)
{
    for (size_t i = 0; i < FLUSH_BYTES; i += 64)
        buffer[i]++;
}

static int64_t calls_of(const Graph *g, int node, int64_t accum)
{
    return g->nodes[node].segment == SEG_MICRO ? accum : 1;
}

static void find_twins(const Bench *b, int *twin)
{
    const Graph *g = b->net.graph;
    const Exec *ex = b->session.exec;
    for (int i = 0; i < g->node_count; i++) {
        const OpDesc *op = exec_op(ex, i);
        twin[i] = !op || g->nodes[i].segment == SEG_EVAL ? -1 : i;
        for (int k = 0; k < i && twin[i] == i; k++)
            if (twin[k] == k && !memcmp(op, exec_op(ex, k), sizeof *op))
                twin[i] = k;
    }
}

/* One step, then every distinct op. */
static Status time_pass(Bench *b, const MicroBatch *data, int64_t accum, Times *t, int pass)
{
    const Graph *g = b->net.graph;
    double *seconds = t->node + (size_t)pass * (size_t)g->node_count;
    TRY(cell_run_step(b, data, accum)); /* after single ops, to warm up what they left cold */
    double start = clock_seconds();
    TRY(cell_run_step(b, data, accum));
    t->step[pass] = clock_seconds() - start;
    for (int i = 0; i < g->node_count; i++) {
        if (t->twin[i] == i) {
            flush_caches(t->flush);
            start = clock_seconds();
            TRY(exec_run_node(b->session.exec, i));
            TRY(backend_sync(b->backend));
            seconds[i] = clock_seconds() - start;
        }
        if (t->twin[i] >= 0)
            t->sum[pass] += (double)calls_of(g, i, accum) * seconds[t->twin[i]];
    }
    t->ratio[pass] = t->step[pass] / t->sum[pass];
    return status_ok();
}

/* Median over the passes of each op's time, by kind. */
static void add_up(const Graph *g, const Times *t, int64_t accum, OpTotal total[OP_COUNT])
{
    for (int i = 0; i < g->node_count; i++) {
        double sample[PASSES];
        if (t->twin[i] < 0)
            continue;
        for (int p = 0; p < PASSES; p++)
            sample[p] = t->node[p * g->node_count + t->twin[i]];
        total[g->nodes[i].op.kind].calls += calls_of(g, i, accum);
        total[g->nodes[i].op.kind].seconds += (double)calls_of(g, i, accum) * stats_median(sample, PASSES);
    }
}

static Status times_json(const OpTotal *total, const Times *t, json_t **out)
{
    json_t *ops = json_array();
    for (int k = 0; ops && k < OP_COUNT; k++)
        if (total[k].calls && json_array_append_new(ops, json_pack("{s:s,s:I,s:o}", "op", op_names[k], "calls", (json_int_t)total[k].calls,
                                                                   "seconds", record_real(total[k].seconds)))) {
            json_decref(ops);
            ops = NULL;
        }
    *out = !ops ? NULL : json_pack("{s:o,s:o,s:o,s:o,s:o,s:o}", "step_seconds", record_real(stats_median(t->step, PASSES)),
                                   "sum_seconds", record_real(stats_median(t->sum, PASSES)), "ratio",
                                   record_real(stats_median(t->ratio, PASSES)), "ratio_q1", record_real(stats_quantile(t->ratio, PASSES, 0.25)),
                                   "ratio_q3", record_real(stats_quantile(t->ratio, PASSES, 0.75)), "ops", ops);
    return *out ? status_ok() : status_error(STATUS_OOM, "out of memory for the times of single ops");
}

Status primitives_time(Bench *b, const MicroBatch *data, int64_t accum, json_t **out)
{
    const size_t nodes = (size_t)b->net.graph->node_count + 1;
    OpTotal total[OP_COUNT] = { { 0, 0 } };
    Times t = { .twin = calloc(nodes, sizeof *t.twin), .node = calloc(nodes * PASSES, sizeof *t.node), .flush = calloc(FLUSH_BYTES, 1) };
    Status status;
    *out = NULL;
    if (!t.twin || !t.node || !t.flush)
        TRY_GOTO(status, status_error(STATUS_OOM, "out of memory for timing single ops"), out);
    find_twins(b, t.twin);
    for (int p = 0; p < PASSES; p++)
        TRY_GOTO(status, time_pass(b, data, accum, &t, p), out);
    add_up(b->net.graph, &t, accum, total);
    status = times_json(total, &t, out);
out:
    free(t.twin);
    free(t.node);
    free(t.flush);
    return status;
}
