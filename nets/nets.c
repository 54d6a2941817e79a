/* nets.c - the registry of nets, and the order of passes that makes a trainable graph of one. */
#include "nets.h"

#include "amp.h"
#include "bert.h"
#include "grad.h"
#include "layers.h"
#include "optim.h"
#include "resnet50.h"
#include "unet.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

const char *const amp_names[AMP_COUNT] = { "off", "bf16", "fp16", "tf32" };
const char *const stem_names[STEM_COUNT] = { "standard", "small" };
const char *const head_names[HEAD_COUNT] = { "masked", "all", "classify" };

/* A net: what it cannot be built with, and its body from the inputs to the logits. */
typedef struct NetKind {
    const char *name;
    bool        text;
    Status (*check)(const NetConfig *config);
    Value  (*logits)(Graph *g, const Net *net);
} NetKind;

static Value normalized(Graph *g, const Net *net)
{
    return layer_normalize(g, "input", net->image, net->config.mean, net->config.deviation);
}

static Value resnet50_from_image(Graph *g, const Net *net)
{
    return resnet50_logits(g, &net->config, normalized(g, net));
}

static Value unet_from_image(Graph *g, const Net *net)
{
    return unet_logits(g, &net->config, normalized(g, net));
}

static const NetKind kinds[] = {
    { "resnet50", false, resnet50_check, resnet50_from_image },
    { "unet", false, unet_check, unet_from_image },
    { "bert", true, bert_check, bert_logits },
};

static const NetKind *find_kind(const char *name)
{
    for (size_t i = 0; i < COUNT_OF(kinds); i++)
        if (name && !strcmp(name, kinds[i].name))
            return &kinds[i];
    return NULL;
}

static bool is_named(const NetConfig *c, const char *name)
{
    return !strcmp(c->net, name);
}

const char *net_names(void)
{
    return "resnet50, unet, bert";
}

const char *net_known_name(const char *name)
{
    const NetKind *kind = find_kind(name);
    return kind ? kind->name : NULL;
}

NetConfig net_config_default(const char *net)
{
    NetConfig c = {
        .net = net ? net : "resnet50", .batch = 8, .size = 224, .channels = 3, .classes = 1000, .width = 1.0,
        .mean = { 0.485f, 0.456f, 0.406f }, .deviation = { 0.229f, 0.224f, 0.225f }, .depth = 4, .stem_stride = 1,
        .layers = 12, .hidden = 768, .heads = 12, .vocab = 30522, .positions = 512, .train = true,
        .optim = { .kind = OPTIM_SGD, .momentum = 0.9f, .beta1 = 0.9f, .beta2 = 0.999f, .eps = 1e-8f, .trust = 1e-3f,
                   .weight_decay = 1e-4f },
    };
    if (is_named(&c, "unet")) {
        c.size = 256;
        c.classes = 2;
    }
    if (is_named(&c, "bert")) {
        c.size = 128;
        c.classes = 2;
        c.dropout = 0.1f;
        c.optim.kind = OPTIM_ADAMW;
        c.optim.weight_decay = 0.01f;
    }
    return c;
}

bool net_is_text(const NetConfig *config)
{
    const NetKind *kind = find_kind(config->net);
    return kind && kind->text;
}

LossKind net_loss(const NetConfig *config)
{
    if (!is_named(config, "unet"))
        return LOSS_CLASSES;
    return config->classes == 1 ? LOSS_DICE : LOSS_PIXELS;
}

int64_t net_text_rows(const NetConfig *c)
{
    return c->rows ? c->rows : c->batch * c->size;
}

int64_t net_head_rows(const NetConfig *c)
{
    switch (c->head) {
    case HEAD_MASKED: return c->rows ? (15 * c->rows + 99) / 100 + c->batch : c->batch * ((15 * c->size + 99) / 100);
    case HEAD_ALL:    return net_text_rows(c);
    default:          return c->batch;
    }
}

static Status check_range(const char *what, int64_t value, int64_t low, int64_t high)
{
    if (value < low || value > high)
        return status_error(STATUS_USAGE, "%s is %" PRId64 ": it must be %" PRId64 " to %" PRId64, what, value, low, high);
    return status_ok();
}

