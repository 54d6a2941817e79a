/* a4_accumulation.c - claim A4: k micro-batches of b against one batch of k b: the gradient, the memory, the speed. */
#include "a4_accumulation.h"

#include "../random_batch.h"
#include "gather.h"

#include "../../nets/grad.h"
#include "../../nets/layers.h"
#include "../../nets/optim.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { EFFECTIVE = 16, STEPS_OF_K = 4 };
static const double MIB = 1048576.0, MEMORY_MAX = 1.10;
#define TOLERANCE_TEXT "gradients within fp32 rounding, 4 x 2^-24 x sqrt(batch x pixels), for text 1e-5, with and without batch norm; " \
                       "memory at most 1.1 x the micro-batch's and below the large batch's"

const char *const check_net_names[CHECK_NETS] = { "convolutions without batch norm", "bert, dropout off", "resnet50", "unet" };
static bool has_norm(int which) { return which == CHECK_RESNET || which == CHECK_UNET; }

NetConfig check_net_config(CheckNet which, int64_t batch)
{
    static const char *const nets[CHECK_NETS] = { "resnet50", "bert", "resnet50", "unet" };
    NetConfig c = net_config_default(nets[which]);
    c.batch = batch;
    c.size = which == CHECK_RESNET ? 64 : which == CHECK_UNET ? 32 : 16;
    c.width = 0.25;
    c.depth = 2;
    if (which == CHECK_BERT) {
        c.width = 1;
        c.layers = 2;
        c.hidden = 64;
        c.heads = 2;
        c.vocab = 100;
        c.dropout = 0;
    } else if (which != CHECK_UNET) {
        c.classes = 10;
    }
    return c;
}

/* ---- gradients ---- */

static void plain_body(Net *net)
{
    Graph *g = net->graph;
    const NetConfig *c = &net->config;
    net->image = graph_value(g, "image", tensor_4d(DTYPE_U8, c->batch, c->size, c->size, c->channels), MEM_INPUT);
    net->labels = graph_value(g, "labels", tensor_1d(DTYPE_I32, c->batch), MEM_INPUT);
    net->scale = graph_value(g, "scale", tensor_1d(DTYPE_F32, 1), MEM_INPUT);
    net->hyper = graph_value(g, "hyper", tensor_1d(DTYPE_F32, 8), MEM_INPUT);
    net->metrics = graph_value(g, "metrics", tensor_1d(DTYPE_F32, 4), MEM_INPUT);
    net->norm2 = graph_value(g, "norm2", tensor_1d(DTYPE_F32, 1), MEM_INPUT);
    g->segment = SEG_MICRO;
    Value x = layer_normalize(g, "input", net->image, c->mean, c->deviation);
    x = layer_conv_bias_relu(g, "conv1", x, 3, 16, 1);
    x = layer_conv_bias_relu(g, "conv2", x, 3, 32, 2);
    x = layer_conv_bias_relu(g, "conv3", x, 3, 32, 2);
    net->logits = layer_linear(g, "fc", layer_global_avgpool(g, "pool", x), c->classes);
    layer_loss(g, "loss", net->logits, net->labels, net->scale, net->metrics);
    net->control = graph_value(g, "control", tensor_1d(DTYPE_F32, 8), MEM_INPUT);
    grad_append(g, c->accumulate);
    optim_append_zero(g, net->metrics);
    optim_append(g, &(OptimConfig){ .momentum = c->optim.momentum, .weight_decay = c->optim.weight_decay, .accumulate = c->accumulate },
                 &(OptimInputs){ net->hyper, net->norm2, net->control });
    copies_append(g);
}

Status plain_net_build(const NetConfig *config, Net *out)
{
    *out = net_blank(config);
    TRY(graph_create(&out->graph));
    plain_body(out);
    Status status = graph_status(out->graph);
    if (status.code != STATUS_OK)
        net_destroy(out);
    return status;
}

