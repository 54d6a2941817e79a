/* a1_memory_line.c - claim A1: is memory a line over the batch, does the line predict the largest batch, and how much of a
 * card has to be held back? Measured on this machine's device; cards are sizes that the planner's answer is compared with. */
#include "a1_memory_line.h"

#include "gather.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { POINTS_MIN = 3, CARDS = 5, CARD_ROWS_MAX = CARDS * AMP_COUNT * GATHER_NETS };
static const double MIB = 1048576.0, GIB = 1073741824.0;
static const double cards_gib[CARDS] = { 8, 16, 24, 40, 80 };
static const double R2_MIN = 0.99, RESIDUAL_MAX = 0.05, RESERVE = 0.20, RESERVE_LOW = 0.10, RESERVE_HIGH = 0.25;
#define TOLERANCE_TEXT "a line: R2 at least 0.99 and every batch within 5 % of it; the real maximum is below the formula's on every " \
                       "card; the reserve needed is 10 to 25 %"

/* ---- analysis ---- */

MemoryLine memory_line_fit(const Curve *curve)
{
    double x[CURVE_POINTS_MAX], y[CURVE_POINTS_MAX];
    const double nan = (double)NAN;
    MemoryLine m = { 0, false, nan, nan, nan, nan, nan, nan };
    for (size_t i = 0; i < curve->count; i++) {
        const CellPoint *p = &curve->points[i];
        if (!isfinite(p->measured_peak) || p->measured_peak <= 0)
            continue;
        x[m.points] = (double)p->batch;
        y[m.points++] = p->measured_peak;
        m.max_plan_error = fmax(m.max_plan_error, fabs(p->planned - p->measured_peak) / p->measured_peak); /* fmax passes over NaN */
        m.outside = fmax(m.outside, p->process_peak - p->measured_peak);
    }
    m.fitted = m.points >= POINTS_MIN;
    if (!m.fitted)
        return m;
    StatsLine line = stats_line(x, y, m.points);
    m.model = line.intercept;
    m.per_sample = line.slope;
    m.r2 = line.r2;
    for (size_t i = 0; i < m.points; i++)
        m.max_residual = fmax(m.max_residual, fabs(line.intercept + line.slope * x[i] - y[i]) / y[i]);
    m.outside = fmax(m.outside, 0);
    return m;
}

int64_t memory_line_batch(double card, double model, double per_sample)
{
    double batch = floor((card - model) / per_sample + 1e-9); /* so that (24 - 4) / 0.2 is 100 in binary too */
    return batch > 0 ? (int64_t)fmin(batch, 1e15) : 0;
}

/* Between a batch that fits and one that does not: where the straight line between them meets the limit. */
static int64_t between(int64_t low, double low_bytes, int64_t high, double high_bytes, double limit)
{
    double part = (limit - low_bytes) / (high_bytes - low_bytes);
    int64_t at = low + (int64_t)(part * (double)(high - low));
    return at <= low ? low + 1 : at >= high ? high - 1 : at;
}

Status largest_batch(BytesOfBatch *bytes, void *context, double limit, int64_t guess, int64_t *batch)
{
    int64_t low = 0, high = BATCH_MAX + 1, step = 1;
    double  low_bytes = 0, high_bytes = INFINITY;
    int64_t at = guess < 1 ? 1 : guess > BATCH_MAX ? BATCH_MAX : guess;
    bool    halve = false; /* every other step bisects, so that a crooked curve cannot slow the search down */
    while (high - low > 1) {
        double need;
        TRY(bytes(context, at, &need));
        if (need <= limit) {
            low = at;
            low_bytes = need;
        } else {
            high = at;
            high_bytes = need;
        }
        if (high > BATCH_MAX || low == 0) { /* one side is still open: away from the guess in growing steps */
            at = high > BATCH_MAX ? low + step : high - step;
            step *= 2;
            at = at > BATCH_MAX ? BATCH_MAX : at < 1 ? 1 : at;
        } else {
            at = halve ? low + (high - low) / 2 : between(low, low_bytes, high, high_bytes, limit);
            halve = !halve;
        }
    }
    *batch = low;
    return status_ok();
}

