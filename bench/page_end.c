/* page_end.c - what a reader checks after the results: gaps, doubts, the environment, the commands, the definitions. */
#include "page_end.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tables.h"

/* ---- cells without a value ---- */

static void add_missing(Text *t, const json_t *record)
{
    static const char *const lists[] = { "cells", "trainings" };
    bool any = false;
    for (size_t k = 0; k < COUNT_OF(lists); k++) {
        const json_t *items = record_array(record, lists[k]);
        for (size_t i = 0; i < json_array_size(items); i++) {
            const json_t *item = json_array_get(items, i);
            if (record_ok(item))
                continue;
            if (!any)
                text_add(t, "## Without a value\n\n| configuration | status | reason |\n| --- | --- | --- |\n");
            any = true;
            text_add(t, "| ");
            text_add_markdown(t, record_string(item, "name"));
            text_add(t, " | ");
            const char *status = record_string(item, "status"), *reason = record_string(item, "reason");
            text_add_markdown(t, strcmp(status, "oom") == 0 ? "out of memory" : status);
            text_add(t, " | ");
            text_add_markdown(t, reason ? reason : "none given");
            text_add(t, " |\n");
        }
    }
    if (any)
        text_add(t, "\n");
}

/* ---- doubtful results ---- */

static void doubt(Text *t, bool *any, const char *name, const char *text)
{
    if (!*any)
        text_add(t, "## Doubtful results\n\nThese figures should not be used before they are explained.\n\n");
    *any = true;
    text_add(t, "- ");
    text_add_markdown(t, name);
    text_add(t, ": ");
    text_add_markdown(t, text);
    text_add(t, "\n");
}

/* The record's own flags, and what only this page computes: a step faster than the machine's measured limit. */
static void add_doubts(Text *t, const json_t *record)
{
    bool any = false;
    const json_t *cells = record_array(record, "cells");
    for (size_t i = 0; i < json_array_size(cells); i++) {
        const json_t *cell = json_array_get(cells, i);
        const json_t *flags = record_array(cell, "flags");
        const char *name = record_string(cell, "name");
        for (size_t j = 0; j < json_array_size(flags); j++)
            doubt(t, &any, name, json_string_value(json_array_get(flags, j)));
        if (cell_floor_percent(cell) > 100 && !json_array_size(flags))
            doubt(t, &any, name, "faster than its floor: the measured peaks are too low, or the step left work out");
    }
    if (any)
        text_add(t, "\n");
}

/* ---- environment ---- */

static void row_text(Text *t, const char *label, const char *value)
{
    if (!value || !*value)
        return;
    text_add(t, "| ");
    text_add_markdown(t, label);
    text_add(t, " | ");
    text_add_markdown(t, value);
    text_add(t, " |\n");
}

static void row_number(Text *t, const char *label, double x, const char *unit)
{
    if (!isfinite(x))
        return;
    text_format(t, "| %s | ", label);
    text_add_number(t, x);
    text_format(t, "%s |\n", unit);
}

static void row_bytes(Text *t, const char *label, double bytes)
{
    if (!isfinite(bytes))
        return;
    text_format(t, "| %s | ", label);
    if (bytes < 1024 * 1024) {
        text_add_number(t, bytes / 1024);
        text_add(t, " KiB");
    } else {
        text_add_bytes_size(t, bytes);
    }
    text_add(t, " |\n");
}

/* An array of texts as one cell: "avx2, avx512f". */
static void row_list(Text *t, const char *label, const json_t *list)
{
    Text joined = { 0 };
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *v = json_array_get(list, i);
        const char *s = json_is_string(v) ? json_string_value(v) : record_string(v, "name");
        if (s && joined.length)
            text_add(&joined, ", ");
        if (s)
            text_add(&joined, s);
    }
    t->failed = t->failed || joined.failed;
    row_text(t, label, text_bytes(&joined));
    text_free(&joined);
}

/* One row a member of an object of texts. */
static void rows_members(Text *t, const json_t *object)
{
    json_t *o = (json_t *)(uintptr_t)object; /* jansson iterates non-const objects only */
    for (void *it = json_object_iter(o); it; it = json_object_iter_next(o, it))
        row_text(t, json_object_iter_key(it), json_string_value(json_object_iter_value(it)));
}

