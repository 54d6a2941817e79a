/* charts_training.c - the curves of trainings: how loss and accuracy go with epochs, updates and time. */
#include "charts_more.h"

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
        { "axes.epochs", "epochs" }, { "axes.lr", "lr" }, { "axes.seed", "seed" },
    };
    Text t = { 0 };
    text_format(&t, "%.24s, batch %.0f", precision_name(item), fmax(0, record_number(item, "axes.batch")));
    if (record_number(item, "axes.accum") > 1)
        text_format(&t, " \xc3\x97%.0f", record_number(item, "axes.accum"));
    for (size_t i = 0; i < COUNT_OF(more); i++) {
        double x = record_number(item, more[i].path);
        if (isfinite(x) && axis_varies(g, more[i].path))
            text_format(&t, ", %s %.6g", more[i].word, x);
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

typedef struct Curve {
    const char *kind, *what, *list, *x_label, *x, *y_label, *y, *y_train; /* y_train: a dashed companion, or NULL */
    SeriesStyle style;
    bool epochs;
} Curve;

static Status draw_curve(const Group *g, size_t number, const Curve *k, ChartSetup *setup)
{
    Chart c;
    char section[96];
    snprintf(section, sizeof section, "trainings/%zu", number);
    chart_start_group(&c, g, section, k->kind, k->what, k->x_label, k->y_label);
    if (k->epochs)
        add_epoch_ticks(&c, g);
    add_curves(&c, g, k->list, k->x, k->y, k->style);
    if (k->y_train) {
        add_curves(&c, g, k->list, k->x, k->y_train, SERIES_DASHED);
        text_copy(c.dashed_meaning, sizeof c.dashed_meaning, "on the training images");
    }
    note_missing(&c, g);
    Status s = chart_draw(&c, setup);
    chart_free(&c);
    return s;
}

Status charts_draw_trainings(const Group *g, size_t number, ChartSetup *setup)
{
    static const Curve curves[] = {
        { "accuracy", "Accuracy by epoch", "epochs", "epoch", "epoch", "accuracy on the test images (%)",
          "test_accuracy", "train_accuracy", SERIES_BOTH, true },
        { "accuracy-time", "Test accuracy by time of training", "epochs", "seconds of training", "seconds",
          "test accuracy (%)", "test_accuracy", NULL, SERIES_BOTH, false },
        { "loss", "Loss by epoch", "epochs", "epoch", "epoch", "loss on the test images", "test_loss", "train_loss",
          SERIES_BOTH, true },
        { "loss-update", "Training loss by update", "curve", "update", "update", "cross-entropy loss", "loss", NULL,
          SERIES_LINE, false },
    };
    for (size_t i = 0; i < COUNT_OF(curves); i++)
        TRY(draw_curve(g, number, &curves[i], setup));
    return status_ok();
}
