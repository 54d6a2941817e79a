/* charts.c - the charts of the sweeps: throughput, step time, memory, operations, split, floor. Each has one line for
 * a precision and an accumulation, and the same line looks the same on all charts of a group. */
#include "charts.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "charts_more.h"

static const double GIB = 1024.0 * 1024.0 * 1024.0;
static const double MIB = 1024.0 * 1024.0;

/* What a line chart shows of a cell, in its unit. */
typedef struct Quantity {
    const char *path;                   /* a number of the record */
    const char *low, *high;             /* ends of its spread, or NULL */
    double (*compute)(const json_t *);  /* instead of path */
    double      scale;
} Quantity;

static double quantity_of(const json_t *cell, const Quantity *q)
{
    return (q->compute ? q->compute(cell) : record_number(cell, q->path)) * q->scale;
}

static double largest(const Group *g, const char *path)
{
    double most = 0;
    for (size_t i = 0; i < g->count; i++) {
        double x = record_number(g->items[i], path);
        if (x > most)
            most = x;
    }
    return most;
}

static size_t series_end(const Group *g, size_t start)
{
    size_t end = start + 1;
    while (end < g->count && cell_same_series(g->items[start], g->items[end]))
        end++;
    return end;
}

void chart_start_group(Chart *c, const Group *g, const char *section, const char *kind, const char *what,
                       const char *x_label, const char *y_label)
{
    char name[160];
    snprintf(name, sizeof name, "%s-%.110s", kind, g->slug);
    chart_start(c, section, name, what, x_label, y_label);
    text_copy(c->subtitle, sizeof c->subtitle, g->title);
}

void chart_add_ticks_sorted(Chart *c, const double *x, size_t count)
{
    double last = -INFINITY;
    for (;;) { /* few values: the next larger one each time */
        double next = INFINITY;
        for (size_t i = 0; i < count; i++)
            if (x[i] > last && x[i] < next)
                next = x[i];
        if (isinf(next))
            return;
        char label[NUMBER_BYTES];
        chart_add_tick(c, next, number_format(next, label));
        last = next;
    }
}

static void add_batch_ticks(Chart *c, const Group *g)
{
    double last = 0;
    for (;;) {
        double next = INFINITY;
        for (size_t i = 0; i < g->count; i++) {
            double b = record_number(g->items[i], "axes.batch");
            if (b > last && b < next)
                next = b;
        }
        if (isinf(next))
            return;
        char label[NUMBER_BYTES];
        chart_add_tick(c, next, number_format(next, label));
        last = next;
    }
}

/* Why a cell has no point. */
static const char *missing_word(const json_t *cell)
{
    const char *status = record_string(cell, "status");
    if (strcmp(status, "oom") == 0)
        return "out of memory";
    return strcmp(status, "ok") == 0 ? "not measured" : status;
}

/* "No value: bf16, accumulation 4 at batch 64, 128 (out of memory), 256 (skipped)." for the cells of one line. */
static void note_missing(Chart *c, const Group *g, size_t start, size_t end, const Quantity *q)
{
    enum { NOTE_BYTES = 240 };
    static const char more[] = "; more in the tables";
    const char *word = NULL;
    for (size_t i = start; i < end; i++) {
        const json_t *cell = g->items[i];
        if (isfinite(quantity_of(cell, q)))
            continue;
        if (!word && c->note.length > NOTE_BYTES) {
            if (strcmp(c->note.bytes + c->note.length - strlen(more), more) != 0)
                text_add(&c->note, more);
            return;
        }
        char batch[NUMBER_BYTES];
        number_format(record_number(cell, "axes.batch"), batch);
        if (!word) {
            char name[SERIES_TEXT_BYTES];
            cell_series_name(cell, name);
            text_add(&c->note, c->note.length ? "; " : "No value: ");
            text_add_plain(&c->note, name);
            text_format(&c->note, " at batch %s", batch);
        } else if (strcmp(word, missing_word(cell)) != 0) {
            text_format(&c->note, " (%s), %s", word, batch);
        } else {
            text_format(&c->note, ", %s", batch);
        }
        word = missing_word(cell);
    }
    if (word)
        text_format(&c->note, " (%s)", word);
}

static size_t count_values(const Group *g, size_t start, size_t end, const Quantity *q)
{
    size_t values = 0;
    for (size_t i = start; i < end; i++)
        values += isfinite(quantity_of(g->items[i], q));
    return values;
}

