/* test_ref.c - the first rung of the numerics ladder: every gradient of the reference equals the central difference of its
 * op (unit.h), and what has no gradient equals values worked out by hand. */
#include "unit.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const double KINK = 1e-3;  /* how far from a kink (ReLU at 0, ties of a maximum) every value must be */

static bool far_from_zero(const Tensor *t, const double *a)
{
    for (int64_t i = 0; i < tensor_count(t); i++)
        if (fabs(a[i]) < KINK)
            return false;
    return true;
}

typedef struct ConvShape { int64_t n, h, w, c, k; int kernel, stride, pad; } ConvShape;

static const ConvShape conv_shapes[] = {
    { 2, 4, 5, 3, 4, 1, 1, 0 }, { 1, 5, 4, 2, 3, 3, 1, 1 }, { 2, 5, 7, 2, 3, 3, 2, 1 }, { 1, 9, 8, 3, 2, 7, 2, 3 },
    { 1, 5, 6, 2, 2, 1, 2, 0 }, { 1, 1, 1, 3, 2, 3, 1, 1 }, { 1, 6, 5, 1, 2, 2, 3, 0 }, { 2, 4, 4, 2, 1, 4, 1, 3 },
};

static OpDesc conv_op(const ConvShape *s)
{
    return (OpDesc){ .kind = OP_conv2d, .n_in = 3,
        .in = { tensor_act(DTYPE_F32, s->n, s->h, s->w, s->c), tensor_4d(DTYPE_F32, s->k, s->kernel, s->kernel, s->c),
                tensor_1d(DTYPE_F32, s->k) },
        .attr = { .kernel = s->kernel, .stride = s->stride, .pad = s->pad } };
}

/* The wgrad and dgrad ops that belong to a forward convolution, fed with x, w and dy. */
static Unit conv_wgrad_unit(const Unit *forward, const double *dy)
{
    OpDesc op = { .kind = OP_conv2d_wgrad, .n_in = 2, .n_out = 2, .in = { forward->op.in[0], forward->op.out[0] }, .attr = forward->op.attr };
    Unit u = unit_create(op, 0);
    unit_set_input(&u, 0, forward->in[0]);
    unit_set_input(&u, 1, dy);
    return u;
}

static Unit conv_dgrad_unit(const Unit *forward, const double *dy)
{
    OpDesc op = { .kind = OP_conv2d_dgrad, .n_in = 2, .in = { forward->op.out[0], forward->op.in[1] }, .attr = forward->op.attr };
    op.attr.in_h = forward->op.in[0].dim[1];
    op.attr.in_w = forward->op.in[0].dim[2];
    Unit u = unit_create(op, 0);
    unit_set_input(&u, 0, dy);
    unit_set_input(&u, 1, forward->in[1]);
    return u;
}

static void test_conv2d_gradients(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(conv_shapes); i++) {
        Unit forward = unit_create(conv_op(&conv_shapes[i]), i);
        double *dy = unit_normals(&forward.op.out[0], 100 + i);
        Unit dgrad = conv_dgrad_unit(&forward, dy), wgrad = conv_wgrad_unit(&forward, dy);
        unit_run(&dgrad);
        unit_run(&wgrad);
        unit_check_gradient(&forward, 0, dy, dgrad.out[0]);
        unit_check_gradient(&forward, 1, dy, wgrad.out[0]);
        unit_check_gradient(&forward, 2, dy, wgrad.out[1]);
        unit_destroy(&dgrad);
        unit_destroy(&wgrad);
        unit_destroy(&forward);
        free(dy);
    }
}

