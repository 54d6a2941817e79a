/* presets.c - the tables of the presets, and their expansion into cells. */
#include "presets.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct Sweep {
    const char *net;
    int64_t size[4], batch[10], accum[4]; /* 0 ends a list */
    Amp     amp[AMP_COUNT];
    int     amp_count;
    double  width;                        /* 0: the net's own, like the rest */
    int64_t classes, layers, hidden, heads, vocab;
    Stem    stem;
    Head    head;
} Sweep;

#define EACH .amp = { AMP_OFF, AMP_TF32, AMP_BF16, AMP_FP16 }, .amp_count = 4
#define BOTH .amp = { AMP_OFF, AMP_BF16 }, .amp_count = 2
#define SMALL_BERT .layers = 2, .hidden = 128, .heads = 2, .vocab = 1000

static const Sweep smoke_sweeps[] = {
    { "resnet50", { 64 }, { 2, 4, 8 }, { 1 }, BOTH, .width = 0.25, .classes = 100 },
    { "resnet50", { 64 }, { 4 }, { 2 }, BOTH, .width = 0.25, .classes = 100 },
    { "unet", { 64 }, { 1, 2, 4 }, { 1 }, BOTH, .width = 0.25 },
    { "unet", { 64 }, { 2 }, { 2 }, BOTH, .width = 0.25 },
    { "bert", { 64 }, { 2, 4, 8 }, { 1 }, BOTH, SMALL_BERT },
    { "bert", { 64 }, { 4 }, { 2 }, BOTH, SMALL_BERT },
};
static const Sweep quick_sweeps[] = {
    { "resnet50", { 224 }, { 1, 2, 4, 8, 16 }, { 1 }, BOTH },
    { "resnet50", { 224 }, { 2 }, { 4 }, BOTH },
    { "resnet50", { 64 }, { 1, 8, 32, 64 }, { 1 }, BOTH },
    { "unet", { 256 }, { 1, 2, 4 }, { 1 }, BOTH },
    { "unet", { 256 }, { 1 }, { 4 }, BOTH },
    { "bert", { 128 }, { 1, 2, 4, 8 }, { 1 }, BOTH },
    { "bert", { 128 }, { 2 }, { 4 }, BOTH },
};
static const Sweep full_sweeps[] = {
    { "resnet50", { 224 }, { 1, 2, 4, 8, 16, 32, 64, 128, 256 }, { 1 }, BOTH },
    { "resnet50", { 224 }, { 2, 8, 32 }, { 2, 4, 8 }, BOTH },
    { "resnet50", { 64, 384 }, { 1, 4, 16, 64 }, { 1 }, BOTH },
    { "unet", { 256, 512 }, { 1, 2, 4, 8, 16 }, { 1 }, BOTH },
    { "unet", { 256 }, { 1, 4 }, { 2, 4 }, BOTH },
    { "bert", { 128 }, { 1, 2, 4, 8, 16, 32, 64 }, { 1 }, BOTH },
    { "bert", { 128 }, { 8 }, { 2, 4 }, BOTH },
    { "bert", { 512 }, { 1, 4, 16 }, { 1 }, BOTH },
};

/* On a GPU: batches from where launching is all there is to where the memory is full; what does not fit is a cell that says so. */
static const Sweep quick_gpu_sweeps[] = {
    { "resnet50", { 224 }, { 1, 8, 32, 128, 256 }, { 1 }, EACH },
    { "resnet50", { 224 }, { 32 }, { 4 }, EACH },
    { "unet", { 512 }, { 1, 4, 16 }, { 1 }, EACH },
    { "unet", { 512 }, { 4 }, { 4 }, EACH },
    { "bert", { 128 }, { 1, 8, 32, 128, 256 }, { 1 }, EACH },
    { "bert", { 128 }, { 32 }, { 4 }, EACH },
};
static const Sweep full_gpu_sweeps[] = {
    { "resnet50", { 224 }, { 1, 2, 4, 8, 16, 32, 64, 128, 256, 512 }, { 1 }, EACH },
    { "resnet50", { 224 }, { 32, 128 }, { 4 }, EACH },
    { "resnet50", { 64, 384 }, { 1, 16, 64, 256 }, { 1 }, BOTH },
    { "unet", { 256, 512 }, { 1, 2, 4, 8, 16, 32, 64 }, { 1 }, EACH },
    { "unet", { 512 }, { 4 }, { 4 }, EACH },
    { "bert", { 128 }, { 1, 2, 4, 8, 16, 32, 64, 128, 256, 512 }, { 1 }, EACH },
    { "bert", { 128 }, { 32, 128 }, { 4 }, EACH },
    { "bert", { 512 }, { 1, 4, 16, 64 }, { 1 }, EACH },
};