static void add_line(Chart *c, const Group *g, size_t start, size_t end, const Quantity *q, SeriesStyle style,
                     const char *name, int look)
{
    if (!count_values(g, start, end, q))
        return;
    chart_add_series(c, name, style, look);
    for (size_t i = start; i < end; i++) {
        const json_t *cell = g->items[i];
        double y = quantity_of(cell, q);
        double low = q->low ? record_number(cell, q->low) * q->scale : y;
        double high = q->high ? record_number(cell, q->high) * q->scale : y;
        chart_add_spread(c, record_number(cell, "axes.batch"), y, isfinite(low) ? low : y, isfinite(high) ? high : y);
    }
}

/* A line for each precision and accumulation, with its plan, if there is one, as a dashed line of the same colour.
 * Cells without a value become a gap, a cross and a note; a line that has no value at all only the note. */
static void add_lines(Chart *c, const Group *g, const Quantity *q, SeriesStyle style, const Quantity *plan)
{
    int look = 0;
    for (size_t start = 0, end; start < g->count; start = end, look++) {
        end = series_end(g, start);
        char name[SERIES_TEXT_BYTES];
        cell_series_name(g->items[start], name);
        size_t values = count_values(g, start, end, q);
        if (plan)
            add_line(c, g, start, end, plan, SERIES_DASHED, values ? "" : name, look);
        add_line(c, g, start, end, q, style, name, look);
        for (size_t i = start; values && i < end; i++)
            if (!isfinite(quantity_of(g->items[i], q)))
                chart_add_mark(c, record_number(g->items[i], "axes.batch"), look);
        note_missing(c, g, start, end, q);
    }
    if (c->note.length)
        text_add(&c->note, ".");
}

static Status draw_and_free(Chart *c, ChartSetup *setup)
{
    Status s = chart_draw(c, setup);
    chart_free(c);
    return s;
}

static void cell_section(char out[96], size_t group, const char *kind) { snprintf(out, 96, "cells/%zu/%s", group, kind); }

static Status draw_throughput(const Group *g, size_t n, ChartSetup *setup)
{
    Chart c;
    char section[96];
    cell_section(section, n, "throughput");
    const bool text = g->count && record_is_text(g->items[0]);
    chart_start_group(&c, g, section, "throughput", "Throughput", text ? "batch size (sequences)" : "batch size",
                      text ? "tokens per second" : "samples per second");
    c.x_scale = AXIS_LOG2;
    c.from_zero = true;
    add_batch_ticks(&c, g);
    const Quantity q = { .path = "throughput", .compute = text ? cell_tokens_per_second : NULL, .scale = 1 };
    add_lines(&c, g, &q, SERIES_BOTH, NULL);
    return draw_and_free(&c, setup);
}

static Status draw_step_time(const Group *g, size_t n, ChartSetup *setup)
{
    Chart c;
    char section[96];
    bool ms = largest(g, "step_seconds.median") < 2;
    cell_section(section, n, "step-time");
    chart_start_group(&c, g, section, "step-time", "Time of one training step", "batch size",
                      ms ? "step: median and quartiles (ms)" : "step: median and quartiles (s)");
    c.x_scale = AXIS_LOG2;
    c.y_scale = AXIS_LOG10;
    add_batch_ticks(&c, g);
    const Quantity q = { "step_seconds.median", "step_seconds.q1", "step_seconds.q3", NULL, ms ? 1e3 : 1 };
    add_lines(&c, g, &q, SERIES_SPREAD, NULL);
    return draw_and_free(&c, setup);
}

static Status draw_floor(const Group *g, size_t n, ChartSetup *setup)
{
    Chart c;
    char section[96];
    cell_section(section, n, "floor");
    chart_start_group(&c, g, section, "floor", "Speed as a share of the machine's limit", "batch size",
                      "floor / step time (%)");
    c.x_scale = AXIS_LOG2;
    c.from_zero = true;
    add_batch_ticks(&c, g);
    const Quantity q = { .compute = cell_floor_percent, .scale = 1 };
    add_lines(&c, g, &q, SERIES_BOTH, NULL);
    return draw_and_free(&c, setup);
}

/* The device's memory as a line, where it is near enough not to flatten the rest. */
static void add_capacity(Chart *c, const json_t *record, const Group *g, double unit)
{
    double capacity = record_number(record, "environment.device.memory_bytes");
    double most = fmax(largest(g, "memory.planned.total"), largest(g, "memory.measured_peak"));
    if (!(capacity > 0) || capacity > 1.6 * most || !c->tick_count)
        return;
    chart_add_series(c, "memory of the device", SERIES_LIMIT, 0);
    chart_add_point(c, c->ticks[0].x, capacity / unit);
    chart_add_point(c, c->ticks[c->tick_count - 1].x, capacity / unit);
}

