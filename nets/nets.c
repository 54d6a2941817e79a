/* nets.c - the registry of nets, and the order of passes that makes a trainable graph of one. */
#include "nets.h"

#include "amp.h"
#include "grad.h"
#include "layers.h"
#include "optim.h"
#include "resnet50.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

const char *const amp_names[AMP_COUNT] = { "off", "bf16" };
const char *const stem_names[STEM_COUNT] = { "standard", "small" };

/* A net: what it cannot be built with, and its body from the normalised image to the logits. */
typedef struct NetKind {
    const char *name;
    Status (*check)(const NetConfig *config);
    Value  (*logits)(Graph *g, const NetConfig *config, Value x);
} NetKind;

static const NetKind kinds[] = {
    { "resnet50", resnet50_check, resnet50_logits },
};

const char *net_names(void)
{
    return "resnet50";
}

NetConfig net_config_default(void)
{
    return (NetConfig){
        .net = "resnet50", .batch = 8, .size = 224, .channels = 3, .classes = 1000, .width = 1.0,
        .stem = STEM_STANDARD, .amp = AMP_OFF, .train = true, .momentum = 0.9f, .weight_decay = 1e-4f,
        .mean = { 0.485f, 0.456f, 0.406f }, .deviation = { 0.229f, 0.224f, 0.225f },
    };
}

static Status check_range(const char *what, int64_t value, int64_t low, int64_t high)
{
    if (value < low || value > high)
        return status_error(STATUS_USAGE, "%s is %" PRId64 ": it must be %" PRId64 " to %" PRId64, what, value, low, high);
    return status_ok();
}

/* Bounds are far above anything of use and keep every product of sizes below 2^63. */
static Status check_config(const NetConfig *c)
{
    TRY(check_range("batch", c->batch, 1, 65536));
    TRY(check_range("size", c->size, 1, 8192));
    TRY(check_range("channels", c->channels, 1, 3));
    TRY(check_range("classes", c->classes, 2, 1000000));
    TRY(check_range("amp", c->amp, 0, AMP_COUNT - 1));
    TRY(check_range("stem", c->stem, 0, STEM_COUNT - 1));
    if (!(c->width > 0 && c->width <= 8))
        return status_error(STATUS_USAGE, "width is %g: it must be above 0 and at most 8", c->width);
    if (!(c->momentum >= 0 && c->momentum < 1))
        return status_error(STATUS_USAGE, "momentum is %g: it must be at least 0 and below 1", (double)c->momentum);
    if (!(c->weight_decay >= 0 && c->weight_decay <= 1))
        return status_error(STATUS_USAGE, "weight decay is %g: it must be 0 to 1", (double)c->weight_decay);
    for (int64_t i = 0; i < c->channels; i++)
        if (!isfinite(c->mean[i]) || !isfinite(c->deviation[i]) || !(c->deviation[i] > 0))
            return status_error(STATUS_USAGE, "channel %" PRId64 " has mean %g and deviation %g: both must be finite, the "
                                "deviation above 0", i, (double)c->mean[i], (double)c->deviation[i]);
    if (!c->train && !c->eval)
        return status_error(STATUS_USAGE, "a net is built for training, evaluation or both, not for neither");
    return status_ok();
}

/* Forward to the loss in the graph's segment, in the precision of the configuration. Returns the f32 logits. */
static Value append_forward(Net *net, const NetKind *kind, Value metrics)
{
    Graph    *g = net->graph;
    const int first = g->node_count;
    graph_scope(g, "%s", "");
    Value x = layer_normalize(g, "input", net->image, net->config.mean, net->config.deviation);
    layer_loss(g, "loss", kind->logits(g, &net->config, x), net->labels, net->scale, metrics);
    if (net->config.amp == AMP_BF16)
        amp_apply(g, first, DTYPE_BF16);
    if (graph_status(g).code != STATUS_OK)
        return NO_VALUE;
    return (Value){ g->nodes[g->node_count - 1].in[0] }; /* the loss is the last node */
}

static void make_inputs(Net *net)
{
    Graph           *g = net->graph;
    const NetConfig *c = &net->config;
    net->image = graph_value(g, "image", tensor_4d(DTYPE_U8, c->batch, c->size, c->size, c->channels), MEM_INPUT);
    net->labels = graph_value(g, "labels", tensor_1d(DTYPE_I32, c->batch), MEM_INPUT);
    net->scale = graph_value(g, "scale", tensor_1d(DTYPE_F32, 1), MEM_INPUT);
    if (c->train) {
        net->hyper = graph_value(g, "hyper", tensor_1d(DTYPE_F32, 8), MEM_INPUT);
        net->metrics = graph_value(g, "metrics", tensor_1d(DTYPE_F32, 4), MEM_INPUT);
        net->norm2 = graph_value(g, "norm2", tensor_1d(DTYPE_F32, 1), MEM_INPUT);
    }
    if (c->eval)
        net->eval_metrics = graph_value(g, "eval_metrics", tensor_1d(DTYPE_F32, 4), MEM_INPUT);
}

static void append_all(Net *net, const NetKind *kind)
{
    Graph           *g = net->graph;
    const NetConfig *c = &net->config;
    make_inputs(net);
    if (c->train) {
        g->segment = SEG_MICRO;
        net->logits = append_forward(net, kind, net->metrics);
        net->control = graph_value(g, "control", tensor_1d(DTYPE_F32, 8), MEM_INPUT);
        grad_append(g, c->accumulate);
        optim_append_zero(g, net->metrics);
        optim_append(g, &(OptimConfig){ .momentum = c->momentum, .weight_decay = c->weight_decay, .accumulate = c->accumulate },
                     &(OptimInputs){ net->hyper, net->norm2, net->control });
    }
    if (c->eval) {
        g->segment = SEG_EVAL;
        Value logits = append_forward(net, kind, net->eval_metrics);
        if (!c->train)
            net->logits = logits;
    }
    copies_append(g);
}

static const NetKind *find_kind(const char *name)
{
    for (size_t i = 0; i < COUNT_OF(kinds); i++)
        if (name && !strcmp(name, kinds[i].name))
            return &kinds[i];
    return NULL;
}

Status net_check(const NetConfig *config)
{
    const NetKind *kind = find_kind(config->net);
    if (!kind)
        return status_error(STATUS_USAGE, "there is no net '%s': use one of %s", config->net ? config->net : "", net_names());
    TRY(check_config(config));
    return kind->check(config);
}

Status net_build(const NetConfig *config, Net *out)
{
    *out = (Net){ .config = *config, .image = NO_VALUE, .labels = NO_VALUE, .scale = NO_VALUE, .hyper = NO_VALUE, .control = NO_VALUE,
                  .metrics = NO_VALUE, .norm2 = NO_VALUE, .eval_metrics = NO_VALUE, .logits = NO_VALUE };
    TRY(net_check(config));
    const NetKind *kind = find_kind(config->net);
    out->config.net = kind->name;

    TRY(graph_create(&out->graph));
    append_all(out, kind);
    Status s = graph_status(out->graph);
    if (s.code != STATUS_OK)
        net_destroy(out);
    return s;
}

void net_destroy(Net *net)
{
    graph_destroy(net->graph);
    net->graph = NULL;
}
