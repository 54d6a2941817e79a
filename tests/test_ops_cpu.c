/* test_ops_cpu.c - the ops of the CPU backend against the reference on the ladder (ladder.h): normalisation, pooling, matrices,
 * elementwise and optimisers. Convolutions are in test_conv_cpu.c. */
#include "ladder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* ---- activations of every awkward shape ---- */

static const int64_t act_shapes[][4] = {
    { 2, 8, 8, 64 }, { 2, 7, 7, 32 }, { 3, 5, 3, 16 }, { 1, 9, 7, 24 }, { 2, 3, 5, 7 }, { 2, 4, 4, 1 }, { 4, 1, 1, 48 }, { 5, 1, 1, 10 },
    { 2, 13, 11, 3 }, { 1, 33, 32, 17 }, { 3, 17, 19, 128 },
};

static Tensor act(size_t i, Dtype t)
{
    return tensor_act(t, act_shapes[i][0], act_shapes[i][1], act_shapes[i][2], act_shapes[i][3]);
}

static OpDesc norm_op(OpKind kind, Tensor x, bool relu, bool residual)
{
    Tensor v = tensor_1d(DTYPE_F32, x.dim[3]), mask = x;
    mask.dtype = DTYPE_BIT;
    OpDesc op = { .kind = kind, .n_in = 5 + residual, .in = { x, v, v, v, v, x },
                  .attr = { .relu = relu, .residual = residual, .eps = 1e-5f, .momentum = 0.1f } };
    if (kind == OP_batchnorm_grad) {
        op.n_in = 5 + relu;
        op.in[1] = x;
        op.in[2] = v;
        op.in[5] = mask;
    }
    return op;
}

static void climb_norm(OpKind kind, bool accumulate)
{
    Ladder l = ladder_start();
    for (size_t i = 0; i < COUNT_OF(act_shapes); i++)
        for (Dtype t = DTYPE_F32; t <= DTYPE_BF16; t++)
            for (int flags = 0; flags < 4; flags++) {
                OpDesc op = norm_op(kind, act(i, t), flags & 1, flags & 2);
                op.attr.accumulate = accumulate;
                climb(&l, op, RANDOM);
            }
    ladder_end(&l);
}

static void test_batchnorm(void **state)
{
    (void)state;
    climb_norm(OP_batchnorm, false);
}

static void test_batchnorm_grad(void **state)
{
    (void)state;
    climb_norm(OP_batchnorm_grad, false);
    climb_norm(OP_batchnorm_grad, true);
}

static void test_batchnorm_infer(void **state)
{
    (void)state;
    climb_norm(OP_batchnorm_infer, false);
}

/* One element a channel: y = beta, variance 0, nothing learnt; dx = 0. All constant, so all trivial. */
static void test_batchnorm_of_one_element(void **state)
{
    (void)state;
    Ladder l = ladder_start();
    for (Dtype t = DTYPE_F32; t <= DTYPE_BF16; t++) {
        Tensor x = tensor_act(t, 1, 1, 1, 32);
        climb(&l, norm_op(OP_batchnorm, x, true, true), RANDOM | TRIVIAL);
        climb(&l, norm_op(OP_batchnorm_grad, x, true, true), RANDOM | TRIVIAL);
        climb(&l, norm_op(OP_batchnorm_infer, x, true, true), RANDOM | TRIVIAL);
    }
    ladder_end(&l);
}

typedef struct PoolShape { int64_t n, h, w, c; int kernel, stride, pad; } PoolShape;

static const PoolShape pool_shapes[] = {
    { 2, 16, 16, 64, 3, 2, 1 }, { 1, 7, 9, 24, 3, 2, 1 }, { 2, 8, 8, 16, 2, 2, 0 }, { 1, 5, 5, 3, 3, 1, 1 }, { 2, 1, 1, 32, 3, 2, 1 },
    { 1, 6, 10, 24, 2, 2, 0 }, { 2, 4, 2, 7, 2, 2, 0 }, { 1, 7, 6, 16, 2, 2, 0 }, { 1, 6, 5, 16, 2, 2, 0 },
    { 1, 6, 7, 7, 3, 1, 2 }, { 1, 9, 8, 16, 2, 3, 0 }, { 1, 17, 16, 5, 15, 1, 7 }, { 2, 6, 6, 1, 5, 3, 2 },
};

