/* tables.c - the Markdown tables of the page. CSV is tables_csv.c. */
#include "tables.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tables_csv.h"

static const double GIB = 1024.0 * 1024.0 * 1024.0, MIB = 1024.0 * 1024.0;

void text_add_number(Text *t, double x)
{
    char number[NUMBER_BYTES];
    text_add(t, number_format(x, number));
}

void text_add_seconds(Text *t, double seconds)
{
    bool ms = seconds < 1, us = seconds < 1e-3;
    text_add_number(t, us ? seconds * 1e6 : ms ? seconds * 1e3 : seconds);
    if (isfinite(seconds))
        text_add(t, us ? " \xc2\xb5s" : ms ? " ms" : " s");
}

void text_add_bytes_size(Text *t, double bytes)
{
    bool gib = bytes >= GIB;
    text_add_number(t, gib ? bytes / GIB : bytes / (1024 * 1024));
    if (isfinite(bytes))
        text_add(t, gib ? " GiB" : " MiB");
}

/* One column: a number by path and scale, or computed, or a text. */
typedef struct Column {
    const char *title;
    const char *path;
    double      scale;
    int         digits;   /* significant; 0: four */
    int         decimals; /* instead, where not 0: this many behind the point */
    bool        exact;    /* instead: as it was given, 0.05 and not 0.05000 */
    double (*compute)(const json_t *item);
    const char *(*text)(const json_t *item);
} Column;

static void table_head(Text *t, const Column *columns, size_t count)
{
    text_add(t, "|");
    for (size_t i = 0; i < count; i++)
        text_format(t, " %s |", columns[i].title);
    text_add(t, "\n|");
    for (size_t i = 0; i < count; i++)
        text_add(t, columns[i].text ? " --- |" : " ---: |");
    text_add(t, "\n");
}

static void table_row(Text *t, const json_t *item, const Column *columns, size_t count)
{
    char number[NUMBER_BYTES];
    text_add(t, "|");
    for (size_t i = 0; i < count; i++) {
        const Column *c = &columns[i];
        text_add(t, " ");
        if (c->text)
            text_add_markdown(t, c->text(item));
        else {
            double x = c->compute ? c->compute(item) : record_number(item, c->path) * c->scale;
            if (c->decimals && isfinite(x))
                text_format(t, "%.*f", c->decimals, x);
            else if (c->exact && isfinite(x))
                text_format(t, "%.9g", x);
            else
                text_add(t, number_format_digits(x, c->digits ? c->digits : 4, number));
        }
        text_add(t, " |");
    }
    text_add(t, "\n");
}

/* Whether any item has something to show in a column; columns that have nothing at all are left out of the table. */
static bool column_used(const Group *g, const Column *c)
{
    for (size_t i = 0; i < g->count; i++)
        if (c->text ? c->text(g->items[i]) != NULL : isfinite(c->compute ? c->compute(g->items[i]) : record_number(g->items[i], c->path)))
            return true;
    return false;
}

static void table_of_group(Text *t, const Group *g, const Column *columns, size_t count)
{
    enum { MOST = 32 };
    Column used[MOST];
    size_t n = 0;
    CHECK(count <= MOST);
    for (size_t i = 0; i < count; i++)
        if (column_used(g, &columns[i]))
            used[n++] = columns[i];
    table_head(t, used, n);
    for (size_t i = 0; i < g->count; i++)
        table_row(t, g->items[i], used, n);
    text_add(t, "\n");
}

static const char *status_text(const json_t *item)
{
    const char *status = record_string(item, "status");
    return strcmp(status, "oom") == 0 ? "out\xc2\xa0of\xc2\xa0memory" : status; /* no-break spaces: a narrow column */
}

static double sem_percent(const json_t *cell)
{
    double sem = record_number(cell, "step_seconds.sem"), median = record_number(cell, "step_seconds.median");
    return median > 0 ? 100 * sem / median : (double)NAN;
}