/* Sequence i keeps 1 + 7 i mod n of its n targets, the others count nowhere. */
static void thin_targets(const NetConfig *c, MicroBatch *whole)
{
    if (!net_is_text(c) || c->head != HEAD_MASKED)
        return;
    const int64_t each = net_head_rows(c) / c->batch;
    int32_t *labels = (int32_t *)(uintptr_t)whole->labels, *rows = (int32_t *)(uintptr_t)whole->rows;
    whole->counted = 0;
    for (int64_t i = 0; i < c->batch; i++)
        for (int64_t t = 0; t < each; t++) {
            const bool kept = t < 1 + 7 * i % each;
            labels[i * each + t] = kept ? labels[i * each + t] : -1;
            rows[i * each + t] = kept ? rows[i * each + t] : -1;
            whole->counted += kept;
        }
}

/* Rows of a micro-batch that begins at row `first` of the whole; step 2 leaves the lengths of spans as they are. */
static int32_t *moved(const int32_t *from, int64_t count, int64_t first, int64_t step)
{
    int32_t *to = malloc((size_t)count * sizeof *to);
    for (int64_t i = 0; to && i < count; i++)
        to[i] = from[i] >= 0 && i % step == 0 ? from[i] - (int32_t)first : from[i];
    return to;
}

/* Samples i b to (i + 1) b of the whole. spans and rows are the caller's to free. */
static Status slice(const NetConfig *micro, const MicroBatch *whole, int64_t i, MicroBatch *out)
{
    const int64_t b = micro->batch, pixels = micro->size * micro->size;
    *out = (MicroBatch){ .counted = b };
    if (!net_is_text(micro)) {
        out->pixels = whole->pixels + i * b * pixels * micro->channels;
        out->labels = whole->labels ? whole->labels + i * b : NULL;
        out->mask = whole->mask ? whole->mask + i * b * pixels : NULL;
        return status_ok();
    }
    const int64_t rows = net_text_rows(micro), targets = net_head_rows(micro);
    out->tokens = whole->tokens + i * rows;
    out->positions = whole->positions + i * rows;
    out->types = whole->types + i * rows;
    out->labels = whole->labels + i * targets;
    out->spans = moved(whole->spans + 2 * i * b, 2 * b, i * rows, 2);
    out->rows = moved(whole->rows + i * targets, targets, i * rows, 1);
    return out->spans && out->rows ? status_ok() : status_error(STATUS_OOM, "out of memory for a micro-batch of text");
}

/* All gradients in order of value id after k micro-batches. The caller frees *gradient. */
static Status read_gradients(const Session *s, float **gradient, int64_t *count)
{
    const Graph *g = s->net->graph;
    float *to = malloc((size_t)graph_param_count(g) * sizeof *to);
    *gradient = to;
    *count = 0;
    if (!to)
        return status_error(STATUS_OOM, "out of memory for the gradients");
    for (int v = 0; v < g->value_count; v++)
        if (g->values[v].kind == MEM_GRAD && !g->values[v].span_group) {
            TRY(exec_read(s->exec, (Value){ v }, to + *count));
            *count += tensor_count(&g->values[v].tensor);
        }
    return status_ok();
}

static Status gradient_of(Backend *be, const NetConfig *whole, bool plain, int64_t k, uint64_t seed, const MicroBatch *data,
                          float **gradient, int64_t *count)
{
    NetConfig config = *whole;
    Net net;
    Status status;
    config.batch = whole->batch / k;
    config.accumulate = k > 1;
    memset(&net, 0, sizeof net);
    Session session = { .net = &net };
    TRY(plain ? plain_net_build(&config, &net) : net_build(&config, &net));
    TRY_GOTO(status, exec_create(net.graph, be, NULL, &session.exec), out);
    TRY_GOTO(status, exec_init(session.exec, seed), out);
    TRY_GOTO(status, step_begin(&session, data->counted), out);
    for (int64_t i = 0; i < k; i++) {
        MicroBatch micro;
        status = slice(&config, data, i, &micro);
        if (status.code == STATUS_OK)
            status = step_micro(&session, &micro);
        free((void *)(uintptr_t)micro.spans);
        free((void *)(uintptr_t)micro.rows);
        if (status.code != STATUS_OK)
            goto out;
    }
    TRY_GOTO(status, backend_sync(be), out);
    status = read_gradients(&session, gradient, count);
out:
    exec_destroy(session.exec);
    net_destroy(&net);
    return status;
}

