/* device_profile.c - the bodies of device_profile.h. */
#include "device_profile.h"

#include "profile_parts.h"
#include "record.h"
#include "whole_file.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { KERNEL_ROWS = 40, STREAM_LANES = 64, LANE_STEP = 1, LANE_STREAM = 2 };

/* ---- times ---- */

/* The step in which an event began, -1 if in none. */
static int step_of(const DeviceProfile *p, const TraceEvent *e)
{
    for (int i = 0; i < p->step_count; i++)
        if (e->start >= p->steps[i].start && e->start < p->steps[i].end)
            return i;
    return -1;
}

/* Seconds of a window in which at least one event of these kinds (bits) runs; events are sorted by start. */
static double covered(const DeviceTrace *t, StepWindow w, unsigned kinds)
{
    double sum = 0, until = w.start;
    for (size_t i = 0; i < t->count && t->events[i].start < w.end; i++) {
        const TraceEvent *e = &t->events[i];
        const double start = fmax(e->start, until), end = fmin(e->end, w.end);
        if ((kinds >> e->kind & 1u) && end > start) {
            sum += end - start;
            until = end;
        }
    }
    return sum;
}

DeviceTotals device_profile_totals(const DeviceProfile *p)
{
    const unsigned kernels = 1u << TRACE_KERNEL, all = (1u << TRACE_KIND_COUNT) - 1;
    DeviceTotals   d = { 0 };
    for (int i = 0; i < p->step_count; i++) {
        d.window += p->steps[i].end - p->steps[i].start;
        d.busy += covered(p->trace, p->steps[i], kernels);
        d.moving += covered(p->trace, p->steps[i], all & ~kernels);
        d.active += covered(p->trace, p->steps[i], all);
    }
    for (size_t i = 0; i < p->trace->count; i++) {
        const TraceEvent *e = &p->trace->events[i];
        if (step_of(p, e) < 0)
            continue;
        const double seconds = e->end - e->start;
        d.kind[e->kind] += seconds;
        d.bytes[e->kind] += (double)e->bytes;
        d.launches += e->kind == TRACE_KERNEL;
        d.tensor += e->tensor_cores ? seconds : 0;
        d.untagged += e->tag < 0 ? seconds : 0;
    }
    d.overlap = fmax(0, d.busy + d.moving - d.active);
    d.idle = d.window - d.active;
    return d;
}

/* ---- tables ---- */

/* Times of the graph's nodes; the caller frees. NULL: no memory. */
static NodeTime *node_times(const DeviceProfile *p)
{
    NodeTime *times = calloc((size_t)p->graph->node_count + 1, sizeof *times);
    for (size_t i = 0; times && i < p->trace->count; i++) {
        const TraceEvent *e = &p->trace->events[i];
        if (e->tag < 0 || e->tag >= p->graph->node_count || step_of(p, e) < 0)
            continue;
        times[e->tag].seconds += e->end - e->start;
        times[e->tag].calls = p->step_count * (p->graph->nodes[e->tag].segment == SEG_MICRO ? p->accum : 1);
    }
    return times;
}

typedef struct KernelRow { const char *name; bool tensor_cores; int64_t calls; double seconds; } KernelRow;

static int by_name(const void *a, const void *b)
{
    return strcmp(((const KernelRow *)a)->name, ((const KernelRow *)b)->name);
}

static int by_seconds(const void *a, const void *b)
{
    const KernelRow *x = a, *y = b;
    if (x->seconds != y->seconds)
        return x->seconds < y->seconds ? 1 : -1;
    return by_name(a, b);
}

