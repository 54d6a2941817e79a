/* layers.c - nodes and parameters of each layer; see layers.h. */
#include "layers.h"

#include "layers_private.h"

#include <math.h>
#include <string.h>

static const float BATCHNORM_EPS = 1e-5f, BATCHNORM_MOMENTUM = 0.1f;

Scope scope_enter(Graph *g, const char *name)
{
    Scope s;
    memcpy(s.outer, g->scope, sizeof s.outer);
    graph_scope(g, "%s%s%s", s.outer, s.outer[0] ? "." : "", name);
    return s;
}

void scope_leave(Graph *g, const Scope *s)
{
    memcpy(g->scope, s->outer, sizeof g->scope);
}

Value layer_find_shared(const Graph *g, const char *leaf)
{
    char name[2 * GRAPH_NAME_BYTES];
    snprintf(name, sizeof name, "%s.%s", g->scope, leaf);
    return g->segment == SEG_EVAL ? graph_find(g, name) : NO_VALUE;
}

Value layer_parameter(Graph *g, const char *leaf, Tensor tensor, Init init, bool decay)
{
    Value shared = layer_find_shared(g, leaf);
    return shared.id >= 0 ? shared : graph_param(g, leaf, tensor, init, decay);
}

/* A running statistic: kept with the weights, but not trained. */
static Value statistic(Graph *g, const char *leaf, int64_t channels, InitKind init)
{
    Value shared = layer_find_shared(g, leaf);
    if (shared.id >= 0)
        return shared;
    Value v = graph_value(g, leaf, tensor_1d(DTYPE_F32, channels), MEM_WEIGHT);
    if (v.id >= 0)
        g->values[v.id].init.kind = init;
    return v;
}

int64_t layer_scaled_channels(int channels, double width)
{
    int64_t c = 16 * (int64_t)llround(channels * width / 16.0);
    return c < 16 ? 16 : c;
}

int64_t layer_channels(const Graph *g, Value x)
{
    return graph_tensor(g, x)->dim[3];
}

Value layer_normalize(Graph *g, const char *name, Value image, const float *mean, const float *deviation)
{
    Scope  scope = scope_enter(g, name);
    OpDesc op = { .kind = OP_normalize_u8 };
    for (int64_t c = 0; c < layer_channels(g, image) && c < 4; c++) {
        op.attr.mean[c] = mean[c];
        op.attr.deviation[c] = deviation[c];
    }
    Value y = graph_emit(g, op, 1, &image);
    scope_leave(g, &scope);
    return y;
}

static Value conv(Graph *g, const char *name, Value x, int kernel, int64_t channels, int stride, bool bias, bool relu)
{
    Scope  scope = scope_enter(g, name);
    float  deviation = sqrtf(2.0f / (float)(channels * kernel * kernel));
    Tensor shape = tensor_4d(DTYPE_F32, channels, kernel, kernel, layer_channels(g, x));
    Value  w = layer_parameter(g, "w", shape, (Init){ INIT_NORMAL, deviation }, true);
    Value  b = bias ? layer_parameter(g, "b", tensor_1d(DTYPE_F32, channels), (Init){ INIT_ZERO, 0 }, false) : NO_VALUE;
    OpDesc op = { .kind = OP_conv2d,
                  .attr = { .kernel = kernel, .stride = stride, .pad = kernel / 2, .relu = relu } };
    Value  y = graph_emit(g, op, bias ? 3 : 2, (Value[]){ x, w, b });
    scope_leave(g, &scope);
    return y;
}

Value layer_conv(Graph *g, const char *name, Value x, int kernel, int64_t channels, int stride)
{
    return conv(g, name, x, kernel, channels, stride, false, false);
}

Value layer_conv_bias_relu(Graph *g, const char *name, Value x, int kernel, int64_t channels, int stride)
{
    return conv(g, name, x, kernel, channels, stride, true, true);
}

Value layer_conv_bias(Graph *g, const char *name, Value x, int kernel, int64_t channels, int stride)
{
    return conv(g, name, x, kernel, channels, stride, true, false);
}

/* The op that is the gradient of a 2x2 convolution of stride 2 from `channels` to x's channels. */
Value layer_upconv(Graph *g, const char *name, Value x, int64_t channels)
{
    enum { FACTOR = 2 };
    Scope         scope = scope_enter(g, name);
    const Tensor *t = graph_tensor(g, x);
    Tensor shape = tensor_4d(DTYPE_F32, layer_channels(g, x), FACTOR, FACTOR, channels);
    OpDesc op = { .kind = OP_conv2d_dgrad, .attr = { .kernel = FACTOR, .stride = FACTOR, .in_h = FACTOR * t->dim[1],
                                                     .in_w = FACTOR * t->dim[2] } };
    Value  w = layer_parameter(g, "w", shape, (Init){ INIT_NORMAL, sqrtf(2.0f / (float)channels) }, true);
    Value  y = graph_emit(g, op, 2, (Value[]){ x, w });
    scope_leave(g, &scope);
    return y;
}