static double sample_count(const json_t *cell)
{
    size_t n = record_count(cell, "samples");
    return n ? (double)n : (double)NAN;
}

/* What one pass takes, how many make an update, and their product stand side by side in every table (batch norm makes them
 * something else than one another). */
#define CELL_COLUMNS                                                                                                     \
    { .title = "micro-batch", .path = "axes.batch", .scale = 1 }, { .title = "accum.", .path = "axes.accum", .scale = 1 }, \
    { .title = "effective batch", .path = "effective_batch", .scale = 1 }, { .title = "precision", .text = precision_name }, \
    { .title = "optimiser", .text = optimizer_name }

static double samples_per_second(const json_t *item) { return record_is_text(item) ? (double)NAN : record_number(item, "throughput"); }
static double sequences_per_second(const json_t *item) { return record_is_text(item) ? record_number(item, "throughput") : (double)NAN; }

/* What accumulation means for this net, where a row of the table accumulates. */
static void note_accumulation(Text *t, const Group *g)
{
    for (size_t i = 0; i < g->count; i++) {
        if (!(record_number(g->items[i], "axes.accum") > 1))
            continue;
        text_add(t, record_is_text(g->items[i])
            ? "Accumulated rows: this net has no batch norm, so *k* micro-batches give the update of one batch *k* times as large, up "
              "to rounding and to dropout, which draws anew for each pass.\n\n"
            : "Accumulated rows: batch norm takes its statistics from each micro-batch, not from the effective batch, and moves its "
              "running statistics once a micro-batch. Such a row is not the single batch of its effective size; compare rows of "
              "equal micro-batch.\n\n");
        return;
    }
}

void table_speed(Text *t, const Group *g)
{
    static const Column columns[] = {
        CELL_COLUMNS,
        { .title = "samples/s", .compute = samples_per_second },
        { .title = "sequences/s", .compute = sequences_per_second },
        { .title = "tokens/s", .compute = cell_tokens_per_second },
        { .title = "step, median (ms)", .path = "step_seconds.median", .scale = 1e3 },
        { .title = "quartile 1 (ms)", .path = "step_seconds.q1", .scale = 1e3 },
        { .title = "quartile 3 (ms)", .path = "step_seconds.q3", .scale = 1e3 },
        { .title = "std. error (%)", .digits = 3, .compute = sem_percent },
        { .title = "steps timed", .compute = sample_count },
        { .title = "of floor (%)", .digits = 3, .compute = cell_floor_percent },
        { .title = "status", .text = status_text },
    };
    table_of_group(t, g, columns, COUNT_OF(columns));
    note_accumulation(t, g);
}

static double measured_of_plan(const json_t *cell)
{
    double planned = record_number(cell, "memory.planned.total");
    return planned > 0 ? 100 * record_number(cell, "memory.measured_peak") / planned : (double)NAN;
}

const char *table_memory_unit(const Group *g)
{
    for (size_t i = 0; i < g->count; i++)
        if (record_number(g->items[i], "memory.planned.total") >= GIB ||
            record_number(g->items[i], "memory.measured_peak") >= GIB)
            return "GiB";
    return "MiB";
}

/* What a GPU and its driver say, beside what the suite itself counts: four numbers under four names. Nothing without a GPU. */
static void add_device_memory(Text *t, const Group *g, double unit, int decimals)
{
#define BYTES(heading, member) { .title = heading, .path = "memory." member, .scale = unit, .decimals = decimals }
    const Column columns[] = {
        CELL_COLUMNS, BYTES("planned, total", "planned.total"), BYTES("allocated", "allocated"), BYTES("device used", "device_used"),
        BYTES("process on the device", "process_used"),
    };
#undef BYTES
    bool any = false;
    for (size_t i = 0; i < g->count; i++)
        any = any || record_number(g->items[i], "memory.device_used") > 0;
    if (!any)
        return;
    table_of_group(t, g, columns, COUNT_OF(columns));
    text_add(t, "Allocated: by the suite; device used: of the whole GPU, with every process, context and library on it (cudaMemGetInfo); "
                "process on the device: this process by the driver's account (NVML).\n\n");
}

