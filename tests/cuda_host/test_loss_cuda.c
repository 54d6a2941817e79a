/* test_loss_cuda.c - softmax cross-entropy of the CUDA backend (loss.cu) on the host. */
#include "cuda_case.h"

#include "../ref/ref.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static OpDesc softmax_op(Dtype t, int64_t rows, int64_t classes, int outputs)
{
    return (OpDesc){ .kind = OP_softmax_xent, .n_in = 3, .n_out = outputs,
                     .in = { tensor_2d(t, rows, classes), tensor_1d(DTYPE_I32, rows), tensor_1d(DTYPE_F32, 1) } };
}

static void expect_ok(Status s)
{
    if (s.code != STATUS_OK)
        fail_msg("%s", s.text);
}

/* A warp a row up to 1024 columns, a block beyond; rows that begin at every place within 16 bytes. */
static const int64_t sizes[][2] = {
    { 8, 10 }, { 64, 1000 }, { 5, 2 }, { 3, 17 }, { 33, 100 }, { 2, 30522 }, { 6, 1 }, { 9, 64 }, { 1, 15 }, { 17, 257 }, { 3, 1024 },
    { 9, 1025 }, { 2, 4096 }, { 130, 3 },
};

static void test_softmax_xent(void **state)
{
    (void)state;
    CudaLadder l = cuda_ladder_start();
    for (size_t i = 0; i < COUNT_OF(sizes); i++)
        for (Dtype t = DTYPE_F32; t <= DTYPE_F16; t++)
            for (int outputs = 1; outputs <= 2; outputs++)
                cuda_climb(&l, softmax_op(t, sizes[i][0], sizes[i][1], outputs), CUDA_RANDOM | (sizes[i][1] == 1 ? CUDA_TRIVIAL : 0));
    cuda_ladder_end(&l);
}

static void test_in_place(void **state)
{
    (void)state;
    CudaLadder l = cuda_ladder_start();
    for (size_t i = 0; i < COUNT_OF(sizes); i++)
        for (Dtype t = DTYPE_F32; t <= DTYPE_F16; t++)
            cuda_climb_in_place(&l, softmax_op(t, sizes[i][0], sizes[i][1], 2));
    cuda_ladder_end(&l);
}

/* More rows than 65,535, and than the grid's warps; then more than the grid's blocks. */
static void test_many_rows(void **state)
{
    (void)state;
    static const int64_t many[][2] = { { 70000, 3 }, { 4200, 1030 } };
    for (size_t i = 0; i < COUNT_OF(many); i++) {
        const OpDesc op = softmax_op(DTYPE_BF16, many[i][0], many[i][1], 2);
        Backend *ref, *be = cuda_case_open();
        OpCase  *c;
        OpResult want, got;
        expect_ok(ref_backend.open(&(BackendOptions){ .threads = 2 }, &ref));
        expect_ok(op_case_create(&op, FILL_RANDOM, 3, &c));
        expect_ok(op_case_run(c, ref, NULL, &want));
        expect_ok(op_case_run(c, be, NULL, &got));
        expect_ok(op_case_compare(c, COMPARE_TOLERANCE, &want, &got));
        op_result_release(&want);
        op_result_release(&got);
        op_case_destroy(c);
        backend_close(be);
        backend_close(ref);
    }
}

/* Rows without a label count nowhere and have no gradient, whatever their logits. */
static void test_rows_without_a_label(void **state)
{
    (void)state;
    CudaLadder l = cuda_ladder_start();
    for (int64_t columns = 13; columns <= 2013; columns += 1000) {
        OpCase  *c;
        OpResult got;
        const OpDesc op = softmax_op(DTYPE_F16, 5, columns, 2);
        expect_ok(op_case_create(&op, FILL_RANDOM, 3, &c));
        memcpy(c->in[1], (int32_t[]){ -1, 3, -1, (int32_t)columns - 1, -1 }, 5 * sizeof(int32_t));
        cuda_climb_case(&l, c, COMPARE_TOLERANCE);
        for (int64_t i = 0; i < columns; i++)
            ((uint16_t *)c->in[0])[i] = 0x7e00; /* NaN */
        expect_ok(op_case_run(c, l.be, NULL, &got));
        for (int64_t i = 0; i < 5 * columns; i++)
            assert_true((f16_to_f32(((uint16_t *)got.out[1])[i]) != 0) == (i / columns % 2 == 1)
                        || i / columns % 2 == 1); /* a probability may be too small for fp16 */
        assert_true(isfinite(((float *)got.out[0])[0]));
        op_result_release(&got);
        op_case_destroy(c);
    }
    cuda_ladder_end(&l);
}

static void test_bad_labels(void **state)
{
    (void)state;
    static const int bad[] = { 20, -2, INT32_MAX, INT32_MIN };
    CudaLadder l = cuda_ladder_start();
    for (size_t i = 0; i < COUNT_OF(bad); i++)
        for (int64_t columns = 20; columns <= 2020; columns += 2000) {
            char text[96];
            if (bad[i] > 0 && bad[i] < columns)
                continue;
            snprintf(text, sizeof text, "softmax_xent: %d at position 4 is out of range: it must be below %d", bad[i], (int)columns);
            cuda_climb_refused(&l, softmax_op(DTYPE_BF16, 6, columns, 2), 1, 4, bad[i], text);
        }
    cuda_ladder_end(&l);
}

/* ---- one row with logits of the test's own; metrics from zero */

typedef double (*Logit)(int64_t c);