static void add_environment(Text *t, const json_t *record)
{
    const json_t *env = record_get(record, "environment");
    text_add(t, "## Environment\n\n| what | value |\n| --- | --- |\n");
    row_text(t, "batchmark", record_string(record, "tool.version"));
    row_text(t, "revision", record_string(record, "tool.git"));
    if (json_is_true(record_get(record, "tool.dirty")))
        row_text(t, "source tree", "changed after that revision");
    row_text(t, "host", record_string(env, "hostname"));
    row_text(t, "operating system", record_string(env, "os"));
    row_text(t, "kernel", record_string(env, "kernel"));
    row_text(t, "CPU", record_string(env, "cpu.model"));
    row_number(t, "cores", record_number(env, "cpu.cores"), "");
    row_number(t, "threads used", record_number(env, "cpu.threads_used"), "");
    row_list(t, "instruction sets", record_array(env, "cpu.isa"));
    row_text(t, "frequency governor", record_string(env, "cpu.governor"));
    row_bytes(t, "L1 data cache", record_number(env, "cpu.caches.l1d"));
    row_bytes(t, "L2 cache", record_number(env, "cpu.caches.l2"));
    row_bytes(t, "L3 cache", record_number(env, "cpu.caches.l3"));
    row_bytes(t, "memory", record_number(env, "memory_bytes"));
    row_list(t, "GPUs", record_array(env, "gpus"));
    const json_t *gpu = json_array_get(record_array(env, "gpus"), 0);
    row_text(t, "compute capability", record_string(gpu, "capability"));
    row_text(t, "CUDA that the driver supports", record_string(gpu, "driver"));
    row_text(t, "CUDA runtime", record_string(gpu, "runtime"));
    row_text(t, "GPU, note", record_string(gpu, "note"));
    row_text(t, "backend", record_string(env, "device.backend"));
    row_text(t, "device", record_string(env, "device.name"));
    row_bytes(t, "device memory", record_number(env, "device.memory_bytes"));
    row_number(t, "measured peak, fp32", record_number(env, "peaks.f32_flops") * 1e-9, " GFLOP/s");
    row_number(t, "measured peak, tf32", record_number(env, "peaks.tf32_flops") * 1e-9, " GFLOP/s");
    row_number(t, "measured peak, bf16", record_number(env, "peaks.bf16_flops") * 1e-9, " GFLOP/s");
    row_number(t, "measured peak, fp16", record_number(env, "peaks.f16_flops") * 1e-9, " GFLOP/s");
    row_number(t, "measured copy bandwidth", record_number(env, "peaks.copy_bytes_per_s") * 1e-9, " GB/s");
    row_text(t, "compiler", record_string(env, "compiler"));
    row_text(t, "flags", record_string(env, "flags"));
    rows_members(t, record_get(env, "libraries"));
    text_add(t, "\n");
}

/* ---- reproduction ---- */

static void add_command(Text *t, const json_t *command)
{
    text_add(t, "    ");
    for (size_t i = 0; i < json_array_size(command); i++) {
        const char *word = json_string_value(json_array_get(command, i));
        text_add(t, i ? " " : "");
        if (i == 0 && word && strcmp(word, "batchmark") == 0) /* where the build puts it, not on anybody's path */
            word = "build/batchmark";
        text_add_shell(t, word ? word : "");
    }
    text_add(t, "\n");
}

/* "1, 2, 4" from an array of numbers or texts. */
static const char *join_list(const json_t *list, char *text, size_t size)
{
    size_t n = 0;
    snprintf(text, size, "(none)");
    for (size_t i = 0; i < json_array_size(list) && n < size; i++) {
        const json_t *v = json_array_get(list, i);
        int m = json_is_string(v) ? snprintf(text + n, size - n, "%s%s", i ? ", " : "", json_string_value(v))
                                  : snprintf(text + n, size - n, "%s%.15g", i ? ", " : "", json_number_value(v));
        n += m > 0 ? (size_t)m : 0;
    }
    return text;
}