Status accumulation_distance(Backend *be, const NetConfig *config, bool plain, int64_t k, uint64_t seed, double *distance)
{
    MicroBatch data = { 0 };
    float  *one = NULL, *many = NULL;
    int64_t n = 0, n_many = 0;
    double  difference = 0, length = 0;
    Status  status;
    CHECK(k >= 1 && config->batch % k == 0);
    TRY_GOTO(status, random_batch_create(config, seed, &data), out);
    thin_targets(config, &data);
    TRY_GOTO(status, gradient_of(be, config, plain, 1, seed, &data, &one, &n), out);
    TRY_GOTO(status, gradient_of(be, config, plain, k, seed, &data, &many, &n_many), out);
    CHECK(n == n_many);
    for (int64_t i = 0; i < n; i++) {
        double d = (double)many[i] - (double)one[i];
        difference += d * d;
        length += (double)one[i] * (double)one[i];
    }
    *distance = sqrt(difference / length);
    if (!(length > 0) || !isfinite(*distance))
        status = status_error(STATUS_NUMERIC, "the gradient that accumulation is compared with has the length %g", sqrt(length));
out:
    free(one);
    free(many);
    random_batch_free(&data);
    return status;
}

double accumulation_bound(const NetConfig *c)
{
    return net_is_text(c) ? 1e-5 : 4 * 0x1p-24 * sqrt((double)(c->batch * c->size * c->size));
}

/* ---- analysis ---- */

size_t accumulation_pairs(const CellPoints *points, AccumulationPair pairs[PAIRS_MAX])
{
    size_t n = 0;
    for (size_t i = 0; i < points->count && n < PAIRS_MAX; i++) {
        CellPoint axes = points->list[i];
        if (!axes.ok || axes.accum < 2)
            continue;
        axes.accum = 1;
        const CellPoint *small = points_find(points, &axes);
        axes.batch *= points->list[i].accum;
        const CellPoint *large = points_find(points, &axes);
        if (small && large && small->ok && large->ok)
            pairs[n++] = (AccumulationPair){ *small, points->list[i], *large };
    }
    return n;
}

Verdict accumulation_judge(const GradientCheck *checks, size_t check_count, const AccumulationPair *pairs, size_t pair_count)
{
    size_t compared = 0, weighed = 0;
    bool   equal = true, everywhere = true, saved = true, as_small = true;
    for (size_t i = 0; i < check_count; i++)
        for (int n = 0; n < CHECK_NETS; n++) {
            const double d = checks[i].distance[n], bound = checks[i].bound[n];
            if (!isfinite(d))
                continue;
            compared += !has_norm(n);
            equal = equal && (has_norm(n) || d <= bound);
            everywhere = everywhere && d <= bound;
        }
    for (size_t i = 0; i < pair_count; i++) {
        double small = pairs[i].small.measured_peak, mine = pairs[i].accumulated.measured_peak, large = pairs[i].large.measured_peak;
        if (!isfinite(small) || !isfinite(mine) || !isfinite(large))
            continue;
        weighed++;
        saved = saved && mine < large;
        as_small = as_small && mine <= MEMORY_MAX * small;
    }
    if (!compared && !weighed)
        return VERDICT_NOT_RUN;
    if (!equal || !saved)
        return VERDICT_CONTRADICTED;
    return compared && weighed && everywhere && as_small ? VERDICT_REPRODUCED : VERDICT_PARTLY;
}

/* ---- running it ---- */

typedef struct PlannedPoint { int64_t effective; double accumulated, one; } PlannedPoint;

/* Planned memory over the effective batch, for one net. */
typedef struct PlannedCurve { const AccumulationPair *pair; PlannedPoint points[STEPS_OF_K + 1]; size_t count; } PlannedCurve;

typedef struct AccumulationStudy {
    GradientCheck    checks[STEPS_OF_K];
    size_t           check_count;
    AccumulationPair pairs[PAIRS_MAX];
    size_t           pair_count;
    PlannedCurve     planned[GATHER_NETS];
    size_t           planned_count;
} AccumulationStudy;

