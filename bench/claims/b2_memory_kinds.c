/* b2_memory_kinds.c - claim B2: what memory is used for, planned and measured, in fp32 and bf16, with SGD without and with momentum
 * and AdamW; what the article's sum of three terms leaves out; and how large Adam's state is. */
#include "b2_memory_kinds.h"

#include "../stats.h"
#include "gather.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double MIB = 1048576.0, ERROR_MAX = 0.5, ERROR_GOOD = 0.1, ADAM_LOW = 1.9, ADAM_HIGH = 3.1;
#define TOLERANCE_TEXT "the formula within 10 % of the measured peak; contradicted if it misses half of it at the largest batch, or gets " \
                       "worse as the batch grows; Adam's state from 1.9 to 3.1 times the parameters"

/* ---- analysis ---- */

static double slope(const Curve *curve)
{
    double x[CURVE_POINTS_MAX], y[CURVE_POINTS_MAX];
    size_t n = 0;
    for (size_t i = 0; i < curve->count; i++)
        if (isfinite(curve->points[i].measured_peak)) {
            x[n] = (double)curve->points[i].batch;
            y[n++] = curve->points[i].measured_peak;
        }
    return stats_line(x, y, n).slope;
}

void formula_rows(const Curve *curve, FormulaRow rows[FORMULA_ROWS_MAX], size_t *count)
{
    const double per_sample = slope(curve);
    for (size_t i = 0; i < curve->count && *count < FORMULA_ROWS_MAX; i++) {
        const CellPoint *p = &curve->points[i];
        double formula = p->kind[MEM_WEIGHT] + (double)p->batch * per_sample + p->kind[MEM_OPTIM];
        double error = (formula - p->measured_peak) / p->measured_peak;
        if (isfinite(error))
            rows[(*count)++] = (FormulaRow){ p, per_sample, formula, error };
    }
}

double optimizer_state_ratio(const Curve *with, const Curve *without)
{
    double ratio = (double)NAN;
    for (size_t i = 0; i < with->count; i++)
        for (size_t k = 0; k < without->count; k++) {
            const CellPoint *a = &with->points[i], *b = &without->points[k];
            double r = (a->measured_peak - b->measured_peak) / a->kind[MEM_WEIGHT];
            if (a->batch == b->batch && isfinite(r))
                ratio = r; /* points are in order of batch: the last is the largest */
        }
    return ratio;
}

static bool same_settings(const CellPoint *a, const CellPoint *b)
{
    return !strcmp(a->net, b->net) && !strcmp(a->amp, b->amp) && a->momentum == b->momentum && a->size == b->size && !strcmp(a->extra, b->extra);
}

Verdict memory_kinds_judge(const FormulaRow *rows, size_t count, double adam)
{
    bool good = adam >= ADAM_LOW && adam <= ADAM_HIGH;
    for (size_t i = 0; i < count; i++) {
        bool last = i + 1 == count || !same_settings(rows[i].point, rows[i + 1].point);
        if (last && fabs(rows[i].error) > ERROR_MAX)
            return VERDICT_CONTRADICTED;
        if (!last && fabs(rows[i + 1].error) > fabs(rows[i].error) && fabs(rows[i + 1].error) > ERROR_GOOD)
            return VERDICT_CONTRADICTED;
        good = good && (!last || fabs(rows[i].error) <= ERROR_GOOD);
    }
    return !count ? VERDICT_NOT_RUN : good ? VERDICT_REPRODUCED : VERDICT_PARTLY;
}

/* ---- running it ---- */

enum { OPTIM_PLAIN, OPTIM_MOMENTUM, OPTIM_ADAM, OPTIM_SHOWN, TYPES = 2, SHOWN_MAX = GATHER_NETS * TYPES * OPTIM_SHOWN };
static const char *const optimizer_words[OPTIM_SHOWN] = { "SGD without momentum", "SGD, momentum 0.9", "AdamW" };

typedef struct Shown { int net, amp, optimizer; const Curve *curve; } Shown;

typedef struct KindsStudy {
    Curves    *curves;
    Shown      shown[SHOWN_MAX];
    size_t     shown_count;
    FormulaRow rows[FORMULA_ROWS_MAX];
    size_t     row_count;
} KindsStudy;

