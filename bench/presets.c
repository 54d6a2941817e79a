/* presets.c - the tables of the presets, and their expansion into cells. */
#include "presets.h"

#include <stdlib.h>
#include <string.h>

typedef struct Sweep {
    int64_t size[4], batch[10], accum[4]; /* 0 ends a list */
    Amp     amp[AMP_COUNT];
    int     amp_count;
    double  width;
    int64_t classes;
    Stem    stem;
} Sweep;

#define BOTH .amp = { AMP_OFF, AMP_BF16 }, .amp_count = 2

static const Sweep smoke_sweeps[] = {
    { .size = { 64 }, .batch = { 2, 4, 8 }, .accum = { 1 }, BOTH, .width = 0.25, .classes = 100 },
    { .size = { 64 }, .batch = { 4 }, .accum = { 2 }, BOTH, .width = 0.25, .classes = 100 },
};
static const Sweep quick_sweeps[] = {
    { .size = { 224 }, .batch = { 1, 2, 4, 8, 16 }, .accum = { 1 }, BOTH, .width = 1, .classes = 1000 },
    { .size = { 224 }, .batch = { 2 }, .accum = { 4 }, BOTH, .width = 1, .classes = 1000 },
    { .size = { 64 }, .batch = { 1, 8, 32, 64 }, .accum = { 1 }, BOTH, .width = 1, .classes = 1000 },
};
static const Sweep full_sweeps[] = {
    { .size = { 224 }, .batch = { 1, 2, 4, 8, 16, 32, 64, 128, 256 }, .accum = { 1 }, BOTH, .width = 1, .classes = 1000 },
    { .size = { 224 }, .batch = { 2, 8, 32 }, .accum = { 2, 4, 8 }, BOTH, .width = 1, .classes = 1000 },
    { .size = { 64, 384 }, .batch = { 1, 4, 16, 64 }, .accum = { 1 }, BOTH, .width = 1, .classes = 1000 },
};

/* Trainings: batch sizes at one recipe, each with its learning rate (0 = linear in the batch, see train.h). */
typedef struct Recipe {
    const char *data;
    int64_t     size, batch[4], accum, epochs, limit;
    double      lr[4], width;
    bool        augment, zero_gamma;
    Amp         amp;
    Stem        stem;
} Recipe;

static const Recipe smoke_recipes[] = {
    { .data = "shapes", .size = 32, .batch = { 16 }, .accum = 1, .epochs = 1, .limit = 512, .width = 0.25, .amp = AMP_OFF, .stem = STEM_SMALL },
};
static const Recipe quick_recipes[] = {
    { .data = "fashion-mnist", .size = 28, .batch = { 64, 256 }, .lr = { 0.1, 0.2 }, .accum = 1, .epochs = 2, .width = 0.25, .amp = AMP_BF16, .stem = STEM_SMALL },
};
static const Recipe full_recipes[] = {
    { .data = "fashion-mnist", .size = 28, .batch = { 32, 64, 128, 256 }, .accum = 1, .epochs = 10, .width = 0.5, .amp = AMP_BF16, .stem = STEM_SMALL,
      .augment = true, .zero_gamma = true },
    { .data = "fashion-mnist", .size = 28, .batch = { 64 }, .accum = 4, .epochs = 10, .width = 0.5, .amp = AMP_BF16, .stem = STEM_SMALL,
      .augment = true, .zero_gamma = true },
};

static const char *const foundation_claims[] = { "A1", "A4", "B2", "B16", NULL };
static const char *const no_claims[] = { NULL };

typedef struct Preset {
    const char   *name;
    const Sweep  *sweeps;
    int           sweep_count;
    const Recipe *recipes;
    int           recipe_count;
    double        cell_seconds;
} Preset;

static const Preset presets[] = {
    { "smoke", smoke_sweeps, COUNT_OF(smoke_sweeps), smoke_recipes, COUNT_OF(smoke_recipes), 0.5 },
    { "quick", quick_sweeps, COUNT_OF(quick_sweeps), quick_recipes, COUNT_OF(quick_recipes), 6 },
    { "full", full_sweeps, COUNT_OF(full_sweeps), full_recipes, COUNT_OF(full_recipes), 30 },
};

const char *preset_default(void) { return "quick"; }

NetConfig net_from_options(const Options *o)
{
    NetConfig n = net_config_default();
    n.net = o->net;
    n.width = o->width;
    n.classes = o->classes;
    n.stem = (Stem)o->stem;
    n.zero_init_gamma = o->zero_gamma;
    n.momentum = (float)o->momentum;
    n.weight_decay = (float)o->weight_decay;
    return n;
}