Status card_fit(BytesOfBatch *bytes, void *context, const MemoryLine *line, CardFit *row)
{
    double outside = isfinite(line->outside) ? line->outside : 0, need = (double)NAN;
    row->by_formula = memory_line_batch(row->card, line->model, line->per_sample);
    row->with_reserve = memory_line_batch((1 - RESERVE) * row->card, line->model, line->per_sample);
    TRY(largest_batch(bytes, context, row->card - outside, row->by_formula, &row->largest));
    if (row->by_formula >= 1 && row->by_formula <= BATCH_MAX)
        TRY(bytes(context, row->by_formula, &need));
    row->left = 1 - (need + outside) / row->card;
    row->reserve_needed = 0;
    if (row->by_formula > row->largest)
        row->reserve_needed = fmax(0, 1 - (line->model + line->per_sample * (double)(row->largest + 1)) / row->card);
    return status_ok();
}

Verdict memory_line_judge(const MemoryLine *lines, size_t line_count, const CardFit *cards, size_t card_count)
{
    size_t fitted = 0;
    bool   straight = true, smaller = card_count > 0, reserve = card_count > 0;
    double needed = 0;
    for (size_t i = 0; i < line_count; i++) {
        if (!lines[i].fitted)
            continue;
        fitted++;
        straight = straight && lines[i].r2 >= R2_MIN && lines[i].max_residual <= RESIDUAL_MAX && lines[i].per_sample > 0;
    }
    for (size_t i = 0; i < card_count; i++) {
        smaller = smaller && cards[i].largest < cards[i].by_formula;
        needed = fmax(needed, cards[i].reserve_needed);
    }
    reserve = reserve && needed >= RESERVE_LOW && needed <= RESERVE_HIGH;
    if (!fitted)
        return VERDICT_NOT_RUN;
    if (!straight)
        return VERDICT_CONTRADICTED;
    return smaller && reserve ? VERDICT_REPRODUCED : VERDICT_PARTLY;
}

/* ---- running it ---- */

/* A net on a device that is only planned, never run. */
typedef struct Planned { NetConfig net; Backend *backend; const ExecOptions *exec; } Planned;

static Status planned_bytes(void *context, int64_t batch, double *bytes)
{
    Planned *p = context;
    Net net;
    MemPlan plan;
    p->net.batch = batch;
    TRY(net_build(&p->net, &net));
    Status status = exec_plan_memory(net.graph, p->backend, p->exec, &plan);
    net_destroy(&net);
    *bytes = (double)plan.total;
    return status;
}

typedef struct CardRow { const Curve *curve; CardFit fit; } CardRow;

typedef struct MemoryStudy {
    Curves    *curves;
    MemoryLine lines[CURVES_MAX];
    CardRow    rows[CARD_ROWS_MAX];
    size_t     row_count;
} MemoryStudy;

static void fit_all(MemoryStudy *s)
{
    for (size_t i = 0; i < s->curves->count; i++)
        s->lines[i] = memory_line_fit(&s->curves->list[i]);
}

static bool net_has_line(const MemoryStudy *s, const char *net)
{
    for (size_t i = 0; i < s->curves->count; i++)
        if (s->lines[i].fitted && !strcmp(s->curves->list[i].axes.net, net))
            return true;
    return false;
}

/* The curves of the record; for a net without one of three batches, a few short cells first. */
static Status find_lines(Gather *g, MemoryStudy *s)
{
    static const int64_t batches[] = { 1, 2, 4 };
    bool missing = false;
    TRY(curves_collect(&g->points, &s->curves));
    fit_all(s);
    for (int n = 0; n < GATHER_NETS; n++)
        for (int a = 0; a < AMP_COUNT && !net_has_line(s, gather_nets[n]); a++)
            for (size_t b = 0; gather_uses(g, (Amp)a) && b < COUNT_OF(batches); b++) {
                NetConfig net = gather_net(g->context, gather_nets[n]);
                net.amp = (Amp)a;
                net.batch = batches[b];
                TRY(gather_cell(g, &net, 1, FOR_MEMORY, NULL));
                missing = true;
            }
    if (!missing)
        return status_ok();
    free(s->curves);
    s->curves = NULL;
    TRY(curves_collect(&g->points, &s->curves));
    fit_all(s);
    return status_ok();
}

/* Card rows for the lines of each net's largest size, as far as a net can have such a batch; after all measuring, since a device
 * is opened in this process. */
static Status fit_cards(const MeasureOptions *measure, MemoryStudy *s)
{
    Planned planned = { .exec = &measure->exec };
    Status  status = status_ok();
    TRY(backend_open(measure->device, &measure->backend, &planned.backend));
    for (size_t i = 0; i < s->curves->count; i++) {
        const Curve *c = &s->curves->list[i];
        if (!s->lines[i].fitted || !(s->lines[i].per_sample > 0) || !curves_main_size(s->curves, i))
            continue;
        planned.net = c->axes.config;
        for (int k = 0; k < CARDS && s->row_count < CARD_ROWS_MAX; k++) {
            if (memory_line_batch(cards_gib[k] * GIB, s->lines[i].model, s->lines[i].per_sample) > BATCH_MAX)
                continue;
            CardRow *row = &s->rows[s->row_count++];
            *row = (CardRow){ c, { .card = cards_gib[k] * GIB } };
            TRY_GOTO(status, card_fit(planned_bytes, &planned, &s->lines[i], &row->fit), out);
        }
    }
out:
    backend_close(planned.backend);
    return status;
}

