/* test_ref_text.c - the reference of a Transformer's ops that are not attention: every gradient against central differences, as
 * in test_ref.c, and values worked out by hand. */
#include "unit.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void check_layernorm(bool residual, float dropout)
{
    enum { M = 4, K = 11 };
    const Tensor x = tensor_2d(DTYPE_F32, M, K), v = tensor_1d(DTYPE_F32, K), rows = tensor_1d(DTYPE_F32, M), rng = tensor_1d(DTYPE_I32, 4);
    const bool   drops = dropout > 0;
    OpDesc op = { .kind = OP_layernorm, .n_in = 3 + residual + drops, .in = { x, v, v, x, rng },
                  .attr = { .residual = residual, .dropout = dropout, .stream = 2, .eps = 1e-2f } };
    Unit f = unit_create(op, 1);
    op.kind = OP_layernorm_grad;
    op.n_in = 5 + drops;
    memcpy(op.in, (Tensor[]){ x, x, v, rows, rows, rng }, sizeof(Tensor[6]));
    Unit g = unit_create(op, 2);
    unit_run(&f);
    unit_set_input(&g, 0, residual ? f.out[3] : f.in[0]);
    unit_set_input(&g, 2, f.in[1]);
    unit_set_input(&g, 3, f.out[1]);
    unit_set_input(&g, 4, f.out[2]);
    unit_run(&g);
    unit_check_gradient(&f, 0, g.in[1], g.out[0]);
    unit_check_gradient(&f, 1, g.in[1], g.out[1]);
    unit_check_gradient(&f, 2, g.in[1], g.out[2]);
    if (residual)
        unit_check_gradient(&f, 3, g.in[1], drops ? g.out[3] : g.out[0]);
    int zeros = 0;
    for (int i = 0; i < M * K; i++)
        zeros += g.out[0][i] == 0;
    assert_true(drops ? zeros > 0 && zeros < M * K : zeros == 0);
    /* accumulate adds to dgamma and dbeta, and to nothing else */
    const double dgamma = g.out[1][1], dbeta = g.out[2][1], dx = g.out[0][4];
    g.op.attr.accumulate = true;
    unit_run(&g);
    assert_true(fabs(g.out[1][1] - 2 * dgamma) < 1e-12 && fabs(g.out[2][1] - 2 * dbeta) < 1e-12 && g.out[0][4] == dx);
    unit_destroy(&f);
    unit_destroy(&g);
}

static void test_layernorm_gradients(void **state)
{
    (void)state;
    check_layernorm(false, 0);
    check_layernorm(true, 0);
    check_layernorm(true, 0.4f);
}

/* x + residual = {1, 2, 3, 6}: mean 3, biased variance 3.5, so with eps 0.5 invstd = 1/2. */
static void test_layernorm_by_hand(void **state)
{
    (void)state;
    const Tensor x = tensor_2d(DTYPE_F32, 1, 4), v = tensor_1d(DTYPE_F32, 4);
    Unit u = unit_create((OpDesc){ .kind = OP_layernorm, .n_in = 4, .in = { x, v, v, x }, .attr = { .residual = true, .eps = 0.5f } }, 0);
    unit_set_input(&u, 0, (double[]){ 1, 1, 1, 1 });
    unit_set_input(&u, 1, (double[]){ 4, 2, 1, 2 });
    unit_set_input(&u, 2, (double[]){ 0, 1, 7, 0 });
    unit_set_input(&u, 3, (double[]){ 0, 1, 2, 5 });
    unit_run(&u);
    const double y[] = { -4, 0, 7, 3 }, sum[] = { 1, 2, 3, 6 };
    for (int i = 0; i < 4; i++)
        assert_true(fabs(u.out[0][i] - y[i]) < 1e-14 && u.out[3][i] == sum[i]);
    assert_true(u.out[1][0] == 3 && fabs(u.out[2][0] - 0.5) < 1e-15);
    unit_destroy(&u);
}

/* In bf16, 1 + 2^-8 is a tie that goes to 1: the sum is {1, 1}, has no variance, and y is beta. */
static void test_layernorm_normalises_the_rounded_sum(void **state)
{
    (void)state;
    const Tensor x = tensor_2d(DTYPE_BF16, 1, 2), v = tensor_1d(DTYPE_F32, 2);
    Unit u = unit_create((OpDesc){ .kind = OP_layernorm, .n_in = 4, .in = { x, v, v, x }, .attr = { .residual = true, .eps = 1e-9f } }, 0);
    unit_set_input(&u, 0, (double[]){ 1, 1 });
    unit_set_input(&u, 3, (double[]){ 0, 0x1p-8 });
    unit_run(&u);
    assert_true(u.out[3][1] == 1 && u.out[0][0] == u.in[2][0] && u.out[0][1] == u.in[2][1]);
    unit_destroy(&u);
}

static void test_activation_gradients(void **state)
{
    (void)state;
    const Tensor x = tensor_2d(DTYPE_F32, 5, 9);
    for (int k = 0; k < 2; k++) {
        Unit f = unit_create((OpDesc){ .kind = k ? OP_tanh : OP_gelu, .n_in = 1, .in = { x } }, 3);
        Unit g = unit_create((OpDesc){ .kind = k ? OP_tanh_grad : OP_gelu_grad, .n_in = 2, .in = { x, x } }, 4);
        unit_run(&f);
        unit_set_input(&g, 1, k ? f.out[0] : f.in[0]);
        unit_run(&g);
        unit_check_gradient(&f, 0, g.in[0], g.out[0]);
        unit_destroy(&f);
        unit_destroy(&g);
    }
}

