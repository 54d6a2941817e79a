/* test_unet.c - UNet: its size, its shapes, what it refuses; gradients that are derivatives, and the CPU backend against the
 * reference over the whole net, with both losses and both stems, in fp32 and bf16. */
#include "../nets/amp.h"
#include "../nets/exec.h"
#include "../nets/grad.h"
#include "../nets/layers.h"
#include "../nets/optim.h"
#include "../nets/unet.h"
#include "tiny_net.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { BATCH = 2, SIZE = 16 };

static NetConfig unet_config(int64_t classes, int stem_stride)
{
    return (NetConfig){ .net = "unet", .batch = BATCH, .size = SIZE, .channels = 3, .classes = classes, .width = 0.25, .depth = 2,
                        .stem_stride = stem_stride, .mean = { 0.5f, 0.5f, 0.5f }, .deviation = { 0.25f, 0.25f, 0.25f } };
}

/* The net with its loss, gradients and copies, bound to a backend. */
typedef struct Unet { Graph *g; Backend *be; Exec *exec; Value image, mask, scale, metrics, logits; } Unet;

static Graph *build(const NetConfig *c, bool bf16, Unet *u)
{
    Graph *g;
    expect_ok(unet_check(c));
    expect_ok(graph_create(&g));
    const Tensor mask = { .dtype = DTYPE_U8, .rank = 3, .dim = { c->batch, c->size, c->size } };
    *u = (Unet){ .g = g };
    u->image = graph_value(g, "image", tensor_4d(DTYPE_U8, c->batch, c->size, c->size, c->channels), MEM_INPUT);
    u->mask = graph_value(g, "mask", mask, MEM_INPUT);
    u->scale = graph_value(g, "scale", tensor_1d(DTYPE_F32, 1), MEM_INPUT);
    u->metrics = graph_value(g, "metrics", tensor_1d(DTYPE_F32, c->classes == 1 ? 8 : 5 + 3 * c->classes), MEM_INPUT);
    const int first = g->node_count;
    g->segment = SEG_MICRO;
    u->logits = unet_logits(g, c, layer_normalize(g, "input", u->image, c->mean, c->deviation));
    (c->classes == 1 ? layer_bce_dice : layer_pixel_loss)(g, "loss", u->logits, u->mask, u->scale, u->metrics);
    if (bf16)
        amp_apply(g, first, DTYPE_BF16);
    grad_append(g, false);
    optim_append_zero(g, u->metrics);
    copies_append(g);
    expect_ok(graph_status(g));
    return g;
}

/* Parameters off their starts of 0 and 1, random images, masks with every class and some 255. */
static void fill(Unet *u, const NetConfig *c)
{
    const float scale = c->classes == 1 ? 1.0f / BATCH : 1.0f / (BATCH * SIZE * SIZE);
    uint8_t image[BATCH * SIZE * SIZE * 3], mask[BATCH * SIZE * SIZE];
    for (size_t i = 0; i < sizeof image; i++)
        image[i] = (uint8_t)(rng_block(5, 1, i).word[0] & 255);
    for (size_t i = 0; i < sizeof mask; i++)
        mask[i] = i % 11 == 7 ? 255 : (uint8_t)rng_below(5, 2, i / 4, c->classes == 1 ? 2 : c->classes);
    expect_ok(exec_init(u->exec, 1));
    for (int v = 0; v < u->g->value_count; v++) {
        const GraphValue *p = &u->g->values[v];
        if (!p->is_param || p->init.kind == INIT_NORMAL)
            continue;
        const int64_t n = tensor_count(&p->tensor);
        float        *values = malloc((size_t)n * sizeof *values);
        assert_non_null(values);
        for (int64_t i = 0; i < n; i++)
            values[i] = (p->init.kind == INIT_ONE) + 0.2f * (float)rng_normal(3, (uint64_t)v, (uint64_t)i);
        expect_ok(exec_write(u->exec, (Value){ v }, values));
        free(values);
    }
    expect_ok(exec_write(u->exec, u->image, image));
    expect_ok(exec_write(u->exec, u->mask, mask));
    expect_ok(exec_write(u->exec, u->scale, &scale));
}

static void open_unet(const NetConfig *c, bool bf16, const char *backend, Unet *u)
{
    build(c, bf16, u);
    u->be = tiny_backend(backend);
    expect_ok(exec_create(u->g, u->be, &(ExecOptions){ .poison = true }, &u->exec));
    fill(u, c);
}

static void close_unet(Unet *u)
{
    exec_destroy(u->exec);
    backend_close(u->be);
    graph_destroy(u->g);
}