/* conv with fused ReLU: its gradients are those of the plain one fed with relu_grad(dy, y). */
static void test_conv2d_relu_gradients(void **state)
{
    (void)state;
    OpDesc op = conv_op(&conv_shapes[2]);
    op.attr.relu = false;
    uint64_t seed = 50;
    Unit forward = unit_create(op, seed);
    unit_run(&forward);
    while (!far_from_zero(&forward.op.out[0], forward.out[0])) {
        unit_destroy(&forward);
        forward = unit_create(op, ++seed);
        unit_run(&forward);
    }
    forward.op.attr.relu = true;
    unit_run(&forward);
    Unit relu = unit_create((OpDesc){ .kind = OP_relu_grad, .n_in = 2, .in = { forward.op.out[0], forward.op.out[0] } }, 3);
    unit_set_input(&relu, 1, forward.out[0]);
    unit_run(&relu);
    int64_t zeros = 0;
    for (int64_t i = 0; i < tensor_count(&relu.op.out[0]); i++)
        zeros += relu.out[0][i] == 0;
    assert_true(zeros > 0 && zeros < tensor_count(&relu.op.out[0]));
    Unit dgrad = conv_dgrad_unit(&forward, relu.out[0]), wgrad = conv_wgrad_unit(&forward, relu.out[0]);
    unit_run(&dgrad);
    unit_run(&wgrad);
    unit_check_gradient(&forward, 0, relu.in[0], dgrad.out[0]);
    unit_check_gradient(&forward, 1, relu.in[0], wgrad.out[0]);
    unit_check_gradient(&forward, 2, relu.in[0], wgrad.out[1]);
    unit_destroy(&dgrad);
    unit_destroy(&wgrad);
    unit_destroy(&relu);
    unit_destroy(&forward);
}

static OpDesc batchnorm_op(bool relu, bool residual)
{
    Tensor x = tensor_act(DTYPE_F32, 2, 3, 5, 3), v = tensor_1d(DTYPE_F32, 3);
    return (OpDesc){ .kind = OP_batchnorm, .n_in = 5 + residual, .in = { x, v, v, v, v, x },
                     .attr = { .relu = relu, .residual = residual, .eps = 1e-3f, .momentum = 0 } };
}

/* Redraws until no output before the ReLU lies near zero. */
static Unit batchnorm_unit(bool relu, bool residual)
{
    for (uint64_t seed = 60;; seed++) {
        Unit u = unit_create(batchnorm_op(false, residual), seed);
        unit_run(&u);
        if (!relu || far_from_zero(&u.op.out[0], u.out[0])) {
            Unit with_relu = unit_create(batchnorm_op(relu, residual), seed);
            unit_run(&with_relu);
            unit_destroy(&u);
            return with_relu;
        }
        unit_destroy(&u);
    }
}

static void check_batchnorm(bool relu, bool residual)
{
    Unit f = batchnorm_unit(relu, residual);
    Tensor mask = f.op.in[0];
    mask.dtype = DTYPE_BIT;
    OpDesc op = { .kind = OP_batchnorm_grad, .n_in = 5 + relu, .attr = f.op.attr,
                  .in = { f.op.in[0], f.op.in[0], f.op.in[1], f.op.in[1], f.op.in[1], mask } };
    Unit g = unit_create(op, 9);
    const double *const sources[] = { f.in[0], NULL, f.in[1], f.out[1], f.out[2], f.out[3] };
    for (int i = 0; i < g.op.n_in; i++)
        if (sources[i])
            unit_set_input(&g, i, sources[i]);
    unit_run(&g);
    unit_check_gradient(&f, 0, g.in[1], g.out[0]);
    unit_check_gradient(&f, 1, g.in[1], g.out[1]);
    unit_check_gradient(&f, 2, g.in[1], g.out[2]);
    if (residual)
        unit_check_gradient(&f, 5, g.in[1], g.out[3]);
    /* accumulate adds to dgamma and dbeta, and to nothing else */
    double dgamma = g.out[1][1], dbeta = g.out[2][1], dx = g.out[0][4];
    g.op.attr.accumulate = true;
    unit_run(&g);
    assert_true(fabs(g.out[1][1] - 2 * dgamma) < 1e-12 && fabs(g.out[2][1] - 2 * dbeta) < 1e-12 && g.out[0][4] == dx);
    unit_destroy(&g);
    unit_destroy(&f);
}