static NetConfig net_with(const ClaimContext *context, int n, int amp, int optimizer)
{
    NetConfig net = gather_net(context, gather_nets[n]);
    net.amp = (Amp)amp;
    net.optim.kind = optimizer == OPTIM_ADAM ? OPTIM_ADAMW : OPTIM_SGD;
    net.optim.momentum = optimizer == OPTIM_PLAIN ? 0.0f : 0.9f;
    return net;
}

/* The optimiser the sweeps train this net with. */
static int usual_optimizer(int n) { return net_config_default(gather_nets[n]).optim.kind == OPTIM_ADAMW ? OPTIM_ADAM : OPTIM_MOMENTUM; }

/* The usual optimiser at two batches of the sweep, for the slope; the others at the smaller one, since state does not depend on
 * the batch, and without momentum in fp32 alone. */
static Status measure_kinds(Gather *g)
{
    static const int64_t batches[GATHER_NETS][2] = { { 2, 8 }, { 1, 4 }, { 2, 8 } };
    for (int n = 0; n < GATHER_NETS; n++)
        for (int a = 0; a < TYPES; a++)
            for (int o = 0; o < OPTIM_SHOWN; o++)
                for (int b = 0; b < (o == usual_optimizer(n) ? 2 : o == OPTIM_PLAIN && a ? 0 : 1); b++) {
                    NetConfig net = net_with(g->context, n, a, o);
                    net.batch = batches[n][b];
                    TRY(gather_cell(g, &net, 1, FOR_MEMORY, NULL));
                }
    return status_ok();
}

static Status collect(const Gather *g, KindsStudy *s)
{
    TRY(curves_collect(&g->points, &s->curves));
    for (int n = 0; n < GATHER_NETS; n++)
        for (int a = 0; a < TYPES; a++)
            for (int o = 0; o < OPTIM_SHOWN; o++) {
                const NetConfig net = net_with(g->context, n, a, o);
                const CellPoint axes = point_of_net(&net, 1);
                const Curve *c = curves_find(s->curves, &axes);
                if (!c || !c->count)
                    continue;
                s->shown[s->shown_count++] = (Shown){ n, a, o, c };
                formula_rows(c, s->rows, &s->row_count);
            }
    return status_ok();
}

/* The curve of the same net and type with SGD and momentum, or NULL. */
static const Curve *with_momentum(const KindsStudy *s, const Shown *other)
{
    for (size_t i = 0; i < s->shown_count; i++)
        if (s->shown[i].net == other->net && s->shown[i].amp == other->amp && s->shown[i].optimizer == OPTIM_MOMENTUM)
            return s->shown[i].curve;
    return NULL;
}

static double planned_ratio(const Curve *c) { return c->points[0].kind[MEM_OPTIM] / c->points[0].kind[MEM_WEIGHT]; }

/* AdamW's state over the parameters, measured: SGD's as planned and what the peak rose by. NaN without both cells. */
static double measured_adam(const KindsStudy *s, const Shown *shown)
{
    const Curve *base = shown->optimizer == OPTIM_ADAM ? with_momentum(s, shown) : NULL;
    return base ? planned_ratio(base) + optimizer_state_ratio(shown->curve, base) : (double)NAN;
}

/* The one farthest from 2.5; NaN if none was measured. */
static double worst_adam(const KindsStudy *s)
{
    double worst = (double)NAN;
    for (size_t i = 0; i < s->shown_count; i++) {
        double ratio = measured_adam(s, &s->shown[i]);
        if (isfinite(ratio) && !(fabs(ratio - 2.5) <= fabs(worst - 2.5)))
            worst = ratio;
    }
    return worst;
}

/* ---- the entry ---- */