/* Micro-batch and k that each preset's sweep has, with b and k b beside it. */
static void wanted_pair(const ClaimContext *context, int net, int64_t *b, int64_t *k)
{
    static const int64_t smoke[GATHER_NETS][2] = { { 4, 2 }, { 2, 2 }, { 4, 2 } }, quick[GATHER_NETS][2] = { { 2, 4 }, { 1, 4 }, { 2, 4 } },
                         full[GATHER_NETS][2] = { { 8, 4 }, { 4, 4 }, { 8, 4 } };
    const int64_t *pair = gather_is(context, "smoke") ? smoke[net] : gather_is(context, "full") ? full[net] : quick[net];
    *b = pair[0];
    *k = pair[1];
}

static Status measure_pairs(Gather *g, AccumulationStudy *s)
{
    for (int n = 0; n < GATHER_NETS; n++)
        for (int a = 0; a < AMP_COUNT; a++) {
            int64_t b, k;
            NetConfig net = gather_net(g->context, gather_nets[n]);
            if (!gather_uses(g, (Amp)a))
                continue;
            wanted_pair(g->context, n, &b, &k);
            net.amp = (Amp)a;
            net.batch = b;
            TRY(gather_cell(g, &net, k, FOR_TIME, NULL));
            TRY(gather_cell(g, &net, 1, FOR_TIME, NULL));
            net.batch = b * k;
            TRY(gather_cell(g, &net, 1, FOR_TIME, NULL));
        }
    s->pair_count = accumulation_pairs(&g->points, s->pairs);
    return status_ok();
}

/* All nets at every k; smoke compares those with batch norm, whose kernels take a second to prepare, at one k alone. */
static Status compare_gradients(Backend *be, const ClaimContext *context, AccumulationStudy *s)
{
    for (int64_t k = 2; k <= EFFECTIVE / 2 && s->check_count < STEPS_OF_K; k *= 2) {
        GradientCheck *c = &s->checks[s->check_count++];
        *c = (GradientCheck){ .k = k, .batch = EFFECTIVE };
        for (int n = 0; n < CHECK_NETS; n++) {
            const NetConfig net = check_net_config((CheckNet)n, EFFECTIVE);
            c->bound[n] = accumulation_bound(&net);
            c->distance[n] = (double)NAN;
            if (k == 4 || !has_norm(n) || !gather_is(context, "smoke"))
                TRY(accumulation_distance(be, &net, n == CHECK_PLAIN, k, context->measure->seed, &c->distance[n]));
        }
    }
    return status_ok();
}

static Status planned_total(Backend *be, const MeasureOptions *measure, const NetConfig *config, double *bytes)
{
    Net net;
    MemPlan plan;
    TRY(net_build(config, &net));
    Status status = exec_plan_memory(net.graph, be, &measure->exec, &plan);
    net_destroy(&net);
    *bytes = (double)plan.total;
    return status;
}

/* Of the first pair of each net. */
static Status plan_curves(Backend *be, const Gather *g, AccumulationStudy *s)
{
    for (size_t i = 0; i < s->pair_count && s->planned_count < COUNT_OF(s->planned); i++) {
        const CellPoint *small = &s->pairs[i].small;
        if (s->planned_count && !strcmp(s->planned[s->planned_count - 1].pair->small.net, small->net))
            continue;
        PlannedCurve *curve = &s->planned[s->planned_count++];
        curve->pair = &s->pairs[i];
        NetConfig net = small->config;
        for (int64_t k = 1; curve->count < COUNT_OF(curve->points); k *= 2) {
            PlannedPoint *p = &curve->points[curve->count++];
            p->effective = k * small->batch;
            net.batch = small->batch;
            net.accumulate = k > 1;
            TRY(planned_total(be, g->context->measure, &net, &p->accumulated));
            net.batch = p->effective;
            net.accumulate = false;
            TRY(planned_total(be, g->context->measure, &net, &p->one));
        }
    }
    return status_ok();
}

/* ---- the entry ---- */