static void test_batchnorm_gradients(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++)
        check_batchnorm(i & 1, i & 2);
}

/* x = {1, 2, 3, 6} in one channel: mean 3, biased variance 3.5, unbiased 14/3. */
static void test_batchnorm_by_hand(void **state)
{
    (void)state;
    Tensor x = tensor_act(DTYPE_F32, 1, 2, 2, 1), v = tensor_1d(DTYPE_F32, 1);
    Unit u = unit_create((OpDesc){ .kind = OP_batchnorm, .n_in = 5, .in = { x, v, v, v, v },
                                   .attr = { .relu = true, .eps = 0.5f, .momentum = 0.25f } }, 0);
    memcpy(u.in[0], (double[]){ 1, 2, 3, 6 }, 4 * sizeof(double));
    u.in[1][0] = 4, u.in[2][0] = 1, u.in[3][0] = 10, u.in[4][0] = 2;
    unit_run(&u);
    const double want[] = { 0, 0, 1, 7 }, mask[] = { 0, 0, 1, 1 }; /* invstd = 1/2: y = 2 (x - 3) + 1 */
    for (int i = 0; i < 4; i++) {
        assert_true(fabs(u.out[0][i] - want[i]) < 1e-14);
        assert_true(u.out[3][i] == mask[i]);
    }
    assert_true(u.out[1][0] == 3 && fabs(u.out[2][0] - 0.5) < 1e-15);
    assert_true(fabs(u.in[3][0] - (0.75 * 10 + 0.25 * 3)) < 1e-14);
    assert_true(fabs(u.in[4][0] - (0.75 * 2 + 0.25 * 14 / 3)) < 1e-14);

    u.in[0][2] = (double)INFINITY; /* tests/CASES.md D9: a bad batch must not enter the running statistics */
    double kept_mean = u.in[3][0], kept_var = u.in[4][0];
    unit_run(&u);
    assert_true(u.in[3][0] == kept_mean && u.in[4][0] == kept_var);
    unit_destroy(&u);
}

static void test_batchnorm_infer_by_hand(void **state)
{
    (void)state;
    Tensor x = tensor_act(DTYPE_F32, 1, 1, 2, 1), v = tensor_1d(DTYPE_F32, 1);
    Unit u = unit_create((OpDesc){ .kind = OP_batchnorm_infer, .n_in = 6, .in = { x, v, v, v, v, x },
                                   .attr = { .relu = true, .residual = true, .eps = 0.5f } }, 0);
    memcpy(u.in[0], (double[]){ 1, 5 }, 2 * sizeof(double));
    memcpy(u.in[5], (double[]){ -1, 0.5 }, 2 * sizeof(double));
    u.in[1][0] = 4, u.in[2][0] = 1, u.in[3][0] = 3, u.in[4][0] = 3.5;
    unit_run(&u); /* 2 (x - 3) + 1 + residual = -4, 5.5 */
    assert_true(u.out[0][0] == 0 && fabs(u.out[0][1] - 5.5) < 1e-14);
    unit_destroy(&u);
}

static void test_maxpool_gradient(void **state)
{
    (void)state;
    static const int windows[][3] = { { 3, 2, 1 }, { 2, 2, 0 }, { 3, 1, 2 } };
    for (size_t k = 0; k < COUNT_OF(windows); k++) {
        OpDesc op = { .kind = OP_maxpool, .n_in = 1, .in = { tensor_act(DTYPE_F32, 2, 5, 6, 3) },
                      .attr = { .kernel = windows[k][0], .stride = windows[k][1], .pad = windows[k][2], .in_h = 5, .in_w = 6 } };
        Unit f = unit_create(op, 0);
        for (int64_t i = 0; i < 180; i++) /* distinct values, 0.01 apart, well mixed: 77 and 180 have no common divisor */
            f.in[0][i] = 0.01 * (double)(i * 77 % 180) - 0.9;
        unit_run(&f);
        op.kind = OP_maxpool_grad;
        op.n_in = 2;
        op.in[0] = f.op.out[0];
        op.in[1] = f.op.out[1];
        Unit g = unit_create(op, 4);
        unit_set_input(&g, 1, f.out[1]);
        unit_run(&g);
        unit_check_gradient(&f, 0, g.in[0], g.out[0]);
        unit_destroy(&g);
        unit_destroy(&f);
    }
}

