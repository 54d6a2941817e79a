/* record_view.c - the bodies of record_view.h. */
#include "record_view.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const json_t *record_get(const json_t *object, const char *path)
{
    char name[64];
    while (object && *path) {
        size_t n = strcspn(path, ".");
        CHECK(n < sizeof name);
        memcpy(name, path, n);
        name[n] = '\0';
        object = json_object_get(object, name);
        path += n + (path[n] == '.');
    }
    return json_is_null(object) ? NULL : object;
}

double record_number(const json_t *object, const char *path)
{
    const json_t *v = record_get(object, path);
    return json_is_number(v) ? json_number_value(v) : (double)NAN;
}

const char *record_string(const json_t *object, const char *path)
{
    return json_string_value(record_get(object, path));
}

const json_t *record_array(const json_t *object, const char *path)
{
    const json_t *v = record_get(object, path);
    return json_is_array(v) ? v : NULL;
}

size_t record_count(const json_t *object, const char *path) { return json_array_size(record_array(object, path)); }

bool record_ok(const json_t *cell)
{
    const char *status = record_string(cell, "status");
    return status && strcmp(status, "ok") == 0;
}

const char *precision_name(const json_t *cell)
{
    const char *amp = record_string(cell, "axes.amp");
    return !amp ? "precision not given" : strcmp(amp, "off") == 0 ? "fp32" : amp;
}

bool record_is_text(const json_t *item) { return record_get(item, "axes.vocab") != NULL; }

bool record_has_masks(const json_t *training)
{
    const json_t *epochs = record_array(training, "epochs");
    for (size_t i = 0; i < json_array_size(epochs); i++)
        if (isfinite(record_number(json_array_get(epochs, i), "test_dice")))
            return true;
    return false;
}

const char *sample_word(const json_t *item) { return record_is_text(item) ? "sequences" : "samples"; }

double cell_tokens_per_second(const json_t *cell)
{
    return record_is_text(cell) ? record_number(cell, "throughput") * record_number(cell, "axes.size") : (double)NAN;
}

const char *optimizer_name(const json_t *item)
{
    static const char *const names[][2] = { { "sgd", "SGD" }, { "adamw", "AdamW" }, { "lamb", "LAMB" }, { "lars", "LARS" } };
    const char *own = record_string(item, "axes.optimizer");
    for (size_t i = 0; own && i < COUNT_OF(names); i++)
        if (strcmp(names[i][0], own) == 0)
            return names[i][1];
    return own;
}

double cell_floor_percent(const json_t *cell)
{
    double floor_s = record_number(cell, "floor_seconds"), step_s = record_number(cell, "step_seconds.median");
    return floor_s > 0 && step_s > 0 ? 100 * floor_s / step_s : (double)NAN;
}

/* ---- groups ---- */

static bool is_one_of(const char *s, const char *const *allowed, size_t count)
{
    for (size_t i = 0; s && i < count; i++)
        if (strcmp(s, allowed[i]) == 0)
            return true;
    return false;
}

/* Which items an axis tells something about; the others carry it too, at a value that means nothing. */
typedef enum AxisOf { OF_ALL, OF_IMAGES, OF_TEXT, OF_RESNET, OF_UNET } AxisOf;

/* How an axis reads in a title. `usual`: the value that a title and a file name leave out. */
typedef struct AxisText { const char *axis; AxisOf of; const char *usual, *words, *slug; } AxisText;

static const AxisText axis_texts[] = {
    { "net", OF_ALL, NULL, "%s", "" },
    { "data", OF_ALL, NULL, "%s", "" },
    { "size", OF_IMAGES, NULL, "%s px", "" },
    { "size", OF_TEXT, NULL, "%s tokens", "" },
    { "width", OF_IMAGES, NULL, "width %s", "w" },
    { "classes", OF_IMAGES, NULL, "%s classes", "c" },
    { "stem", OF_RESNET, NULL, "%s stem", "" },
    { "depth", OF_UNET, "4", "depth %s", "depth" },
    { "stem_stride", OF_UNET, "1", "first stride %s", "stride" },
    { "layers", OF_TEXT, "12", "%s layers", "l" },
    { "hidden", OF_TEXT, "768", "hidden %s", "h" },
    { "heads", OF_TEXT, "12", "%s heads", "a" },
    { "vocab", OF_TEXT, "30522", "vocabulary %s", "v" },
    { "tokens", OF_TEXT, NULL, "%s rows of tokens", "t" },
    { "head", OF_TEXT, "masked", "head %s", "" },
    { "dropout", OF_TEXT, "0.1", "dropout %s", "d" },
    { "optimizer", OF_IMAGES, "sgd", "%s", "" },
    { "optimizer", OF_TEXT, "adamw", "%s", "" },
    { "momentum", OF_ALL, "0.9", "momentum %s", "m" },
};