/* Small integers tie all the time: the first one has to win, which shows in the gradient. */
static void test_maxpool(void **state)
{
    (void)state;
    Ladder l = ladder_start();
    for (size_t i = 0; i < COUNT_OF(pool_shapes); i++)
        for (Dtype t = DTYPE_F32; t <= DTYPE_BF16; t++) {
            const PoolShape *s = &pool_shapes[i];
            OpDesc op = { .kind = OP_maxpool, .n_in = 1, .in = { tensor_act(t, s->n, s->h, s->w, s->c) },
                          .attr = { .kernel = s->kernel, .stride = s->stride, .pad = s->pad, .in_h = s->h, .in_w = s->w } };
            const int trivial = s->kernel >= 5 ? TRIVIAL : 0; /* of so many integers -2..2 the maximum is 2; few pixels get a gradient */
            climb(&l, op, BOTH | trivial);
            if (op_infer(&op).code != STATUS_OK)
                fail_msg("pool shape %zu", i);
            op.kind = OP_maxpool_grad;
            op.n_in = 2;
            op.in[0] = op.out[0];
            op.in[1] = op.out[1];
            climb(&l, op, BOTH | trivial);
        }
    ladder_end(&l);
}

static void test_avgpool(void **state)
{
    (void)state;
    Ladder l = ladder_start();
    for (size_t i = 0; i < COUNT_OF(act_shapes); i++)
        for (Dtype t = DTYPE_F32; t <= DTYPE_BF16; t++) {
            const int64_t pixels = act_shapes[i][1] * act_shapes[i][2];
            const int rungs = pixels & (pixels - 1) ? RANDOM : BOTH; /* dividing by a power of two is exact */
            climb(&l, (OpDesc){ .kind = OP_avgpool, .n_in = 1, .in = { act(i, t) } }, rungs);
            climb(&l, (OpDesc){ .kind = OP_avgpool_grad, .n_in = 1, .in = { tensor_2d(t, act_shapes[i][0], act_shapes[i][3]) },
                                .attr = { .in_h = act_shapes[i][1], .in_w = act_shapes[i][2] } }, rungs);
        }
    ladder_end(&l);
}

/* ---- matrices ---- */

static void test_linear(void **state)
{
    (void)state;
    static const int64_t shapes[][3] = { /* M, K, O */
        { 4, 2048, 32 }, { 8, 256, 100 }, { 4, 64, 10 }, { 1, 512, 10 }, { 3, 17, 5 }, { 7, 1, 3 }, { 33, 48, 32 }, { 2, 130, 1 },
        { 20, 40, 2 }, { 5, 1538, 33 }, { 35, 31, 805 }, { 129, 70, 47 }, /* sums in several pieces */
    };
    Ladder l = ladder_start();
    for (size_t i = 0; i < COUNT_OF(shapes); i++)
        for (Dtype t = DTYPE_F32; t <= DTYPE_BF16; t++) {
            Tensor x = tensor_2d(t, shapes[i][0], shapes[i][1]), w = tensor_2d(t, shapes[i][2], shapes[i][1]);
            Tensor y = tensor_2d(t, shapes[i][0], shapes[i][2]);
            OpDesc op = { .kind = OP_linear, .n_in = 2, .in = { x, w, tensor_1d(DTYPE_F32, shapes[i][2]) } };
            climb(&l, op, BOTH);
            op.n_in = 3;
            climb(&l, op, BOTH);
            climb(&l, (OpDesc){ .kind = OP_linear_dgrad, .n_in = 2, .in = { y, w } }, BOTH);
            for (int flags = 0; flags < 4; flags++)
                climb(&l, (OpDesc){ .kind = OP_linear_wgrad, .n_in = 2, .n_out = 1 + (flags & 1), .in = { x, y },
                                    .attr = { .accumulate = flags & 2 } }, BOTH);
        }
    ladder_end(&l);
}