static void test_maxpool_first_maximum_wins(void **state)
{
    (void)state;
    Unit u = unit_create((OpDesc){ .kind = OP_maxpool, .n_in = 1, .in = { tensor_act(DTYPE_F32, 1, 3, 3, 1) },
                                   .attr = { .kernel = 3, .stride = 2, .pad = 1 } }, 0);
    for (int i = 0; i < 9; i++)
        u.in[0][i] = -2;
    u.in[0][4] = u.in[0][5] = -1;
    unit_run(&u);
    const double index[] = { 8, 6, 2, 0 }; /* the centre, seen from four corners; its right neighbour ties but comes later */
    for (int i = 0; i < 4; i++)
        assert_true(u.out[1][i] == index[i]);
    for (int i = 0; i < 4; i++)
        assert_true(u.out[0][i] == -1); /* padding is not zero: it never wins */
    unit_destroy(&u);
}

static void test_avgpool_gradient(void **state)
{
    (void)state;
    Unit f = unit_create((OpDesc){ .kind = OP_avgpool, .n_in = 1, .in = { tensor_act(DTYPE_F32, 2, 3, 5, 4) } }, 0);
    unit_run(&f);
    Unit g = unit_create((OpDesc){ .kind = OP_avgpool_grad, .n_in = 1, .in = { f.op.out[0] }, .attr = { .in_h = 3, .in_w = 5 } }, 1);
    unit_run(&g);
    unit_check_gradient(&f, 0, g.in[0], g.out[0]);
    unit_destroy(&g);
    unit_destroy(&f);
}

static void test_linear_gradients(void **state)
{
    (void)state;
    Tensor x = tensor_2d(DTYPE_F32, 3, 5), w = tensor_2d(DTYPE_F32, 4, 5), y = tensor_2d(DTYPE_F32, 3, 4);
    Unit f = unit_create((OpDesc){ .kind = OP_linear, .n_in = 3, .in = { x, w, tensor_1d(DTYPE_F32, 4) } }, 0);
    Unit d = unit_create((OpDesc){ .kind = OP_linear_dgrad, .n_in = 2, .in = { y, w } }, 1);
    Unit g = unit_create((OpDesc){ .kind = OP_linear_wgrad, .n_in = 2, .n_out = 2, .in = { x, y } }, 2);
    unit_set_input(&d, 1, f.in[1]);
    unit_set_input(&g, 0, f.in[0]);
    unit_set_input(&g, 1, d.in[0]);
    unit_run(&d);
    unit_run(&g);
    unit_check_gradient(&f, 0, d.in[0], d.out[0]);
    unit_check_gradient(&f, 1, d.in[0], g.out[0]);
    unit_check_gradient(&f, 2, d.in[0], g.out[1]);
    double dw = g.out[0][7], dbias = g.out[1][2];
    g.op.attr.accumulate = true;
    unit_run(&g);
    assert_true(fabs(g.out[0][7] - 2 * dw) < 1e-12 && fabs(g.out[1][2] - 2 * dbias) < 1e-12);
    unit_destroy(&f);
    unit_destroy(&d);
    unit_destroy(&g);
}