void table_memory(Text *t, const Group *g)
{
    bool gib = strcmp(table_memory_unit(g), "GiB") == 0;
    const double unit = gib ? 1 / GIB : 1 / MIB;
    const int decimals = gib ? 3 : 2;
    const Column columns[] = {
        CELL_COLUMNS,
#define BYTES(heading, member) { .title = heading, .path = "memory." member, .scale = unit, .decimals = decimals }
        BYTES("planned, total", "planned.total"),
        BYTES("measured peak", "measured_peak"),
        { .title = "measured of planned (%)", .digits = 3, .compute = measured_of_plan },
        BYTES("process peak", "process_peak"),
        BYTES("weights", "planned.weights"),
        BYTES("copies", "planned.copies"),
        BYTES("gradients", "planned.gradients"),
        BYTES("optimiser", "planned.optimizer"),
        BYTES("activations", "planned.activations"),
        BYTES("workspace", "planned.workspace"),
        BYTES("input", "planned.input"),
        BYTES("activations, lower bound", "planned.activation_lower_bound"),
        BYTES("activations, no reuse", "planned.activation_naive"),
#undef BYTES
        { .title = "status", .text = status_text },
    };
    table_of_group(t, g, columns, COUNT_OF(columns));
    note_accumulation(t, g);
    add_device_memory(t, g, unit, decimals);
}

static double per_second(const json_t *cell, const char *path)
{
    double median = record_number(cell, "step_seconds.median");
    return median > 0 ? record_number(cell, path) / median * 1e-9 : (double)NAN;
}

static double gflops(const json_t *cell) { return per_second(cell, "work.flops"); }

void table_work(Text *t, const Group *g)
{
    static const Column columns[] = {
        CELL_COLUMNS,
        { .title = "GFLOP a step", .path = "work.flops", .scale = 1e-9 },
        { .title = "GB a step", .path = "work.bytes", .scale = 1e-9 },
        { .title = "GFLOP/s", .compute = gflops },
        { .title = "step (ms)", .path = "step_seconds.median", .scale = 1e3 },
        { .title = "floor (ms)", .path = "floor_seconds", .scale = 1e3 },
        { .title = "of floor (%)", .digits = 3, .compute = cell_floor_percent },
        { .title = "compute (ms)", .path = "profile.compute_seconds", .scale = 1e3 },
        { .title = "copy (ms)", .path = "profile.copy_seconds", .scale = 1e3 },
        { .title = "waiting (ms)", .path = "profile.wait_seconds", .scale = 1e3 },
        { .title = "other (ms)", .path = "profile.other_seconds", .scale = 1e3 },
        { .title = "status", .text = status_text },
    };
    table_of_group(t, g, columns, COUNT_OF(columns));
    note_accumulation(t, g);
}

/* ---- what a GPU recorded ---- */

static double percent_of(const json_t *cell, const char *part, const char *whole)
{
    return 100 * record_number(cell, part) / record_number(cell, whole);
}

static double busy_percent(const json_t *cell) { return 100 * record_number(cell, "profile.busy_share"); }
static double tensor_percent(const json_t *cell) { return 100 * record_number(cell, "profile.tensor_core_share"); }
static double idle_percent(const json_t *cell) { return percent_of(cell, "profile.idle_seconds", "profile.window_seconds"); }
static double overhead_percent(const json_t *cell) { return 100 * (record_number(cell, "profile.overhead.ratio") - 1); }

static const char *profile_reason(const json_t *cell)
{
    return record_get(cell, "profile") ? NULL : record_string(cell, "profile_reason");
}