/* Kernels by name, the longest first; the caller frees. NULL: no memory. */
static KernelRow *kernel_rows(const DeviceProfile *p, size_t *count)
{
    KernelRow *rows = calloc(p->trace->count + 1, sizeof *rows);
    size_t used = 0, kept = 0;
    for (size_t i = 0; rows && i < p->trace->count; i++) {
        const TraceEvent *e = &p->trace->events[i];
        if (e->kind == TRACE_KERNEL && step_of(p, e) >= 0)
            rows[used++] = (KernelRow){ e->name, e->tensor_cores, 1, e->end - e->start };
    }
    if (used > 0)
        qsort(rows, used, sizeof *rows, by_name);
    for (size_t i = 0; i < used; i++)
        if (kept > 0 && !strcmp(rows[kept - 1].name, rows[i].name)) {
            rows[kept - 1].calls++;
            rows[kept - 1].seconds += rows[i].seconds;
        } else {
            rows[kept++] = rows[i];
        }
    if (kept > 0)
        qsort(rows, kept, sizeof *rows, by_seconds);
    *count = kept;
    return rows;
}

static json_t *kernels_json(const DeviceProfile *p, double total, bool *ok)
{
    size_t     count = 0;
    KernelRow *rows = kernel_rows(p, &count);
    json_t    *array = json_array();
    const double steps = (double)p->step_count;
    *ok = *ok && rows;
    for (size_t i = 0; i < count && i < KERNEL_ROWS; i++) {
        json_t *row = json_object();
        profile_put(row, "name", json_string(rows[i].name), ok);
        profile_put(row, "calls", record_real((double)rows[i].calls / steps), ok);
        profile_put(row, "seconds", record_real(rows[i].seconds / steps), ok);
        profile_put(row, "share", record_real(rows[i].seconds / total), ok);
        profile_put(row, "tensor_cores", json_boolean(rows[i].tensor_cores), ok);
        profile_append(array, row, ok);
    }
    free(rows);
    return array;
}

static json_t *overhead_json(const DeviceProfile *p, const DeviceTotals *d, bool *ok)
{
    const double profiled = d->window / p->step_count;
    json_t *object = json_object();
    profile_put(object, "plain_seconds", record_real(p->plain_seconds), ok);
    profile_put(object, "profiled_seconds", record_real(profiled), ok);
    profile_put(object, "ratio", record_real(profiled / p->plain_seconds), ok);
    return object;
}

/* What only a device's own records tell. */
static void put_device(const DeviceProfile *p, const DeviceTotals *d, json_t *to, bool *ok)
{
    static const struct { TraceKind kind; const char *seconds, *bytes; } moves[] = {
        { TRACE_COPY_IN, "copy_in_seconds", "copy_in_bytes" }, { TRACE_COPY_OUT, "copy_out_seconds", "copy_out_bytes" },
        { TRACE_COPY_WITHIN, "copy_within_seconds", "copy_within_bytes" }, { TRACE_SET, "set_seconds", "set_bytes" },
    };
    const double steps = (double)p->step_count;
    profile_put(to, "window_seconds", record_real(d->window / steps), ok);
    profile_put(to, "kernel_seconds", record_real(d->kind[TRACE_KERNEL] / steps), ok);
    for (size_t i = 0; i < COUNT_OF(moves); i++) {
        profile_put(to, moves[i].seconds, record_real(d->kind[moves[i].kind] / steps), ok);
        profile_put(to, moves[i].bytes, record_real(d->bytes[moves[i].kind] / steps), ok);
    }
    profile_put(to, "overlap_seconds", record_real(d->overlap / steps), ok);
    profile_put(to, "idle_seconds", record_real(d->idle / steps), ok);
    profile_put(to, "busy_share", record_real(d->busy / d->window), ok);
    profile_put(to, "tensor_core_share", record_real(d->tensor / d->kind[TRACE_KERNEL]), ok); /* no kernels: null */
    profile_put(to, "launches", record_real((double)d->launches / steps), ok);
    profile_put(to, "untagged_seconds", record_real(d->untagged / steps), ok);
    profile_put(to, "kernels", kernels_json(p, d->kind[TRACE_KERNEL], ok), ok);
    profile_put(to, "overhead", overhead_json(p, d, ok), ok);
}