static void test_wgrad_accumulates(void **state)
{
    (void)state;
    Unit f = unit_create(conv_op(&conv_shapes[1]), 0);
    unit_run(&f);
    Unit g = conv_wgrad_unit(&f, f.out[0]);
    unit_run(&g);
    double dw = g.out[0][5], dbias = g.out[1][1];
    g.op.attr.accumulate = true;
    unit_run(&g);
    assert_true(fabs(g.out[0][5] - 2 * dw) < 1e-12 && fabs(g.out[1][1] - 2 * dbias) < 1e-12);
    unit_destroy(&g);
    unit_destroy(&f);
}

static Unit softmax_unit(double scale)
{
    Unit u = unit_create((OpDesc){ .kind = OP_softmax_xent, .n_in = 3, .n_out = 2,
        .in = { tensor_2d(DTYPE_F32, 4, 5), tensor_1d(DTYPE_I32, 4), tensor_1d(DTYPE_F32, 1) } }, 0);
    memcpy(u.in[1], (double[]){ 4, -1, 0, 2 }, 4 * sizeof(double));
    u.in[2][0] = scale;
    return u;
}

/* dlogits is the gradient of scale times metrics[0]; the row with label -1 gets none. */
static void test_softmax_gradient(void **state)
{
    (void)state;
    Unit u = softmax_unit(0.25);
    const double weight[4] = { 0.25, 0, 0, 0 };
    unit_loss(&u, 0, weight);
    double gradient[20];
    memcpy(gradient, u.out[1], sizeof gradient);
    unit_check_gradient(&u, 0, weight, gradient);
    for (int c = 0; c < 5; c++)
        assert_true(gradient[5 + c] == 0);
    unit_destroy(&u);
}

static void test_softmax_by_hand(void **state)
{
    (void)state;
    Unit u = softmax_unit(1);
    memset(u.in[0], 0, 20 * sizeof(double));
    u.in[0][10] = u.in[0][11] = 1000; /* row 2, label 0: a tie that the first wins; no overflow */
    u.in[0][15] = log(4);             /* row 3, label 2: p = 1 / 8, and class 0 is larger */
    u.out[0][0] = 10, u.out[0][1] = 20, u.out[0][2] = 30;
    unit_run(&u);                     /* row 0, label 4: p = 1 / 5, the tie's winner is class 0 */
    assert_true(fabs(u.out[0][0] - (10 + log(5) + log(2) + log(8))) < 1e-12);
    assert_true(u.out[0][1] == 21 && u.out[0][2] == 33 && u.out[0][3] == 0);
    assert_true(fabs(u.out[1][4] + 0.8) < 1e-15 && fabs(u.out[1][10] + 0.5) < 1e-15 && fabs(u.out[1][15] - 0.5) < 1e-15);
    unit_destroy(&u);
}

/* Two steps with lr 0.1, momentum 0.5, decay 0.2 from w = 1, m = 0, g = 1:
 *   step 1: g' = 1.2, m = 1.2, w = 1 - 0.12 = 0.88 (nesterov: 1 - 0.1 (1.2 + 0.6) = 0.82)
 *   step 2: g' = 1.176, m = 1.776, w = 0.88 - 0.1776 (nesterov: g' = 1.164, m = 1.764, w = 0.82 - 0.1 (1.164 + 0.882)) */
static void test_sgd_by_hand(void **state)
{
    (void)state;
    const Tensor hyper8 = tensor_1d(DTYPE_F32, 8);
    for (int nesterov = 0; nesterov < 2; nesterov++) {
        Unit u = unit_create((OpDesc){ .kind = OP_sgd, .n_in = 3, .in = { tensor_1d(DTYPE_F32, 1), hyper8, hyper8 },
            .attr = { .momentum = 0.5f, .weight_decay = 0.2f, .nesterov = nesterov } }, 0);
        u.in[0][0] = 8, u.in[1][0] = 0.1, u.out[0][0] = 1;
        memcpy(u.in[2], (double[8]){ 0.25, 0.5 }, 8 * sizeof(double)); /* loss scale 4, clipping to the half: g = 1 */
        unit_run(&u);
        assert_true(fabs(u.out[0][0] - (nesterov ? 0.82 : 0.88)) < 1e-8); /* 0.2f is not 0.2 */
        assert_true(fabs(u.out[1][0] - 1.2) < 1e-8);
        unit_run(&u);
        assert_true(fabs(u.out[0][0] - (nesterov ? 0.82 - 0.2046 : 0.7024)) < 1e-8);
        assert_true(fabs(u.out[1][0] - (nesterov ? 1.764 : 1.776)) < 1e-8);
        unit_destroy(&u);
    }
}

