/* charts_claims.c - the charts a claim's code put into the record: series of points with a style and kinds of axes. */
#include "charts_more.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static SeriesStyle style_named(const char *name)
{
    if (name && strcmp(name, "line") == 0)
        return SERIES_LINE;
    return name && strcmp(name, "points") == 0 ? SERIES_POINTS : SERIES_BOTH;
}

static double coordinate(const json_t *point, size_t i)
{
    const json_t *v = json_array_get(point, i);
    return json_is_number(v) ? json_number_value(v) : (double)NAN;
}

static void add_points(Chart *c, const json_t *series)
{
    for (size_t i = 0; i < json_array_size(series); i++) {
        const json_t *s = json_array_get(series, i);
        const json_t *points = record_array(s, "points");
        chart_add_series(c, record_string(s, "name"), style_named(record_string(s, "style")), (int)i);
        for (size_t j = 0; j < json_array_size(points); j++)
            chart_add_point(c, coordinate(json_array_get(points, j), 0), coordinate(json_array_get(points, j), 1));
    }
}

/* Choose what the record leaves open: base and ticks of the x axis, whether y starts at 0; count what cannot be shown. */
static void choose_axes(Chart *c, bool log_x, bool log_y)
{
    enum { FEW = 24 };
    double x[FEW], low = INFINITY, high = -INFINITY;
    size_t distinct = 0, lost = 0;
    bool integers = true;
    c->x_scale = log_x ? AXIS_LOG10 : AXIS_LINEAR;
    c->y_scale = log_y ? AXIS_LOG10 : AXIS_LINEAR;
    for (size_t i = 0; i < c->series_count; i++)
        for (size_t j = 0; j < c->series[i].count; j++) {
            const Point *p = &c->series[i].points[j];
            if (!isfinite(p->x) || !isfinite(p->y))
                continue;
            if ((log_x && p->x <= 0) || (log_y && p->y <= 0)) {
                lost++;
                continue;
            }
            low = fmin(low, p->y);
            high = fmax(high, p->y);
            integers = integers && p->x == floor(p->x);
            size_t k = 0;
            while (k < distinct && x[k] != p->x)
                k++;
            if (k == distinct && distinct < FEW)
                x[distinct++] = p->x;
        }
    if (integers && distinct < FEW) {
        c->x_scale = log_x ? AXIS_LOG2 : AXIS_LINEAR;
        chart_add_ticks_sorted(c, x, distinct);
    }
    c->from_zero = !log_y && low >= 0 && low < 0.6 * high;
    if (lost)
        text_format(&c->note, "%zu value%s at or below zero cannot be shown on a logarithmic axis.", lost, lost == 1 ? "" : "s");
}

static Status draw_claim_chart(const char *id, size_t number, const json_t *chart, ChartSetup *setup)
{
    char name[160], section[96];
    Text t = { 0 };
    text_add(&t, "claim-");
    text_add_slug(&t, id);
    text_format(&t, "-%zu", number + 1);
    text_copy(name, sizeof name, text_bytes(&t));
    snprintf(section, sizeof section, "claims/%.64s", id);
    Text title = { 0 };
    const char *own = record_string(chart, "title");
    text_format(&title, "%s: %s", id, own ? own : "");
    Chart c;
    chart_start(&c, section, name, text_bytes(&title), record_string(chart, "x"), record_string(chart, "y"));
    c.failed = t.failed || title.failed;
    text_free(&t);
    text_free(&title);
    add_points(&c, record_array(chart, "series"));
    choose_axes(&c, json_is_true(record_get(chart, "logx")), json_is_true(record_get(chart, "logy")));
    Status s = chart_draw(&c, setup);
    chart_free(&c);
    return s;
}

Status charts_draw_claims(const json_t *record, ChartSetup *setup)
{
    const json_t *claims = record_array(record, "claims");
    for (size_t i = 0; i < json_array_size(claims); i++) {
        const json_t *claim = json_array_get(claims, i);
        const json_t *charts = record_array(claim, "charts");
        for (size_t j = 0; j < json_array_size(charts); j++)
            TRY(draw_claim_chart(record_string(claim, "id"), j, json_array_get(charts, j), setup));
    }
    return status_ok();
}
