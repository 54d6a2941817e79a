/* b5_accumulation_details.c - claim B5: the last window of an epoch, the learning rate times k, and the statistics of batch norm,
 * each measured on nets that train in a second. */
#include "b5_accumulation_details.h"

#include "../random_batch.h"
#include "claims.h"
#include "curves.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MICRO_BATCH = 4, WINDOW_BATCHES = 10, WINDOWS = 5, RATES_MAX = 2, RATE_K = 4, NORM_BATCH = 16, NORMS = 3 };
static const double WEIGHT_NEAR = 1e-3, RATE_NEAR = 1e-5, NORM_APART = 1e-3;
static const double STILL = 1e-9; /* a rate at which no weight moves, so that windows can be compared */
#define TOLERANCE_TEXT "windows: ceil(n / k) updates, all samples, a last window weighted within 0.1 %, rates within 1e-5 of the peak; rate: the " \
                       "loss at k x the rate nearer to that without accumulation; batch norm: statistics more than 1e-3 apart"

/* ---- analysis ---- */

static double number(const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

static const json_t *last_of(const json_t *training, const char *list)
{
    const json_t *items = json_object_get(training, list);
    return json_array_size(items) ? json_array_get(items, json_array_size(items) - 1) : NULL;
}

WindowRow window_read(const json_t *training, const json_t *alone, int64_t n, int64_t k, int64_t given)
{
    const json_t *curve = json_object_get(training, "curve");
    const int64_t updates = (n + k - 1) / k;
    const double peak = number(json_object_get(training, "axes"), "lr");
    WindowRow w = { .n = n, .k = k, .given = given, .last_weight = (double)NAN, .rate_error = 0 };
    w.updates = (int64_t)json_array_size(curve);
    w.samples = json_integer_value(json_object_get(last_of(training, "epochs"), "samples"));
    if (alone && k > 1 && n % k == 1)
        w.last_weight = number(last_of(training, "curve"), "grad_norm") / number(last_of(alone, "curve"), "grad_norm");
    for (int64_t u = 0; u < w.updates; u++) {
        double rate = number(json_array_get(curve, (size_t)u), "lr");
        double error = fabs(rate - schedule_rate(SCHEDULE_LINEAR, peak, u, updates, 0)) / peak;
        w.rate_error = isfinite(error) ? fmax(w.rate_error, error) : INFINITY;
    }
    return w;
}

bool window_is_whole(const WindowRow *w)
{
    bool weighted = isnan(w->last_weight) || fabs(w->last_weight - 1) <= WEIGHT_NEAR;
    return w->updates == (w->n + w->k - 1) / w->k && w->samples == w->given && weighted && w->rate_error <= RATE_NEAR;
}

bool rate_scaling_helps(const RateRow *r) { return fabs(r->scaled - r->single) < fabs(r->unscaled - r->single); }

Verdict accumulation_details_judge(const WindowRow *windows, size_t window_count, const RateRow *rates, size_t rate_count,
                                   const NormRow *norms, size_t norm_count)
{
    int  parts = 0, held = 0;
    bool divides = false, scales = true, differs = true;
    for (size_t i = 0; i < window_count; i++)
        divides = divides || !window_is_whole(&windows[i]);
    for (size_t i = 0; i < rate_count; i++)
        scales = scales && rate_scaling_helps(&rates[i]);
    for (size_t i = 0; i < norm_count; i++)
        differs = differs && norms[i].mean > NORM_APART && norms[i].variance > NORM_APART;
    parts = (window_count > 0) + (rate_count > 0) + (norm_count > 0);
    held = (window_count > 0 && divides) + (rate_count > 0 && scales) + (norm_count > 0 && differs);
    if (!parts)
        return VERDICT_NOT_RUN;
    return held == 3 ? VERDICT_REPRODUCED : held ? VERDICT_PARTLY : VERDICT_CONTRADICTED;
}

/* ---- statistics of batch norm ---- */

/* All running statistics whose name ends in `leaf`, in order of id. The caller frees *out. */
static Status read_statistics(const Session *s, const char *leaf, float **out, int64_t *count)
{
    const Graph *g = s->net->graph;
    *count = 0;
    *out = malloc((size_t)graph_param_count(g) * sizeof **out); /* fewer than parameters: one for each gamma */
    if (!*out)
        return status_error(STATUS_OOM, "out of memory for the statistics of batch norm");
    for (int v = 0; v < g->value_count; v++) {
        const char *end = strrchr(g->values[v].name, '.');
        if (g->values[v].kind != MEM_WEIGHT || g->values[v].is_param || g->values[v].span_group || !end || strcmp(end + 1, leaf))
            continue;
        TRY(exec_read(s->exec, (Value){ v }, *out + *count));
        *count += tensor_count(&g->values[v].tensor);
    }
    return status_ok();
}

typedef struct Statistics { float *mean, *variance; int64_t count; } Statistics;

/* After the k micro-batches of one window, before any update. */
static Status statistics_of(Backend *be, const NetConfig *whole, int64_t k, uint64_t seed, const MicroBatch *data, Statistics *out)
{
    NetConfig config = *whole;
    Net net;
    Status status;
    config.batch = whole->batch / k;
    config.accumulate = k > 1;
    TRY(net_build(&config, &net));
    Session session = { .net = &net };
    TRY_GOTO(status, exec_create(net.graph, be, NULL, &session.exec), out);
    TRY_GOTO(status, exec_init(session.exec, seed), out);
    TRY_GOTO(status, step_begin(&session, data->counted), out);
    const int64_t pixels = config.size * config.size;
    for (int64_t i = 0; i < k; i++) {
        const int64_t first = i * config.batch;
        MicroBatch micro = { .pixels = data->pixels + first * pixels * config.channels, .labels = data->labels ? data->labels + first : NULL,
                             .mask = data->mask ? data->mask + first * pixels : NULL };
        TRY_GOTO(status, step_micro(&session, &micro), out);
    }
    TRY_GOTO(status, backend_sync(be), out);
    TRY_GOTO(status, read_statistics(&session, "run_mean", &out->mean, &out->count), out);
    status = read_statistics(&session, "run_var", &out->variance, &out->count);
out:
    exec_destroy(session.exec);
    net_destroy(&net);
    return status;
}

static double distance(const float *a, const float *b, int64_t n, double start)
{
    double difference = 0, length = 0;
    for (int64_t i = 0; i < n; i++) {
        difference += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        length += ((double)b[i] - start) * ((double)b[i] - start);
    }
    return sqrt(difference / length);
}

Status norm_statistics_distance(Backend *be, const NetConfig *config, int64_t k, uint64_t seed, NormRow *row)
{
    MicroBatch data = { 0 };
    Statistics one = { NULL, NULL, 0 }, many = { NULL, NULL, 0 };
    Status status;
    CHECK(k >= 1 && config->batch % k == 0 && !net_is_text(config));
    TRY_GOTO(status, random_batch_create(config, seed, &data), out);
    TRY_GOTO(status, statistics_of(be, config, 1, seed, &data, &one), out);
    TRY_GOTO(status, statistics_of(be, config, k, seed, &data, &many), out);
    CHECK(one.count == many.count);
    *row = (NormRow){ k, distance(many.mean, one.mean, one.count, 0), distance(many.variance, one.variance, one.count, 1) };
out:
    free(one.mean);
    free(one.variance);
    free(many.mean);
    free(many.variance);
    random_batch_free(&data);
    return status;
}

/* ---- running it ---- */

typedef struct DetailStudy {
    WindowRow windows[WINDOWS];
    size_t    window_count;
    RateRow   rates[RATES_MAX];
    size_t    rate_count;
    json_t   *runs[RATES_MAX][3]; /* k = 1, k, k at k lr; owned */
    NormRow   norms[NORMS];
    size_t    norm_count;
} DetailStudy;

static TrainConfig training(const ClaimContext *context, const char *net, const char *data, int64_t accum, double lr)
{
    const uint64_t seed = context->measure->seed;
    TrainConfig t = { .net = net_config_default(net), .accum = accum, .epochs = 1, .lr = lr, .base_batch = 1, .rules = session_rules(),
                      .seed = seed, .feed = { .data = data, .loaders = 1, .seed = seed } };
    t.net.batch = MICRO_BATCH;
    t.net.size = 32;
    t.net.optim.kind = OPTIM_SGD;
    return t;
}

/* The smallest net there is, standing still: what counts is how an epoch is cut into windows. */
static Status measure_windows(const ClaimContext *context, DetailStudy *s)
{
    static const int64_t ks[WINDOWS] = { 1, 2, 3, 4, 16 };
    json_t *alone = NULL;
    Status  status = status_ok();
    for (int i = 0; i < WINDOWS && status.code == STATUS_OK; i++) {
        TrainConfig t = training(context, "bert", "copy", ks[i], STILL);
        t.net.layers = 1;
        t.net.hidden = 32;
        t.net.heads = 1;
        t.net.vocab = 1000;
        t.net.dropout = 0;
        t.schedule = SCHEDULE_LINEAR;
        t.feed.limit = MICRO_BATCH * WINDOW_BATCHES;
        json_t *entry = NULL;
        status = train_run(&t, context->measure, false, &entry);
        if (status.code == STATUS_OK)
            s->windows[s->window_count++] = window_read(entry, alone, WINDOW_BATCHES, ks[i], t.feed.limit);
        if (!alone)
            alone = entry;
        else
            json_decref(entry);
    }
    json_decref(alone);
    return status;
}

/* The test loss of the last epoch. */
static double final_loss(const json_t *entry) { return number(last_of(entry, "epochs"), "test_loss"); }

/* A small UNet, whose micro-batch and so whose batch norm stay the same: 32 updates an epoch, or 8 with accumulation. */
static Status measure_rates(const ClaimContext *context, DetailStudy *s)
{
    static const double rates[RATES_MAX] = { 0.004, 0.001 };
    const bool   smoke = !strcmp(context->preset, "smoke");
    const size_t count = smoke ? 1 : RATES_MAX;
    for (size_t i = 0; i < count; i++) {
        for (int run = 0; run < 3; run++) {
            TrainConfig t = training(context, "unet", "ellipses", run ? RATE_K : 1, run == 2 ? RATE_K * rates[i] : rates[i]);
            t.net.width = 0.25;
            t.net.depth = 1;
            t.epochs = smoke ? 2 : 3;
            t.feed.limit = 128;
            TRY(train_run(&t, context->measure, false, &s->runs[i][run]));
        }
        s->rates[s->rate_count++] = (RateRow){ RATE_K, rates[i], final_loss(s->runs[i][0]), final_loss(s->runs[i][1]), final_loss(s->runs[i][2]) };
    }
    return status_ok();
}

static Status measure_norms(const ClaimContext *context, DetailStudy *s)
{
    Backend *be = NULL;
    NetConfig net = net_config_default("unet");
    Status status = status_ok();
    net.batch = NORM_BATCH;
    net.size = 32;
    net.width = 0.25;
    net.depth = 2;
    TRY(backend_open(context->measure->device, &context->measure->backend, &be));
    for (int64_t k = 2; s->norm_count < NORMS && status.code == STATUS_OK; k *= 2) {
        status = norm_statistics_distance(be, &net, k, context->measure->seed, &s->norms[s->norm_count]);
        s->norm_count += status.code == STATUS_OK;
    }
    backend_close(be);
    return status;
}

/* ---- the entry ---- */

static Status add_window_table(json_t *entry, const DetailStudy *s)
{
    static const ColumnHead heads[] = {
        { "micro-batches in the epoch", "" }, { "k", "" }, { "updates", "" }, { "ceil(n / k)", "" }, { "samples used", "" },
        { "samples given", "" }, { "weight of a last window of one", "of its own mean" }, { "rate against the schedule by updates", "of the peak" },
    };
    ClaimTable t;
    claim_table_begin(&t, "An epoch in windows of k micro-batches", heads, COUNT_OF(heads));
    for (size_t i = 0; i < s->window_count; i++) {
        const WindowRow *w = &s->windows[i];
        claim_table_row(&t);
        claim_table_integer(&t, w->n);
        claim_table_integer(&t, w->k);
        claim_table_integer(&t, w->updates);
        claim_table_integer(&t, (w->n + w->k - 1) / w->k);
        claim_table_integer(&t, w->samples);
        claim_table_integer(&t, w->given);
        claim_table_real(&t, w->last_weight);
        claim_table_real(&t, w->rate_error);
    }
    return entry_add_table(entry, &t);
}

static Status add_rate_table(json_t *entry, const DetailStudy *s)
{
    static const ColumnHead heads[] = {
        { "k", "" }, { "learning rate", "" }, { "test loss, no accumulation", "" }, { "k at the same rate", "" }, { "k at k x the rate", "" },
        { "nearer to no accumulation", "" },
    };
    ClaimTable t;
    claim_table_begin(&t, "The same samples with the learning rate left or multiplied by k (UNet, SGD, micro-batch 4 throughout)", heads,
                      COUNT_OF(heads));
    for (size_t i = 0; i < s->rate_count; i++) {
        const RateRow *r = &s->rates[i];
        claim_table_row(&t);
        claim_table_integer(&t, r->k);
        claim_table_real(&t, r->lr);
        claim_table_real(&t, r->single);
        claim_table_real(&t, r->unscaled);
        claim_table_real(&t, r->scaled);
        claim_table_text(&t, rate_scaling_helps(r) ? "k x the rate" : "the same rate");
    }
    return entry_add_table(entry, &t);
}

static Status add_norm_table(json_t *entry, const DetailStudy *s)
{
    static const ColumnHead heads[] = {
        { "micro-batches k", "" }, { "micro-batch", "" }, { "whole batch", "" }, { "running mean apart", "of what it moved" },
        { "running variance apart", "of what it moved" },
    };
    ClaimTable t;
    claim_table_begin(&t, "Running statistics of batch norm after one window, micro-batches against the whole batch (UNet)", heads, COUNT_OF(heads));
    for (size_t i = 0; i < s->norm_count; i++) {
        claim_table_row(&t);
        claim_table_integer(&t, s->norms[i].k);
        claim_table_integer(&t, NORM_BATCH / s->norms[i].k);
        claim_table_integer(&t, NORM_BATCH);
        claim_table_real(&t, s->norms[i].mean);
        claim_table_real(&t, s->norms[i].variance);
    }
    return entry_add_table(entry, &t);
}

/* Test loss over the samples seen, one chart a rate. */
static Status add_rate_chart(json_t *entry, const DetailStudy *s, size_t i)
{
    static const char *const names[] = { "k = 1", "k = 4, the same rate", "k = 4, 4 x the rate" };
    ClaimChart c;
    char title[96];
    snprintf(title, sizeof title, "loss after equal samples, learning rate %g", s->rates[i].lr);
    claim_chart_begin(&c, title, "training samples", "loss on the test images", false, true);
    for (int run = 0; run < 3; run++) {
        const json_t *epochs = json_object_get(s->runs[i][run], "epochs");
        claim_chart_series(&c, CHART_BOTH, "%s", names[run]);
        for (size_t e = 0; e < json_array_size(epochs); e++)
            claim_chart_point(&c, number(json_array_get(epochs, e), "samples"), number(json_array_get(epochs, e), "test_loss"));
    }
    return entry_add_chart(entry, &c);
}

static Status conclude(json_t *entry, const DetailStudy *s)
{
    size_t whole = 0, helped = 0;
    double apart = 0;
    for (size_t i = 0; i < s->window_count; i++)
        whole += window_is_whole(&s->windows[i]);
    for (size_t i = 0; i < s->rate_count; i++)
        helped += rate_scaling_helps(&s->rates[i]);
    for (size_t i = 0; i < s->norm_count; i++)
        apart = fmax(apart, fmax(s->norms[i].mean, s->norms[i].variance));
    const RateRow *r = &s->rates[0];
    return entry_conclude(entry, accumulation_details_judge(s->windows, s->window_count, s->rates, s->rate_count, s->norms, s->norm_count), TOLERANCE_TEXT,
        "Samples need not divide by k here: in %zu of %zu cases an epoch of %d micro-batches makes ceil(n / k) updates, uses every sample, weights "
        "a short last window by what it holds and moves the rate per update. k x the rate is nearer to training without accumulation in %zu "
        "of %zu cases (rate %g, k %" PRId64 ": loss %.3f without, %.3f at the same rate, %.3f at k x it). Running statistics of batch norm "
        "move once a micro-batch and end up to %.2g of their way from those of the whole batch; synchronised batch norm joins devices, not "
        "micro-batches.", whole, s->window_count, (int)WINDOW_BATCHES, helped, s->rate_count, r->lr, r->k, r->single, r->unscaled, r->scaled, apart);
}

Status claim_b5_accumulation_details(const ClaimContext *context, json_t *entry)
{
    DetailStudy s = { .window_count = 0 };
    Status status;
    TRY_GOTO(status, measure_windows(context, &s), out);
    TRY_GOTO(status, measure_rates(context, &s), out);
    TRY_GOTO(status, measure_norms(context, &s), out);
    TRY_GOTO(status, add_window_table(entry, &s), out);
    TRY_GOTO(status, add_rate_table(entry, &s), out);
    TRY_GOTO(status, add_norm_table(entry, &s), out);
    for (size_t i = 0; i < s.rate_count; i++)
        TRY_GOTO(status, add_rate_chart(entry, &s, i), out);
    status = conclude(entry, &s);
out:
    for (size_t i = 0; i < RATES_MAX; i++)
        for (int run = 0; run < 3; run++)
            json_decref(s.runs[i][run]);
    return status;
}