static const char *throttled(const json_t *cell)
{
    const char *words = record_string(cell, "sensors.after.throttled");
    return words && *words ? words : NULL;
}

bool group_has_device_profile(const Group *g)
{
    for (size_t i = 0; i < g->count; i++) {
        const char *source = record_string(g->items[i], "profile.source");
        if (source && !strcmp(source, "cupti"))
            return true;
    }
    return false;
}

void table_device(Text *t, const Group *g)
{
    static const Column columns[] = {
        CELL_COLUMNS,
        { .title = "kernels (ms)", .path = "profile.kernel_seconds", .scale = 1e3 },
        { .title = "launches", .path = "profile.launches", .scale = 1 },
        { .title = "busy (%)", .digits = 3, .compute = busy_percent },
        { .title = "on tensor cores (%)", .digits = 3, .compute = tensor_percent },
        { .title = "copies in (ms)", .path = "profile.copy_in_seconds", .scale = 1e3 },
        { .title = "copies out (ms)", .path = "profile.copy_out_seconds", .scale = 1e3 },
        { .title = "copies within (ms)", .path = "profile.copy_within_seconds", .scale = 1e3 },
        { .title = "memory sets (ms)", .path = "profile.set_seconds", .scale = 1e3 },
        { .title = "copies under kernels (ms)", .path = "profile.overlap_seconds", .scale = 1e3 },
        { .title = "idle (ms)", .path = "profile.idle_seconds", .scale = 1e3 },
        { .title = "idle (%)", .digits = 3, .compute = idle_percent },
        { .title = "cost of profiling (%)", .digits = 3, .compute = overhead_percent },
        { .title = "records lost", .path = "profile.dropped_events", .scale = 1 },
        { .title = "clock after (MHz)", .path = "sensors.after.clock_mhz", .scale = 1 },
        { .title = "temperature after (\xc2\xb0" "C)", .path = "sensors.after.temperature", .scale = 1 },
        { .title = "held back by", .text = throttled },
        { .title = "no profile", .text = profile_reason },
    };
    table_of_group(t, g, columns, COUNT_OF(columns));
    text_add(t, "Per step, from the device's own records (CUPTI), in steps after the timed ones. Busy: at least one kernel runs; on tensor "
                "cores: of the kernels' time, as far as their names tell, so at least that much; cost of profiling: how much longer a "
                "step takes under the profiler.\n\n");
}

void table_kernels(Text *t, const json_t *cell)
{
    const json_t *kernels = record_array(cell, "profile.kernels");
    char number[NUMBER_BYTES];
    text_add(t, "| kernel | calls a step | time (ms) | share (%) | tensor cores |\n| --- | ---: | ---: | ---: | --- |\n");
    for (size_t i = 0; i < json_array_size(kernels); i++) {
        const json_t *k = json_array_get(kernels, i);
        text_add(t, "| ");
        text_add_markdown(t, record_string(k, "name"));
        text_format(t, " | %s |", number_format(record_number(k, "calls"), number));
        text_format(t, " %s |", number_format(1e3 * record_number(k, "seconds"), number));
        text_format(t, " %s |", number_format_digits(100 * record_number(k, "share"), 3, number));
        text_format(t, " %s |\n", json_is_true(record_get(k, "tensor_cores")) ? "yes" : "no");
    }
    text_add(t, "\n");
}

/* ---- operations of one cell ---- */

static double sum_of(const json_t *ops, const char *path)
{
    double sum = 0;
    for (size_t i = 0; i < json_array_size(ops); i++) {
        double x = record_number(json_array_get(ops, i), path);
        sum += isfinite(x) ? x : 0;
    }
    return sum;
}