static Status add_kinds_table(json_t *entry, const KindsStudy *s)
{
    static const ColumnHead heads[] = {
        { "cells", "" }, { "optimiser", "" }, { "batch", "" }, { "weights", "MiB" }, { "copies", "MiB" }, { "gradients", "MiB" },
        { "optimiser state", "MiB" }, { "activations", "MiB" }, { "workspace", "MiB" }, { "input", "MiB" }, { "planned", "MiB" },
        { "measured", "MiB" }, { "plan off by", "%" },
    };
    ClaimTable t;
    char label[LABEL_BYTES];
    claim_table_begin(&t, "Memory by what it is for", heads, COUNT_OF(heads));
    for (size_t i = 0; i < s->shown_count; i++)
        for (size_t k = 0; k < s->shown[i].curve->count; k++) {
            const CellPoint *p = &s->shown[i].curve->points[k];
            claim_table_row(&t);
            claim_table_text(&t, curve_label(p, label, sizeof label));
            claim_table_text(&t, optimizer_words[s->shown[i].optimizer]);
            claim_table_integer(&t, p->batch);
            for (int m = 0; m < MEM_KIND_COUNT; m++)
                claim_table_real(&t, p->kind[m] / MIB);
            claim_table_real(&t, p->planned / MIB);
            claim_table_real(&t, p->measured_peak / MIB);
            claim_table_real(&t, 100 * (p->planned - p->measured_peak) / p->measured_peak);
        }
    return entry_add_table(entry, &t);
}

static Status add_optimizer_table(json_t *entry, const KindsStudy *s)
{
    static const ColumnHead heads[] = {
        { "cells", "" }, { "optimiser", "" }, { "parameters", "MiB" }, { "state, planned", "MiB" }, { "state / parameters, planned", "" },
        { "peak over that of SGD with momentum / parameters, measured", "" }, { "state / parameters, measured", "" }, { "note", "" },
    };
    ClaimTable t;
    char label[LABEL_BYTES];
    claim_table_begin(&t, "State of the optimiser", heads, COUNT_OF(heads));
    for (size_t i = 0; i < s->shown_count; i++) {
        const Shown *shown = &s->shown[i];
        const Curve *c = shown->curve, *base = with_momentum(s, shown);
        const CellPoint *p = &c->points[0];
        claim_table_row(&t);
        claim_table_text(&t, curve_label(p, label, sizeof label));
        claim_table_text(&t, optimizer_words[shown->optimizer]);
        claim_table_real(&t, p->kind[MEM_WEIGHT] / MIB);
        claim_table_real(&t, p->kind[MEM_OPTIM] / MIB);
        claim_table_real(&t, planned_ratio(c));
        claim_table_real(&t, base && base != c ? optimizer_state_ratio(c, base) : (double)NAN);
        claim_table_real(&t, measured_adam(s, shown));
        claim_table_text(&t, shown->optimizer == OPTIM_PLAIN && p->kind[MEM_OPTIM] > 0 ? "the suite's SGD keeps its buffer without momentum too"
                             : shown->optimizer == OPTIM_ADAM ? "two moments of 4 bytes a parameter, in bf16 as well" : NULL);
    }
    return entry_add_table(entry, &t);
}

static Status add_formula_table(json_t *entry, const KindsStudy *s)
{
    static const ColumnHead heads[] = {
        { "cells", "" }, { "batch", "" }, { "parameters", "MiB" }, { "activations per sample", "MiB" },
        { "optimiser state", "MiB" }, { "formula", "MiB" }, { "measured", "MiB" }, { "formula off by", "%" },
        { "gradients and copies, not in the formula", "MiB" },
    };
    ClaimTable t;
    char label[LABEL_BYTES];
    claim_table_begin(&t, "parameters + batch x activations + optimiser state, with our numbers", heads, COUNT_OF(heads));
    for (size_t i = 0; i < s->row_count; i++) {
        const FormulaRow *r = &s->rows[i];
        claim_table_row(&t);
        claim_table_text(&t, curve_label(r->point, label, sizeof label));
        claim_table_integer(&t, r->point->batch);
        claim_table_real(&t, r->point->kind[MEM_WEIGHT] / MIB);
        claim_table_real(&t, r->per_sample / MIB);
        claim_table_real(&t, r->point->kind[MEM_OPTIM] / MIB);
        claim_table_real(&t, r->formula / MIB);
        claim_table_real(&t, r->point->measured_peak / MIB);
        claim_table_real(&t, 100 * r->error);
        claim_table_real(&t, (r->point->kind[MEM_GRAD] + r->point->kind[MEM_COPY]) / MIB);
    }
    return entry_add_table(entry, &t);
}

typedef double PointValue(const CellPoint *p);
static double value_model(const CellPoint *p) { return p->kind[MEM_WEIGHT] + p->kind[MEM_COPY] + p->kind[MEM_GRAD] + p->kind[MEM_OPTIM]; }
static double value_activations(const CellPoint *p) { return p->kind[MEM_ACT] + p->kind[MEM_WORKSPACE] + p->kind[MEM_INPUT]; }
static double value_measured(const CellPoint *p) { return p->measured_peak; }