/* So many rows that even dw is added up piece by piece; so many threads that rows are shared as well as columns. */
static void test_linear_of_many_rows(void **state)
{
    (void)state;
    Ladder l = ladder_start();
    for (Dtype t = DTYPE_F32; t <= DTYPE_BF16; t++)
        for (int accumulate = 0; accumulate < 2; accumulate++)
            climb(&l, (OpDesc){ .kind = OP_linear_wgrad, .n_in = 2, .n_out = 2, .attr = { .accumulate = accumulate },
                                .in = { tensor_2d(t, 3079, 34), tensor_2d(t, 3079, 9) } }, BOTH);
    const Tensor x = tensor_2d(DTYPE_BF16, 130, 40), w = tensor_2d(DTYPE_BF16, 66, 40);
    OpCase  *c;
    OpResult want, got;
    assert_int_equal(op_case_create(&(OpDesc){ .kind = OP_linear, .n_in = 2, .in = { x, w } }, FILL_INTEGER, 8, &c).code, STATUS_OK);
    assert_int_equal(op_case_run(c, l.ref, NULL, &want).code, STATUS_OK);
    for (int threads = 2; threads <= 3; threads++) { /* more of them, and clang's OpenMP loses memory when they end */
        Backend *be;
        assert_int_equal(backend_open("cpu", &(BackendOptions){ .threads = threads }, &be).code, STATUS_OK);
        Status s = op_case_run(c, be, NULL, &got);
        if (s.code == STATUS_OK)
            s = op_case_compare(c, COMPARE_EXACT, &want, &got);
        if (s.code != STATUS_OK && !ladder_may_skip(be, &c->op, s))
            fail_msg("%d threads: %s", threads, s.text);
        op_result_release(&got);
        backend_close(be);
    }
    op_result_release(&want);
    op_case_destroy(c);
    ladder_end(&l);
}

static void test_softmax_xent(void **state)
{
    (void)state;
    static const int64_t shapes[][2] = { { 8, 10 }, { 64, 1000 }, { 5, 2 }, { 3, 17 }, { 33, 100 } };
    Ladder l = ladder_start();
    for (size_t i = 0; i < COUNT_OF(shapes); i++)
        for (int outputs = 1; outputs <= 2; outputs++)
            climb(&l, (OpDesc){ .kind = OP_softmax_xent, .n_in = 3, .n_out = outputs,
                .in = { tensor_2d(DTYPE_F32, shapes[i][0], shapes[i][1]), tensor_1d(DTYPE_I32, shapes[i][0]), tensor_1d(DTYPE_F32, 1) } }, RANDOM);
    ladder_end(&l);
}

/* A label out of range is an error of the data, not a crash; large logits do not overflow. */
static void test_softmax_xent_bad_label_and_large_logits(void **state)
{
    (void)state;
    for (int v = 0; v < LADDER_VARIANTS; v++) {
        Backend *be = ladder_open_variant(v);
        OpResult got;
        OpCase  *c;
        assert_int_equal(op_case_create(&(OpDesc){ .kind = OP_softmax_xent, .n_in = 3, .n_out = 2,
            .in = { tensor_2d(DTYPE_F32, 4, 3), tensor_1d(DTYPE_I32, 4), tensor_1d(DTYPE_F32, 1) } }, FILL_RANDOM, 1, &c).code, STATUS_OK);
        static const int32_t bad[] = { 3, -2, INT32_MAX, INT32_MIN };
        for (size_t i = 0; i < COUNT_OF(bad); i++) {
            ((int32_t *)c->in[1])[2] = bad[i];
            assert_int_equal(op_case_run(c, be, NULL, &got).code, STATUS_NUMERIC);
        }
        ((int32_t *)c->in[1])[2] = 1;
        ((float *)c->in[0])[6] = 3e38f;
        ((float *)c->in[0])[7] = 3e38f;
        ((float *)c->in[0])[8] = -3e38f;
        Status s = op_case_run(c, be, NULL, &got);
        if (s.code != STATUS_OK)
            fail_msg("%s", s.text);
        const float scale = ((float *)c->in[2])[0], *dlogits = got.out[1];
        assert_true(dlogits[6] == 0.5f * scale && dlogits[7] == -0.5f * scale && dlogits[8] == 0);
        op_result_release(&got);
        op_case_destroy(c);
        backend_close(be);
    }
}