static void add_options(Text *t, const json_t *options)
{
    json_t *o = (json_t *)(uintptr_t)options;
    if (!json_object_size(o))
        return;
    text_add(t, "Every option of the run, defaults included:\n\n| option | value |\n| --- | --- |\n");
    for (void *it = json_object_iter(o); it; it = json_object_iter_next(o, it)) {
        const json_t *v = json_object_iter_value(it);
        char number[40], joined[256];
        if (json_is_integer(v))
            snprintf(number, sizeof number, "%lld", (long long)json_integer_value(v));
        else if (json_is_real(v))
            snprintf(number, sizeof number, "%.15g", json_real_value(v));
        row_text(t, json_object_iter_key(it),
                 json_is_string(v) ? (*json_string_value(v) ? json_string_value(v) : "(empty)")
                 : json_is_number(v) ? number
                 : json_is_boolean(v) ? (json_is_true(v) ? "yes" : "no")
                 : json_is_null(v) ? "(not set)" : join_list(v, joined, sizeof joined));
    }
    text_add(t, "\n");
}

static void add_reproduction(Text *t, const PageInput *in)
{
    const json_t *command = record_array(in->record, "run.command");
    const char *revision = record_string(in->record, "tool.git");
    text_add(t, "## How to reproduce\n\n");
    if (json_array_size(command)) {
        text_add(t, "The run, in a build of the revision above:\n\n");
        if (revision) {
            text_add(t, "    git checkout ");
            text_add_shell(t, revision);
            text_add(t, "\n");
        }
        add_command(t, command);
        text_add(t, "\n");
    }
    text_add(t, "This page, its tables and charts again from the record:\n\n    build/batchmark report ");
    text_add_shell(t, in->record_path);
    text_add(t, "\n\nOne chart again, after changing its script or style:\n\n    cd charts && gnuplot NAME.gp\n\n");
    add_options(t, record_get(in->record, "run.options"));
}

static void add_reading(Text *t)
{
    text_add(t,
             "## How to read this page\n\n"
             "- **Batch** is what one forward and backward pass takes; with accumulation *k* the weights change once "
             "every *k* passes, and the **effective batch** is batch \xc3\x97 *k* (tables call the batch of one pass micro-batch). A **step** is everything from one change of the "
             "weights to the next.\n"
             "- **Throughput** is effective batch / median step time: samples are images, or sequences of text, whose **tokens** are "
             "counted at full length in a sweep and without padding in a training. Bars on step times reach from the lower to the "
             "upper quartile. Warm-up steps are left out; each cell was verified before it was timed.\n"
             "- A training is judged on the test split: **accuracy** of images or sequences; **Dice**, 2 |P \xe2\x88\xa9 T| / (|P| + |T|) over "
             "all pixels of the split together, mean over the classes but the background; **masked-LM accuracy**, the share of masked "
             "tokens that are guessed right.\n"
             "- **Floor** is the least time the step could take on this machine: for each node of the graph the larger of "
             "operations / measured peak and bytes / measured bandwidth, summed. 100 % means at the limit.\n"
             "- **Planned** memory is computed from the graph before anything runs; **measured peak** is the most the "
             "backend's own tensors held; **process peak** is the resident set of the whole process. 1 GiB = 2^30 bytes.\n"
             "- An en dash (\xe2\x80\x93) is a number that does not exist, never a zero; the reason stands under "
             "\xe2\x80\x9cWithout a value\xe2\x80\x9d or in the status column. In charts such a place is a gap with a cross.\n"
             "- All numbers in full, in seconds and bytes: [cells](tables/cells.csv), [samples](tables/samples.csv), "
             "[operations](tables/ops.csv), [trainings](tables/trainings.csv), [epochs](tables/epochs.csv), "
             "[curves](tables/curves.csv).\n");
}

void page_write_end(Text *t, const PageInput *in)
{
    add_missing(t, in->record);
    add_doubts(t, in->record);
    add_environment(t, in->record);
    add_reproduction(t, in);
    add_reading(t);
}