/* The sum of losses that the gradients belong to. */
static double run(Unet *u)
{
    float metrics[5 + 3 * 64], scale;
    expect_ok(exec_refresh_copies(u->exec));
    expect_ok(exec_run(u->exec, SEG_BEGIN));
    expect_ok(exec_run(u->exec, SEG_MICRO));
    expect_ok(exec_read(u->exec, u->metrics, metrics));
    expect_ok(exec_read(u->exec, u->scale, &scale));
    return (double)metrics[0] * (double)scale;
}

static float *read_value(Unet *u, Value v)
{
    float *values = malloc((size_t)tensor_count(graph_tensor(u->g, v)) * sizeof *values);
    assert_non_null(values);
    expect_ok(exec_read(u->exec, v, values));
    return values;
}

/* ---- the graph */

/* Level by level, c channels: convolutions 9 (in c + c c), two batch norms of 2 c; up-convolutions 4 (2c) c. */
static int64_t expected_params(int64_t base, int64_t channels, int64_t classes, int depth)
{
    int64_t sum = 0, in = channels;
    for (int level = 0; level <= depth; level++) {
        const int64_t c = base << level;
        sum += 9 * (in * c + c * c) + 4 * c;
        in = c;
        if (level < depth)
            sum += 4 * (2 * c) * c + 9 * (2 * c * c + c * c) + 4 * c;
    }
    return sum + base * classes + classes;
}

static void test_parameters(void **state)
{
    (void)state;
    NetConfig c = unet_config(2, 1);
    Unet      u;
    c.width = 1;
    c.depth = 4;
    build(&c, false, &u);
    assert_int_equal(graph_param_count(u.g), 31036738);
    assert_int_equal(graph_param_count(u.g), expected_params(64, 3, 2, 4));
    graph_destroy(u.g);
    c = unet_config(1, 1);
    c.channels = 1;
    build(&c, false, &u);
    assert_int_equal(graph_param_count(u.g), expected_params(16, 1, 1, 2));
    graph_destroy(u.g);
}

static void test_shapes(void **state)
{
    (void)state;
    for (int depth = 1; depth <= 3; depth++)
        for (int stride = 1; stride <= 2; stride++)
            for (int64_t classes = 1; classes <= 3; classes++) {
                NetConfig c = unet_config(classes, stride);
                Unet      u;
                c.depth = depth;
                build(&c, false, &u);
                const Tensor *t = graph_tensor(u.g, u.logits);
                assert_true(t->dim[0] == BATCH && t->dim[1] == SIZE && t->dim[2] == SIZE && t->dim[3] == classes);
                graph_destroy(u.g);
            }
}

/* The skip comes first, as in the paper's figure: its gradient is the first part of the concatenation's. */
static void test_skip_comes_first(void **state)
{
    (void)state;
    NetConfig c = unet_config(2, 1);
    Unet      u;
    int       seen = 0;
    build(&c, false, &u);
    for (int i = 0; i < u.g->node_count; i++) {
        const GraphNode *n = &u.g->nodes[i];
        if (n->op.kind != OP_concat)
            continue;
        assert_int_equal(u.g->nodes[u.g->values[n->in[0]].producer].op.kind, OP_batchnorm);
        assert_int_equal(u.g->nodes[u.g->values[n->in[1]].producer].op.kind, OP_conv2d_dgrad);
        seen++;
    }
    assert_int_equal(seen, 2);
    graph_destroy(u.g);
}

static void test_refusals(void **state)
{
    (void)state;
    NetConfig c = unet_config(2, 1);
    c.size = 18;
    expect_error(unet_check(&c), STATUS_USAGE, "multiple of 4 pixels, not 18");
    c.size = 20;
    expect_ok(unet_check(&c));
    c.stem_stride = 2;
    expect_error(unet_check(&c), STATUS_USAGE, "with stem stride 2 needs images of a multiple of 8 pixels, not 20");
    c.size = 0;
    expect_error(unet_check(&c), STATUS_USAGE, "not 0");
    c = unet_config(2, 3);
    expect_error(unet_check(&c), STATUS_USAGE, "stem stride of 1 or 2, not 3");
    c = unet_config(0, 1);
    expect_error(unet_check(&c), STATUS_USAGE, "1 to 64 classes");
    c = unet_config(65, 1);
    expect_error(unet_check(&c), STATUS_USAGE, "1 to 64 classes");
    c = unet_config(2, 1);
    c.depth = 7;
    expect_error(unet_check(&c), STATUS_USAGE, "depth of 1 to 6 levels, not 7");
}

/* ---- gradients */

