/* charts_training.c - the curves of trainings: how loss and accuracy go with epochs, updates and time. */
#include "charts_more.h"

#include "tables.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static bool axis_varies(const Group *g, const char *path)
{
    for (size_t i = 1; i < g->count; i++) {
        const json_t *a = record_get(g->items[0], path), *b = record_get(g->items[i], path);
        if (!(a == b) && !json_equal((json_t *)(uintptr_t)a, (json_t *)(uintptr_t)b))
            return true;
    }
    return false;
}

/* "bf16, batch 64 x2, lr 0.1, seed 1": precision and batch always, the rest where it tells lines apart. Marks the chart
 * when there is no memory for it. */
static void training_name(Chart *c, const Group *g, const json_t *item, char out[SERIES_TEXT_BYTES])
{
    static const struct { const char *path, *word; } more[] = {
        { "axes.optimizer", "" }, { "axes.momentum", "momentum " }, { "axes.padding", "padding " }, { "axes.schedule", "" },
        { "axes.epochs", "epochs " }, { "axes.lr", "lr " }, { "axes.weight_decay", "decay " }, { "axes.clip", "clip " },
        { "axes.warmup", "warm-up " }, { "axes.dropout", "dropout " }, { "axes.seed", "seed " },
    };
    Text t = { 0 };
    text_format(&t, "%.24s, batch %.0f", precision_name(item), fmax(0, record_number(item, "axes.batch")));
    if (record_number(item, "axes.accum") > 1)
        text_format(&t, " \xc3\x97%.0f", record_number(item, "axes.accum"));
    for (size_t i = 0; i < COUNT_OF(more); i++) {
        const json_t *value = record_get(item, more[i].path);
        if (!value || !axis_varies(g, more[i].path))
            continue;
        text_format(&t, ", %s", more[i].word);
        if (json_is_string(value))
            text_add_plain(&t, i == 0 ? optimizer_name(item) : json_string_value(value));
        else
            text_format(&t, "%.6g", json_number_value(value));
    }
    text_copy(out, SERIES_TEXT_BYTES, text_bytes(&t));
    c->failed = c->failed || t.failed;
    text_free(&t);
}

/* One curve of each training: y over x from the array `list`. */
static void add_curves(Chart *c, const Group *g, const char *list, const char *x_name, const char *y_name,
                       SeriesStyle style)
{
    for (size_t i = 0; i < g->count; i++) {
        const json_t *points = record_array(g->items[i], list);
        char name[SERIES_TEXT_BYTES];
        training_name(c, g, g->items[i], name);
        if (json_array_size(points))
            chart_add_series(c, style == SERIES_DASHED ? "" : name, style, (int)i);
        for (size_t j = 0; j < json_array_size(points); j++) {
            const json_t *p = json_array_get(points, j);
            chart_add_point(c, record_number(p, x_name), record_number(p, y_name));
        }
    }
}

static void note_missing(Chart *c, const Group *g)
{
    for (size_t i = 0; i < g->count && c->note.length < 400; i++) {
        if (record_ok(g->items[i]))
            continue;
        char name[SERIES_TEXT_BYTES];
        training_name(c, g, g->items[i], name);
        const char *reason = record_string(g->items[i], "reason");
        text_add(&c->note, c->note.length ? " " : "");
        text_add_plain(&c->note, name);
        text_format(&c->note, ": %s%s", record_string(g->items[i], "status"), reason ? ", " : "");
        text_add_plain(&c->note, reason ? reason : "");
        text_add(&c->note, ".");
    }
}

static void add_epoch_ticks(Chart *c, const Group *g)
{
    enum { FEW = 24 };
    size_t most = 0;
    for (size_t i = 0; i < g->count; i++)
        most = record_count(g->items[i], "epochs") > most ? record_count(g->items[i], "epochs") : most;
    for (size_t e = 1; most <= FEW && e <= most; e++) {
        char label[24];
        snprintf(label, sizeof label, "%zu", e);
        chart_add_tick(c, (double)e, label);
    }
}

/* Marks the recorded points whose update was skipped, and says what the marks are. */
static void mark_skipped(Chart *c, const Group *g)
{
    size_t marked = 0;
    for (size_t i = 0; i < g->count; i++) {
        const json_t *points = record_array(g->items[i], "curve");
        for (size_t j = 0; j < json_array_size(points); j++) {
            const json_t *p = json_array_get(points, j);
            if (!json_is_true(record_get(p, "skipped")))
                continue;
            chart_add_mark(c, record_number(p, "update"), (int)i);
            marked++;
        }
    }
    c->marks_skips = marked > 0;
    if (marked)
        text_format(&c->note, "%sCrosses: %zu update%s skipped because a gradient was not finite in fp16.", c->note.length ? " " : "", marked, marked == 1 ? "" : "s");
}

