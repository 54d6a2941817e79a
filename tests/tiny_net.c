/* tiny_net.c - see tiny_net.h. */
#include "tiny_net.h"

#include "../nets/amp.h"
#include "../nets/grad.h"
#include "../nets/layers.h"
#include "ref/ref.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

void expect_ok(Status s)
{
    if (s.code != STATUS_OK)
        fail_msg("%s: %s", status_code_name(s.code), s.text);
}

void expect_error(Status s, StatusCode code, const char *word)
{
    if (s.code != code || !strstr(s.text, word) || strchr(s.text, '\n'))
        fail_msg("expected %s with '%s', got %s: %s", status_code_name(code), word, status_code_name(s.code), s.text);
}

Backend *tiny_backend(const char *name)
{
    char           device[16];
    Backend       *be = NULL;
    const char    *slash = strchr(name, '/');
    BackendOptions options = { .threads = slash ? atoi(slash + 1) : 1, .no_tune = true };
    snprintf(device, sizeof device, "%.*s", (int)strcspn(name, "/"), name);
    expect_ok(strcmp(device, "ref") ? backend_open(device, &options, &be) : ref_backend.open(&options, &be));
    return be;
}

NetConfig tiny_config(int64_t batch)
{
    NetConfig c = net_config_default(NULL);
    c.batch = batch;
    c.size = 32;
    c.classes = 10;
    c.width = 0.125;
    c.stem = STEM_SMALL;
    c.zero_init_gamma = true;
    return c;
}

PlainConfig plain_config(int64_t batch, bool accumulate)
{
    return (PlainConfig){ .batch = batch, .type = DTYPE_F32, .deviation = 0.25f,
                          .optim = { .kind = OPTIM_SGD, .momentum = 0.9f, .beta1 = 0.9f, .beta2 = 0.999f, .eps = 1e-6f,
                                     .trust = 0.01f, .weight_decay = 1e-4f, .accumulate = accumulate } };
}

/* A convolution with bias and ReLU, or with batch norm and ReLU. */
static Value plain_conv(Graph *g, const PlainConfig *c, const char *name, Value x, int kernel, int64_t channels, int stride)
{
    if (!c->batch_norm)
        return layer_conv_bias_relu(g, name, x, kernel, channels, stride);
    char norm[GRAPH_NAME_BYTES];
    snprintf(norm, sizeof norm, "%s_norm", name);
    return layer_batchnorm_relu(g, norm, layer_conv(g, name, x, kernel, channels, stride));
}

static Value plain_logits(Graph *g, const PlainConfig *c, Value image)
{
    const float mean[3] = { 0.5f, 0.5f, 0.5f }, deviation[3] = { c->deviation, c->deviation, c->deviation };
    Value x = layer_normalize(g, "input", image, mean, deviation);
    x = plain_conv(g, c, "conv1", x, 3, 16, 1);
    x = layer_maxpool(g, "pool", x, 3, 2);
    Value y = plain_conv(g, c, "conv2", x, 3, 16, 1);
    x = graph_emit(g, (OpDesc){ .kind = OP_add }, 2, (Value[]){ x, y });
    x = plain_conv(g, c, "conv3", x, 1, 32, 2);
    return layer_linear(g, "fc", layer_global_avgpool(g, "mean", x), 10);
}

void plain_net_build_as(const PlainConfig *c, Net *out)
{
    const Tensor one = tensor_1d(DTYPE_F32, 1), eight = tensor_1d(DTYPE_F32, 8);
    Graph *g;
    expect_ok(graph_create(&g));
    const NetConfig config = tiny_config(c->batch);
    *out = net_blank(&config);
    out->graph = g;
    out->config.size = 16;
    out->config.accumulate = c->optim.accumulate;
    out->config.amp = c->type == DTYPE_F16 ? AMP_FP16 : c->type == DTYPE_BF16 ? AMP_BF16 : AMP_OFF;
    out->image = graph_value(g, "image", tensor_4d(DTYPE_U8, c->batch, 16, 16, 3), MEM_INPUT);
    out->labels = graph_value(g, "labels", tensor_1d(DTYPE_I32, c->batch), MEM_INPUT);
    out->scale = graph_value(g, "scale", one, MEM_INPUT);
    out->hyper = graph_value(g, "hyper", eight, MEM_INPUT);
    out->metrics = graph_value(g, "metrics", tensor_1d(DTYPE_F32, 4), MEM_INPUT);
    out->norm2 = graph_value(g, "norm2", one, MEM_INPUT);

    out->logits = plain_logits(g, c, out->image);
    out->control = graph_value(g, "control", eight, MEM_INPUT);
    Value scale = out->scale;
    if (c->optim.loss_scale)
        scale = optim_window_scale(g, out->scale, out->control);
    layer_loss(g, "loss", out->logits, out->labels, scale, out->metrics);
    if (c->type != DTYPE_F32)
        amp_apply(g, 0, c->type);

    grad_append(g, c->optim.accumulate);
    optim_append_zero(g, out->metrics);
    optim_append(g, &c->optim, &(OptimInputs){ out->hyper, out->norm2, out->control });
    copies_append(g);
    expect_ok(graph_status(g));
}

void plain_net_build(int64_t batch, bool accumulate, Net *out)
{
    PlainConfig c = plain_config(batch, accumulate);
    plain_net_build_as(&c, out);
}