/* Trainings: batch sizes at one recipe, each with its learning rate (0 = the optimiser's usual one, see train.h). */
typedef struct Recipe {
    const char *net, *data;
    int64_t     size, batch[4], accum, epochs, limit;
    double      lr[4], width; /* width 0: the net's own, like the rest */
    int64_t     layers, hidden, heads, vocab, classes;
    double      warmup;       /* epochs; 0 = a quarter of one */
    bool        augment, zero_gamma, adamw, no_dropout;
    Amp         amp;
    Stem        stem;
} Recipe;

static const Recipe smoke_recipes[] = {
    { "resnet50", "shapes", 32, { 16 }, 1, 1, 512, .width = 0.25, .stem = STEM_SMALL },
    { "unet", "ellipses", 32, { 8 }, 1, 1, 256, .width = 0.25, .adamw = true },
    { "bert", "copy", 32, { 16 }, 1, 1, 512, SMALL_BERT },
};
static const Recipe quick_recipes[] = {
    { "resnet50", "fashion-mnist", 28, { 64, 256 }, 1, 2, 40000, .lr = { 0.1, 0.2 }, .width = 0.25, .amp = AMP_BF16, .stem = STEM_SMALL },
    { "unet", "mri", 96, { 4 }, 1, 20, .lr = { 1e-3 }, .width = 0.25, .amp = AMP_BF16, .adamw = true },
    { "bert", "copy", 32, { 32 }, 1, 3, .lr = { 2e-3 }, .amp = AMP_BF16, .layers = 2, .hidden = 128, .heads = 4, .vocab = 200,
      .warmup = 0.5, .no_dropout = true },
    { "bert", "glosses", 32, { 64 }, 1, 1, 80000, .lr = { 3e-3 }, .amp = AMP_BF16, .layers = 2, .hidden = 128, .heads = 4, .vocab = 4096,
      .no_dropout = true },
    { "bert", "gloss-classes", 32, { 64 }, 1, 1, .lr = { 1e-3 }, .amp = AMP_BF16, .layers = 2, .hidden = 128, .heads = 4, .vocab = 8192 },
};
static const Recipe full_recipes[] = {
    { "resnet50", "fashion-mnist", 28, { 32, 64, 128, 256 }, 1, 10, .width = 0.5, .amp = AMP_BF16, .stem = STEM_SMALL, .augment = true,
      .zero_gamma = true },
    { "resnet50", "fashion-mnist", 28, { 64 }, 4, 10, .width = 0.5, .amp = AMP_BF16, .stem = STEM_SMALL, .augment = true, .zero_gamma = true },
    { "unet", "mri", 128, { 2, 4, 8 }, 1, 20, .lr = { 1e-3, 1e-3, 1e-3 }, .width = 0.5, .amp = AMP_BF16, .augment = true, .adamw = true },
    { "unet", "mri", 128, { 2 }, 4, 20, .lr = { 1e-3 }, .width = 0.5, .amp = AMP_BF16, .augment = true, .adamw = true },
    { "bert", "copy", 64, { 16, 64 }, 1, 10, .lr = { 1e-3, 2e-3 }, .amp = AMP_BF16, .layers = 4, .hidden = 256, .heads = 4, .vocab = 1000,
      .warmup = 0.5 },
    { "bert", "text", 64, { 32, 128 }, 1, 5, .lr = { 5e-4, 1e-3 }, .amp = AMP_BF16, .layers = 4, .hidden = 256, .heads = 4, .vocab = 8192 },
    { "bert", "gloss-classes", 32, { 32, 128 }, 1, 3, .lr = { 5e-4, 1e-3 }, .amp = AMP_BF16, .layers = 4, .hidden = 256, .heads = 4, .vocab = 8192 },
};

