/* a4_accumulation.c - claim A4: k micro-batches of b against one batch of k b: the gradient, the memory, the speed. */
#include "a4_accumulation.h"

#include "gather.h"

#include "../../nets/grad.h"
#include "../../nets/layers.h"
#include "../../nets/optim.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { EFFECTIVE = 16, PLAIN_SIZE = 16, STEPS_OF_K = 4 };
static const double MIB = 1048576.0, MEMORY_MAX = 1.10;
#define TOLERANCE_TEXT "gradients within fp32 rounding, 4 x 2^-24 x sqrt(batch x pixels), with and without batch norm; memory at most " \
                       "1.1 x the micro-batch's and below the large batch's"

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

typedef struct Samples { uint8_t *pixels; int32_t *labels; } Samples;

static void samples_free(Samples *s)
{
    free(s->pixels);
    free(s->labels);
}

static Status samples_make(const NetConfig *c, uint64_t seed, Samples *s)
{
    size_t bytes = (size_t)(c->batch * c->size * c->size * c->channels);
    s->pixels = malloc(bytes);
    s->labels = malloc((size_t)c->batch * sizeof *s->labels);
    if (!s->pixels || !s->labels)
        return status_error(STATUS_OOM, "out of memory for %zu bytes of random images", bytes);
    for (size_t i = 0; i < bytes; i++)
        s->pixels[i] = (uint8_t)rng_block(seed, 5, i).word[0];
    for (int64_t i = 0; i < c->batch; i++)
        s->labels[i] = (int32_t)rng_below(seed, 6, (uint64_t)i, c->classes);
    return status_ok();
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

static Status gradient_of(Backend *be, const NetConfig *whole, bool plain, int64_t k, uint64_t seed, const Samples *data,
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
    TRY_GOTO(status, step_begin(&session, whole->batch), out);
    size_t image = (size_t)(config.size * config.size * config.channels);
    for (int64_t i = 0; i < k; i++) {
        MicroBatch micro = { .pixels = data->pixels + (size_t)(i * config.batch) * image, .labels = data->labels + i * config.batch };
        TRY_GOTO(status, step_micro(&session, &micro), out);
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
    Samples data = { NULL, NULL };
    float  *one = NULL, *many = NULL;
    int64_t n = 0, n_many = 0;
    double  difference = 0, length = 0;
    Status  status;
    CHECK(k >= 1 && config->batch % k == 0);
    TRY_GOTO(status, samples_make(config, seed, &data), out);
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
    samples_free(&data);
    return status;
}

double accumulation_bound(int64_t batch, int64_t size) { return 4 * 0x1p-24 * sqrt((double)(batch * size * size)); }

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
    for (size_t i = 0; i < check_count; i++) {
        if (!isfinite(checks[i].plain))
            continue;
        compared++;
        equal = equal && checks[i].plain <= checks[i].bound;
        everywhere = everywhere && !(checks[i].with_norm > checks[i].bound); /* NaN: not compared at this k */
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

typedef struct AccumulationStudy {
    GradientCheck    checks[STEPS_OF_K];
    size_t           check_count;
    AccumulationPair pairs[PAIRS_MAX];
    size_t           pair_count;
    PlannedPoint     planned[STEPS_OF_K + 1];
    size_t           planned_count;
} AccumulationStudy;

static Status measure_pairs(Gather *g, AccumulationStudy *s)
{
    static const int64_t smoke[][2] = { { 4, 2 }, { 0, 0 } }, quick[][2] = { { 2, 4 }, { 0, 0 } },
                         full[][2] = { { 2, 4 }, { 8, 4 }, { 32, 4 }, { 0, 0 } };
    const int64_t (*wanted)[2] = gather_is(g->context, "smoke") ? smoke : gather_is(g->context, "full") ? full : quick;
    for (; (*wanted)[0]; wanted++)
        for (int a = 0; a < AMP_COUNT; a++) {
            const int64_t b = (*wanted)[0], k = (*wanted)[1];
            NetConfig net = gather_net(g->context);
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

/* Both nets at every k; smoke compares ResNet-50, whose kernels take a second to prepare, at one k alone. */
static Status compare_gradients(Backend *be, const ClaimContext *context, AccumulationStudy *s)
{
    const uint64_t seed = context->measure->seed;
    NetConfig plain = net_config_default(NULL), norm = net_config_default(NULL);
    plain.batch = norm.batch = EFFECTIVE;
    plain.size = PLAIN_SIZE;
    norm.size = 64;
    norm.width = 0.25;
    plain.classes = norm.classes = 10;
    for (int64_t k = 2; k <= EFFECTIVE / 2 && s->check_count < STEPS_OF_K; k *= 2) {
        GradientCheck *c = &s->checks[s->check_count++];
        *c = (GradientCheck){ .k = k, .batch = EFFECTIVE, .bound = accumulation_bound(EFFECTIVE, PLAIN_SIZE), .with_norm = (double)NAN };
        TRY(accumulation_distance(be, &plain, true, k, seed, &c->plain));
        if (k == 4 || !gather_is(context, "smoke"))
            TRY(accumulation_distance(be, &norm, false, k, seed, &c->with_norm));
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

/* Planned memory over the effective batch, for the micro-batch of the first pair in fp32. */
static Status plan_curve(Backend *be, const Gather *g, AccumulationStudy *s)
{
    if (!s->pair_count)
        return status_ok();
    NetConfig net = gather_net(g->context);
    const CellPoint *small = &s->pairs[0].small;
    net.size = small->size;
    net.width = small->width;
    net.classes = small->classes;
    for (int64_t k = 1; s->planned_count < COUNT_OF(s->planned); k *= 2) {
        PlannedPoint *p = &s->planned[s->planned_count++];
        p->effective = k * small->batch;
        net.batch = small->batch;
        net.accumulate = k > 1;
        TRY(planned_total(be, g->context->measure, &net, &p->accumulated));
        net.batch = p->effective;
        net.accumulate = false;
        TRY(planned_total(be, g->context->measure, &net, &p->one));
    }
    return status_ok();
}

/* ---- the entry ---- */

static Status add_gradient_table(json_t *entry, const AccumulationStudy *s)
{
    static const ColumnHead heads[] = {
        { "micro-batches k", "" }, { "micro-batch", "" }, { "effective batch", "" }, { "no batch norm: distance", "of the gradient's length" },
        { "allowed for rounding", "" }, { "ResNet-50 with batch norm: distance", "of the gradient's length" },
    };
    ClaimTable t;
    claim_table_begin(&t, "Gradient of k micro-batches against that of one batch, fp32, same samples and weights", heads, COUNT_OF(heads));
    for (size_t i = 0; i < s->check_count; i++) {
        const GradientCheck *c = &s->checks[i];
        claim_table_row(&t);
        claim_table_integer(&t, c->k);
        claim_table_integer(&t, c->batch / c->k);
        claim_table_integer(&t, c->batch);
        claim_table_real(&t, c->plain);
        claim_table_real(&t, c->bound);
        claim_table_real(&t, c->with_norm);
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
    char label[96];
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

static Status add_charts(json_t *entry, const AccumulationStudy *s)
{
    ClaimChart c;
    claim_chart_begin(&c, "distance of the accumulated gradient from the whole batch's", "micro-batches k (effective batch 16)",
                      "distance / length of the gradient", true, true);
    claim_chart_series(&c, CHART_BOTH, "no batch norm");
    for (size_t i = 0; i < s->check_count; i++)
        claim_chart_point(&c, (double)s->checks[i].k, s->checks[i].plain);
    claim_chart_series(&c, CHART_LINE, "allowed for rounding");
    for (size_t i = 0; i < s->check_count; i++)
        claim_chart_point(&c, (double)s->checks[i].k, s->checks[i].bound);
    claim_chart_series(&c, CHART_BOTH, "ResNet-50 with batch norm");
    for (size_t i = 0; i < s->check_count; i++)
        claim_chart_point(&c, (double)s->checks[i].k, s->checks[i].with_norm);
    TRY(entry_add_chart(entry, &c));
    if (!s->pair_count)
        return status_ok();

    char title[128], label[96];
    const AccumulationPair *first = &s->pairs[0];
    snprintf(title, sizeof title, "memory against effective batch, %s, micro-batch %lld", curve_label(&first->small, label, sizeof label),
             (long long)first->small.batch);
    claim_chart_begin(&c, title, "effective batch", "peak memory of tensors (MiB)", true, false);
    claim_chart_series(&c, CHART_LINE, "one batch, planned");
    for (size_t i = 0; i < s->planned_count; i++)
        claim_chart_point(&c, (double)s->planned[i].effective, s->planned[i].one / MIB);
    claim_chart_series(&c, CHART_LINE, "accumulated, planned");
    for (size_t i = 0; i < s->planned_count; i++)
        claim_chart_point(&c, (double)s->planned[i].effective, s->planned[i].accumulated / MIB);
    claim_chart_series(&c, CHART_POINTS, "one batch, measured");
    claim_chart_point(&c, (double)first->small.batch, first->small.measured_peak / MIB);
    claim_chart_point(&c, (double)first->large.batch, first->large.measured_peak / MIB);
    claim_chart_series(&c, CHART_POINTS, "accumulated, measured");
    claim_chart_point(&c, (double)first->large.batch, first->accumulated.measured_peak / MIB);
    return entry_add_chart(entry, &c);
}

static Status conclude(json_t *entry, const Gather *g, const AccumulationStudy *s)
{
    double plain = 0, low = INFINITY, high = 0, bound = (double)NAN;
    char sources[160], cost[400], label[96], apart[64];
    for (size_t i = 0; i < s->check_count; i++) {
        plain = fmax(plain, s->checks[i].plain);
        low = fmin(low, s->checks[i].with_norm);
        high = fmax(high, s->checks[i].with_norm);
        bound = s->checks[i].bound;
    }
    snprintf(apart, sizeof apart, low < high ? "%.2g to %.2g" : "%.2g", low, high);
    snprintf(cost, sizeof cost, "No accumulated cell could be measured.");
    if (s->pair_count) {
        const AccumulationPair *p = &s->pairs[0];
        snprintf(cost, sizeof cost, "%s in %lld micro-batches of %lld takes %.2f x the memory of one micro-batch, %.2f x that of the batch of %lld, "
                 "at %.2f x its speed (%s).", curve_label(&p->small, label, sizeof label), (long long)p->accumulated.accum, (long long)p->small.batch,
                 p->accumulated.measured_peak / p->small.measured_peak, p->accumulated.measured_peak / p->large.measured_peak,
                 (long long)p->large.batch, p->accumulated.throughput / p->large.throughput, gather_sources(g, FOR_TIME, sources, sizeof sources));
    }
    return entry_conclude(entry, accumulation_judge(s->checks, s->check_count, s->pairs, s->pair_count), TOLERANCE_TEXT,
        "Without batch norm the gradient is that of the whole batch to rounding (distance %.1e, allowed %.1e); with batch norm it is another "
        "one (from random weights %s of its length away), since each micro-batch has its own statistics and moves the running ones. %s",
        plain, bound, apart, cost);
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
    TRY_GOTO(status, plan_curve(be, &g, &s), out);
    TRY_GOTO(status, add_gradient_table(entry, &s), out);
    TRY_GOTO(status, add_cost_table(entry, &s), out);
    TRY_GOTO(status, add_charts(entry, &s), out);
    status = conclude(entry, &g, &s);
out:
    backend_close(be);
    gather_end(&g);
    return status;
}