/* One chart for each net: fp32, with the optimiser of the sweep. */
static Status add_kinds_chart(json_t *entry, const KindsStudy *s, const Curve *curve)
{
    static const struct { const char *name; ChartStyle style; PointValue *value; } kinds[] = {
        { "weights, copies, gradients, optimizer, planned", CHART_LINE, value_model },
        { "activations, workspace, input, planned", CHART_LINE, value_activations },
        { "all, measured", CHART_BOTH, value_measured },
    };
    ClaimChart c;
    char label[LABEL_BYTES], title[LABEL_BYTES + 64];
    snprintf(title, sizeof title, "memory by what it is for, %s", curve_label(&curve->axes, label, sizeof label));
    claim_chart_begin(&c, title, "batch", "memory (MiB)", true, false);
    for (size_t k = 0; k < COUNT_OF(kinds); k++) {
        claim_chart_series(&c, kinds[k].style, "%s", kinds[k].name);
        for (size_t i = 0; i < curve->count; i++)
            claim_chart_point(&c, (double)curve->points[i].batch, kinds[k].value(&curve->points[i]) / MIB);
    }
    claim_chart_series(&c, CHART_POINTS, "the article's formula");
    for (size_t i = 0; i < s->row_count; i++)
        if (same_settings(s->rows[i].point, &curve->axes))
            claim_chart_point(&c, (double)s->rows[i].point->batch, s->rows[i].formula / MIB);
    return entry_add_chart(entry, &c);
}

static Status conclude(json_t *entry, const Gather *g, const KindsStudy *s)
{
    const double adam = worst_adam(s);
    Verdict verdict = memory_kinds_judge(s->rows, s->row_count, adam);
    char sources[160], nets[640] = "", label[LABEL_BYTES];
    size_t used = 0;
    gather_sources(g, FOR_MEMORY, sources, sizeof sources);
    if (verdict == VERDICT_NOT_RUN)
        return entry_conclude(entry, verdict, TOLERANCE_TEXT, "No cell could be measured: %s.",
                              s->curves->count ? s->curves->list[0].reason : sources);
    for (size_t i = 0; i < s->row_count && used < sizeof nets; i++) { /* the fp32 rows of each net, its first and last batch */
        const FormulaRow *first = &s->rows[i], *last = first;
        if (strcmp(first->point->amp, "off") || (i && same_settings(first->point, s->rows[i - 1].point)))
            continue;
        for (size_t k = i; k < s->row_count && same_settings(s->rows[k].point, first->point); k++)
            last = &s->rows[k];
        const CellPoint *p = last->point;
        used += (size_t)snprintf(nets + used, sizeof nets - used, "%s%s: %+.0f %% at batch %lld, %+.0f %% at %lld", used ? "; " : "",
                                 curve_label(p, label, sizeof label), 100 * first->error, (long long)first->point->batch,
                                 100 * last->error, (long long)p->batch);
    }
    return entry_conclude(entry, verdict, TOLERANCE_TEXT,
        "The formula is off by %s: it leaves out gradients and compute copies (%s). AdamW's state is %.2f times the parameters by "
        "measurement, two fp32 moments; the article says 2-3.", nets, sources, adam);
}

Status claim_b2_memory_kinds(const ClaimContext *context, json_t *entry)
{
    Gather g;
    KindsStudy s = { .curves = NULL };
    Status status;
    TRY_GOTO(status, gather_begin(&g, context), out);
    TRY_GOTO(status, measure_kinds(&g), out);
    TRY_GOTO(status, collect(&g, &s), out);
    TRY_GOTO(status, add_kinds_table(entry, &s), out);
    TRY_GOTO(status, add_optimizer_table(entry, &s), out);
    TRY_GOTO(status, add_formula_table(entry, &s), out);
    for (size_t i = 0; i < s.shown_count; i++)
        if (s.shown[i].amp == AMP_OFF && s.shown[i].optimizer == usual_optimizer(s.shown[i].net))
            TRY_GOTO(status, add_kinds_chart(entry, &s, s.shown[i].curve), out);
    status = conclude(entry, &g, &s);
out:
    free(s.curves);
    gather_end(&g);
    return status;
}
