/* a5_mixed_precision.c - claim A5: memory and time in fp32 and in half the bits, from the sweep's cells; and whether a training
 * loses anything, fp16 with its loss scale included. Where fp16 is only emulated its numbers count and its speed is not timed. */
#include "a5_mixed_precision.h"

#include "../train.h"
#include "gather.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { RUNS = AMP_FP16 + 1 }; /* fp32 and half its bits: tf32 has all of them in memory */
static const double MIB = 1048576.0, LOSS_NEAR = 0.10, SKIPPED_MOST = 0.10;
#define TOLERANCE_TEXT "less memory and less time at the largest batch of every net; test loss within 10 % of fp32's, at most a tenth of the updates skipped"

/* ---- analysis ---- */

static double speed_up(const PrecisionPair *p) { return p->half.throughput / p->full.throughput; }
static double memory_share(const PrecisionPair *p) { return p->half.measured_peak / p->full.measured_peak; }

size_t precision_pairs(const Curves *curves, PrecisionPair pairs[PRECISION_PAIRS_MAX])
{
    size_t n = 0;
    for (size_t i = 0; i < curves->count && n < PRECISION_PAIRS_MAX; i++) {
        const Curve *half = &curves->list[i];
        CellPoint axes = half->axes;
        snprintf(axes.amp, sizeof axes.amp, "%s", amp_names[AMP_OFF]);
        const Curve *full = curves_find(curves, &axes);
        if (!strcmp(half->axes.amp, amp_names[AMP_OFF]) || !full)
            continue;
        const PrecisionPair *last = NULL;
        for (size_t h = 0; h < half->count; h++)
            for (size_t f = 0; f < full->count; f++)
                if (half->points[h].batch == full->points[f].batch) {
                    pairs[n] = (PrecisionPair){ full->points[f], half->points[h] };
                    last = &pairs[n];
                }
        n += last != NULL;
    }
    return n;
}

static bool run_agrees(const PrecisionRun *run, const PrecisionRun *full)
{
    return fabs(run->loss - full->loss) <= LOSS_NEAR * full->loss && (double)run->skipped <= SKIPPED_MOST * (double)run->updates;
}

Verdict mixed_precision_judge(const PrecisionPair *pairs, size_t count, const PrecisionRun runs[RUNS])
{
    size_t smaller = 0, faster = 0, judged = 0;
    for (size_t i = 0; i < count; i++) {
        if (!strcmp(pairs[i].half.amp, amp_names[AMP_TF32]))
            continue;
        judged++;
        smaller += memory_share(&pairs[i]) < 1;
        faster += speed_up(&pairs[i]) > 1;
    }
    if (!judged)
        return VERDICT_NOT_RUN;
    if (!smaller && !faster)
        return VERDICT_CONTRADICTED;
    bool agree = run_agrees(&runs[AMP_BF16], &runs[AMP_OFF]) && run_agrees(&runs[AMP_FP16], &runs[AMP_OFF]);
    return smaller == judged && faster == judged && agree ? VERDICT_REPRODUCED : VERDICT_PARTLY;
}

/* ---- running it ---- */

typedef struct PrecisionStudy {
    Curves       *curves;
    PrecisionPair pairs[PRECISION_PAIRS_MAX];
    size_t        pair_count;
    PrecisionRun  runs[RUNS];
    json_t       *entries[RUNS]; /* owned; NULL where a run failed, then why */
    Status        why[RUNS];
} PrecisionStudy;

/* A batch of each net that every sweep has, in both precisions. */
static Status find_pairs(Gather *g, PrecisionStudy *s)
{
    for (int n = 0; n < GATHER_NETS; n++)
        for (int a = AMP_OFF; a < AMP_COUNT; a++) {
            NetConfig net = gather_net(g->context, gather_nets[n]);
            net.batch = 4;
            net.amp = (Amp)a;
            if (gather_uses(g, net.amp))
                TRY(gather_cell(g, &net, 1, FOR_TIME, NULL));
        }
    TRY(curves_collect(&g->points, &s->curves));
    s->pair_count = precision_pairs(s->curves, s->pairs);
    return status_ok();
}