static Status draw_memory(const json_t *record, const Group *g, size_t n, ChartSetup *setup)
{
    Chart c;
    char section[96];
    bool gib = largest(g, "memory.planned.total") >= GIB || largest(g, "memory.measured_peak") >= GIB;
    double unit = gib ? GIB : MIB;
    cell_section(section, n, "memory");
    chart_start_group(&c, g, section, "memory", "Peak memory, planned and measured", "batch size",
                      gib ? "memory (GiB)" : "memory (MiB)");
    c.x_scale = AXIS_LOG2;
    c.from_zero = true;
    add_batch_ticks(&c, g);
    const Quantity planned = { .path = "memory.planned.total", .scale = 1 / unit };
    const Quantity measured = { .path = "memory.measured_peak", .scale = 1 / unit };
    add_lines(&c, g, &measured, SERIES_POINTS, &planned);
    text_copy(c.dashed_meaning, sizeof c.dashed_meaning, "planned");
    add_capacity(&c, record, g, unit);
    return draw_and_free(&c, setup);
}

/* ---- stacked bars ---- */

/* "32 bf16 x4" under a bar: batch, precision, accumulation. */
static void add_bar_tick(Chart *c, size_t bar, const json_t *cell)
{
    char label[48], batch[NUMBER_BYTES];
    number_format(record_number(cell, "axes.batch"), batch);
    double accum = record_number(cell, "axes.accum");
    if (accum > 1)
        snprintf(label, sizeof label, "%.8s %.16s \xc3\x97%.0f", batch, precision_name(cell), accum);
    else
        snprintf(label, sizeof label, "%.8s %.16s", batch, precision_name(cell));
    chart_add_tick(c, (double)bar, label);
}

static const char bar_axis[] = "batch size, precision, \xc3\x97 accumulation";

typedef struct Layer { const char *name; const char *path; } Layer;

static double layer_sum(const json_t *cell, const Layer *layers, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++) {
        double x = record_number(cell, layers[i].path);
        sum += isfinite(x) ? x : 0;
    }
    return sum;
}

/* How many cells have no bar, and why not, as a note. */
static void note_bars(Chart *c, const Group *g, size_t bars, const char *what)
{
    size_t lost = g->count - bars;
    if (lost && bars)
        text_format(&c->note, "%zu of %zu configurations have no %s and no bar.", lost, g->count, what);
}

/* One bar a cell, one layer a member of the record. With percent, each bar is divided by its own sum. */
static void add_bars(Chart *c, const Group *g, const Layer *layers, size_t count, double scale, bool percent,
                     const char *what)
{
    c->bars = true;
    c->from_zero = true;
    for (size_t k = 0; k < count; k++) {
        chart_add_series(c, layers[k].name, SERIES_BAR, (int)k);
        size_t bar = 0;
        for (size_t i = 0; i < g->count; i++) {
            double sum = layer_sum(g->items[i], layers, count);
            if (!(sum > 0))
                continue;
            double below = layer_sum(g->items[i], layers, k), own = layer_sum(g->items[i], layers + k, 1);
            double factor = percent ? 100 / sum : scale;
            if (own > 0)
                chart_add_spread(c, (double)bar, (below + own) * factor, below * factor, (below + own) * factor);
            if (k == 0)
                add_bar_tick(c, bar, g->items[i]);
            bar++;
        }
        if (k == 0)
            note_bars(c, g, bar, what);
    }
}

static Status draw_memory_categories(const Group *g, size_t n, ChartSetup *setup)
{
    static const Layer layers[] = {
        { "weights", "memory.planned.weights" }, { "compute copies", "memory.planned.copies" },
        { "gradients", "memory.planned.gradients" }, { "optimiser state", "memory.planned.optimizer" },
        { "activations", "memory.planned.activations" }, { "workspace", "memory.planned.workspace" },
        { "input", "memory.planned.input" },
    };
    Chart c;
    char section[96];
    bool gib = largest(g, "memory.planned.total") >= GIB;
    cell_section(section, n, "memory-categories");
    chart_start_group(&c, g, section, "memory-categories", "Planned memory by category", bar_axis,
                      gib ? "memory (GiB)" : "memory (MiB)");
    add_bars(&c, g, layers, COUNT_OF(layers), 1 / (gib ? GIB : MIB), false, "plan");
    return draw_and_free(&c, setup);
}

static Status draw_split(const Group *g, size_t n, ChartSetup *setup)
{
    static const Layer layers[] = {
        { "compute", "profile.compute_seconds" }, { "copy", "profile.copy_seconds" },
        { "other", "profile.other_seconds" }, { "waiting for data", "profile.wait_seconds" },
    };
    Chart c;
    char section[96];
    cell_section(section, n, "split");
    chart_start_group(&c, g, section, "split", "Where a step's time goes", bar_axis, "share of the profiled step (%)");
    add_bars(&c, g, layers, COUNT_OF(layers), 1, true, "profile");
    return draw_and_free(&c, setup);
}

