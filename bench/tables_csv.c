/* tables_csv.c - every number of a record as CSV (RFC 4180, one heading line, seconds and bytes, '.' as the decimal
 * point, 17 significant digits, an empty field where there is no number). */
#include "tables_csv.h"

#include "tables.h"

typedef struct Field { const char *heading, *path; } Field;

static void add_value(Text *t, const json_t *v)
{
    if (json_is_string(v))
        text_add_csv(t, json_string_value(v));
    else if (json_is_integer(v))
        text_format(t, "%lld", (long long)json_integer_value(v));
    else if (json_is_real(v))
        text_format(t, "%.17g", json_real_value(v));
    else if (json_is_boolean(v))
        text_add(t, json_is_true(v) ? "true" : "false");
}

static void add_headings(Text *t, const Field *fields, size_t count)
{
    for (size_t i = 0; i < count; i++)
        text_format(t, "%s%s", i ? "," : "", fields[i].heading);
    text_add(t, "\r\n");
}

static void add_fields(Text *t, const json_t *item, const Field *fields, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        text_add(t, i ? "," : "");
        add_value(t, record_get(item, fields[i].path));
    }
}

/* One line an item of record.<list>. */
static Status write_items(const json_t *record, const char *list, const Field *fields, size_t count, const char *folder,
                          const char *file)
{
    Text t = { 0 };
    const json_t *items = record_array(record, list);
    add_headings(&t, fields, count);
    for (size_t i = 0; i < json_array_size(items); i++) {
        add_fields(&t, json_array_get(items, i), fields, count);
        text_add(&t, "\r\n");
    }
    Status s = text_write_file(&t, folder, file);
    text_free(&t);
    return s;
}

/* One line an element of record.<list>[i].<inner>, opened by the item's name and the element's number from 1. */
static Status write_inner(const json_t *record, const char *list, const char *inner, const Field *fields, size_t count,
                          const char *folder, const char *file)
{
    Text t = { 0 };
    const json_t *items = record_array(record, list);
    text_add(&t, "name,number,");
    add_headings(&t, fields, count);
    for (size_t i = 0; i < json_array_size(items); i++) {
        const json_t *item = json_array_get(items, i), *elements = record_array(item, inner);
        for (size_t j = 0; j < json_array_size(elements); j++) {
            text_add_csv(&t, record_string(item, "name"));
            text_format(&t, ",%zu,", j + 1);
            add_fields(&t, json_array_get(elements, j), fields, count);
            text_add(&t, "\r\n");
        }
    }
    Status s = text_write_file(&t, folder, file);
    text_free(&t);
    return s;
}

#define MEMORY_FIELDS                                                                                                    \
    { "planned_weights_bytes", "memory.planned.weights" }, { "planned_copies_bytes", "memory.planned.copies" },          \
    { "planned_gradients_bytes", "memory.planned.gradients" }, { "planned_optimizer_bytes", "memory.planned.optimizer" },\
    { "planned_activations_bytes", "memory.planned.activations" },                                                       \
    { "planned_workspace_bytes", "memory.planned.workspace" }, { "planned_input_bytes", "memory.planned.input" },        \
    { "planned_total_bytes", "memory.planned.total" },                                                                   \
    { "activation_lower_bound_bytes", "memory.planned.activation_lower_bound" },                                         \
    { "activation_naive_bytes", "memory.planned.activation_naive" },                                                     \
    { "measured_peak_bytes", "memory.measured_peak" }, { "process_peak_bytes", "memory.process_peak" },       \
    { "allocated_bytes", "memory.allocated" }, { "device_used_bytes", "memory.device_used" },                            \
    { "process_used_bytes", "memory.process_used" }

#define NET_FIELDS                                                                                                       \
    { "optimizer", "axes.optimizer" }, { "momentum", "axes.momentum" }, { "depth", "axes.depth" },                       \
    { "stem_stride", "axes.stem_stride" }, { "layers", "axes.layers" }, { "hidden", "axes.hidden" },                     \
    { "heads", "axes.heads" }, { "vocab", "axes.vocab" }, { "head", "axes.head" }, { "dropout", "axes.dropout" }

static const Field cell_fields[] = {
    { "name", "name" }, { "status", "status" }, { "reason", "reason" }, { "net", "axes.net" }, { "size", "axes.size" },
    { "batch", "axes.batch" }, { "amp", "axes.amp" }, { "accum", "axes.accum" }, { "width", "axes.width" },
    { "classes", "axes.classes" }, { "stem", "axes.stem" }, NET_FIELDS, { "effective_batch", "effective_batch" },
    { "verified_against", "verified.against" }, { "verified_max_error", "verified.max_error" },
    { "verified_bound", "verified.bound" }, { "warmup_steps", "warmup.steps" },
    { "warmup_first_s", "warmup.first_seconds" }, { "stop", "stop" }, { "throughput_per_s", "throughput" },
    { "step_median_s", "step_seconds.median" }, { "step_q1_s", "step_seconds.q1" }, { "step_q3_s", "step_seconds.q3" },
    { "step_min_s", "step_seconds.min" }, { "step_max_s", "step_seconds.max" }, { "step_sem_s", "step_seconds.sem" },
    MEMORY_FIELDS, { "work_flops", "work.flops" }, { "work_bytes", "work.bytes" }, { "floor_s", "floor_seconds" },
    { "profile_steps", "profile.steps" }, { "compute_s", "profile.compute_seconds" },
    { "copy_s", "profile.copy_seconds" }, { "wait_s", "profile.wait_seconds" }, { "other_s", "profile.other_seconds" },
    { "profile_source", "profile.source" }, { "kernels_s", "profile.kernel_seconds" }, { "launches", "profile.launches" },
    { "busy_share", "profile.busy_share" }, { "tensor_core_share", "profile.tensor_core_share" },
    { "copy_in_s", "profile.copy_in_seconds" }, { "copy_out_s", "profile.copy_out_seconds" },
    { "copy_within_s", "profile.copy_within_seconds" }, { "set_s", "profile.set_seconds" },
    { "overlap_s", "profile.overlap_seconds" }, { "idle_s", "profile.idle_seconds" },
    { "profiling_ratio", "profile.overhead.ratio" }, { "dropped_events", "profile.dropped_events" },
    { "profile_reason", "profile_reason" },
};