static Status check_real(const char *what, double value, double low, double below)
{
    if (!(value >= low && value < below))
        return status_error(STATUS_USAGE, "%s is %g: it must be at least %g and below %g", what, value, low, below);
    return status_ok();
}

static Status check_image(const NetConfig *c)
{
    TRY(check_range("channels", c->channels, 1, 3));
    TRY(check_range("stem", c->stem, 0, STEM_COUNT - 1));
    if (!(c->width > 0 && c->width <= 8))
        return status_error(STATUS_USAGE, "width is %g: it must be above 0 and at most 8", c->width);
    for (int64_t i = 0; i < c->channels; i++)
        if (!isfinite(c->mean[i]) || !isfinite(c->deviation[i]) || !(c->deviation[i] > 0))
            return status_error(STATUS_USAGE, "channel %" PRId64 " has mean %g and deviation %g: both must be finite, the "
                                "deviation above 0", i, (double)c->mean[i], (double)c->deviation[i]);
    return status_ok();
}

static Status check_text(const NetConfig *c)
{
    TRY(check_range("layers", c->layers, 1, 128));
    TRY(check_range("hidden", c->hidden, 1, 16384));
    TRY(check_range("heads", c->heads, 1, 256));
    TRY(check_range("vocab", c->vocab, 2, 1000000));
    TRY(check_range("positions", c->positions, 1, 65536));
    TRY(check_range("head", c->head, 0, HEAD_COUNT - 1));
    if (c->rows)
        TRY(check_range("rows of tokens", c->rows, c->size, 1 << 24));
    return check_real("dropout", (double)c->dropout, 0, 1);
}

static Status check_optim(const OptimConfig *o)
{
    TRY(check_range("optimizer", o->kind, 0, OPTIM_COUNT - 1));
    TRY(check_real("momentum", (double)o->momentum, 0, 1));
    TRY(check_real("beta1", (double)o->beta1, 0, 1));
    TRY(check_real("beta2", (double)o->beta2, 0, 1));
    if (!(o->weight_decay >= 0 && o->weight_decay <= 1))
        return status_error(STATUS_USAGE, "weight decay is %g: it must be 0 to 1", (double)o->weight_decay);
    return status_ok();
}

/* Bounds are far above anything of use and keep every product of sizes below 2^63. */
static Status check_config(const NetConfig *c, const NetKind *kind)
{
    TRY(check_range("batch", c->batch, 1, 65536));
    TRY(check_range("size", c->size, 1, 8192));
    TRY(check_range("classes", c->classes, is_named(c, "unet") ? 1 : 2, is_named(c, "unet") ? 64 : 1000000));
    TRY(check_range("amp", c->amp, 0, AMP_COUNT - 1));
    TRY(kind->text ? check_text(c) : check_image(c));
    TRY(check_optim(&c->optim));
    if (!c->train && !c->eval)
        return status_error(STATUS_USAGE, "a net is built for training, evaluation or both, not for neither");
    return kind->check(c);
}

/* Forward to the loss in the graph's segment, in the precision of the configuration. Returns the logits. */
static Value append_forward(Net *net, const NetKind *kind, Value scale, Value metrics)
{
    Graph    *g = net->graph;
    const int first = g->node_count;
    graph_scope(g, "%s", "");
    Value logits = kind->logits(g, net);
    graph_scope(g, "%s", "");
    switch (net_loss(&net->config)) {
    case LOSS_CLASSES: layer_loss(g, "loss", logits, net->labels, scale, metrics); break;
    case LOSS_PIXELS:  layer_pixel_loss(g, "loss", logits, net->mask, scale, metrics); break;
    case LOSS_DICE:    layer_bce_dice(g, "loss", logits, net->mask, scale, metrics); break;
    }
    if (net->config.amp == AMP_BF16 || net->config.amp == AMP_FP16)
        amp_apply(g, first, net->config.amp == AMP_BF16 ? DTYPE_BF16 : DTYPE_F16);
    return logits;
}

static int64_t metrics_length(const NetConfig *c)
{
    switch (net_loss(c)) {
    case LOSS_PIXELS: return 5 + 3 * c->classes;
    case LOSS_DICE:   return 8;
    default:          return 4;
    }
}