/* ---- elementwise and optimiser ---- */

static void test_pointwise(void **state)
{
    (void)state;
    Ladder l = ladder_start();
    for (size_t i = 0; i < COUNT_OF(act_shapes); i++)
        for (Dtype t = DTYPE_F32; t <= DTYPE_BF16; t++) {
            Tensor x = act(i, t), m = tensor_2d(t, act_shapes[i][0], act_shapes[i][3]);
            const Dtype other = t == DTYPE_F32 ? DTYPE_BF16 : DTYPE_F32;
            climb(&l, (OpDesc){ .kind = OP_add, .n_in = 2, .in = { x, x } }, BOTH);
            climb(&l, (OpDesc){ .kind = OP_add, .n_in = 2, .in = { m, m } }, BOTH);
            climb(&l, (OpDesc){ .kind = OP_relu_grad, .n_in = 2, .in = { x, x } }, BOTH);
            climb(&l, (OpDesc){ .kind = OP_relu_grad, .n_in = 2, .in = { m, m } }, BOTH | TRIVIAL);
            climb(&l, (OpDesc){ .kind = OP_cast, .n_in = 1, .in = { x }, .out = { { .dtype = other } } }, BOTH);
            climb(&l, (OpDesc){ .kind = OP_cast, .n_in = 1, .in = { m }, .out = { { .dtype = other } } }, BOTH);
            climb(&l, (OpDesc){ .kind = OP_cast, .n_in = 1, .in = { x }, .out = { { .dtype = t } } }, RANDOM);
            climb(&l, (OpDesc){ .kind = OP_zero, .out = { x } }, EXACT | TRIVIAL);
        }
    climb(&l, (OpDesc){ .kind = OP_zero, .out = { tensor_1d(DTYPE_F32, 1003) } }, EXACT | TRIVIAL);
    ladder_end(&l);
}

static void test_normalize_u8(void **state)
{
    (void)state;
    static const int64_t shapes[][4] = { { 2, 32, 32, 3 }, { 1, 28, 28, 1 }, { 3, 5, 7, 4 }, { 1, 1, 3, 2 } };
    Ladder l = ladder_start();
    for (size_t i = 0; i < COUNT_OF(shapes); i++)
        for (Dtype t = DTYPE_F32; t <= DTYPE_BF16; t++)
            climb(&l, (OpDesc){ .kind = OP_normalize_u8, .n_in = 1,
                .in = { tensor_4d(DTYPE_U8, shapes[i][0], shapes[i][1], shapes[i][2], shapes[i][3]) }, .out = { { .dtype = t } },
                .attr = { .mean = { 0.485f, 0.456f, 0.406f, 0.5f }, .deviation = { 0.229f, 0.224f, 0.225f, 0.25f } } }, RANDOM);
    ladder_end(&l);
}