static void test_pointwise_by_hand(void **state)
{
    (void)state;
    Tensor t = tensor_2d(DTYPE_F32, 1, 3);
    Unit add = unit_create((OpDesc){ .kind = OP_add, .n_in = 2, .in = { t, t } }, 0);
    memcpy(add.in[0], (double[]){ 1, 2, 3 }, 3 * sizeof(double));
    memcpy(add.in[1], (double[]){ 10, -2, 0.5 }, 3 * sizeof(double));
    unit_run(&add);
    assert_memory_equal(add.out[0], ((double[]){ 11, 0, 3.5 }), 3 * sizeof(double));
    unit_destroy(&add);

    static const OpKind copies[] = { OP_cast, OP_repack };
    for (size_t i = 0; i < COUNT_OF(copies); i++) {
        Unit copy = unit_create((OpDesc){ .kind = copies[i], .n_in = 1, .in = { t }, .out = { { .dtype = DTYPE_BF16 } } }, 0);
        unit_run(&copy);
        assert_memory_equal(copy.out[0], copy.in[0], 3 * sizeof(double));
        unit_destroy(&copy);
    }

    Unit zero = unit_create((OpDesc){ .kind = OP_zero, .out = { t } }, 0);
    zero.out[0][1] = 5;
    unit_run(&zero);
    assert_memory_equal(zero.out[0], ((double[]){ 0, 0, 0 }), 3 * sizeof(double));
    unit_destroy(&zero);

    Unit norm = unit_create((OpDesc){ .kind = OP_sqnorm, .n_in = 1, .in = { t } }, 0);
    memcpy(norm.in[0], (double[]){ 1, -2, 3 }, 3 * sizeof(double));
    norm.out[0][0] = 100;
    unit_run(&norm);
    assert_true(norm.out[0][0] == 114);
    unit_destroy(&norm);

    Unit image = unit_create((OpDesc){ .kind = OP_normalize_u8, .n_in = 1, .in = { tensor_4d(DTYPE_U8, 1, 1, 2, 2) },
                                       .attr = { .mean = { 0.5f, 0.25f }, .deviation = { 0.5f, 2 } } }, 0);
    memcpy(image.in[0], (double[]){ 0, 255, 255, 51 }, 4 * sizeof(double));
    unit_run(&image);
    const double want[] = { -1, 0.375, 1, -0.025 };
    for (int i = 0; i < 4; i++)
        assert_true(fabs(image.out[0][i] - want[i]) < 1e-15);
    unit_destroy(&image);
}

static void test_rounding_to_types(void **state)
{
    (void)state;
    assert_true(ref_round(DTYPE_BF16, 1 + 0x1p-8) == 1);                     /* a tie goes to even ... */
    assert_true(ref_round(DTYPE_BF16, 1 + 0x3p-8) == 1 + 0x4p-8);            /* ... up or down */
    assert_true(ref_round(DTYPE_BF16, 1 + 0x1p-8 + 0x1p-40) == 1 + 0x1p-7);  /* just above it, up, though float cannot tell */
    assert_true(ref_round(DTYPE_BF16, 1 + 0x3p-8 - 0x1p-40) == 1 + 0x1p-7);  /* just below it, down */
    assert_true(ref_round(DTYPE_BF16, -(1 + 0x1p-8 + 0x1p-40)) == -(1 + 0x1p-7));
    assert_true(ref_round(DTYPE_F32, 1 + 0x1p-24) == 1);
    assert_true(isnan(ref_round(DTYPE_BF16, (double)NAN)) && isinf(ref_round(DTYPE_BF16, 1e39)));
    assert_true(ref_round(DTYPE_BF16, 0x1p-133) == 0x1p-133); /* the smallest bf16 denormal */
}