/* ---- the entry ---- */

static Status add_points_table(json_t *entry, const MemoryStudy *s)
{
    static const ColumnHead heads[] = {
        { "cells", "" }, { "batch", "" }, { "measured peak", "MiB" }, { "planned", "MiB" }, { "plan off by", "%" },
        { "line", "MiB" }, { "line off by", "%" }, { "whole process", "MiB" },
    };
    ClaimTable t;
    char label[LABEL_BYTES];
    claim_table_begin(&t, "Peak memory against batch, planned and by the fitted line", heads, COUNT_OF(heads));
    for (size_t i = 0; i < s->curves->count; i++)
        for (size_t k = 0; k < s->curves->list[i].count; k++) {
            const CellPoint *p = &s->curves->list[i].points[k];
            double line = s->lines[i].model + s->lines[i].per_sample * (double)p->batch;
            claim_table_row(&t);
            claim_table_text(&t, curve_label(p, label, sizeof label));
            claim_table_integer(&t, p->batch);
            claim_table_real(&t, p->measured_peak / MIB);
            claim_table_real(&t, p->planned / MIB);
            claim_table_real(&t, 100 * (p->planned - p->measured_peak) / p->measured_peak);
            claim_table_real(&t, line / MIB);
            claim_table_real(&t, 100 * (line - p->measured_peak) / p->measured_peak);
            claim_table_real(&t, p->process_peak / MIB);
        }
    return entry_add_table(entry, &t);
}

static Status add_lines_table(json_t *entry, const MemoryStudy *s)
{
    static const ColumnHead heads[] = {
        { "cells", "" }, { "batches", "" }, { "not ok", "" }, { "model (intercept)", "MiB" }, { "per sample (slope)", "MiB" },
        { "R2", "" }, { "farthest from the line", "%" }, { "farthest from the plan", "%" }, { "process beside tensors", "MiB" },
        { "note", "" },
    };
    ClaimTable t;
    char label[LABEL_BYTES];
    claim_table_begin(&t, "The fitted lines: memory = model + batch x per sample", heads, COUNT_OF(heads));
    for (size_t i = 0; i < s->curves->count; i++) {
        const Curve *c = &s->curves->list[i];
        const MemoryLine *m = &s->lines[i];
        claim_table_row(&t);
        claim_table_text(&t, curve_label(&c->axes, label, sizeof label));
        claim_table_integer(&t, (int64_t)m->points);
        claim_table_integer(&t, (int64_t)c->not_ok);
        claim_table_real(&t, m->model / MIB);
        claim_table_real(&t, m->per_sample / MIB);
        claim_table_real(&t, m->r2);
        claim_table_real(&t, 100 * m->max_residual);
        claim_table_real(&t, 100 * m->max_plan_error);
        claim_table_real(&t, m->outside / MIB);
        claim_table_text(&t, m->fitted ? NULL : c->not_ok ? c->reason : "too few batches for a line");
    }
    return entry_add_table(entry, &t);
}

static Status add_cards_table(json_t *entry, const MemoryStudy *s)
{
    static const ColumnHead heads[] = {
        { "cells", "" }, { "card", "GiB" }, { "batch by the formula", "" }, { "batch that fits", "" },
        { "left by the formula's batch", "% of the card" }, { "reserve needed", "% of the card" },
        { "formula with 20 % in reserve", "" }, { "batch given up by 20 %", "%" },
    };
    ClaimTable t;
    char label[LABEL_BYTES];
    claim_table_begin(&t, "The largest batch by the formula and by the planner, for cards of several sizes", heads, COUNT_OF(heads));
    for (size_t i = 0; i < s->row_count; i++) {
        const CardFit *f = &s->rows[i].fit;
        claim_table_row(&t);
        claim_table_text(&t, curve_label(&s->rows[i].curve->axes, label, sizeof label));
        claim_table_real(&t, f->card / GIB);
        claim_table_integer(&t, f->by_formula);
        claim_table_integer(&t, f->largest);
        claim_table_real(&t, 100 * f->left);
        claim_table_real(&t, 100 * f->reserve_needed);
        claim_table_integer(&t, f->with_reserve);
        claim_table_real(&t, f->largest ? 100 * (1 - (double)f->with_reserve / (double)f->largest) : (double)NAN);
    }
    return entry_add_table(entry, &t);
}