static size_t image_bytes(const NetConfig *c)
{
    return (size_t)(c->size * c->size * c->channels);
}

enum { DATA_SAMPLES = 8 }; /* of which a micro-batch takes some */

TinyData tiny_data(const NetConfig *c, uint64_t seed)
{
    size_t   bytes = image_bytes(c) * DATA_SAMPLES;
    TinyData d = { malloc(bytes), malloc(DATA_SAMPLES * sizeof *d.labels) };
    assert_non_null(d.pixels);
    assert_non_null(d.labels);
    for (size_t i = 0; i < bytes; i++)
        d.pixels[i] = (uint8_t)(rng_block(seed, 1, i).word[0] & 255);
    for (int i = 0; i < DATA_SAMPLES; i++)
        d.labels[i] = (int32_t)rng_below(seed, 2, (uint64_t)i, c->classes);
    return d;
}

void tiny_data_free(TinyData *d)
{
    free(d->pixels);
    free(d->labels);
}

MicroBatch tiny_batch(const TinyData *d, const NetConfig *c, int64_t first)
{
    assert_true(first + c->batch <= DATA_SAMPLES);
    return (MicroBatch){ .pixels = d->pixels + image_bytes(c) * (size_t)first, .labels = d->labels + first, .counted = c->batch };
}

/* Moves parameters off a start of 0 or 1, where gradients would be 0 or terms could be left out unseen. */
static void shake_params(Tiny *t)
{
    for (int v = 0; v < t->net.graph->value_count; v++) {
        const GraphValue *p = &t->net.graph->values[v];
        if (!p->is_param || (p->init.kind != INIT_ZERO && p->init.kind != INIT_ONE))
            continue;
        float *values = tiny_read(t, (Value){ v });
        for (int64_t i = 0; i < tensor_count(&p->tensor); i++)
            values[i] += 0.2f * (float)rng_normal(3, (uint64_t)v, (uint64_t)i);
        expect_ok(exec_write(t->session.exec, (Value){ v }, values));
        free(values);
    }
}

void tiny_bind(Tiny *t, const char *backend, const ExecOptions *options)
{
    t->be = tiny_backend(backend);
    t->session = (Session){ .net = &t->net };
    expect_ok(exec_create(t->net.graph, t->be, options, &t->session.exec));
    expect_ok(exec_init(t->session.exec, 1));
    shake_params(t);
}

void tiny_open(const NetConfig *config, const char *backend, const ExecOptions *options, Tiny *out)
{
    expect_ok(net_build(config, &out->net));
    tiny_bind(out, backend, options);
}

void tiny_close(Tiny *t)
{
    exec_destroy(t->session.exec);
    backend_close(t->be);
    net_destroy(&t->net);
}

StepResult tiny_train(Tiny *t, int steps, int accum, uint64_t seed)
{
    const NetConfig *c = &t->net.config;
    StepResult       result = { 0 };
    TinyData         data = tiny_data(c, seed);
    for (int i = 0; i < steps; i++) {
        expect_ok(step_begin(&t->session, accum * c->batch));
        for (int k = 0; k < accum; k++) {
            MicroBatch batch = tiny_batch(&data, c, k * c->batch);
            expect_ok(step_micro(&t->session, &batch));
        }
        expect_ok(step_update(&t->session, 0.01f));
        expect_ok(step_result(&t->session, &result));
    }
    tiny_data_free(&data);
    return result;
}

float *tiny_read(Tiny *t, Value v)
{
    const Tensor *shape = graph_tensor(t->net.graph, v);
    int64_t       n = tensor_count(shape);
    float        *values = malloc((size_t)n * sizeof *values);
    assert_non_null(values);
    expect_ok(exec_read(t->session.exec, v, values));
    if (shape->dtype == DTYPE_BF16 || shape->dtype == DTYPE_F16)
        for (int64_t i = n - 1; i >= 0; i--) {
            uint16_t half = ((uint16_t *)(void *)values)[i];
            values[i] = shape->dtype == DTYPE_BF16 ? bf16_to_f32(half) : f16_to_f32(half);
        }
    return values;
}

uint64_t tiny_hash(Tiny *t)
{
    uint64_t hash = UINT64_C(0xCBF29CE484222325); /* FNV-1a */
    for (int v = 0; v < t->net.graph->value_count; v++) {
        if (t->net.graph->values[v].kind != MEM_WEIGHT)
            continue;
        float  *values = tiny_read(t, (Value){ v });
        size_t  bytes = tensor_bytes(&t->net.graph->values[v].tensor);
        for (size_t i = 0; i < bytes; i++)
            hash = (hash ^ ((unsigned char *)values)[i]) * UINT64_C(0x100000001B3);
        free(values);
    }
    return hash;
}

double tiny_distance(Tiny *a, Value va, Tiny *b, Value vb)
{
    float  *x = tiny_read(a, va), *y = tiny_read(b, vb);
    double  difference = 0, norm = 0;
    int64_t n = tensor_count(graph_tensor(a->net.graph, va));
    assert_int_equal(n, tensor_count(graph_tensor(b->net.graph, vb)));
    for (int64_t i = 0; i < n; i++) {
        difference += ((double)x[i] - (double)y[i]) * ((double)x[i] - (double)y[i]);
        norm += (double)y[i] * (double)y[i];
    }
    free(x);
    free(y);
    assert_true(isfinite(difference) && norm > 0);
    return sqrt(difference / norm);
}
