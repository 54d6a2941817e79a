/* test_norm_cuda.c - batch normalisation of the CUDA backend against the reference: every fusion, sizes that divide by nothing, one
 * pixel, many rows; statistics that are not finite; means far above the deviation. */
#include "cuda_case.h"

#include "../ref/ref.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static OpDesc forward_op(OpKind kind, Dtype t, int64_t n, int64_t h, int64_t w, int64_t c, bool relu, bool residual)
{
    OpDesc op = { .kind = kind, .n_in = 5 + residual, .attr = { .relu = relu, .residual = residual, .eps = 1e-5f, .momentum = 0.1f } };
    op.in[0] = op.in[5] = tensor_act(t, n, h, w, c);
    for (int i = 1; i < 5; i++)
        op.in[i] = tensor_1d(DTYPE_F32, c);
    return op;
}

static OpDesc gradient_op(Dtype t, int64_t n, int64_t h, int64_t w, int64_t c, bool relu, bool residual, bool accumulate)
{
    OpDesc op = { .kind = OP_batchnorm_grad, .n_in = 5 + relu,
                  .attr = { .relu = relu, .residual = residual, .accumulate = accumulate, .eps = 1e-5f } };
    op.in[0] = op.in[1] = op.in[5] = tensor_act(t, n, h, w, c);
    op.in[5].dtype = DTYPE_BIT;
    for (int i = 2; i < 5; i++)
        op.in[i] = tensor_1d(DTYPE_F32, c);
    return op;
}

/* Channels: whole units of eight in and out of powers of two, and odd; wide enough for two blocks across; pixels from one. */
static const int64_t shapes[][4] = { /* n, h, w, c */
    { 2, 5, 7, 16 }, { 3, 4, 3, 64 }, { 1, 3, 3, 24 }, { 2, 3, 5, 3 }, { 1, 7, 1, 1 }, { 2, 9, 11, 13 }, { 1, 2, 3, 520 }, { 1, 1, 2, 8 },
    { 5, 17, 13, 8 }, { 1, 3, 1, 2056 },
};

static void test_forward(void **state)
{
    (void)state;
    CudaLadder l = cuda_ladder_start();
    for (size_t i = 0; i < COUNT_OF(shapes); i++)
        for (Dtype t = DTYPE_F32; t <= DTYPE_F16; t++)
            for (int fusion = 0; fusion < 4; fusion++) {
                if (i > 0 && fusion != (int)(i + t) % 4)
                    continue; /* all fusions for the first shape, one in turn for the others */
                const int64_t *s = shapes[i];
                cuda_climb(&l, forward_op(OP_batchnorm, t, s[0], s[1], s[2], s[3], fusion & 1, fusion & 2), CUDA_RANDOM);
                cuda_climb(&l, forward_op(OP_batchnorm_infer, t, s[0], s[1], s[2], s[3], fusion & 1, fusion & 2), CUDA_RANDOM);
            }
    cuda_ladder_end(&l);
}

static void test_gradient(void **state)
{
    (void)state;
    CudaLadder l = cuda_ladder_start();
    for (size_t i = 0; i < COUNT_OF(shapes); i++)
        for (Dtype t = DTYPE_F32; t <= DTYPE_F16; t++)
            for (int fusion = 0; fusion < 8; fusion++) {
                const int64_t *s = shapes[i];
                if (i > 0 && fusion != (int)(i + t) % 8)
                    continue;
                if (s[0] * s[1] * s[2] < 8)
                    continue; /* terms that cancel to nothing: test_few_rows */
                cuda_climb(&l, gradient_op(t, s[0], s[1], s[2], s[3], fusion & 1, fusion & 2, fusion & 4), CUDA_RANDOM);
            }
    cuda_ladder_end(&l);
}

/* More than 65,535 rows: past what a grid's second dimension could count. */
static void test_many_rows(void **state)
{
    (void)state;
    CudaLadder l = cuda_ladder_start();
    cuda_climb(&l, forward_op(OP_batchnorm, DTYPE_BF16, 1, 257, 259, 8, true, true), CUDA_RANDOM);
    cuda_climb(&l, forward_op(OP_batchnorm, DTYPE_F32, 1, 300, 300, 1, false, false), CUDA_RANDOM);
    cuda_climb(&l, gradient_op(DTYPE_F16, 1, 257, 259, 8, true, true, true), CUDA_RANDOM);
    cuda_ladder_end(&l);
}

static double element(const Tensor *t, const void *data, int64_t i)
{
    double v;
    const Tensor one = tensor_1d(t->dtype, 1);
    ref_load(&one, (const char *)data + (size_t)i * (size_t)dtype_bits(t->dtype) / 8, &v);
    return v;
}

static void set_element(const Tensor *t, void *data, int64_t i, double v)
{
    const Tensor one = tensor_1d(t->dtype, 1);
    ref_store(&one, &v, (char *)data + (size_t)i * (size_t)dtype_bits(t->dtype) / 8);
}