/* The article's example, and the same sum with our numbers. */
static Status add_arithmetic_table(json_t *entry, const MemoryStudy *s)
{
    static const ColumnHead heads[] = {
        { "numbers of", "" }, { "card", "GB" }, { "model", "GB" }, { "per sample", "GB" }, { "(card - model) / per sample", "" },
    };
    static const double GB = 1e9;
    ClaimTable t;
    char label[LABEL_BYTES];
    claim_table_begin(&t, "The formula as arithmetic", heads, COUNT_OF(heads));
    claim_table_row(&t);
    claim_table_text(&t, "the article");
    claim_table_real(&t, 24);
    claim_table_real(&t, 4);
    claim_table_real(&t, 0.2);
    claim_table_integer(&t, memory_line_batch(24, 4, 0.2));
    for (size_t i = 0; i < s->curves->count; i++) {
        const MemoryLine *m = &s->lines[i];
        if (!m->fitted || !(m->per_sample > 0))
            continue;
        claim_table_row(&t);
        claim_table_text(&t, curve_label(&s->curves->list[i].axes, label, sizeof label));
        claim_table_real(&t, 24);
        claim_table_real(&t, m->model / GB);
        claim_table_real(&t, m->per_sample / GB);
        claim_table_integer(&t, memory_line_batch(24 * GB, m->model, m->per_sample));
    }
    return entry_add_table(entry, &t);
}

/* One chart for the net that begins at this curve, at its largest size. */
static Status add_line_chart(json_t *entry, const MemoryStudy *s, size_t first)
{
    ClaimChart c;
    char label[LABEL_BYTES], title[LABEL_BYTES + 64];
    snprintf(title, sizeof title, "peak memory over the batch, %s", curve_net_label(&s->curves->list[first].axes, label, sizeof label));
    claim_chart_begin(&c, title, "batch", "peak memory of tensors (MiB)", false, false);
    for (size_t i = first; i < s->curves->count && (i == first || !curves_net_begins(s->curves, i)); i++) {
        const Curve *curve = &s->curves->list[i];
        const MemoryLine *m = &s->lines[i];
        if (!m->fitted || !curves_main_size(s->curves, i))
            continue;
        claim_chart_series(&c, CHART_POINTS, "%s measured", curve_precision(&curve->axes));
        for (size_t k = 0; k < curve->count; k++)
            claim_chart_point(&c, (double)curve->points[k].batch, curve->points[k].measured_peak / MIB);
        claim_chart_series(&c, CHART_LINE, "%s line", curve_precision(&curve->axes));
        double last = (double)curve->points[curve->count - 1].batch;
        claim_chart_point(&c, 0, m->model / MIB);
        claim_chart_point(&c, last, (m->model + m->per_sample * last) / MIB);
    }
    return entry_add_chart(entry, &c);
}

typedef int64_t CardBatch(const CardFit *fit);
static int64_t batch_formula(const CardFit *f) { return f->by_formula; }
static int64_t batch_fits(const CardFit *f) { return f->largest; }
static int64_t batch_reserve(const CardFit *f) { return f->with_reserve; }

/* One chart for the net whose rows begin here; *from moves behind them. */
static Status add_cards_chart(json_t *entry, const MemoryStudy *s, size_t *from)
{
    static const struct { const char *name; ChartStyle style; CardBatch *batch; } kinds[] = {
        { "formula", CHART_LINE, batch_formula }, { "fits", CHART_POINTS, batch_fits }, { "20 % in reserve", CHART_POINTS, batch_reserve },
    };
    ClaimChart c;
    char label[LABEL_BYTES], title[LABEL_BYTES + 64];
    const CellPoint *net = &s->rows[*from].curve->axes;
    snprintf(title, sizeof title, "largest batch against card size, %s", curve_net_label(net, label, sizeof label));
    claim_chart_begin(&c, title, "memory of the card (GiB)", "batch", true, true);
    while (*from < s->row_count && !strcmp(s->rows[*from].curve->axes.net, net->net)) {
        const Curve *curve = s->rows[*from].curve;
        size_t to = *from;
        while (to < s->row_count && s->rows[to].curve == curve)
            to++;
        for (size_t k = 0; k < COUNT_OF(kinds); k++) {
            claim_chart_series(&c, kinds[k].style, "%s, %s", curve_precision(&curve->axes), kinds[k].name);
            for (size_t i = *from; i < to; i++)
                claim_chart_point(&c, s->rows[i].fit.card / GIB, (double)kinds[k].batch(&s->rows[i].fit));
        }
        *from = to;
    }
    return entry_add_chart(entry, &c);
}

