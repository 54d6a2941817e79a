/* b16_rules_of_thumb.c - claim B16: which batches reach the peak throughput here, and are 32 to 256 among them? */
#include "b16_rules_of_thumb.h"

#include "gather.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { RANGE_LOW = 32, RANGE_HIGH = 256, POINTS_MIN = 3 };
static const double NEAR_PEAK = 0.95;
#define TOLERANCE_TEXT "vision: batches from 32 to 256 within 5 % of the peak throughput; at most partly: language models are counted " \
                       "in tokens and not judged, recommenders are not covered"

/* ---- analysis ---- */

ThumbRule rules_of_thumb_read(const Curve *curve)
{
    ThumbRule r = { .text = net_is_text(&curve->axes.config), .tokens = 1, .peak = (double)NAN };
    if (r.text)
        r.tokens = curve->axes.size;
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
        if (rules[i].decided && !rules[i].text) {
            decided++;
            good += rules[i].inside_good;
        }
    return !decided ? VERDICT_NOT_RUN : good ? VERDICT_PARTLY : VERDICT_CONTRADICTED;
}

/* ---- running it ---- */

typedef struct ThumbStudy { Curves *curves; ThumbRule rules[CURVES_MAX]; } ThumbStudy;

/* The batches that decide the rule where the machine can run them in seconds: small nets for what the sweep does not have (of
 * resnet50 it has 64 pixels at full width), and in fp32 where that is a smaller net than the sweep's. */
static Status measure_curve(Gather *g)
{
    static const int64_t batches[] = { 1, 8, 32, 64 };
    const bool smoke = gather_is(g->context, "smoke");
    for (int n = 0; n < GATHER_NETS; n++) {
        NetConfig net = gather_small_net(gather_nets[n]);
        const bool swept = !smoke && n == 0;
        if (swept) {
            net = net_config_default(gather_nets[n]);
            net.size = 64;
        }
        for (size_t b = smoke ? 1 : 0; b < COUNT_OF(batches); b++)
            for (int a = 0; a < (swept ? AMP_COUNT : 1); a++) {
                net.amp = (Amp)a;
                net.batch = batches[b];
                if (gather_uses(g, net.amp))
                    TRY(gather_cell(g, &net, 1, FOR_TIME, NULL));
            }
    }
    return status_ok();
}

/* ---- the entry ---- */

static Status add_table(json_t *entry, const ThumbStudy *s)
{
    static const ColumnHead heads[] = {
        { "cells", "" }, { "batches measured", "" }, { "not ok", "" }, { "peak", "samples or sequences/s" }, { "at batch", "" },
        { "smallest batch within 5 %", "" }, { "largest within 5 %", "" }, { "tokens in the smallest", "" }, { "measured from 32 to 256", "" }, { "of these within 5 %", "" },
        { "note", "" },
    };
    ClaimTable t;
    char label[LABEL_BYTES];
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
        claim_table_real(&t, r->points && r->text ? (double)(r->first * r->tokens) : (double)NAN);
        claim_table_integer(&t, (int64_t)r->inside);
        claim_table_integer(&t, (int64_t)r->inside_good);
        claim_table_text(&t, r->decided ? NULL : c->not_ok ? c->reason : r->points < POINTS_MIN ? "too few batches"
                                                                                                : "no batch of 32 to 256 measured");
    }
    return entry_add_table(entry, &t);
}

/* One chart for the net that begins at this curve; of text over tokens. */
static Status add_chart(json_t *entry, const ThumbStudy *s, size_t first)
{
    ClaimChart c;
    char label[LABEL_BYTES], title[LABEL_BYTES + 64];
    const CellPoint *net = &s->curves->list[first].axes;
    snprintf(title, sizeof title, "share of the peak throughput against batch, %s", net->net);
    claim_chart_begin(&c, title, s->rules[first].text ? "tokens in a batch" : "batch", "throughput / peak (%)", true, false);
    for (size_t i = first; i < s->curves->count && (i == first || !curves_net_begins(s->curves, i)); i++) {
        const Curve *curve = &s->curves->list[i];
        if (s->rules[i].points < POINTS_MIN)
            continue;
        claim_chart_series(&c, CHART_BOTH, "%s", curve_label(&curve->axes, label, sizeof label) + strlen(net->net) + 1);
        for (size_t k = 0; k < curve->count; k++)
            claim_chart_point(&c, (double)(curve->points[k].batch * s->rules[i].tokens), 100 * curve->points[k].throughput / s->rules[i].peak);
    }
    return entry_add_chart(entry, &c);
}

/* "resnet50 64 px fp32 32 to 64; ..." for curves of images, or "... 8 to 64 (512 to 4096 tokens)" for those of text. */
static void tell_ranges(const ThumbStudy *s, bool text, char *out, size_t size)
{
    char label[LABEL_BYTES];
    size_t used = (size_t)snprintf(out, size, "%s", "");
    for (size_t i = 0; i < s->curves->count && used < size; i++) {
        const ThumbRule *r = &s->rules[i];
        if (!r->decided || r->text != text)
            continue;
        used += (size_t)snprintf(out + used, size - used, "%s%s %" PRId64 " to %" PRId64, used ? "; " : "",
                                 curve_label(&s->curves->list[i].axes, label, sizeof label), r->first, r->last);
        if (text && used < size)
            used += (size_t)snprintf(out + used, size - used, " (%" PRId64 " to %" PRId64 " tokens)", r->first * r->tokens, r->last * r->tokens);
    }
}

static Status conclude(json_t *entry, const Gather *g, const ThumbStudy *s)
{
    char images[400], texts[320], sources[160];
    size_t inside = 0, good = 0;
    for (size_t i = 0; i < s->curves->count; i++)
        if (s->rules[i].decided && !s->rules[i].text) {
            inside += s->rules[i].inside;
            good += s->rules[i].inside_good;
        }
    Verdict verdict = rules_of_thumb_judge(s->rules, s->curves->count);
    tell_ranges(s, false, images, sizeof images);
    tell_ranges(s, true, texts, sizeof texts);
    gather_sources(g, FOR_TIME, sources, sizeof sources);
    if (verdict == VERDICT_NOT_RUN)
        return entry_conclude(entry, verdict, TOLERANCE_TEXT, "No curve of images has three batches with one from 32 to 256 among them (%s).", sources);
    return entry_conclude(entry, verdict, TOLERANCE_TEXT,
        "Vision: %zu of %zu measured batches from 32 to 256 are within 5 %% of the peak throughput; within 5 %% are %s. Language: %s. "
        "Recommenders are not covered (%s).", good, inside, images, *texts ? texts : "no curve decides", sources);
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
    for (size_t i = 0; i < s.curves->count; i++)
        if (curves_net_begins(s.curves, i))
            TRY_GOTO(status, add_chart(entry, &s, i), out);
    status = conclude(entry, &g, &s);
out:
    free(s.curves);
    gather_end(&g);
    return status;
}