static bool scale_moved(const json_t *training)
{
    const json_t *points = record_get(training, "loss_scale") ? record_array(training, "curve") : NULL;
    for (size_t j = 1; j < json_array_size(points); j++)
        if (record_number(json_array_get(points, j), "loss_scale") != record_number(json_array_get(points, 0), "loss_scale"))
            return true;
    return false;
}

/* The loss scale by update, of the trainings where it moved. */
static Status draw_loss_scale(const Group *g, size_t number, ChartSetup *setup)
{
    Chart c;
    char section[96];
    snprintf(section, sizeof section, "trainings/%zu", number);
    chart_start_group(&c, g, section, "loss-scale", "Loss scale by update", "update", "loss scale");
    c.y_scale = AXIS_LOG2;
    for (size_t i = 0; i < g->count; i++) {
        const json_t *points = record_array(g->items[i], "curve");
        char name[SERIES_TEXT_BYTES];
        if (!scale_moved(g->items[i]))
            continue;
        training_name(&c, g, g->items[i], name);
        chart_add_series(&c, name, SERIES_LINE, (int)i);
        for (size_t j = 0; j < json_array_size(points); j++)
            chart_add_point(&c, record_number(json_array_get(points, j), "update"), record_number(json_array_get(points, j), "loss_scale"));
    }
    mark_skipped(&c, g);
    Status s = chart_draw(&c, setup);
    chart_free(&c);
    return s;
}

typedef struct Curve {
    const char *kind, *what, *list, *x_label, *x, *y_label, *y, *y_train; /* y_train: a dashed companion, or NULL */
    SeriesStyle style;
    bool epochs;
} Curve;

/* "training images", "test text": what a group of trainings read. */
static const char *split_words(const Group *g, const char *split, char *out, size_t size)
{
    snprintf(out, size, "%s %s", split, record_is_text(g->items[0]) ? "text" : "images");
    return out;
}

static Status draw_curve(const Group *g, size_t number, const Curve *k, ChartSetup *setup)
{
    Chart c;
    char section[96], words[32];
    snprintf(section, sizeof section, "trainings/%zu", number);
    chart_start_group(&c, g, section, k->kind, k->what, k->x_label, k->y_label);
    if (k->epochs)
        add_epoch_ticks(&c, g);
    add_curves(&c, g, k->list, k->x, k->y, k->style);
    if (k->y_train) {
        add_curves(&c, g, k->list, k->x, k->y_train, SERIES_DASHED);
        snprintf(c.dashed_meaning, sizeof c.dashed_meaning, "on the %s", split_words(g, "training", words, sizeof words));
    }
    note_missing(&c, g);
    if (strcmp(k->kind, "loss-update") == 0)
        mark_skipped(&c, g);
    Status s = chart_draw(&c, setup);
    chart_free(&c);
    return s;
}

/* Accuracy, masked-LM accuracy or Dice, by epoch and by time. The first training that has masks decides for its group. */
static Status draw_scores(const Group *g, size_t number, ChartSetup *setup)
{
    const char *member = "test_accuracy", *score = training_score(g->items[0], &member);
    for (size_t i = 1; i < g->count && strcmp(score, "Dice") != 0; i++)
        score = training_score(g->items[i], &member);
    const bool dice = strcmp(score, "Dice") == 0;
    char words[32], what[64], y[96], y_time[64];
    split_words(g, "test", words, sizeof words);
    snprintf(what, sizeof what, "%c%s by epoch", score[0] >= 'a' ? score[0] - 'a' + 'A' : score[0], score + 1);
    snprintf(y, sizeof y, "%s, %s (%%)", score, words);
    snprintf(y_time, sizeof y_time, "test %s (%%)", score);
    const Curve by_epoch = { dice ? "dice" : "accuracy", what, "epochs", "epoch", "epoch", y, member,
                             dice ? NULL : "train_accuracy", SERIES_BOTH, true };
    TRY(draw_curve(g, number, &by_epoch, setup));
    char what_time[64];
    snprintf(what_time, sizeof what_time, "Test %s by time of training", score);
    const Curve by_time = { dice ? "dice-time" : "accuracy-time", what_time, "epochs", "seconds of training", "seconds", y_time, member,
                            NULL, SERIES_BOTH, false };
    return draw_curve(g, number, &by_time, setup);
}

Status charts_draw_trainings(const Group *g, size_t number, ChartSetup *setup)
{
    char words[32], y[64];
    snprintf(y, sizeof y, "loss on the %s", split_words(g, "test", words, sizeof words));
    const Curve losses[] = {
        { "loss", "Loss by epoch", "epochs", "epoch", "epoch", y, "test_loss", "train_loss", SERIES_BOTH, true },
        { "loss-update", "Training loss by update", "curve", "update", "update", "training loss", "loss", NULL, SERIES_LINE, false },
    };
    TRY(draw_scores(g, number, setup));
    for (size_t i = 0; i < COUNT_OF(losses); i++)
        TRY(draw_curve(g, number, &losses[i], setup));
    return draw_loss_scale(g, number, setup);
}