static Status add_all_charts(json_t *entry, const MemoryStudy *s)
{
    for (size_t i = 0; i < s->curves->count; i++)
        if (curves_net_begins(s->curves, i))
            TRY(add_line_chart(entry, s, i));
    for (size_t from = 0; from < s->row_count;)
        TRY(add_cards_chart(entry, s, &from));
    return status_ok();
}

/* The rows the summary speaks of: the article's 24 GiB, the first precision of each net, "..., 81 by the formula and 80 fit". */
static const CardRow *example_rows(const MemoryStudy *s, char *text, size_t size)
{
    const CardRow *first = NULL, *last = NULL;
    char label[LABEL_BYTES];
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < s->row_count; i++) {
        const CardRow *row = &s->rows[i];
        if (row->fit.card != 24 * GIB || (last && !strcmp(last->curve->axes.net, row->curve->axes.net)) || used >= size)
            continue;
        used += (size_t)snprintf(text + used, size - used, "%s%s: %lld by the formula, %lld fit", first ? "; " : "",
                                 curve_label(&row->curve->axes, label, sizeof label), (long long)row->fit.by_formula, (long long)row->fit.largest);
        first = first ? first : row;
        last = row;
    }
    return first;
}

static Status conclude(json_t *entry, const Gather *g, const MemoryStudy *s)
{
    CardFit cards[CARD_ROWS_MAX] = { { 0 } };
    double r2 = 1, residual = 0, plan = 0, needed = 0;
    int fitted = 0;
    char sources[160], examples[480];
    for (size_t i = 0; i < s->row_count; i++) {
        cards[i] = s->rows[i].fit;
        needed = fmax(needed, cards[i].reserve_needed);
    }
    for (size_t i = 0; i < s->curves->count; i++)
        if (s->lines[i].fitted) {
            fitted++;
            r2 = isfinite(s->lines[i].r2) ? fmin(r2, s->lines[i].r2) : 0;
            residual = fmax(residual, s->lines[i].max_residual);
            plan = fmax(plan, s->lines[i].max_plan_error);
        }
    Verdict verdict = memory_line_judge(s->lines, s->curves->count, cards, s->row_count);
    const CardRow *row = example_rows(s, examples, sizeof examples);
    gather_sources(g, FOR_MEMORY, sources, sizeof sources);
    if (verdict == VERDICT_NOT_RUN)
        return entry_conclude(entry, verdict, TOLERANCE_TEXT, "No curve has three batches with a measured peak (%s).", sources);
    if (!row)
        return entry_conclude(entry, verdict, TOLERANCE_TEXT, "Peak memory over the batch: R2 at least %.5f, at most %.2f %% off "
                              "the line (%s); no line rises with the batch.", r2, 100 * residual, sources);
    return entry_conclude(entry, verdict, TOLERANCE_TEXT,
        "Peak memory is %s over the batch in %d curve%s: R2 at least %.5f, at most %.2f %% off the line, %.2f %% off the plan (%s). The "
        "batch on 24 GiB: %s. The reserve needed is %.1f %% at most over all cards and nets, not 20 %%, which here gives up %.0f %% of the batch.",
        verdict == VERDICT_CONTRADICTED ? "not a line" : "a line", fitted, fitted == 1 ? "" : "s", r2, 100 * residual, 100 * plan,
        sources, examples, 100 * needed, row->fit.largest ? 100 * (1 - (double)row->fit.with_reserve / (double)row->fit.largest) : 0);
}

Status claim_a1_memory_line(const ClaimContext *context, json_t *entry)
{
    Gather g;
    MemoryStudy s = { 0 };
    Status status;
    TRY_GOTO(status, gather_begin(&g, context), out);
    TRY_GOTO(status, find_lines(&g, &s), out);
    TRY_GOTO(status, fit_cards(context->measure, &s), out);
    TRY_GOTO(status, add_points_table(entry, &s), out);
    TRY_GOTO(status, add_lines_table(entry, &s), out);
    TRY_GOTO(status, add_cards_table(entry, &s), out);
    TRY_GOTO(status, add_arithmetic_table(entry, &s), out);
    TRY_GOTO(status, add_all_charts(entry, &s), out);
    status = conclude(entry, &g, &s);
out:
    free(s.curves);
    gather_end(&g);
    return status;
}