static OpCase *make_case(OpDesc op)
{
    OpCase *c;
    Status s = op_case_create(&op, FILL_RANDOM, 5, &c);
    if (s.code != STATUS_OK)
        fail_msg("%s", s.text);
    return c;
}

static OpResult run_case(CudaLadder *l, const OpCase *c)
{
    OpResult got;
    Status s = op_case_run(c, l->be, NULL, &got);
    if (s.code != STATUS_OK)
        fail_msg("%s", s.text);
    return got;
}

/* One row: variance 0, and nothing to learn for the running statistics. */
static void test_one_row(void **state)
{
    (void)state;
    CudaLadder l = cuda_ladder_start();
    OpCase *c = make_case(forward_op(OP_batchnorm, DTYPE_F32, 1, 1, 1, 24, false, false));
    OpResult got = run_case(&l, c);
    for (int64_t k = 0; k < 24; k++) {
        assert_true(element(&c->op.out[0], got.out[0], k) == element(&c->op.in[2], c->in[2], k)); /* beta */
        assert_true(element(&c->op.out[1], got.out[1], k) == element(&c->op.in[0], c->in[0], k));
    }
    assert_memory_equal(got.in[3], c->in[3], tensor_bytes(&c->op.in[3]));
    assert_memory_equal(got.in[4], c->in[4], tensor_bytes(&c->op.in[4]));
    op_result_release(&got);
    op_case_destroy(c);
    l.cases++;
    cuda_ladder_end(&l);
}

/* A channel with a NaN, an infinity or an overflow of squares keeps its running statistics (tests/CASES.md D9); the others do not. The
 * bad numbers are seen in y. */
static void test_statistics_not_finite(void **state)
{
    (void)state;
    static const double bad[] = { (double)NAN, (double)INFINITY, -(double)INFINITY, 1e30 };
    CudaLadder l = cuda_ladder_start();
    for (size_t i = 0; i < COUNT_OF(bad); i++)
        for (Dtype t = DTYPE_F32; t <= DTYPE_F16; t++)
            for (int64_t channels = 8; channels <= 9; channels++) {
                OpCase *c = make_case(forward_op(OP_batchnorm, t, 2, 5, 5, channels, false, false));
                set_element(&c->op.in[0], c->in[0], 37 * channels + 2, bad[i]);
                OpResult got = run_case(&l, c);
                for (int64_t k = 0; k < channels; k++)
                    for (int slot = 3; slot <= 4; slot++) {
                        const double now = element(&c->op.in[slot], got.in[slot], k);
                        assert_true(isfinite(now) && (now == element(&c->op.in[slot], c->in[slot], k)) == (k == 2));
                    }
                assert_true(isfinite(element(&c->op.out[0], got.out[0], 37 * channels + 1)));
                if (!isfinite(bad[i]))
                    assert_false(isfinite(element(&c->op.out[0], got.out[0], 37 * channels + 2)));
                op_result_release(&got);
                op_case_destroy(c);
                l.cases++;
            }
    cuda_ladder_end(&l);
}

/* ReLU does not turn NaN into 0. */
static void test_relu_keeps_nan(void **state)
{
    (void)state;
    CudaLadder l = cuda_ladder_start();
    OpCase *c = make_case(forward_op(OP_batchnorm, DTYPE_BF16, 1, 4, 4, 8, true, true));
    set_element(&c->op.in[5], c->in[5], 19, (double)NAN);
    OpResult got = run_case(&l, c);
    for (int64_t i = 0; i < 128; i++)
        assert_true(isnan(element(&c->op.out[0], got.out[0], i)) == (i == 19));
    op_result_release(&got);
    op_case_destroy(c);
    l.cases++;
    cuda_ladder_end(&l);
}

/* Mean 4096, deviation 1, in f32: sums of squares about 0 would lose the variance. */
static void test_large_mean(void **state)
{
    (void)state;
    CudaLadder l = cuda_ladder_start();
    for (int64_t channels = 8; channels <= 9; channels++) {
        OpCase *c = make_case(forward_op(OP_batchnorm, DTYPE_F32, 3, 20, 21, channels, false, false));
        for (int64_t i = 0; i < tensor_count(&c->op.in[0]); i++)
            ((float *)c->in[0])[i] += 4096;
        OpResult got = run_case(&l, c), want;
        assert_int_equal(op_case_run(c, l.ref, NULL, &want).code, STATUS_OK);
        for (int64_t k = 0; k < channels; k++)
            assert_true(fabs(element(&c->op.out[2], got.out[2], k) / element(&c->op.out[2], want.out[2], k) - 1) < 1e-5);
        op_result_release(&got);
        op_result_release(&want);
        op_case_destroy(c);
        l.cases++;
    }
    cuda_ladder_end(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forward),
        cmocka_unit_test(test_gradient),
        cmocka_unit_test(test_many_rows),
        cmocka_unit_test(test_one_row),
        cmocka_unit_test(test_statistics_not_finite),
        cmocka_unit_test(test_relu_keeps_nan),
        cmocka_unit_test(test_large_mean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
