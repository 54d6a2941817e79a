/* curves.c - reading cells of a record into points, and points into curves over the batch. */
#include "curves.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static double number(const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

static bool copy_text(char *to, size_t size, const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));
    snprintf(to, size, "%s", text ? text : "");
    return text != NULL;
}

static bool read_integer(const json_t *object, const char *name, int64_t *out)
{
    const json_t *value = json_object_get(object, name);
    *out = json_integer_value(value);
    return json_is_integer(value) && *out > 0;
}

static bool was_disturbed(const json_t *cell)
{
    const json_t *flags = json_object_get(cell, "flags");
    for (size_t i = 0; i < json_array_size(flags); i++) {
        const char *text = json_string_value(json_array_get(flags, i));
        if (text && !strncmp(text, "disturbed", strlen("disturbed")))
            return true;
    }
    return false;
}

static bool read_cell(const json_t *cell, double momentum, CellPoint *p)
{
    const json_t *axes = json_object_get(cell, "axes"), *memory = json_object_get(cell, "memory");
    const json_t *planned = json_object_get(memory, "planned");
    const char *status = json_string_value(json_object_get(cell, "status"));
    memset(p, 0, sizeof *p);
    bool usable = copy_text(p->net, sizeof p->net, axes, "net") && copy_text(p->amp, sizeof p->amp, axes, "amp")
        && copy_text(p->stem, sizeof p->stem, axes, "stem") && read_integer(axes, "size", &p->size)
        && read_integer(axes, "classes", &p->classes) && read_integer(axes, "batch", &p->batch)
        && read_integer(axes, "accum", &p->accum);
    p->width = number(axes, "width");
    p->momentum = json_is_number(json_object_get(axes, "momentum")) ? number(axes, "momentum") : momentum;
    CellConfig config;
    usable = cell_from_record(axes, &config) && usable;
    if (usable) {
        p->config = config.net;
        p->config.net = net_known_name(p->net);
        p->config.optim.momentum = (float)p->momentum;
        cell_name_extra(&p->config, p->extra, sizeof p->extra);
    }
    p->ok = status && !strcmp(status, "ok");
    p->disturbed = was_disturbed(cell);
    copy_text(p->reason, sizeof p->reason, cell, "reason");
    p->throughput = number(cell, "throughput");
    p->step_seconds = number(json_object_get(cell, "step_seconds"), "median");
    p->measured_peak = number(memory, "measured_peak");
    p->process_peak = number(memory, "process_peak");
    p->planned = number(planned, "total");
    for (int k = 0; k < MEM_KIND_COUNT; k++)
        p->kind[k] = number(planned, mem_kind_names[k]);
    return usable && isfinite(p->width);
}

static bool same_curve(const CellPoint *a, const CellPoint *b)
{
    return !strcmp(a->net, b->net) && !strcmp(a->amp, b->amp) && !strcmp(a->stem, b->stem) && a->size == b->size
        && a->classes == b->classes && !strcmp(a->extra, b->extra) && a->momentum == b->momentum && a->accum == b->accum;
}

static CellPoint *find(const CellPoints *p, const CellPoint *axes)
{
    for (size_t i = 0; i < p->count; i++)
        if (same_curve(&p->list[i], axes) && p->list[i].batch == axes->batch)
            return &p->list[i];
    return NULL;
}

const CellPoint *points_find(const CellPoints *p, const CellPoint *axes) { return find(p, axes); }

Status points_add(CellPoints *p, const json_t *cell, double momentum)
{
    CellPoint point;
    if (!read_cell(cell, momentum, &point))
        return status_ok();
    CellPoint *there = find(p, &point);
    if (there) {
        if (!there->ok)
            *there = point;
        return status_ok();
    }
    if (p->count == p->capacity) {
        size_t capacity = p->capacity ? 2 * p->capacity : 32;
        CellPoint *list = realloc(p->list, capacity * sizeof *list);
        if (!list)
            return status_error(STATUS_OOM, "out of memory for the points of a claim");
        p->list = list;
        p->capacity = capacity;
    }
    p->list[p->count++] = point;
    return status_ok();
}

Status points_add_record(CellPoints *p, const json_t *root, double momentum)
{
    const json_t *cells = json_object_get(root, "cells");
    for (size_t i = 0; i < json_array_size(cells); i++)
        TRY(points_add(p, json_array_get(cells, i), momentum));
    return status_ok();
}

void points_free(CellPoints *p)
{
    free(p->list);
    *p = (CellPoints){ 0 };
}

