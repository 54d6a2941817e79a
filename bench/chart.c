/* chart.c - building a Chart in memory. Drawing is gnuplot.c. */
#include "chart.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void chart_start(Chart *c, const char *section, const char *name, const char *title, const char *x_label,
                 const char *y_label)
{
    memset(c, 0, sizeof *c);
    text_copy(c->section, sizeof c->section, section);
    text_copy(c->name, sizeof c->name, name);
    text_copy(c->title, sizeof c->title, title);
    text_copy(c->x_label, sizeof c->x_label, x_label);
    text_copy(c->y_label, sizeof c->y_label, y_label);
}

/* Make room for one more element of `size` bytes; false (and the chart marked) when there is no memory. */
static bool grow(Chart *c, void **array, size_t count, size_t *capacity, size_t size)
{
    if (c->failed)
        return false;
    if (count < *capacity)
        return true;
    size_t wanted = *capacity ? 2 * *capacity : 16;
    void *bigger = realloc(*array, wanted * size);
    if (!bigger) {
        c->failed = true;
        return false;
    }
    *array = bigger;
    *capacity = wanted;
    return true;
}

void chart_add_series(Chart *c, const char *name, SeriesStyle style, int look)
{
    void *array = c->series;
    if (!grow(c, &array, c->series_count, &c->series_capacity, sizeof *c->series))
        return;
    c->series = array;
    Series *s = &c->series[c->series_count++];
    memset(s, 0, sizeof *s);
    text_copy(s->name, sizeof s->name, name);
    s->style = style;
    s->look = look;
}

void chart_add_spread(Chart *c, double x, double y, double low, double high)
{
    if (c->failed)
        return;
    CHECK(c->series_count > 0);
    Series *s = &c->series[c->series_count - 1];
    void *array = s->points;
    if (!grow(c, &array, s->count, &s->capacity, sizeof *s->points))
        return;
    s->points = array;
    s->points[s->count++] = (Point){ x, y, low, high };
}

void chart_add_point(Chart *c, double x, double y) { chart_add_spread(c, x, y, y, y); }

void chart_add_tick(Chart *c, double x, const char *label)
{
    void *array = c->ticks;
    if (!grow(c, &array, c->tick_count, &c->tick_capacity, sizeof *c->ticks))
        return;
    c->ticks = array;
    c->ticks[c->tick_count].x = x;
    text_copy(c->ticks[c->tick_count].label, sizeof c->ticks->label, label);
    c->tick_count++;
}

void chart_add_mark(Chart *c, double x, int look)
{
    void *array = c->marks;
    if (!grow(c, &array, c->mark_count, &c->mark_capacity, sizeof *c->marks))
        return;
    c->marks = array;
    c->marks[c->mark_count++] = (Mark){ x, look };
}

bool chart_has_points(const Chart *c)
{
    for (size_t i = 0; i < c->series_count; i++)
        for (size_t j = 0; j < c->series[i].count; j++) {
            const Point *p = &c->series[i].points[j];
            if (isfinite(p->x) && isfinite(p->y) && (c->x_scale == AXIS_LINEAR || p->x > 0) &&
                (c->y_scale == AXIS_LINEAR || p->y > 0))
                return true;
        }
    return false;
}

void chart_free(Chart *c)
{
    for (size_t i = 0; i < c->series_count; i++)
        free(c->series[i].points);
    free(c->series);
    free(c->ticks);
    free(c->marks);
    text_free(&c->note);
    memset(c, 0, sizeof *c);
}