static bool axis_is_of(const json_t *item, AxisOf of)
{
    const char *net = record_string(item, "axes.net");
    switch (of) {
    case OF_IMAGES: return !record_is_text(item);
    case OF_TEXT:   return record_is_text(item);
    case OF_RESNET: return !net || strcmp(net, "unet") != 0 ? !record_is_text(item) : false;
    case OF_UNET:   return net && strcmp(net, "unet") == 0;
    default:        return true;
    }
}

/* The words for an axis of this item; *known: the table has the axis, if not for this item. */
static const AxisText *axis_text(const json_t *item, const char *axis, bool *known)
{
    *known = false;
    for (size_t i = 0; i < COUNT_OF(axis_texts); i++) {
        if (strcmp(axis_texts[i].axis, axis) != 0)
            continue;
        *known = true;
        if (axis_is_of(item, axis_texts[i].of))
            return &axis_texts[i];
    }
    return NULL;
}

/* A value as text; six digits bring a 32-bit number back to what was given. */
static const char *axis_value(const json_t *value, char number[NUMBER_BYTES])
{
    if (json_is_string(value))
        return json_string_value(value);
    snprintf(number, NUMBER_BYTES, json_is_integer(value) ? "%.15g" : "%.6g", json_number_value(value));
    return json_is_number(value) ? number : "?";
}

static void add_between(Text *t, const char *comma) { text_add(t, t->length ? comma : ""); }

/* ", 224 px" to the title and "-224" to the slug: nothing where the value goes without saying. */
static void add_axis(Text *title, Text *slug, const json_t *item, const char *name, const json_t *value)
{
    char number[NUMBER_BYTES];
    if (json_is_null(value)) /* says nothing of this item */
        return;
    bool known;
    const AxisText *text = axis_text(item, name, &known);
    const char *shown = axis_value(value, number);
    if ((known && !text) || (text && text->usual && strcmp(text->usual, shown) == 0))
        return;
    if (strcmp(name, "optimizer") == 0)
        shown = optimizer_name(item);
    add_between(title, ", ");
    add_between(slug, "-");
    if (text) {
        const char *rest = strstr(text->words, "%s");
        text_add_bytes(title, text->words, (size_t)(rest - text->words));
        text_add_plain(title, shown);
        text_add(title, rest + 2);
        text_add(slug, text->slug);
    } else {
        text_add_plain(title, name);
        text_add(title, " ");
        text_add_plain(title, shown);
        if (!json_is_string(value))
            text_add_slug(slug, name);
    }
    if (json_is_string(value))
        text_add_slug(slug, shown);
    else
        text_add(slug, shown);
}

/* The axes of item that are not in `shown`, in the record's order, as key and title. */
static Status group_texts(const json_t *item, const char *const *shown, size_t shown_count, Group *g)
{
    Text title = { 0 }, slug = { 0 }, key = { 0 };
    json_t *axes = (json_t *)(uintptr_t)json_object_get(item, "axes"); /* jansson iterates non-const objects only */
    for (void *it = json_object_iter(axes); it; it = json_object_iter_next(axes, it)) {
        const char *name = json_object_iter_key(it);
        char number[NUMBER_BYTES];
        if (is_one_of(name, shown, shown_count))
            continue;
        text_format(&key, "%s=%s;", name, axis_value(json_object_iter_value(it), number));
        add_axis(&title, &slug, item, name, json_object_iter_value(it));
    }
    Status s = title.failed || slug.failed || key.failed ? status_error(STATUS_OOM, "out of memory while grouping cells") : status_ok();
    text_copy(g->key, sizeof g->key, text_bytes(&key));
    text_copy(g->title, sizeof g->title, title.length ? text_bytes(&title) : "all cells");
    snprintf(g->slug, sizeof g->slug, "%.100s", slug.length ? text_bytes(&slug) : "all");
    text_free(&title);
    text_free(&slug);
    text_free(&key);
    return s;
}

static Group *find_group(Groups *out, const char *key)
{
    for (size_t i = 0; i < out->count; i++)
        if (strcmp(out->groups[i].key, key) == 0)
            return &out->groups[i];
    return NULL;
}

/* Different groups get different file names even where only punctuation tells them apart. */
static void make_slugs_differ(Groups *out)
{
    for (size_t i = 0; i < out->count; i++)
        for (size_t j = 0; j < i; j++)
            if (strcmp(out->groups[j].slug, out->groups[i].slug) == 0) {
                size_t n = strlen(out->groups[i].slug);
                snprintf(out->groups[i].slug + n, sizeof out->groups[i].slug - n, "-g%zu", i + 1);
            }
}

static double axis(const json_t *item, const char *name)
{
    double x = record_number(item, name);
    return isfinite(x) ? x : 0;
}

