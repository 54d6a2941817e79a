/* primitives.c - the sum that a training step is measured against: every op of the step timed by itself.
 *
 * Between two runs of an op a buffer larger than the private caches is written, so that an op finds its inputs where a
 * step would leave them: in memory, or in a large shared cache. Ops of equal description are timed once. */
#include "cell.h"
#include "interrupt.h"
#include "record.h"
#include "stats.h"

#include <stdlib.h>
#include <string.h>

enum { REPEATS = 5 };
static const size_t FLUSH_BYTES = (size_t)96 << 20;

typedef struct OpTotal { int64_t calls; double seconds; } OpTotal;

static void flush_caches(uint8_t *buffer)
{
    for (size_t i = 0; i < FLUSH_BYTES; i += 64)
        buffer[i]++;
}

static Status time_node(Bench *b, int node, uint8_t *buffer, double *seconds)
{
    double sample[REPEATS];
    TRY(exec_run_node(b->session.exec, node));
    for (int i = 0; i < REPEATS; i++) {
        flush_caches(buffer);
        double start = clock_seconds();
        TRY(exec_run_node(b->session.exec, node));
        TRY(backend_sync(b->backend));
        sample[i] = clock_seconds() - start;
    }
    *seconds = stats_median(sample, REPEATS);
    return status_ok();
}

/* Seconds of each node; < 0 where it does nothing. */
static Status time_nodes(Bench *b, uint8_t *buffer, double *seconds)
{
    const Graph *g = b->net.graph;
    const Exec *ex = b->session.exec;
    for (int i = 0; i < g->node_count; i++) {
        const OpDesc *op = exec_op(ex, i);
        seconds[i] = -1;
        if (!op || g->nodes[i].segment == SEG_EVAL)
            continue;
        TRY(interrupt_check());
        for (int k = 0; k < i && seconds[i] < 0; k++)
            if (seconds[k] >= 0 && !memcmp(op, exec_op(ex, k), sizeof *op))
                seconds[i] = seconds[k];
        if (seconds[i] < 0)
            TRY(time_node(b, i, buffer, &seconds[i]));
    }
    return status_ok();
}

static Status totals_json(const OpTotal *total, json_t **out)
{
    json_t *ops = json_array();
    double sum = 0;
    for (int k = 0; ops && k < OP_COUNT; k++) {
        sum += total[k].seconds;
        if (total[k].calls && json_array_append_new(ops, json_pack("{s:s,s:I,s:o}", "op", op_names[k], "calls", (json_int_t)total[k].calls,
                                                                   "seconds", record_real(total[k].seconds)))) {
            json_decref(ops);
            ops = NULL;
        }
    }
    *out = ops ? json_pack("{s:o,s:o}", "sum_seconds", record_real(sum), "ops", ops) : NULL;
    return *out ? status_ok() : status_error(STATUS_OOM, "out of memory for the times of single ops");
}

Status primitives_time(Bench *b, int64_t accum, json_t **out)
{
    const Graph *g = b->net.graph;
    OpTotal total[OP_COUNT] = { { 0, 0 } };
    uint8_t *buffer = calloc(FLUSH_BYTES, 1);
    double *seconds = calloc((size_t)g->node_count + 1, sizeof *seconds);
    Status status;
    *out = NULL;
    if (!buffer || !seconds)
        TRY_GOTO(status, status_error(STATUS_OOM, "out of memory for timing single ops"), out);
    TRY_GOTO(status, time_nodes(b, buffer, seconds), out);
    for (int i = 0; i < g->node_count; i++) {
        int64_t calls = g->nodes[i].segment == SEG_MICRO ? accum : 1;
        if (seconds[i] < 0)
            continue;
        total[g->nodes[i].op.kind].calls += calls;
        total[g->nodes[i].op.kind].seconds += (double)calls * seconds[i];
    }
    status = totals_json(total, out);
out:
    free(buffer);
    free(seconds);
    return status;
}