/* Phi(1) = 0.841344746068542949 and Phi(-2) = 0.0227501319481792072 from tables. */
static void test_activations_by_hand(void **state)
{
    (void)state;
    const Tensor x = tensor_2d(DTYPE_F32, 1, 3);
    Unit u = unit_create((OpDesc){ .kind = OP_gelu, .n_in = 1, .in = { x } }, 0);
    unit_set_input(&u, 0, (double[]){ 0, 1, -2 });
    unit_run(&u);
    assert_true(u.out[0][0] == 0 && fabs(u.out[0][1] - 0.841344746068542949) < 1e-15 && fabs(u.out[0][2] + 2 * 0.0227501319481792072) < 1e-15);
    u.op.kind = OP_tanh;
    unit_set_input(&u, 0, (double[]){ 0, log(2), -log(3) });
    unit_run(&u);
    assert_true(u.out[0][0] == 0 && fabs(u.out[0][1] - 0.6) < 1e-15 && fabs(u.out[0][2] + 0.8) < 1e-15);
    unit_destroy(&u);
}

/* Its gradient is the same op on dy. */
static void test_dropout_gradient(void **state)
{
    (void)state;
    OpDesc op = { .kind = OP_dropout, .n_in = 2, .in = { tensor_2d(DTYPE_F32, 3, 21), tensor_1d(DTYPE_I32, 4) },
                  .attr = { .dropout = 0.4f, .stream = 9 } };
    Unit f = unit_create(op, 1), g = unit_create(op, 2);
    unit_run(&g);
    unit_check_gradient(&f, 0, g.in[0], g.out[0]);
    g.op.attr.dropout = 0;
    unit_run(&g);
    assert_memory_equal(g.out[0], g.in[0], 63 * sizeof(double));
    unit_destroy(&f);
    unit_destroy(&g);
}

static const double picks[] = { 2, -1, 0, 2, 3 }; /* one twice, one not at all, one nowhere */

static void test_embedding_gradients(void **state)
{
    (void)state;
    const Tensor a = tensor_2d(DTYPE_F32, 4, 3), b = tensor_2d(DTYPE_F32, 5, 3), y = tensor_2d(DTYPE_F32, 5, 3), ids = tensor_1d(DTYPE_I32, 5);
    Unit f = unit_create((OpDesc){ .kind = OP_embedding, .n_in = 4, .in = { a, ids, b, ids } }, 1);
    unit_set_input(&f, 1, picks);
    unit_set_input(&f, 3, (double[]){ 4, 1, 1, 1, -1 });
    for (int table = 0; table < 4; table += 2) {
        Unit g = unit_create((OpDesc){ .kind = OP_embedding_grad, .n_in = 2, .in = { y, ids }, .attr = { .rows = table ? 5 : 4 } }, 2);
        unit_set_input(&g, 1, f.in[table + 1]);
        unit_run(&g);
        unit_check_gradient(&f, table, g.in[0], g.out[0]);
        const double kept = g.out[0][3 * 1 + 1], unused = g.out[0][0];
        g.op.attr.accumulate = true;
        unit_run(&g);
        assert_true(fabs(g.out[0][3 * 1 + 1] - 2 * kept) < 1e-13 && g.out[0][0] == 2 * unused);
        unit_destroy(&g);
    }
    unit_destroy(&f);
}

static void test_gather_gradients(void **state)
{
    (void)state;
    const Tensor x = tensor_2d(DTYPE_F32, 4, 3), y = tensor_2d(DTYPE_F32, 5, 3), rows = tensor_1d(DTYPE_I32, 5);
    Unit f = unit_create((OpDesc){ .kind = OP_gather_rows, .n_in = 2, .in = { x, rows } }, 1);
    Unit g = unit_create((OpDesc){ .kind = OP_gather_rows_grad, .n_in = 2, .in = { y, rows }, .attr = { .rows = 4 } }, 2);
    unit_set_input(&f, 1, picks);
    unit_set_input(&g, 1, picks);
    unit_run(&f);
    for (int j = 0; j < 3; j++)
        assert_true(f.out[0][j] == f.in[0][6 + j] && f.out[0][3 + j] == 0 && f.out[0][12 + j] == f.in[0][9 + j]);
    unit_run(&g);
    unit_check_gradient(&f, 0, g.in[0], g.out[0]);
    for (int j = 0; j < 3; j++)
        assert_true(g.out[0][3 + j] == 0);
    unit_destroy(&f);
    unit_destroy(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layernorm_gradients),
        cmocka_unit_test(test_layernorm_by_hand),
        cmocka_unit_test(test_layernorm_normalises_the_rounded_sum),
        cmocka_unit_test(test_activation_gradients),
        cmocka_unit_test(test_activations_by_hand),
        cmocka_unit_test(test_dropout_gradient),
        cmocka_unit_test(test_embedding_gradients),
        cmocka_unit_test(test_gather_gradients),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