static Status add_gradient_table(json_t *entry, const AccumulationStudy *s)
{
    static const ColumnHead heads[] = {
        { "net", "" }, { "batch norm", "" }, { "micro-batches k", "" }, { "micro-batch", "" }, { "effective batch", "" },
        { "distance", "of the gradient's length" }, { "allowed for rounding", "" },
    };
    ClaimTable t;
    claim_table_begin(&t, "Gradient of k micro-batches against that of one batch, fp32, same samples and weights", heads, COUNT_OF(heads));
    for (int n = 0; n < CHECK_NETS; n++)
        for (size_t i = 0; i < s->check_count; i++) {
            const GradientCheck *c = &s->checks[i];
            if (!isfinite(c->distance[n]))
                continue;
            claim_table_row(&t);
            claim_table_text(&t, check_net_names[n]);
            claim_table_text(&t, has_norm(n) ? "of each micro-batch" : "none");
            claim_table_integer(&t, c->k);
            claim_table_integer(&t, c->batch / c->k);
            claim_table_integer(&t, c->batch);
            claim_table_real(&t, c->distance[n]);
            claim_table_real(&t, c->bound[n]);
        }
    return entry_add_table(entry, &t);
}

static Status add_cost_table(json_t *entry, const AccumulationStudy *s)
{
    static const ColumnHead heads[] = {
        { "cells", "" }, { "micro-batch b", "" }, { "k", "" }, { "effective batch", "" }, { "memory of b", "MiB" }, { "of k x b accumulated", "MiB" },
        { "of one batch k b", "MiB" }, { "accumulated / b", "" }, { "accumulated / one batch", "" }, { "accumulated", "samples/s" },
        { "one batch", "samples/s" }, { "accumulated / one batch, speed", "" },
    };
    ClaimTable t;
    char label[LABEL_BYTES];
    claim_table_begin(&t, "Memory and speed of accumulation", heads, COUNT_OF(heads));
    for (size_t i = 0; i < s->pair_count; i++) {
        const AccumulationPair *p = &s->pairs[i];
        claim_table_row(&t);
        claim_table_text(&t, curve_label(&p->small, label, sizeof label));
        claim_table_integer(&t, p->small.batch);
        claim_table_integer(&t, p->accumulated.accum);
        claim_table_integer(&t, p->large.batch);
        claim_table_real(&t, p->small.measured_peak / MIB);
        claim_table_real(&t, p->accumulated.measured_peak / MIB);
        claim_table_real(&t, p->large.measured_peak / MIB);
        claim_table_real(&t, p->accumulated.measured_peak / p->small.measured_peak);
        claim_table_real(&t, p->accumulated.measured_peak / p->large.measured_peak);
        claim_table_real(&t, p->accumulated.throughput);
        claim_table_real(&t, p->large.throughput);
        claim_table_real(&t, p->accumulated.throughput / p->large.throughput);
    }
    return entry_add_table(entry, &t);
}

static Status add_gradient_chart(json_t *entry, const AccumulationStudy *s)
{
    ClaimChart c;
    claim_chart_begin(&c, "distance of the accumulated gradient from the whole batch's", "micro-batches k (effective batch 16)",
                      "distance / length of the gradient", true, true);
    for (int n = 0; n < CHECK_NETS; n++) {
        claim_chart_series(&c, CHART_BOTH, "%s", check_net_names[n]);
        for (size_t i = 0; i < s->check_count; i++)
            claim_chart_point(&c, (double)s->checks[i].k, s->checks[i].distance[n]);
    }
    claim_chart_series(&c, CHART_LINE, "allowed for rounding");
    for (size_t i = 0; i < s->check_count; i++)
        claim_chart_point(&c, (double)s->checks[i].k, s->checks[i].bound[CHECK_PLAIN]);
    return entry_add_chart(entry, &c);
}

static Status add_memory_chart(json_t *entry, const PlannedCurve *curve)
{
    ClaimChart c;
    char title[LABEL_BYTES + 64], label[LABEL_BYTES];
    const AccumulationPair *pair = curve->pair;
    snprintf(title, sizeof title, "memory against effective batch, %s, micro-batch %lld", curve_label(&pair->small, label, sizeof label),
             (long long)pair->small.batch);
    claim_chart_begin(&c, title, "effective batch", "peak memory of tensors (MiB)", true, false);
    claim_chart_series(&c, CHART_LINE, "one batch, planned");
    for (size_t i = 0; i < curve->count; i++)
        claim_chart_point(&c, (double)curve->points[i].effective, curve->points[i].one / MIB);
    claim_chart_series(&c, CHART_LINE, "accumulated, planned");
    for (size_t i = 0; i < curve->count; i++)
        claim_chart_point(&c, (double)curve->points[i].effective, curve->points[i].accumulated / MIB);
    claim_chart_series(&c, CHART_POINTS, "one batch, measured");
    claim_chart_point(&c, (double)pair->small.batch, pair->small.measured_peak / MIB);
    claim_chart_point(&c, (double)pair->large.batch, pair->large.measured_peak / MIB);
    claim_chart_series(&c, CHART_POINTS, "accumulated, measured");
    claim_chart_point(&c, (double)pair->large.batch, pair->accumulated.measured_peak / MIB);
    return entry_add_chart(entry, &c);
}