Status device_profile_json(const DeviceProfile *p, json_t **out)
{
    const DeviceTotals d = device_profile_totals(p);
    const double steps = (double)p->step_count;
    NodeTime *times = node_times(p);
    json_t   *object = json_object();
    bool      ok = times != NULL;
    profile_put(object, "source", json_string("cupti"), &ok);
    profile_put(object, "steps", json_integer(p->step_count), &ok);
    profile_put(object, "compute_seconds", record_real(d.busy / steps), &ok);
    profile_put(object, "copy_seconds", record_real((d.moving - d.overlap) / steps), &ok);
    profile_put(object, "wait_seconds", json_null(), &ok); /* generated data: nothing was waited for */
    profile_put(object, "other_seconds", record_real(d.idle / steps), &ok);
    profile_put(object, "dropped_events", json_integer(p->trace->dropped), &ok);
    put_device(p, &d, object, &ok);
    if (times) {
        profile_put(object, "ops", profile_ops_json(p->graph, times, p->step_count, &ok), &ok);
        profile_put(object, "nodes", profile_nodes_json(p->graph, times, p->step_count, &ok), &ok);
    }
    free(times);
    if (!ok) {
        json_decref(object);
        object = NULL;
    }
    *out = object;
    return ok ? status_ok() : status_error(STATUS_OOM, "out of memory for the profile of a device");
}

/* ---- the trace ---- */

/* Streams in order of appearance, a lane each; those past STREAM_LANES share the last. */
static int stream_lane(int *streams, int *count, int stream)
{
    for (int i = 0; i < *count; i++)
        if (streams[i] == stream)
            return LANE_STREAM + i;
    if (*count < STREAM_LANES)
        streams[(*count)++] = stream;
    return LANE_STREAM + *count - 1;
}

static Status write_event(const DeviceProfile *p, FILE *to, const TraceEvent *e, int lane)
{
    bool      ok = true;
    TraceSpan span = { e->name, e->kind == TRACE_KERNEL ? "kernel" : "memory", lane, e->start - p->steps[0].start,
                       e->end - p->steps[0].start };
    json_t   *args = trace_node_args(p->graph, e->tag < p->graph->node_count ? e->tag : -1, &ok);
    if (e->kind == TRACE_KERNEL)
        profile_put(args, "tensor_cores", json_boolean(e->tensor_cores), &ok);
    else
        profile_put(args, "bytes", json_integer((json_int_t)e->bytes), &ok);
    return trace_write_span(to, &span, args, ok);
}

static Status write_lanes(const DeviceProfile *p, FILE *to, int *streams, int *count)
{
    char name[32];
    TRY(trace_write_lane(to, 0, "batchmark"));
    TRY(trace_write_lane(to, LANE_STEP, "step"));
    for (size_t i = 0; i < p->trace->count; i++)
        stream_lane(streams, count, p->trace->events[i].stream);
    for (int i = 0; i < *count; i++) {
        snprintf(name, sizeof name, "stream %d", streams[i]);
        TRY(trace_write_lane(to, LANE_STREAM + i, name));
    }
    return status_ok();
}

static Status write_trace(const DeviceProfile *p, FILE *to)
{
    int streams[STREAM_LANES], count = 0;
    trace_write_head(to, p->trace->dropped);
    TRY(write_lanes(p, to, streams, &count));
    for (int i = 0; i < p->step_count; i++) {
        TraceSpan step = { "step", "step", LANE_STEP, p->steps[i].start - p->steps[0].start, p->steps[i].end - p->steps[0].start };
        TRY(trace_write_span(to, &step, json_object(), true));
    }
    for (size_t i = 0; p->step_count > 0 && i < p->trace->count; i++)
        if (p->trace->events[i].start >= p->steps[0].start)
            TRY(write_event(p, to, &p->trace->events[i], stream_lane(streams, &count, p->trace->events[i].stream)));
    trace_write_end(to);
    return status_ok();
}

Status device_profile_write_trace(const DeviceProfile *p, const char *path)
{
    WholeFile file;
    TRY(whole_file_open(path, &file));
    return whole_file_close(&file, status_context(write_trace(p, file.to), "cannot write %s", path));
}