static void op_row(Text *t, const char *name, double calls, double seconds, double total, double flops, double bytes)
{
    const double nothing = (double)NAN;
    const double numbers[] = { calls, seconds * 1e3, total > 0 ? 100 * seconds / total : nothing,
                               seconds > 0 && flops > 0 ? flops / seconds * 1e-9 : nothing,
                               seconds > 0 && bytes > 0 ? bytes / seconds * 1e-9 : nothing };
    text_add(t, "| ");
    text_add_markdown(t, name);
    text_add(t, " |");
    for (size_t i = 0; i < COUNT_OF(numbers); i++) {
        char number[NUMBER_BYTES];
        text_format(t, " %s |", number_format_digits(numbers[i], i == 2 ? 3 : 4, number));
    }
    text_add(t, "\n");
}

/* The slowest operation that is faster than `below` (ties: after `after`), or NULL. */
static const json_t *next_op(const json_t *ops, double below, size_t after, size_t *at)
{
    const json_t *best = NULL;
    double most = -1;
    for (size_t i = 0; i < json_array_size(ops); i++) {
        const json_t *op = json_array_get(ops, i);
        double s = record_number(op, "seconds");
        bool later = s < below || (s == below && i > after);
        if (later && s > most) {
            best = op;
            most = s;
            *at = i;
        }
    }
    return best;
}

void table_ops(Text *t, const json_t *cell)
{
    const json_t *ops = record_array(cell, "profile.ops");
    double total = sum_of(ops, "seconds"), shown = 0;
    text_add(t, "| operation | calls a step | time (ms) | share (%) | GFLOP/s | GB/s |\n"
                "| --- | ---: | ---: | ---: | ---: | ---: |\n");
    size_t at = 0, rows = 0;
    const json_t *op = next_op(ops, INFINITY, 0, &at);
    while (op && record_number(op, "seconds") >= 1e-3 * total) {
        double s = record_number(op, "seconds");
        op_row(t, record_string(op, "op"), record_number(op, "calls"), s, total, record_number(op, "flops"),
               record_number(op, "bytes"));
        shown += s;
        rows++;
        op = next_op(ops, s, at, &at);
    }
    if (rows < json_array_size(ops))
        op_row(t, "all others", (double)NAN, fmax(0, total - shown), total, (double)NAN, (double)NAN);
    op_row(t, "sum", sum_of(ops, "calls"), total, total, sum_of(ops, "flops"), sum_of(ops, "bytes"));
    text_add(t, "\n");
}

/* ---- trainings ---- */

static const json_t *last_epoch(const json_t *training)
{
    const json_t *epochs = record_array(training, "epochs");
    return json_array_size(epochs) ? json_array_get(epochs, json_array_size(epochs) - 1) : NULL;
}

static double train_seconds(const json_t *item) { return record_number(last_epoch(item), "seconds"); }
static double epochs_done(const json_t *item) { return record_number(last_epoch(item), "epoch"); }
static double final_loss(const json_t *item) { return record_number(last_epoch(item), "train_loss"); }

const char *training_score(const json_t *training, const char **member)
{
    const char *head = record_string(training, "axes.head");
    *member = record_has_masks(training) ? "test_dice" : "test_accuracy";
    if (record_has_masks(training))
        return "Dice";
    return record_is_text(training) && head && strcmp(head, "classify") != 0 ? "masked-LM accuracy" : "accuracy";
}

/* The last epoch's test_accuracy, if that is what `name` calls this kind of training's. */
static double accuracy_named(const json_t *item, const char *name)
{
    const char *member, *own = training_score(item, &member);
    bool mine = strcmp(own, "Dice") == 0 ? strcmp(name, "pixel accuracy") == 0 : strcmp(own, name) == 0;
    return mine ? record_number(last_epoch(item), "test_accuracy") : (double)NAN;
}

static double class_accuracy(const json_t *item) { return accuracy_named(item, "accuracy"); }
static double masked_accuracy(const json_t *item) { return accuracy_named(item, "masked-LM accuracy"); }
static double pixel_accuracy(const json_t *item) { return accuracy_named(item, "pixel accuracy"); }
static double final_dice(const json_t *item) { return record_number(last_epoch(item), "test_dice"); }
static double final_image_dice(const json_t *item) { return record_number(last_epoch(item), "test_image_dice"); }