static int compare_number(double a, double b) { return (a > b) - (a < b); }

/* fp32 first, other precisions by name. */
static int compare_precision(const json_t *a, const json_t *b)
{
    const char *p = precision_name(a), *q = precision_name(b);
    int off = (strcmp(q, "fp32") == 0) - (strcmp(p, "fp32") == 0);
    return off ? off : strcmp(p, q);
}

static int compare_cells(const void *pa, const void *pb)
{
    const json_t *a = *(const json_t *const *)pa, *b = *(const json_t *const *)pb;
    int c = compare_precision(a, b);
    if (!c)
        c = compare_number(axis(a, "axes.accum"), axis(b, "axes.accum"));
    return c ? c : compare_number(axis(a, "axes.batch"), axis(b, "axes.batch"));
}

static int compare_trainings(const void *pa, const void *pb)
{
    const json_t *a = *(const json_t *const *)pa, *b = *(const json_t *const *)pb;
    int c = compare_precision(a, b);
    if (!c)
        c = compare_number(axis(a, "axes.batch"), axis(b, "axes.batch"));
    if (!c)
        c = compare_number(axis(a, "axes.accum"), axis(b, "axes.accum"));
    return c ? c : strcmp(record_string(a, "name"), record_string(b, "name"));
}

typedef struct Grouping {
    const char *list;
    const char *const *shown;
    size_t shown_count;
    int (*compare)(const void *, const void *);
    bool (*same)(const json_t *, const json_t *); /* one configuration measured twice */
} Grouping;

static Status add_item(Groups *out, const json_t *item, size_t total, const Grouping *how)
{
    Group fresh = { .count = 0 };
    TRY(group_texts(item, how->shown, how->shown_count, &fresh));
    Group *g = find_group(out, fresh.key);
    if (!g) {
        fresh.items = malloc(total * sizeof *fresh.items);
        if (!fresh.items)
            return status_error(STATUS_OOM, "out of memory while grouping cells");
        g = &out->groups[out->count++];
        *g = fresh;
    }
    for (size_t i = 0; how->same && i < g->count; i++) {
        if (how->same(g->items[i], item)) {
            if (record_ok(item) || !record_ok(g->items[i]))
                g->items[i] = item;
            return status_ok();
        }
    }
    g->items[g->count++] = item;
    return status_ok();
}

static Status make_groups(const json_t *record, Groups *out, const Grouping *how)
{
    const json_t *list = json_object_get(record, how->list);
    size_t total = json_array_size(list);
    *out = (Groups){ 0 };
    if (total == 0)
        return status_ok();
    out->groups = calloc(total, sizeof *out->groups);
    if (!out->groups)
        return status_error(STATUS_OOM, "out of memory while grouping cells");
    Status s = status_ok();
    for (size_t i = 0; i < total && s.code == STATUS_OK; i++)
        s = add_item(out, json_array_get(list, i), total, how);
    make_slugs_differ(out);
    for (size_t i = 0; i < out->count; i++)
        qsort((void *)out->groups[i].items, out->groups[i].count, sizeof *out->groups[i].items, how->compare);
    if (s.code != STATUS_OK)
        groups_free(out);
    return s;
}

static bool same_cell(const json_t *a, const json_t *b) { return compare_cells(&a, &b) == 0; }

Status groups_of_cells(const json_t *record, Groups *out)
{
    static const char *const shown[] = { "batch", "amp", "accum", "effective_batch" };
    const Grouping how = { "cells", shown, COUNT_OF(shown), compare_cells, same_cell };
    return make_groups(record, out, &how);
}

Status groups_of_trainings(const json_t *record, Groups *out)
{
    static const char *const shown[] = { "batch", "amp", "accum", "effective_batch", "lr", "seed", "epochs", "optimizer", "momentum",
                                         "weight_decay", "clip", "schedule", "warmup", "lr_scaling", "padding", "dropout" };
    const Grouping how = { "trainings", shown, COUNT_OF(shown), compare_trainings, NULL };
    return make_groups(record, out, &how);
}

void groups_free(Groups *g)
{
    for (size_t i = 0; i < g->count; i++)
        free((void *)g->groups[i].items);
    free(g->groups);
    *g = (Groups){ 0 };
}

void cell_series_name(const json_t *cell, char out[SERIES_TEXT_BYTES])
{
    char text[128];
    double accum = axis(cell, "axes.accum");
    if (accum > 1)
        snprintf(text, sizeof text, "%.80s, accumulation %.0f", precision_name(cell), accum);
    else
        snprintf(text, sizeof text, "%.80s", precision_name(cell));
    text_copy(out, SERIES_TEXT_BYTES, text);
}

bool cell_same_series(const json_t *a, const json_t *b)
{
    return compare_precision(a, b) == 0 && axis(a, "axes.accum") == axis(b, "axes.accum");
}