/* "resnet50 64 px fp32: 2 x 4 takes 1.01 x the memory of 4 and 0.83 x that of 8, at 0.9 x its speed", for each net. */
static void tell_cost(const AccumulationStudy *s, char *text, size_t size)
{
    size_t used = (size_t)snprintf(text, size, s->planned_count ? "Memory and speed: " : "No accumulated cell could be measured. ");
    for (size_t i = 0; i < s->planned_count && used < size; i++) {
        const AccumulationPair *p = s->planned[i].pair;
        used += (size_t)snprintf(text + used, size - used, "%s%s %lld x %lld takes %.2f x the memory of %lld and %.2f x that of %lld, at %.2f x "
                                 "its speed", i ? "; " : "", p->small.net, (long long)p->accumulated.accum, (long long)p->small.batch,
                                 p->accumulated.measured_peak / p->small.measured_peak, (long long)p->small.batch,
                                 p->accumulated.measured_peak / p->large.measured_peak, (long long)p->large.batch,
                                 p->accumulated.throughput / p->large.throughput);
    }
}

static Status conclude(json_t *entry, const Gather *g, const AccumulationStudy *s)
{
    double worst[CHECK_NETS] = { 0 }, low = INFINITY, high = 0;
    char sources[160], cost[560], apart[64];
    for (size_t i = 0; i < s->check_count; i++)
        for (int n = 0; n < CHECK_NETS; n++) {
            worst[n] = fmax(worst[n], s->checks[i].distance[n]);
            low = has_norm(n) ? fmin(low, s->checks[i].distance[n]) : low;
            high = has_norm(n) ? fmax(high, s->checks[i].distance[n]) : high;
        }
    snprintf(apart, sizeof apart, low < high ? "%.2g to %.2g" : "%.2g", low, high);
    tell_cost(s, cost, sizeof cost);
    return entry_conclude(entry, accumulation_judge(s->checks, s->check_count, s->pairs, s->pair_count), TOLERANCE_TEXT,
        "Without batch norm the gradient is that of the whole batch to rounding (distance %.1e with convolutions, %.1e with BERT and unequal "
        "numbers of targets); with batch norm it is another one (from random weights %s of its length away), since each micro-batch has "
        "its own statistics and moves the running ones. %s (%s).",
        worst[CHECK_PLAIN], worst[CHECK_BERT], apart, cost, gather_sources(g, FOR_TIME, sources, sizeof sources));
}

Status claim_a4_accumulation(const ClaimContext *context, json_t *entry)
{
    Gather g;
    AccumulationStudy s = { .check_count = 0 };
    Backend *be = NULL;
    Status status;
    TRY_GOTO(status, gather_begin(&g, context), out);
    TRY_GOTO(status, measure_pairs(&g, &s), out);
    TRY_GOTO(status, backend_open(context->measure->device, &context->measure->backend, &be), out); /* after the children: see isolate.h */
    TRY_GOTO(status, compare_gradients(be, context, &s), out);
    TRY_GOTO(status, plan_curves(be, &g, &s), out);
    TRY_GOTO(status, add_gradient_table(entry, &s), out);
    TRY_GOTO(status, add_cost_table(entry, &s), out);
    TRY_GOTO(status, add_gradient_chart(entry, &s), out);
    for (size_t i = 0; i < s.planned_count; i++)
        TRY_GOTO(status, add_memory_chart(entry, &s.planned[i]), out);
    status = conclude(entry, &g, &s);
out:
    backend_close(be);
    gather_end(&g);
    return status;
}