/* Seconds of one kind of operation in a cell's profile, 0 when it has none. */
static double op_seconds(const json_t *cell, const char *op)
{
    const json_t *ops = record_array(cell, "profile.ops");
    double sum = 0;
    for (size_t i = 0; i < json_array_size(ops); i++) {
        const json_t *row = json_array_get(ops, i);
        const char *name = record_string(row, "op");
        double s = record_number(row, "seconds");
        if (name && isfinite(s) && (!op || strcmp(name, op) == 0))
            sum += s;
    }
    return sum;
}

/* The kinds of operation that take most time over all cells of a group, each cell counting per sample. */
static size_t top_ops(const Group *g, const char **names, size_t limit)
{
    enum { KINDS = 64 };
    const char *seen[KINDS];
    double weight[KINDS];
    size_t kinds = 0;
    for (size_t i = 0; i < g->count; i++) {
        double samples = record_number(g->items[i], "effective_batch");
        const json_t *ops = record_array(g->items[i], "profile.ops");
        for (size_t j = 0; samples > 0 && j < json_array_size(ops); j++) {
            const char *op = record_string(json_array_get(ops, j), "op");
            double s = record_number(json_array_get(ops, j), "seconds");
            size_t k = 0;
            while (op && k < kinds && strcmp(seen[k], op) != 0)
                k++;
            if (!op || !isfinite(s) || (k == kinds && kinds == KINDS))
                continue;
            if (k == kinds) {
                seen[kinds] = op;
                weight[kinds++] = 0;
            }
            weight[k] += s / samples;
        }
    }
    size_t count = 0;
    while (count < limit) {
        size_t best = kinds;
        for (size_t k = 0; k < kinds; k++)
            if (weight[k] > 0 && (best == kinds || weight[k] > weight[best]))
                best = k;
        if (best == kinds)
            break;
        names[count++] = seen[best];
        weight[best] = 0;
    }
    return count;
}

static Status draw_ops(const Group *g, size_t n, ChartSetup *setup)
{
    enum { LAYERS = 9 };
    const char *names[LAYERS];
    size_t count = top_ops(g, names, LAYERS);
    Chart c;
    char section[96];
    cell_section(section, n, "ops");
    chart_start_group(&c, g, section, "ops", "Time by kind of operation", bar_axis,
                      g->count && record_is_text(g->items[0]) ? "profiled time per sequence (ms)" : "profiled time per sample (ms)");
    c.bars = true;
    c.from_zero = true;
    for (size_t k = 0; k <= count; k++) { /* layer `count` holds all others */
        chart_add_series(&c, k < count ? names[k] : "all others", SERIES_BAR, k < count ? (int)k : LAYERS);
        size_t bar = 0;
        for (size_t i = 0; i < g->count; i++) {
            const json_t *cell = g->items[i];
            double samples = record_number(cell, "effective_batch"), total = op_seconds(cell, NULL), below = 0;
            if (!(samples > 0) || !(total > 0))
                continue;
            for (size_t j = 0; j < k; j++)
                below += op_seconds(cell, names[j]);
            double own = k < count ? op_seconds(cell, names[k]) : total - below;
            double factor = 1e3 / samples;
            if (own > 1e-9 * total)
                chart_add_spread(&c, (double)bar, (below + own) * factor, below * factor, (below + own) * factor);
            if (k == 0)
                add_bar_tick(&c, bar, cell);
            bar++;
        }
        if (k == 0)
            note_bars(&c, g, bar, "profile");
    }
    return draw_and_free(&c, setup);
}

static Status draw_cell_group(const json_t *record, const Group *g, size_t n, ChartSetup *setup)
{
    TRY(draw_throughput(g, n, setup));
    TRY(draw_step_time(g, n, setup));
    TRY(draw_memory(record, g, n, setup));
    TRY(draw_memory_categories(g, n, setup));
    TRY(draw_ops(g, n, setup));
    TRY(draw_split(g, n, setup));
    return draw_floor(g, n, setup);
}

Status charts_draw(const json_t *record, const Groups *cells, const Groups *trainings, ChartSetup *setup)
{
    for (size_t i = 0; i < cells->count; i++)
        TRY(draw_cell_group(record, &cells->groups[i], i, setup));
    for (size_t i = 0; i < trainings->count; i++)
        TRY(charts_draw_trainings(&trainings->groups[i], i, setup));
    return charts_draw_claims(record, setup);
}