static const char *const preset_claims[] = { "A1", "A4", "A5", "B2", "B5", "B16", NULL };
static const char *const no_claims[] = { NULL };

typedef struct Preset {
    const char   *name;
    const Sweep  *sweeps;
    int           sweep_count;
    const Recipe *recipes;
    int           recipe_count;
    double        cell_seconds;
    const Sweep  *gpu_sweeps;  /* instead of the sweeps on a GPU; NULL: the same */
    int           gpu_sweep_count;
} Preset;

static const Preset presets[] = {
    { "smoke", smoke_sweeps, COUNT_OF(smoke_sweeps), smoke_recipes, COUNT_OF(smoke_recipes), 0.5, NULL, 0 },
    { "quick", quick_sweeps, COUNT_OF(quick_sweeps), quick_recipes, COUNT_OF(quick_recipes), 6,
      quick_gpu_sweeps, COUNT_OF(quick_gpu_sweeps) },
    { "full", full_sweeps, COUNT_OF(full_sweeps), full_recipes, COUNT_OF(full_recipes), 30,
      full_gpu_sweeps, COUNT_OF(full_gpu_sweeps) },
};

const char *preset_default(bool gpu) { return gpu ? "full" : "quick"; }

static void set_if(int64_t *to, int64_t given)
{
    if (given)
        *to = given;
}

static void set_if_real(float *to, double given)
{
    if (!isnan(given))
        *to = (float)given;
}

NetConfig net_from_options(const Options *o)
{
    NetConfig n = net_config_default(o->net);
    int64_t   stem_stride = n.stem_stride;
    n.width = o->width;
    n.stem = (Stem)o->stem;
    if (n.stem == STEM_SMALL)
        n.size = 32;
    n.head = (Head)o->head;
    n.zero_init_gamma = o->zero_gamma;
    n.rows = o->tokens;
    set_if(&n.classes, o->classes);
    set_if(&n.depth, o->depth);
    set_if(&stem_stride, o->stem_stride);
    n.stem_stride = (int)stem_stride;
    set_if(&n.layers, o->layers);
    set_if(&n.hidden, o->hidden);
    set_if(&n.heads, o->heads);
    set_if(&n.vocab, o->vocab);
    set_if_real(&n.dropout, o->dropout);
    if (o->optimizer >= 0)
        n.optim.kind = (OptimKind)o->optimizer;
    set_if_real(&n.optim.momentum, o->momentum);
    set_if_real(&n.optim.beta1, o->beta1);
    set_if_real(&n.optim.beta2, o->beta2);
    set_if_real(&n.optim.weight_decay, o->weight_decay);
    return n;
}