static double best_score(const json_t *item)
{
    const json_t *epochs = record_array(item, "epochs");
    const char *member;
    double best = (double)NAN;
    training_score(item, &member);
    for (size_t i = 0; i < json_array_size(epochs); i++)
        best = fmax(best, record_number(json_array_get(epochs, i), member));
    return best;
}

static const char *data_text(const json_t *item) { return record_string(item, "axes.data"); }
static const char *padding_text(const json_t *item) { return record_string(item, "padding.policy"); }

/* Schema: an epoch's seconds are cumulative, its wait_seconds too. */
static double wait_percent(const json_t *item)
{
    double seconds = train_seconds(item);
    return seconds > 0 ? 100 * record_number(last_epoch(item), "wait_seconds") / seconds : (double)NAN;
}

static void note_loss_scale(Text *t, const Group *g)
{
    for (size_t i = 0; i < g->count; i++)
        if (record_get(g->items[i], "loss_scale")) {
            text_add(t, "fp16 multiplies the loss by a scale, so that small gradients do not vanish. An update whose gradients are not "
                        "finite is skipped and halves the scale.\n\n");
            return;
        }
}

void table_trainings(Text *t, const Group *g)
{
    const bool gib = strcmp(table_memory_unit(g), "GiB") == 0;
    const Column columns[] = {
        { .title = "data", .text = data_text },
        CELL_COLUMNS,
        { .title = "learning rate", .path = "axes.lr", .scale = 1, .exact = true },
        { .title = "seed", .path = "axes.seed", .scale = 1, .exact = true },
        { .title = "epochs", .compute = epochs_done },
        { .title = "test accuracy (%)", .compute = class_accuracy },
        { .title = "masked-LM test accuracy (%)", .compute = masked_accuracy },
        { .title = "test Dice (%)", .compute = final_dice },
        { .title = "Dice, mean of images (%)", .compute = final_image_dice },
        { .title = "best (%)", .compute = best_score },
        { .title = "pixel accuracy (%)", .compute = pixel_accuracy },
        { .title = "training loss", .compute = final_loss },
        { .title = "skipped updates", .path = "loss_scale.skipped_updates", .scale = 1 },
        { .title = "last loss scale", .path = "loss_scale.last", .scale = 1 },
        { .title = "samples/s", .compute = samples_per_second },
        { .title = "sequences/s", .compute = sequences_per_second },
        { .title = "tokens/s", .path = "padding.tokens_per_second", .scale = 1 },
        { .title = "padding", .text = padding_text },
        { .title = "padded (%)", .path = "padding.share", .scale = 100, .digits = 3 },
        { .title = "training time (s)", .compute = train_seconds },
        { .title = "waiting for data (%)", .digits = 3, .compute = wait_percent },
        { .title = "target (%)", .path = "target_accuracy", .exact = true, .scale = 1 },
        { .title = "samples to target", .path = "samples_to_target", .scale = 1 },
        { .title = "time to target (s)", .path = "seconds_to_target", .scale = 1 },
        { .title = gib ? "measured peak (GiB)" : "measured peak (MiB)", .path = "memory.measured_peak", .scale = gib ? 1 / GIB : 1 / MIB },
        { .title = "status", .text = status_text },
    };
    table_of_group(t, g, columns, COUNT_OF(columns));
    note_accumulation(t, g);
    note_loss_scale(t, g);
}

/* ---- tables of claims ---- */

static void claim_value(Text *t, const json_t *v)
{
    if (json_is_string(v))
        text_add_markdown(t, json_string_value(v));
    else if (json_is_boolean(v))
        text_add(t, json_is_true(v) ? "yes" : "no");
    else
        text_add_number(t, json_is_number(v) ? json_number_value(v) : (double)NAN);
}