/* AdamW, LAMB and LARS; tensors of one element up to several blocks, some of none. */
static void climb_adaptive(Ladder *l, Tensor g)
{
    static const int64_t tensors[] = { 1, 3, 17 };
    const Tensor eight = tensor_1d(DTYPE_F32, 8);
    const OpAttr adam = { .beta1 = 0.9f, .beta2 = 0.999f, .eps = 1e-6f, .weight_decay = 0.01f };
    climb(l, (OpDesc){ .kind = OP_adamw, .n_in = 3, .in = { g, eight, eight }, .attr = adam }, RANDOM);
    for (size_t i = 0; i < COUNT_OF(tensors); i++)
        for (int adapt = 0; adapt < 2; adapt++) {
            const Tensor table = tensor_1d(DTYPE_I32, tensors[i] + 1);
            OpDesc lamb = { .kind = OP_lamb, .n_in = 4, .in = { g, eight, eight, table }, .attr = adam };
            OpDesc lars = { .kind = OP_lars, .n_in = 4, .in = { g, eight, eight, table },
                            .attr = { .momentum = 0.9f, .trust = 0.02f, .weight_decay = 1e-3f } };
            lamb.attr.adapt = lars.attr.adapt = adapt;
            climb(l, lamb, RANDOM);
            climb(l, lars, RANDOM);
        }
}

static void test_optimizer(void **state)
{
    (void)state;
    const Tensor eight = tensor_1d(DTYPE_F32, 8);
    static const int64_t lengths[] = { 1, 15, 16, 17, 1000, 70001 };
    Ladder l = ladder_start();
    for (size_t i = 0; i < COUNT_OF(lengths); i++) {
        Tensor g = tensor_1d(DTYPE_F32, lengths[i]);
        climb(&l, (OpDesc){ .kind = OP_sqnorm, .n_in = 1, .in = { g } }, BOTH);
        climb(&l, (OpDesc){ .kind = OP_sqnorm, .n_in = 2, .in = { g, eight } }, BOTH);
        climb(&l, (OpDesc){ .kind = OP_restore, .n_in = 2, .in = { g, eight } }, BOTH | (lengths[i] == 1 ? TRIVIAL : 0));
        climb_adaptive(&l, g);
        for (int nesterov = 0; nesterov < 2; nesterov++) {
            OpDesc op = { .kind = OP_sgd, .n_in = 3, .in = { g, eight, eight },
                          .attr = { .momentum = 0.5f, .weight_decay = 0.25f, .nesterov = nesterov } };
            climb(&l, op, EXACT | (lengths[i] == 1 ? TRIVIAL : 0)); /* halves and quarters: exact */
            op.attr.momentum = 0.9f;
            op.attr.weight_decay = 1e-4f;
            climb(&l, op, RANDOM);
        }
    }
    climb(&l, (OpDesc){ .kind = OP_sqnorm, .n_in = 1, .in = { tensor_4d(DTYPE_F32, 24, 3, 3, 5) } }, BOTH);
    climb(&l, (OpDesc){ .kind = OP_sgd, .n_in = 3, .in = { tensor_4d(DTYPE_F32, 24, 3, 3, 5), eight, eight } }, BOTH);
    climb(&l, (OpDesc){ .kind = OP_window_scale, .n_in = 2, .in = { tensor_1d(DTYPE_F32, 1), eight } }, BOTH);
    climb(&l, (OpDesc){ .kind = OP_step_control, .n_in = 2, .in = { eight, tensor_1d(DTYPE_F32, 1) } }, BOTH);
    ladder_end(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_batchnorm),
        cmocka_unit_test(test_batchnorm_grad),
        cmocka_unit_test(test_batchnorm_infer),
        cmocka_unit_test(test_batchnorm_of_one_element),
        cmocka_unit_test(test_maxpool),
        cmocka_unit_test(test_avgpool),
        cmocka_unit_test(test_linear),
        cmocka_unit_test(test_linear_of_many_rows),
        cmocka_unit_test(test_softmax_xent),
        cmocka_unit_test(test_softmax_xent_bad_label_and_large_logits),
        cmocka_unit_test(test_pointwise),
        cmocka_unit_test(test_normalize_u8),
        cmocka_unit_test(test_optimizer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