static double loss_of(Dtype t, int64_t classes, Logit logit, int32_t label, float metrics[4])
{
    Backend *be = cuda_case_open();
    OpCase  *c;
    OpResult got;
    const OpDesc op = softmax_op(t, 1, classes, 2);
    Tensor   one = tensor_1d(t, 1);
    const size_t size = (size_t)dtype_bits(t) / 8;
    expect_ok(op_case_create(&op, FILL_RANDOM, 1, &c));
    for (int64_t i = 0; i < classes; i++) {
        double v = logit(i);
        ref_store(&one, &v, (char *)c->in[0] + (size_t)i * size);
    }
    memset(c->out[0], 0, 4 * sizeof(float));
    *(int32_t *)c->in[1] = label;
    expect_ok(op_case_run(c, be, NULL, &got));
    backend_close(be);
    memcpy(metrics, got.out[0], 4 * sizeof(float));
    op_result_release(&got);
    op_case_destroy(c);
    return (double)metrics[0];
}

static double steep(int64_t c) { return c == 777 ? 30 : 10 + (double)(c % 32) / 8; }
static double spread(int64_t c) { return (double)(c * 7919 % 30522) / 1024 - 12; }
static double twice(int64_t c) { return c == 17 || c == 40 || c == 66 ? 3 : (double)(c % 5) / 4; }
static double none(int64_t c) { return c == 3 ? (double)NAN : 1; }
static double huge(int64_t c) { return c == 5 ? 3e38 : c == 6 ? -3e38 : 0; }
static double bottomless(int64_t c) { return c == 2 ? 1 : -(double)INFINITY; }

static double exact_loss(Dtype t, int64_t classes, Logit logit, int32_t label)
{
    double sum = 0, x = ref_round(t, logit(label));
    for (int64_t c = 0; c < classes; c++)
        if (c != label)
            sum += exp(ref_round(t, logit(c)) - x);
    return log1p(sum);
}

/* To a millionth, also where it is nearly zero: log(1 + 30521 e^-16 or so) and, for a lone label, e^-17. */
static void test_loss_accuracy(void **state)
{
    (void)state;
    static const struct { Logit logit; int64_t classes; int32_t label; } cases[] = {
        { steep, 30522, 777 }, { steep, 30522, 3 }, { spread, 30522, 30000 }, { spread, 30522, 0 }, { steep, 778, 777 }, { steep, 779, 0 },
    };
    float metrics[4];
    for (Dtype t = DTYPE_F32; t <= DTYPE_F16; t++)
        for (size_t i = 0; i < COUNT_OF(cases); i++) {
            const double got = loss_of(t, cases[i].classes, cases[i].logit, cases[i].label, metrics);
            const double want = exact_loss(t, cases[i].classes, cases[i].logit, cases[i].label);
            if (!(fabs(got - want) <= 1e-6 * want))
                fail_msg("%s, case %zu: loss %.9g, want %.9g", dtype_name(t), i, got, want);
        }
}

static void test_first_of_equals_wins(void **state)
{
    (void)state;
    float metrics[4];
    for (Dtype t = DTYPE_F32; t <= DTYPE_F16; t++)
        for (int classes = 67; classes <= 1100; classes += 1033) /* by a warp and by a block */
            for (int32_t label = 14; label < 67; label += classes > 1024 ? 3 : 1) { /* 14, 17, ... among them */
                loss_of(t, classes, twice, label, metrics);
                assert_true(metrics[1] == (float)(label == 17) && metrics[2] == 1);
            }
}

/* What is not a number shows in the loss; differences that overflow do not become one; minus infinity is probability 0. */
static void test_extreme_logits(void **state)
{
    (void)state;
    float metrics[4];
    for (int64_t classes = 40; classes <= 2040; classes += 2000) {
        assert_true(isnan(loss_of(DTYPE_F32, classes, none, 0, metrics)) && isnan(loss_of(DTYPE_F32, classes, none, 3, metrics)));
        assert_true(loss_of(DTYPE_F32, classes, huge, 5, metrics) == 0 && metrics[1] == 1);
        assert_true(loss_of(DTYPE_F32, classes, huge, 0, metrics) == (double)3e38f && metrics[1] == 0);
        for (Dtype t = DTYPE_F32; t <= DTYPE_F16; t++) {
            assert_true(loss_of(t, classes, bottomless, 2, metrics) == 0 && metrics[1] == 1);
            assert_true(isinf(loss_of(t, classes, bottomless, 1, metrics)) && metrics[1] == 0);
        }
    }
}

/* The bytes that loss.cu states. */
static void test_bytes_as_stated(void **state)
{
    (void)state;
    for (Dtype t = DTYPE_F32; t <= DTYPE_F16; t++)
        for (int outputs = 1; outputs <= 2; outputs++) {
            OpDesc       op = softmax_op(t, 33, 100, outputs);
            const double s = dtype_bits(t) / 8;
            expect_ok(op_infer(&op));
            assert_true(op_cost(&op).bytes == outputs * 33 * 100 * s + 4 * 33 + 4 + 2 * 16);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_softmax_xent),
        cmocka_unit_test(test_in_place),
        cmocka_unit_test(test_many_rows),
        cmocka_unit_test(test_rows_without_a_label),
        cmocka_unit_test(test_bad_labels),
        cmocka_unit_test(test_loss_accuracy),
        cmocka_unit_test(test_first_of_equals_wins),
        cmocka_unit_test(test_extreme_logits),
        cmocka_unit_test(test_bytes_as_stated),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