Value layer_concat(Graph *g, const char *name, Value a, Value b)
{
    Scope scope = scope_enter(g, name);
    Value y = graph_emit(g, (OpDesc){ .kind = OP_concat }, 2, (Value[]){ a, b });
    scope_leave(g, &scope);
    return y;
}

static Value batchnorm(Graph *g, const char *name, Value x, Value residual, bool relu, InitKind gamma_init)
{
    Scope   scope = scope_enter(g, name);
    int64_t c = layer_channels(g, x);
    Value   gamma = layer_parameter(g, "gamma", tensor_1d(DTYPE_F32, c), (Init){ gamma_init, 0 }, false);
    Value   beta = layer_parameter(g, "beta", tensor_1d(DTYPE_F32, c), (Init){ INIT_ZERO, 0 }, false);
    Value   mean = statistic(g, "run_mean", c, INIT_ZERO);
    Value   var = statistic(g, "run_var", c, INIT_ONE);
    OpDesc  op = { .kind = g->segment == SEG_EVAL ? OP_batchnorm_infer : OP_batchnorm,
                   .attr = { .relu = relu, .residual = residual.id >= 0,
                             .eps = BATCHNORM_EPS, .momentum = BATCHNORM_MOMENTUM } };
    Value   y = graph_emit(g, op, 5 + op.attr.residual, (Value[]){ x, gamma, beta, mean, var, residual });
    scope_leave(g, &scope);
    return y;
}

Value layer_batchnorm(Graph *g, const char *name, Value x)
{
    return batchnorm(g, name, x, NO_VALUE, false, INIT_ONE);
}

Value layer_batchnorm_relu(Graph *g, const char *name, Value x)
{
    return batchnorm(g, name, x, NO_VALUE, true, INIT_ONE);
}

Value layer_batchnorm_add_relu(Graph *g, const char *name, Value x, Value residual, bool zero_gamma)
{
    return batchnorm(g, name, x, residual, true, zero_gamma ? INIT_ZERO : INIT_ONE);
}

Value layer_maxpool(Graph *g, const char *name, Value x, int kernel, int stride)
{
    Scope  scope = scope_enter(g, name);
    OpDesc op = { .kind = OP_maxpool, .attr = { .kernel = kernel, .stride = stride, .pad = (kernel - 1) / 2 } };
    Value  y = graph_emit(g, op, 1, &x);
    scope_leave(g, &scope);
    return y;
}

Value layer_global_avgpool(Graph *g, const char *name, Value x)
{
    Scope scope = scope_enter(g, name);
    Value y = graph_emit(g, (OpDesc){ .kind = OP_avgpool }, 1, &x);
    scope_leave(g, &scope);
    return y;
}

Value layer_linear(Graph *g, const char *name, Value x, int64_t outputs)
{
    Scope   scope = scope_enter(g, name);
    int64_t inputs = graph_tensor(g, x)->dim[1];
    Init    init = { INIT_UNIFORM, 1.0f / sqrtf((float)inputs) };
    Value   w = layer_parameter(g, "w", tensor_2d(DTYPE_F32, outputs, inputs), init, true);
    Value   b = layer_parameter(g, "b", tensor_1d(DTYPE_F32, outputs), init, false);
    Value   y = graph_emit(g, (OpDesc){ .kind = OP_linear }, 3, (Value[]){ x, w, b });
    scope_leave(g, &scope);
    return y;
}

static void loss(Graph *g, OpKind kind, const char *name, Value logits, Value labels, Value scale, Value metrics)
{
    Scope scope = scope_enter(g, name);
    int   n_out = g->segment == SEG_EVAL ? 1 : 2;
    graph_append_to(g, (OpDesc){ .kind = kind }, 3, (Value[]){ logits, labels, scale },
                    n_out, (Value[]){ metrics, NO_VALUE });
    scope_leave(g, &scope);
}

void layer_loss(Graph *g, const char *name, Value logits, Value labels, Value scale, Value metrics)
{
    loss(g, OP_softmax_xent, name, logits, labels, scale, metrics);
}

void layer_pixel_loss(Graph *g, const char *name, Value logits, Value mask, Value scale, Value metrics)
{
    loss(g, OP_pixel_xent, name, logits, mask, scale, metrics);
}

void layer_bce_dice(Graph *g, const char *name, Value logits, Value mask, Value scale, Value metrics)
{
    loss(g, OP_bce_dice, name, logits, mask, scale, metrics);
}