/* A column of numbers is set to the right: its first value that is there decides. */
static bool numeric_column(const json_t *rows, size_t column)
{
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *v = json_array_get(json_array_get(rows, i), column);
        if (v && !json_is_null(v))
            return json_is_number(v);
    }
    return true;
}

void table_claim(Text *t, const json_t *table)
{
    const json_t *names = record_array(table, "columns"), *units = record_array(table, "units");
    const json_t *rows = record_array(table, "rows");
    size_t count = json_array_size(names);
    if (!count)
        return;
    text_add(t, "|");
    for (size_t i = 0; i < count; i++) {
        const char *unit = json_string_value(json_array_get(units, i));
        text_add(t, " ");
        text_add_markdown(t, json_string_value(json_array_get(names, i)));
        if (unit && *unit) {
            text_add(t, " (");
            text_add_markdown(t, unit);
            text_add(t, ")");
        }
        text_add(t, " |");
    }
    text_add(t, "\n|");
    for (size_t i = 0; i < count; i++)
        text_add(t, numeric_column(rows, i) ? " ---: |" : " --- |");
    text_add(t, "\n");
    for (size_t r = 0; r < json_array_size(rows); r++) {
        text_add(t, "|");
        for (size_t i = 0; i < count; i++) {
            text_add(t, " ");
            claim_value(t, json_array_get(json_array_get(rows, r), i));
            text_add(t, " |");
        }
        text_add(t, "\n");
    }
    text_add(t, "\n");
}

/* ---- files ---- */

typedef void (*GroupTable)(Text *t, const Group *g);

static Status write_group_tables(const Groups *groups, const char *kind, GroupTable table, const char *folder)
{
    for (size_t i = 0; i < groups->count; i++) {
        char name[200];
        snprintf(name, sizeof name, "%s-%.120s.md", kind, groups->groups[i].slug);
        Text t = { 0 };
        text_add_markdown(&t, groups->groups[i].title);
        text_add(&t, "\n\n");
        table(&t, &groups->groups[i]);
        Status s = text_write_file(&t, folder, name);
        text_free(&t);
        TRY(s);
    }
    return status_ok();
}

static Status write_claim_tables(const json_t *claim, const char *folder)
{
    const json_t *tables = record_array(claim, "tables");
    for (size_t i = 0; i < json_array_size(tables); i++) {
        const json_t *table = json_array_get(tables, i);
        Text md = { 0 }, csv = { 0 }, slug = { 0 };
        text_add_slug(&slug, record_string(claim, "id"));
        text_add_markdown(&md, record_string(table, "title"));
        text_add(&md, "\n\n");
        table_claim(&md, table);
        table_claim_csv(&csv, table);
        md.failed = md.failed || slug.failed; /* the name would be wrong */
        char name[128];
        snprintf(name, sizeof name, "claim-%.80s-%zu.md", text_bytes(&slug), i + 1);
        Status s = text_write_file(&md, folder, name);
        snprintf(name, sizeof name, "claim-%.80s-%zu.csv", text_bytes(&slug), i + 1);
        if (s.code == STATUS_OK)
            s = text_write_file(&csv, folder, name);
        text_free(&md);
        text_free(&csv);
        text_free(&slug);
        TRY(s);
    }
    return status_ok();
}

Status tables_write(const json_t *record, const Groups *cells, const Groups *trainings, const char *folder)
{
    TRY(write_group_tables(cells, "speed", table_speed, folder));
    TRY(write_group_tables(cells, "memory", table_memory, folder));
    TRY(write_group_tables(cells, "work", table_work, folder));
    TRY(write_group_tables(trainings, "trainings", table_trainings, folder));
    const json_t *claims = record_array(record, "claims");
    for (size_t i = 0; i < json_array_size(claims); i++)
        TRY(write_claim_tables(json_array_get(claims, i), folder));
    return tables_write_csv(record, folder);
}