static Status add_cell(Work *w, NetConfig net, int64_t accum)
{
    CellConfig *cells = realloc(w->cells, (size_t)(w->cell_count + 1) * sizeof *cells);
    if (!cells)
        return status_error(STATUS_OOM, "out of memory for the list of cells");
    w->cells = cells;
    net.accumulate = accum > 1;
    w->cells[w->cell_count++] = (CellConfig){ net, accum };
    return status_ok();
}

static Status add_sweep(Work *w, const Sweep *s)
{
    NetConfig net = net_config_default();
    net.width = s->width;
    net.classes = s->classes;
    net.stem = s->stem;
    for (int i = 0; i < (int)COUNT_OF(s->size) && s->size[i]; i++)
        for (int a = 0; a < s->amp_count; a++)
            for (int k = 0; k < (int)COUNT_OF(s->accum) && s->accum[k]; k++)
                for (int b = 0; b < (int)COUNT_OF(s->batch) && s->batch[b]; b++) {
                    net.size = s->size[i];
                    net.amp = s->amp[a];
                    net.batch = s->batch[b];
                    TRY(add_cell(w, net, s->accum[k]));
                }
    return status_ok();
}

static Status add_recipe(Work *w, const Recipe *r, const Options *o)
{
    for (int b = 0; b < (int)COUNT_OF(r->batch) && r->batch[b]; b++) {
        TrainConfig *trainings = realloc(w->trainings, (size_t)(w->training_count + 1) * sizeof *trainings);
        if (!trainings)
            return status_error(STATUS_OOM, "out of memory for the list of trainings");
        w->trainings = trainings;
        NetConfig net = net_config_default();
        net.size = r->size;
        net.batch = r->batch[b];
        net.width = r->width;
        net.stem = r->stem;
        net.amp = r->amp;
        net.zero_init_gamma = r->zero_gamma;
        w->trainings[w->training_count++] = (TrainConfig){
            .net = net, .data = { .name = r->data, .seed = 1, .limit = r->limit }, .accum = r->accum, .epochs = r->epochs,
            .lr = r->lr[b], .schedule = SCHEDULE_COSINE, .warmup = 0.25, .loaders = 1, .augment = r->augment, .seed = (uint64_t)o->seed,
        };
    }
    return status_ok();
}

static int64_t axis_or(const Axis *axis, int i, int64_t fallback) { return axis->count ? axis->value[i] : fallback; }
static int axis_length(const Axis *axis) { return axis->count ? axis->count : 1; }

static Status add_axes(Work *w, const Options *o)
{
    for (int s = 0; s < axis_length(&o->size); s++)
        for (int a = 0; a < axis_length(&o->amp); a++)
            for (int k = 0; k < axis_length(&o->accum); k++)
                for (int b = 0; b < axis_length(&o->batch); b++) {
                    NetConfig net = net_from_options(o);
                    net.size = axis_or(&o->size, s, o->stem == STEM_SMALL ? 32 : 224);
                    net.amp = (Amp)axis_or(&o->amp, a, AMP_OFF);
                    net.batch = axis_or(&o->batch, b, 8);
                    TRY(add_cell(w, net, axis_or(&o->accum, k, 1)));
                }
    return status_ok();
}

static Status fill(Work *w, const Options *o)
{
    const char *name = o->preset ? o->preset : preset_default();
    for (size_t p = 0; p < COUNT_OF(presets); p++) {
        if (strcmp(presets[p].name, name))
            continue;
        w->cell_seconds = o->cell_seconds > 0 ? o->cell_seconds : presets[p].cell_seconds;
        if (o->size.count + o->batch.count + o->amp.count + o->accum.count > 0)
            return add_axes(w, o);
        w->preset = presets[p].name;
        w->claims = foundation_claims;
        for (int i = 0; i < presets[p].sweep_count; i++)
            TRY(add_sweep(w, &presets[p].sweeps[i]));
        for (int i = 0; i < presets[p].recipe_count; i++)
            TRY(add_recipe(w, &presets[p].recipes[i], o));
    }
    return status_ok();
}

Status work_plan(const Options *o, Work *out)
{
    memset(out, 0, sizeof *out);
    out->claims = no_claims;
    Status status = fill(out, o);
    if (status.code != STATUS_OK)
        work_free(out);
    return status;
}

void work_free(Work *w)
{
    free(w->cells);
    free(w->trainings);
    memset(w, 0, sizeof *w);
}
