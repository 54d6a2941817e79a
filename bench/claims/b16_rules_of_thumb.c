/* b16_rules_of_thumb.c - claim B16: which batches reach the peak throughput here, and are 32 to 256 among them? */
#include "b16_rules_of_thumb.h"

#include "gather.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { RANGE_LOW = 32, RANGE_HIGH = 256, POINTS_MIN = 3 };
static const double NEAR_PEAK = 0.95;
#define TOLERANCE_TEXT "vision: batches from 32 to 256 within 5 % of the peak throughput; at most partly, as language models and " \
                       "recommenders are not covered yet"

/* ---- analysis ---- */

ThumbRule rules_of_thumb_read(const Curve *curve)
{
    ThumbRule r = { .peak = (double)NAN };
    for (size_t i = 0; i < curve->count; i++) {
        const CellPoint *p = &curve->points[i];
        if (!isfinite(p->throughput))
            continue;
        r.points++;
        if (!(p->throughput <= r.peak)) {
            r.peak = p->throughput;
            r.peak_batch = p->batch;
        }
    }
    for (size_t i = 0; i < curve->count; i++) {
        const CellPoint *p = &curve->points[i];
        if (!isfinite(p->throughput))
            continue;
        bool inside = p->batch >= RANGE_LOW && p->batch <= RANGE_HIGH, good = p->throughput >= NEAR_PEAK * r.peak;
        r.inside += inside;
        r.inside_good += inside && good;
        if (good && !r.first)
            r.first = p->batch;
        if (good)
            r.last = p->batch;
    }
    r.decided = r.points >= POINTS_MIN && r.inside > 0;
    return r;
}

Verdict rules_of_thumb_judge(const ThumbRule *rules, size_t count)
{
    size_t decided = 0, good = 0;
    for (size_t i = 0; i < count; i++)
        if (rules[i].decided) {
            decided++;
            good += rules[i].inside_good;
        }
    return !decided ? VERDICT_NOT_RUN : good ? VERDICT_PARTLY : VERDICT_CONTRADICTED;
}

/* ---- running it ---- */

typedef struct ThumbStudy { Curves *curves; ThumbRule rules[CURVES_MAX]; } ThumbStudy;

/* The batches that decide the rule where the machine can run them in seconds: at 64 pixels; smoke in fp32 only. */
static Status measure_curve(Gather *g)
{
    static const int64_t smoke[] = { 8, 32, 64, 0 }, quick[] = { 1, 8, 16, 32, 64, 128, 0 }, full[] = { 1, 4, 16, 32, 64, 128, 256, 0 };
    const int64_t *batch = gather_is(g->context, "smoke") ? smoke : gather_is(g->context, "full") ? full : quick;
    const int types = gather_is(g->context, "smoke") ? 1 : AMP_COUNT;
    for (; *batch; batch++)
        for (int a = 0; a < types; a++) {
            NetConfig net = gather_net(g->context);
            net.size = 64;
            net.amp = (Amp)a;
            net.batch = *batch;
            TRY(gather_cell(g, &net, 1, FOR_TIME, NULL));
        }
    return status_ok();
}

/* ---- the entry ---- */

static Status add_table(json_t *entry, const ThumbStudy *s)
{
    static const ColumnHead heads[] = {
        { "cells", "" }, { "batches measured", "" }, { "not ok", "" }, { "peak", "samples/s" }, { "at batch", "" },
        { "smallest batch within 5 %", "" }, { "largest within 5 %", "" }, { "measured from 32 to 256", "" }, { "of these within 5 %", "" },
        { "note", "" },
    };
    ClaimTable t;
    char label[96];
    claim_table_begin(&t, "Which batches reach the peak throughput", heads, COUNT_OF(heads));
    for (size_t i = 0; i < s->curves->count; i++) {
        const Curve *c = &s->curves->list[i];
        const ThumbRule *r = &s->rules[i];
        claim_table_row(&t);
        claim_table_text(&t, curve_label(&c->axes, label, sizeof label));
        claim_table_integer(&t, (int64_t)r->points);
        claim_table_integer(&t, (int64_t)c->not_ok);
        claim_table_real(&t, r->peak);
        claim_table_real(&t, r->points ? (double)r->peak_batch : (double)NAN);
        claim_table_real(&t, r->points ? (double)r->first : (double)NAN);
        claim_table_real(&t, r->points ? (double)r->last : (double)NAN);
        claim_table_integer(&t, (int64_t)r->inside);
        claim_table_integer(&t, (int64_t)r->inside_good);
        claim_table_text(&t, r->decided ? NULL : c->not_ok ? c->reason : r->points < POINTS_MIN ? "too few batches"
                                                                                                : "no batch of 32 to 256 measured");
    }
    return entry_add_table(entry, &t);
}

static Status add_chart(json_t *entry, const ThumbStudy *s)
{
    ClaimChart c;
    char label[96];
    claim_chart_begin(&c, "share of the peak throughput against batch", "batch", "throughput / peak (%)", true, false);
    for (size_t i = 0; i < s->curves->count; i++) {
        const Curve *curve = &s->curves->list[i];
        if (s->rules[i].points < POINTS_MIN)
            continue;
        claim_chart_series(&c, CHART_BOTH, "%s", curve_label(&curve->axes, label, sizeof label));
        for (size_t k = 0; k < curve->count; k++)
            claim_chart_point(&c, (double)curve->points[k].batch, 100 * curve->points[k].throughput / s->rules[i].peak);
    }
    return entry_add_chart(entry, &c);
}

static Status conclude(json_t *entry, const Gather *g, const ThumbStudy *s)
{
    char ranges[400] = "", sources[160], label[96];
    size_t decided = 0, inside = 0, good = 0;
    for (size_t i = 0; i < s->curves->count; i++) {
        const ThumbRule *r = &s->rules[i];
        if (!r->decided)
            continue;
        size_t used = strlen(ranges);
        snprintf(ranges + used, sizeof ranges - used, "%s%s %" PRId64 " to %" PRId64, decided ? "; " : "",
                 curve_label(&s->curves->list[i].axes, label, sizeof label), r->first, r->last);
        decided++;
        inside += r->inside;
        good += r->inside_good;
    }
    Verdict verdict = rules_of_thumb_judge(s->rules, s->curves->count);
    gather_sources(g, FOR_TIME, sources, sizeof sources);
    if (verdict == VERDICT_NOT_RUN)
        return entry_conclude(entry, verdict, TOLERANCE_TEXT, "No curve has three batches with one from 32 to 256 among them (%s).", sources);
    return entry_conclude(entry, verdict, TOLERANCE_TEXT,
        "Vision only: %zu of %zu measured batches from 32 to 256 are within 5 %% of the peak throughput; the batches within 5 %% are %s (%s). "
        "Language models and recommenders are not covered yet.", good, inside, ranges, sources);
}

Status claim_b16_rules_of_thumb(const ClaimContext *context, json_t *entry)
{
    Gather g;
    ThumbStudy s = { .curves = NULL };
    Status status;
    TRY_GOTO(status, gather_begin(&g, context), out);
    TRY_GOTO(status, measure_curve(&g), out);
    TRY_GOTO(status, curves_collect(&g.points, &s.curves), out);
    for (size_t i = 0; i < s.curves->count; i++)
        s.rules[i] = rules_of_thumb_read(&s.curves->list[i]);
    TRY_GOTO(status, add_table(entry, &s), out);
    TRY_GOTO(status, add_chart(entry, &s), out);
    status = conclude(entry, &g, &s);
out:
    free(s.curves);
    gather_end(&g);
    return status;
}