/* ---- curves ---- */

/* The curve this point belongs to, new if there is none yet; NULL if there is no room for one. */
static Curve *curve_of(Curves *c, const CellPoint *p)
{
    for (size_t i = 0; i < c->count; i++)
        if (same_curve(&c->list[i].axes, p))
            return &c->list[i];
    if (c->count == CURVES_MAX)
        return NULL;
    size_t at = c->count++, end = at; /* behind the last of its net, then up to its size */
    while (end > 0 && strcmp(c->list[end - 1].axes.net, p->net) != 0)
        end--;
    if (end == 0)
        end = at;
    for (; at > end || (at > 0 && !strcmp(c->list[at - 1].axes.net, p->net) && c->list[at - 1].axes.size < p->size); at--)
        c->list[at] = c->list[at - 1];
    memset(&c->list[at], 0, sizeof c->list[at]);
    c->list[at].axes = *p;
    return &c->list[at];
}

static void insert(Curve *curve, const CellPoint *p)
{
    if (curve->count == CURVE_POINTS_MAX)
        return;
    size_t at = curve->count++;
    for (; at > 0 && curve->points[at - 1].batch > p->batch; at--)
        curve->points[at] = curve->points[at - 1];
    curve->points[at] = *p;
}

Status curves_collect(const CellPoints *p, Curves **out)
{
    Curves *c = *out = calloc(1, sizeof *c);
    if (!c)
        return status_error(STATUS_OOM, "out of memory for the curves of a claim");
    for (size_t i = 0; i < p->count; i++) {
        Curve *curve = p->list[i].accum == 1 ? curve_of(c, &p->list[i]) : NULL;
        if (curve && p->list[i].ok) {
            insert(curve, &p->list[i]);
        } else if (curve) {
            curve->not_ok++;
            memcpy(curve->reason, p->list[i].reason, sizeof curve->reason);
        }
    }
    return status_ok();
}

const Curve *curves_find(const Curves *c, const CellPoint *axes)
{
    for (size_t i = 0; i < c->count; i++)
        if (same_curve(&c->list[i].axes, axes))
            return &c->list[i];
    return NULL;
}

bool curves_net_begins(const Curves *c, size_t i) { return i == 0 || strcmp(c->list[i - 1].axes.net, c->list[i].axes.net) != 0; }

bool curves_main_size(const Curves *c, size_t i)
{
    size_t first = i;
    while (!curves_net_begins(c, first))
        first--;
    return c->list[i].axes.size == c->list[first].axes.size;
}

/* "/layers:2/hidden:128" as " (layers 2, hidden 128)". */
static const char *bracketed(const char *extra, char *text, size_t size)
{
    size_t n = 0;
    text[0] = '\0';
    for (const char *c = extra; *c && n + 4 < size; c++) {
        if (*c == '/')
            n += (size_t)snprintf(text + n, size - n, "%s", n ? ", " : " (");
        else
            n += (size_t)snprintf(text + n, size - n, "%c", *c == ':' ? ' ' : *c);
    }
    if (n && n + 1 < size)
        snprintf(text + n, size - n, ")");
    return text;
}

const char *curve_precision(const CellPoint *p) { return strcmp(p->amp, "off") ? p->amp : "fp32"; }

const char *curve_label(const CellPoint *p, char *text, size_t size)
{
    char extra[128];
    snprintf(text, size, "%s %" PRId64 " %s %s%s", p->net, p->size, net_is_text(&p->config) ? "tokens" : "px", curve_precision(p),
             bracketed(p->extra, extra, sizeof extra));
    return text;
}

const char *curve_net_label(const CellPoint *p, char *text, size_t size)
{
    char extra[128];
    snprintf(text, size, "%s %" PRId64 " %s%s", p->net, p->size, net_is_text(&p->config) ? "tokens" : "px",
             bracketed(p->extra, extra, sizeof extra));
    return text;
}

CellPoint point_of_net(const NetConfig *net, int64_t accum)
{
    CellPoint p = { .size = net->size, .classes = net->classes, .batch = net->batch, .accum = accum, .width = net->width,
                    .momentum = (double)net->optim.momentum, .config = *net };
    snprintf(p.net, sizeof p.net, "%s", net->net);
    snprintf(p.amp, sizeof p.amp, "%s", amp_names[net->amp]);
    snprintf(p.stem, sizeof p.stem, "%s", stem_names[net->stem]);
    cell_name_extra(net, p.extra, sizeof p.extra);
    return p;
}