Status cell_from_axes(const Options *o, CellConfig *cell)
{
    int64_t amp = AMP_OFF;
    *cell = (CellConfig){ net_from_options(o), 1 };
    TRY(axis_single(&o->size, "size", &cell->net.size));
    TRY(axis_single(&o->batch, "batch", &cell->net.batch));
    TRY(axis_single(&o->amp, "amp", &amp));
    TRY(axis_single(&o->accum, "accum", &cell->accum));
    cell->net.amp = (Amp)amp;
    cell->net.accumulate = cell->accum > 1;
    return status_ok();
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

/* The sizes that sweeps and recipes of text say. */
static void set_text(NetConfig *n, int64_t layers, int64_t hidden, int64_t heads, int64_t vocab)
{
    set_if(&n->layers, layers);
    set_if(&n->hidden, hidden);
    set_if(&n->heads, heads);
    set_if(&n->vocab, vocab);
}

static Status add_sweep(Work *w, const Sweep *s)
{
    NetConfig net = net_config_default(s->net);
    net.width = s->width > 0 ? s->width : net.width;
    net.stem = s->stem;
    net.head = s->head;
    set_if(&net.classes, s->classes);
    set_text(&net, s->layers, s->hidden, s->heads, s->vocab);
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

static NetConfig recipe_net(const Recipe *r, int64_t batch)
{
    NetConfig net = net_config_default(r->net);
    net.size = r->size;
    net.batch = batch;
    net.width = r->width > 0 ? r->width : net.width;
    net.stem = r->stem;
    net.amp = r->amp;
    net.zero_init_gamma = r->zero_gamma;
    net.optim.kind = r->adamw ? OPTIM_ADAMW : net.optim.kind;
    net.dropout = r->no_dropout ? 0 : net.dropout;
    set_if(&net.classes, r->classes);
    set_text(&net, r->layers, r->hidden, r->heads, r->vocab);
    return net;
}

static Status add_recipe(Work *w, const Recipe *r, const Options *o)
{
    for (int b = 0; b < (int)COUNT_OF(r->batch) && r->batch[b]; b++) {
        TrainConfig *trainings = realloc(w->trainings, (size_t)(w->training_count + 1) * sizeof *trainings);
        if (!trainings)
            return status_error(STATUS_OOM, "out of memory for the list of trainings");
        w->trainings = trainings;
        w->trainings[w->training_count++] = (TrainConfig){
            .net = recipe_net(r, r->batch[b]), .accum = r->accum, .epochs = r->epochs, .lr = r->lr[b], .base_batch = 1,
            .schedule = SCHEDULE_COSINE, .warmup = r->warmup > 0 ? r->warmup : 0.25, .rules = session_rules(), .seed = (uint64_t)o->seed,
            .feed = { .data = r->data, .limit = r->limit, .loaders = 1, .augment = r->augment, .seed = (uint64_t)o->seed },
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
                    net.size = axis_or(&o->size, s, net.size);
                    net.amp = (Amp)axis_or(&o->amp, a, AMP_OFF);
                    net.batch = axis_or(&o->batch, b, net.batch);
                    TRY(add_cell(w, net, axis_or(&o->accum, k, 1)));
                }
    return status_ok();
}

static bool is_wanted(const Options *o, const char *net)
{
    return !o->net || !strcmp(o->net, net);
}

/* A preset has its own nets: what would change them cannot be heeded. */
static Status check_preset(const Options *o, const char *name)
{
    char            extra[CELL_EXTRA_BYTES];
    const NetConfig net = net_from_options(o);
    cell_name_extra(&net, extra, sizeof extra);
    if (extra[0] || o->classes)
        return status_error(STATUS_USAGE, "the preset '%s' has nets of its own, not one with %s: give --size, --batch, --amp or --accum to "
                            "sweep that one", name, extra[0] ? extra + 1 : "--classes");
    return status_ok();
}

static Status add_sweeps(Work *w, const Options *o, const Preset *p, bool gpu)
{
    const bool   own = gpu && p->gpu_sweeps;
    const Sweep *sweeps = own ? p->gpu_sweeps : p->sweeps;
    for (int i = 0; i < (own ? p->gpu_sweep_count : p->sweep_count); i++)
        if (is_wanted(o, sweeps[i].net))
            TRY(add_sweep(w, &sweeps[i]));
    return status_ok();
}

static Status fill(Work *w, const Options *o, bool gpu)
{
    const char *name = o->preset ? o->preset : preset_default(gpu);
    for (size_t p = 0; p < COUNT_OF(presets); p++) {
        if (strcmp(presets[p].name, name))
            continue;
        w->cell_seconds = o->cell_seconds > 0 ? o->cell_seconds : presets[p].cell_seconds;
        if (o->size.count + o->batch.count + o->amp.count + o->accum.count > 0)
            return add_axes(w, o);
        TRY(check_preset(o, name));
        w->preset = presets[p].name;
        w->claims = o->net ? no_claims : preset_claims;
        TRY(add_sweeps(w, o, &presets[p], gpu));
        for (int i = 0; i < presets[p].recipe_count; i++)
            if (is_wanted(o, presets[p].recipes[i].net))
                TRY(add_recipe(w, &presets[p].recipes[i], o));
    }
    return status_ok();
}

Status work_plan(const Options *o, bool gpu, Work *out)
{
    memset(out, 0, sizeof *out);
    out->claims = no_claims;
    Status status = fill(out, o, gpu);
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