static double number(const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

/* A small UNet from one start on the same samples in each precision. */
static Status train_all(const ClaimContext *context, PrecisionStudy *s)
{
    const uint64_t seed = context->measure->seed;
    for (int a = 0; a < RUNS; a++) {
        TrainConfig t = { .net = net_config_default("unet"), .accum = 1, .epochs = 2, .lr = 0.01, .base_batch = 1, .rules = session_rules(),
                          .seed = seed, .feed = { .data = "ellipses", .limit = 128, .loaders = 1, .seed = seed } };
        t.net.batch = 8;
        t.net.size = 32;
        t.net.width = 0.25;
        t.net.depth = 1;
        t.net.amp = (Amp)a;
        s->runs[a] = (PrecisionRun){ .loss = (double)NAN };
        s->why[a] = train_run(&t, context->measure, false, &s->entries[a]);
        if (s->why[a].code == STATUS_INTERRUPTED || s->why[a].code == STATUS_OOM)
            return s->why[a];
        const json_t *epochs = json_object_get(s->entries[a], "epochs"), *scale = json_object_get(s->entries[a], "loss_scale");
        if (json_array_size(epochs) == (size_t)t.epochs)
            s->runs[a].loss = number(json_array_get(epochs, (size_t)t.epochs - 1), "test_loss");
        s->runs[a].updates = (int64_t)json_array_size(json_object_get(s->entries[a], "curve"));
        s->runs[a].skipped = json_integer_value(json_object_get(scale, "skipped_updates"));
    }
    return status_ok();
}

/* ---- the entry ---- */

static const char *precision_word(int a) { return a == AMP_OFF ? "fp32" : a == AMP_FP16 ? "fp16, loss scale" : amp_names[a]; }

static Status add_cell_table(json_t *entry, const PrecisionStudy *s)
{
    static const ColumnHead heads[] = {
        { "cells", "" }, { "batch", "" }, { "fp32", "samples or sequences/s" }, { "here", "samples or sequences/s" }, { "speed-up", "" },
        { "memory in fp32", "MiB" }, { "memory here", "MiB" }, { "share of fp32's", "" },
    };
    ClaimTable t;
    char label[LABEL_BYTES];
    claim_table_begin(&t, "Time and memory at the largest batch of both precisions", heads, COUNT_OF(heads));
    for (size_t i = 0; i < s->pair_count; i++) {
        const PrecisionPair *p = &s->pairs[i];
        claim_table_row(&t);
        claim_table_text(&t, curve_label(&p->half, label, sizeof label));
        claim_table_integer(&t, p->half.batch);
        claim_table_real(&t, p->full.throughput);
        claim_table_real(&t, p->half.throughput);
        claim_table_real(&t, speed_up(p));
        claim_table_real(&t, p->full.measured_peak / MIB);
        claim_table_real(&t, p->half.measured_peak / MIB);
        claim_table_real(&t, memory_share(p));
    }
    return entry_add_table(entry, &t);
}

static Status add_run_table(json_t *entry, const PrecisionStudy *s)
{
    static const ColumnHead heads[] = {
        { "precision", "" }, { "updates", "" }, { "skipped", "" }, { "last loss scale", "" }, { "test loss", "" }, { "test Dice", "%" },
        { "test loss off fp32's", "%" }, { "note", "" },
    };
    ClaimTable t;
    claim_table_begin(&t, "The same training in each precision (UNet, SGD, batch 8)", heads, COUNT_OF(heads));
    for (int a = 0; a < RUNS; a++) {
        const json_t *epochs = json_object_get(s->entries[a], "epochs");
        const json_t *last = json_array_size(epochs) ? json_array_get(epochs, json_array_size(epochs) - 1) : NULL;
        claim_table_row(&t);
        claim_table_text(&t, precision_word(a));
        claim_table_integer(&t, s->runs[a].updates);
        claim_table_integer(&t, s->runs[a].skipped);
        claim_table_real(&t, number(json_object_get(s->entries[a], "loss_scale"), "last"));
        claim_table_real(&t, s->runs[a].loss);
        claim_table_real(&t, number(last, "test_dice"));
        claim_table_real(&t, 100 * (s->runs[a].loss / s->runs[AMP_OFF].loss - 1));
        claim_table_text(&t, s->entries[a] ? NULL : s->why[a].text);
    }
    return entry_add_table(entry, &t);
}

static Status add_run_chart(json_t *entry, const PrecisionStudy *s)
{
    ClaimChart c;
    claim_chart_begin(&c, "training loss in each precision", "update", "training loss", false, false);
    for (int a = 0; a < RUNS; a++) {
        const json_t *curve = json_object_get(s->entries[a], "curve");
        if (!json_array_size(curve))
            continue;
        claim_chart_series(&c, CHART_LINE, "%s", precision_word(a));
        for (size_t i = 0; i < json_array_size(curve); i++)
            claim_chart_point(&c, number(json_array_get(curve, i), "update"), number(json_array_get(curve, i), "loss"));
    }
    return entry_add_chart(entry, &c);
}

static Status conclude(json_t *entry, const Gather *g, const PrecisionStudy *s)
{
    char pairs[400] = "", sources[160], label[LABEL_BYTES];
    size_t used = 0;
    for (size_t i = 0; i < s->pair_count && used < sizeof pairs; i++)
        used += (size_t)snprintf(pairs + used, sizeof pairs - used, "%s%s batch %" PRId64 " %.2f x the speed in %.2f x the memory", i ? "; " : "",
                                 curve_label(&s->pairs[i].half, label, sizeof label), s->pairs[i].half.batch, speed_up(&s->pairs[i]),
                                 memory_share(&s->pairs[i]));
    gather_sources(g, FOR_TIME, sources, sizeof sources);
    return entry_conclude(entry, mixed_precision_judge(s->pairs, s->pair_count, s->runs), TOLERANCE_TEXT,
        "%s (%s). The same training ends at a test loss of %.3f in fp32, %.3f in bf16, and %.3f in fp16, which skipped %" PRId64 " of %" PRId64
        " updates; the speed of fp16 is timed only where the hardware has it.", *pairs ? pairs : "No cell in half the bits", sources,
        s->runs[AMP_OFF].loss, s->runs[AMP_BF16].loss, s->runs[AMP_FP16].loss, s->runs[AMP_FP16].skipped, s->runs[AMP_FP16].updates);
}

Status claim_a5_mixed_precision(const ClaimContext *context, json_t *entry)
{
    Gather g;
    PrecisionStudy s = { .curves = NULL };
    Status status;
    TRY_GOTO(status, gather_begin(&g, context), out);
    TRY_GOTO(status, find_pairs(&g, &s), out);
    TRY_GOTO(status, train_all(context, &s), out); /* after the children: see isolate.h */
    TRY_GOTO(status, add_cell_table(entry, &s), out);
    TRY_GOTO(status, add_run_table(entry, &s), out);
    TRY_GOTO(status, add_run_chart(entry, &s), out);
    status = conclude(entry, &g, &s);
out:
    for (int a = 0; a < RUNS; a++)
        json_decref(s.entries[a]);
    free(s.curves);
    gather_end(&g);
    return status;
}