/* The backend round trip: types, bits, in-out slots, and the one error that depends on values. */
static void test_backend_converts(void **state)
{
    (void)state;
    Backend *be;
    assert_int_equal(ref_backend.open(&(BackendOptions){ .threads = 2 }, &be).code, STATUS_OK);
    OpDesc op = batchnorm_op(true, false);
    op.in[0].dtype = DTYPE_BF16;
    assert_int_equal(op_infer(&op).code, STATUS_OK);
    uint16_t x[90], y[90];
    float v[4][3] = { { 1, 1, 1 }, { 0, 0, 0 }, { 0, 0, 0 }, { 1, 1, 1 } }, mean[3], invstd[3];
    uint8_t mask[12];
    for (int i = 0; i < 90; i++)
        x[i] = bf16_from_f32((float)(i % 3 + 1) * (i / 3 % 2 ? 2.0f : -1.0f));
    void *buf[] = { x, v[0], v[1], v[2], v[3], y, mean, invstd, mask };
    op.attr.momentum = 1;
    assert_int_equal(be->vtable->kernels[op.kind]->run(be, &op, NULL, buf, NULL).code, STATUS_OK);
    for (int i = 0; i < 90; i++) {
        assert_int_equal(mask[i / 8] >> (i % 8) & 1, i / 3 % 2);
        assert_true((bf16_to_f32(y[i]) > 0) == (i / 3 % 2));
    }
    for (int c = 0; c < 3; c++)
        assert_true(mean[c] == 0.5f * (float)(c + 1) && v[2][c] == mean[c]);

    OpDesc loss_op = { .kind = OP_softmax_xent, .n_in = 3,
        .in = { tensor_2d(DTYPE_F32, 2, 3), tensor_1d(DTYPE_I32, 2), tensor_1d(DTYPE_F32, 1) } };
    assert_int_equal(op_infer(&loss_op).code, STATUS_OK);
    float logits[6] = { 0 }, scale = 1, metrics[4] = { 0 };
    int32_t labels[2] = { 0, 3 };
    Status s = be->vtable->kernels[OP_softmax_xent]->run(be, &loss_op, NULL, (void *[]){ logits, labels, &scale, metrics }, NULL);
    assert_int_equal(s.code, STATUS_NUMERIC);
    assert_string_equal(s.text, "softmax_xent: label 3 of sample 1 is outside 0..2 (-1 = ignore)");
    backend_close(be);
    assert_int_equal(ref_backend.open(&(BackendOptions){ .threads = -1 }, &be).code, STATUS_USAGE);
    assert_null(be);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_conv2d_gradients),
        cmocka_unit_test(test_conv2d_relu_gradients),
        cmocka_unit_test(test_batchnorm_gradients),
        cmocka_unit_test(test_batchnorm_by_hand),
        cmocka_unit_test(test_batchnorm_infer_by_hand),
        cmocka_unit_test(test_maxpool_gradient),
        cmocka_unit_test(test_maxpool_first_maximum_wins),
        cmocka_unit_test(test_avgpool_gradient),
        cmocka_unit_test(test_linear_gradients),
        cmocka_unit_test(test_wgrad_accumulates),
        cmocka_unit_test(test_softmax_gradient),
        cmocka_unit_test(test_softmax_by_hand),
        cmocka_unit_test(test_sgd_by_hand),
        cmocka_unit_test(test_pointwise_by_hand),
        cmocka_unit_test(test_rounding_to_types),
        cmocka_unit_test(test_backend_converts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