/* Along its gradient g the loss must rise by |g|^2 times the step. */
static void expect_derivative(Unet *u, Value p)
{
    const int64_t n = tensor_count(graph_tensor(u->g, p));
    float  *start = read_value(u, p), *moved = malloc((size_t)n * sizeof *moved);
    double  norm2 = 0, side[2];
    assert_non_null(moved);
    run(u);
    float *g = read_value(u, grad_of_param(u->g, p));
    for (int64_t i = 0; i < n; i++)
        norm2 += (double)g[i] * (double)g[i];
    assert_true(norm2 > 0);
    const double step = 3e-4 / norm2; /* changes the loss by about 3e-4; noise of fp32 and kinks leave a few percent */
    for (int k = 0; k < 2; k++) {
        for (int64_t i = 0; i < n; i++)
            moved[i] = start[i] + (float)((k ? -step : step) * (double)g[i]);
        expect_ok(exec_write(u->exec, p, moved));
        side[k] = run(u);
    }
    expect_ok(exec_write(u->exec, p, start));
    const double rise = (side[0] - side[1]) / (2 * step);
    if (fabs(rise - norm2) > 0.06 * norm2)
        fail_msg("'%s': along its gradient the loss rises by %g, not %g", u->g->values[p.id].name, rise, norm2);
    free(start);
    free(moved);
    free(g);
}

static void test_gradients_are_derivatives(void **state)
{
    (void)state;
    for (int classes = 1; classes <= 2; classes++) {
        NetConfig c = unet_config(classes, classes); /* the second with the other stem */
        Unet      u;
        int       params = 0;
        c.depth = 1;
        open_unet(&c, false, "cpu", &u);
        for (int v = 0; v < u.g->value_count; v++)
            if (u.g->values[v].is_param) {
                expect_derivative(&u, (Value){ v });
                params++;
            }
        assert_int_equal(params, 6 * 3 + 1 + 2 + (classes == 2 ? 3 : 0)); /* double convolutions, up, head, upstem */
        close_unet(&u);
    }
}

/* All gradients as one vector: how far apart, relative. */
static double gradients_apart(Unet *a, Unet *b)
{
    double difference = 0, norm = 0;
    for (int v = 0; v < a->g->value_count; v++) {
        Value d = grad_of_param(a->g, (Value){ v });
        if (d.id < 0)
            continue;
        float *x = read_value(a, d), *y = read_value(b, d);
        for (int64_t i = 0; i < tensor_count(graph_tensor(a->g, d)); i++) {
            difference += ((double)x[i] - (double)y[i]) * ((double)x[i] - (double)y[i]);
            norm += (double)y[i] * (double)y[i];
        }
        free(x);
        free(y);
    }
    assert_true(norm > 0);
    return sqrt(difference / norm);
}

static void compare_with_reference(const NetConfig *c, bool bf16, double gradient, double loss)
{
    Unet cpu, ref;
    open_unet(c, bf16, "cpu/2", &cpu);
    open_unet(c, bf16, "ref/2", &ref);
    const double a = run(&cpu), b = run(&ref), apart = gradients_apart(&cpu, &ref);
    if (!(fabs(a - b) <= loss * b && apart <= gradient))
        fail_msg("%d classes, stem stride %d: loss %.8g, reference %.8g; gradients differ by %.2g", (int)c->classes, c->stem_stride,
                 a, b, apart);
    float x[5 + 3 * 64], y[5 + 3 * 64];
    expect_ok(exec_read(cpu.exec, cpu.metrics, x));
    expect_ok(exec_read(ref.exec, ref.metrics, y));
    for (int i = 2; i < tensor_count(graph_tensor(cpu.g, cpu.metrics)); i++)
        assert_true(fabs((double)x[i] - (double)y[i]) <= (bf16 ? 0.1 : 0.01) * (BATCH * SIZE * SIZE));
    assert_true(x[2] == y[2] && x[4] == y[4]);
    close_unet(&cpu);
    close_unet(&ref);
}

static void test_cpu_agrees_with_reference(void **state)
{
    (void)state;
    for (int64_t classes = 1; classes <= 3; classes++)
        for (int stride = 1; stride <= 2; stride++) {
            NetConfig c = unet_config(classes, stride);
            compare_with_reference(&c, false, 1e-4, 1e-6);
        }
}

/* A difference in the last bit flips some ReLUs; a wrong term would be of order 1. */
static void test_cpu_agrees_with_reference_in_bf16(void **state)
{
    (void)state;
    BackendInfo info;
    Backend    *be = tiny_backend("cpu");
    backend_describe(be, &info);
    backend_close(be);
    if (!info.fast_bf16) {
        print_message("skipped: %s\n", info.bf16_reason);
        return;
    }
    for (int64_t classes = 1; classes <= 2; classes++) {
        NetConfig c = unet_config(classes, 1);
        compare_with_reference(&c, true, 0.3, 2e-2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parameters),
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_skip_comes_first),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_gradients_are_derivatives),
        cmocka_unit_test(test_cpu_agrees_with_reference),
        cmocka_unit_test(test_cpu_agrees_with_reference_in_bf16),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