static Value input(Net *net, const char *name, Tensor tensor)
{
    return graph_value(net->graph, name, tensor, MEM_INPUT);
}

static void make_image_inputs(Net *net)
{
    const NetConfig *c = &net->config;
    Tensor mask = { .dtype = DTYPE_U8, .rank = 3, .dim = { c->batch, c->size, c->size } };
    net->image = input(net, "image", tensor_4d(DTYPE_U8, c->batch, c->size, c->size, c->channels));
    if (net_loss(c) == LOSS_CLASSES)
        net->labels = input(net, "labels", tensor_1d(DTYPE_I32, c->batch));
    else
        net->mask = input(net, "mask", mask);
}

static void make_text_inputs(Net *net)
{
    const NetConfig *c = &net->config;
    const Tensor     ids = tensor_1d(DTYPE_I32, net_text_rows(c)), head = tensor_1d(DTYPE_I32, net_head_rows(c));
    net->tokens = input(net, "tokens", ids);
    net->positions = input(net, "positions", ids);
    net->types = input(net, "types", ids);
    net->spans = input(net, "spans", tensor_2d(DTYPE_I32, c->batch, 2));
    net->labels = input(net, "labels", head);
    if (c->head != HEAD_ALL)
        net->rows = input(net, "rows", head);
    if (c->train && c->dropout > 0)
        net->rng = input(net, "rng", tensor_1d(DTYPE_I32, 4));
}

static void make_inputs(Net *net, const NetKind *kind)
{
    const NetConfig *c = &net->config;
    const Tensor     metrics = tensor_1d(DTYPE_F32, metrics_length(c)), eight = tensor_1d(DTYPE_F32, 8);
    if (kind->text)
        make_text_inputs(net);
    else
        make_image_inputs(net);
    net->scale = input(net, "scale", tensor_1d(DTYPE_F32, 1));
    if (c->train) {
        net->hyper = input(net, "hyper", eight);
        net->metrics = input(net, "metrics", metrics);
        net->norm2 = input(net, "norm2", tensor_1d(DTYPE_F32, 1));
        net->control = input(net, "control", eight);
    }
    if (c->eval)
        net->eval_metrics = input(net, "eval_metrics", metrics);
}

static void append_training(Net *net, const NetKind *kind)
{
    Graph      *g = net->graph;
    OptimConfig optim = net->config.optim;
    Value       scale = net->scale;
    optim.accumulate = net->config.accumulate;
    optim.loss_scale = net->config.amp == AMP_FP16;
    g->segment = SEG_MICRO;
    graph_scope(g, "%s", "");
    if (optim.loss_scale)
        scale = optim_window_scale(g, scale, net->control);
    net->logits = append_forward(net, kind, scale, net->metrics);
    grad_append(g, optim.accumulate);
    optim_append_zero(g, net->metrics);
    optim_append(g, &optim, &(OptimInputs){ net->hyper, net->norm2, net->control });
}

static void append_all(Net *net, const NetKind *kind)
{
    make_inputs(net, kind);
    if (net->config.train)
        append_training(net, kind);
    if (net->config.eval) {
        net->graph->segment = SEG_EVAL;
        Value logits = append_forward(net, kind, net->scale, net->eval_metrics);
        if (!net->config.train)
            net->logits = logits;
    }
    copies_append(net->graph);
}

Status net_check(const NetConfig *config)
{
    const NetKind *kind = find_kind(config->net);
    if (!kind)
        return status_error(STATUS_USAGE, "there is no net '%s': use one of %s", config->net ? config->net : "", net_names());
    return check_config(config, kind);
}

Net net_blank(const NetConfig *config)
{
    return (Net){ .config = *config, .image = NO_VALUE, .labels = NO_VALUE, .mask = NO_VALUE, .tokens = NO_VALUE,
                 .positions = NO_VALUE, .types = NO_VALUE, .spans = NO_VALUE, .rows = NO_VALUE, .rng = NO_VALUE,
                 .scale = NO_VALUE, .hyper = NO_VALUE, .metrics = NO_VALUE, .norm2 = NO_VALUE, .control = NO_VALUE,
                 .eval_metrics = NO_VALUE, .logits = NO_VALUE };
}

Status net_build(const NetConfig *config, Net *out)
{
    *out = net_blank(config);
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