static const Field training_fields[] = {
    { "name", "name" }, { "status", "status" }, { "reason", "reason" }, { "net", "axes.net" }, { "data", "axes.data" },
    { "size", "axes.size" }, { "batch", "axes.batch" }, { "accum", "axes.accum" }, { "amp", "axes.amp" },
    { "width", "axes.width" }, { "stem", "axes.stem" }, { "classes", "axes.classes" }, NET_FIELDS,
    { "epochs", "axes.epochs" }, { "lr", "axes.lr" }, { "lr_scaling", "axes.lr_scaling" }, { "schedule", "axes.schedule" },
    { "warmup_epochs", "axes.warmup" }, { "weight_decay", "axes.weight_decay" }, { "clip", "axes.clip" }, { "seed", "axes.seed" }, { "effective_batch", "effective_batch" },
    { "throughput_per_s", "throughput" }, { "target_accuracy", "target_accuracy" },
    { "samples_to_target", "samples_to_target" }, { "seconds_to_target_s", "seconds_to_target" },
    { "last_loss_scale", "loss_scale.last" }, { "skipped_updates", "loss_scale.skipped_updates" },
    { "padding", "padding.policy" }, { "padding_share", "padding.share" }, { "rows", "padding.rows" }, { "tokens", "padding.tokens" },
    { "tokens_per_s", "padding.tokens_per_second" }, MEMORY_FIELDS,
};

static const Field sample_fields[] = { { "seconds_s", "seconds" }, { "load_cores", "load" } };

static const Field op_fields[] = {
    { "op", "op" }, { "calls", "calls" }, { "seconds_s", "seconds" }, { "flops", "flops" }, { "bytes", "bytes" },
};

static const Field kernel_fields[] = {
    { "kernel", "name" }, { "calls", "calls" }, { "seconds_s", "seconds" }, { "share", "share" }, { "tensor_cores", "tensor_cores" },
};

static const Field epoch_fields[] = {
    { "epoch", "epoch" }, { "train_loss", "train_loss" }, { "train_accuracy", "train_accuracy" },
    { "test_loss", "test_loss" }, { "test_accuracy", "test_accuracy" }, { "test_dice", "test_dice" },
    { "test_image_dice", "test_image_dice" }, { "samples", "samples" },
    { "seconds_s", "seconds" }, { "wait_s", "wait_seconds" },
};

static const Field curve_fields[] = {
    { "update", "update" }, { "samples", "samples" }, { "loss", "loss" }, { "accuracy", "accuracy" },
    { "grad_norm", "grad_norm" }, { "lr", "lr" }, { "loss_scale", "loss_scale" },
    { "skipped", "skipped" },
};

Status tables_write_csv(const json_t *record, const char *folder)
{
    TRY(write_items(record, "cells", cell_fields, COUNT_OF(cell_fields), folder, "cells.csv"));
    TRY(write_inner(record, "cells", "samples", sample_fields, COUNT_OF(sample_fields), folder, "samples.csv"));
    TRY(write_inner(record, "cells", "profile.ops", op_fields, COUNT_OF(op_fields), folder, "ops.csv"));
    TRY(write_inner(record, "cells", "profile.kernels", kernel_fields, COUNT_OF(kernel_fields), folder, "kernels.csv"));
    TRY(write_items(record, "trainings", training_fields, COUNT_OF(training_fields), folder, "trainings.csv"));
    TRY(write_inner(record, "trainings", "epochs", epoch_fields, COUNT_OF(epoch_fields), folder, "epochs.csv"));
    return write_inner(record, "trainings", "curve", curve_fields, COUNT_OF(curve_fields), folder, "curves.csv");
}

void table_claim_csv(Text *t, const json_t *table)
{
    const json_t *names = record_array(table, "columns"), *units = record_array(table, "units");
    const json_t *rows = record_array(table, "rows");
    size_t count = json_array_size(names);
    for (size_t i = 0; i < count; i++) {
        const char *unit = json_string_value(json_array_get(units, i));
        const char *name = json_string_value(json_array_get(names, i));
        Text heading = { 0 };
        text_add(&heading, name ? name : "");
        if (unit && *unit)
            text_format(&heading, " (%s)", unit);
        text_add(t, i ? "," : "");
        text_add_csv(t, text_bytes(&heading));
        t->failed = t->failed || heading.failed;
        text_free(&heading);
    }
    text_add(t, "\r\n");
    for (size_t r = 0; r < json_array_size(rows); r++) {
        for (size_t i = 0; i < count; i++) {
            text_add(t, i ? "," : "");
            add_value(t, json_array_get(json_array_get(rows, r), i));
        }
        text_add(t, "\r\n");
    }
}
