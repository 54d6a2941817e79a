/* test_pool_cuda.c - max pooling and global average pooling of the CUDA backend against the reference: windows that overlap, tile, leave
 * gaps and reach over the edge; channels that divide by nothing; ties; NaN. */
#include "cuda_case.h"

#include "../ref/ref.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct Window { int64_t n, h, w, c; int kernel, stride, pad; } Window;

static const Window windows[] = {
    { 2, 9, 11, 16, 3, 2, 1 },  /* ResNet's stem */
    { 2, 8, 6, 24, 2, 2, 0 },   /* UNet's */
    { 1, 7, 5, 8, 2, 2, 0 },    /* odd: a row and a column in no window */
    { 1, 6, 7, 5, 3, 1, 1 },    /* every pixel in nine windows */
    { 2, 7, 7, 3, 1, 3, 0 },    /* gaps */
    { 1, 1, 1, 1, 3, 2, 1 },    /* one pixel */
    { 1, 13, 9, 12, 5, 4, 2 },
    { 3, 20, 19, 264, 3, 2, 1 },
    { 1, 15, 15, 4, 15, 15, 14 },
};

static OpDesc max_op(const Window *s, Dtype t)
{
    return (OpDesc){ .kind = OP_maxpool, .n_in = 1, .in = { tensor_act(t, s->n, s->h, s->w, s->c) },
                     .attr = { .kernel = s->kernel, .stride = s->stride, .pad = s->pad } };
}

static OpDesc max_grad_op(const Window *s, Dtype t)
{
    const int64_t p = (s->h + 2 * s->pad - s->kernel) / s->stride + 1, q = (s->w + 2 * s->pad - s->kernel) / s->stride + 1;
    OpDesc op = { .kind = OP_maxpool_grad, .n_in = 2, .in = { tensor_act(t, s->n, p, q, s->c), tensor_act(DTYPE_U8, s->n, p, q, s->c) },
                  .attr = { .kernel = s->kernel, .stride = s->stride, .pad = s->pad, .in_h = s->h, .in_w = s->w } };
    return op;
}

static void test_max(void **state)
{
    (void)state;
    CudaLadder l = cuda_ladder_start();
    for (size_t i = 0; i < COUNT_OF(windows); i++)
        for (Dtype t = DTYPE_F32; t <= DTYPE_F16; t++) {
            cuda_climb(&l, max_op(&windows[i], t), CUDA_BOTH | CUDA_TRIVIAL);
            cuda_climb(&l, max_grad_op(&windows[i], t), CUDA_BOTH | CUDA_TRIVIAL);
        }
    cuda_ladder_end(&l);
}

static void test_average(void **state)
{
    (void)state;
    static const int64_t shapes[][4] = { { 2, 7, 7, 64 }, { 3, 8, 8, 16 }, { 1, 1, 1, 1 }, { 2, 5, 3, 7 }, { 1, 13, 29, 12 },
                                         { 4, 2, 2, 520 } };
    CudaLadder l = cuda_ladder_start();
    for (size_t i = 0; i < COUNT_OF(shapes); i++)
        for (Dtype t = DTYPE_F32; t <= DTYPE_F16; t++) {
            const int64_t *s = shapes[i];
            cuda_climb(&l, (OpDesc){ .kind = OP_avgpool, .n_in = 1, .in = { tensor_act(t, s[0], s[1], s[2], s[3]) } }, CUDA_RANDOM);
            cuda_climb(&l, (OpDesc){ .kind = OP_avgpool_grad, .n_in = 1, .in = { tensor_2d(t, s[0], s[3]) },
                                     .attr = { .in_h = s[1], .in_w = s[2] } }, CUDA_RANDOM);
        }
    cuda_ladder_end(&l);
}

/* More rows than a grid's second dimension could count, and more than there are blocks. */
static void test_many_rows(void **state)
{
    (void)state;
    CudaLadder l = cuda_ladder_start();
    static const Window tall = { 1, 70000, 1, 8, 3, 1, 1 };
    cuda_climb(&l, max_op(&tall, DTYPE_BF16), CUDA_RANDOM);
    cuda_climb(&l, max_grad_op(&tall, DTYPE_BF16), CUDA_RANDOM);
    cuda_ladder_end(&l);
}

/* The same for images; once, since the shim needs a while for so many blocks. */
static void test_many_images(void **state)
{
    (void)state;
    CudaLadder l = cuda_ladder_start();
    OpDesc ops[] = { { .kind = OP_avgpool, .n_in = 1, .in = { tensor_act(DTYPE_F16, 66000, 1, 2, 4) } },
                     { .kind = OP_avgpool_grad, .n_in = 1, .in = { tensor_2d(DTYPE_F16, 66000, 4) }, .attr = { .in_h = 2, .in_w = 1 } } };
    for (size_t i = 0; i < COUNT_OF(ops); i++) {
        OpCase *c;
        OpResult want, got;
        assert_int_equal(op_case_create(&ops[i], FILL_RANDOM, 3, &c).code, STATUS_OK);
        assert_int_equal(op_case_run(c, l.ref, NULL, &want).code, STATUS_OK);
        Status s = op_case_run(c, l.be, NULL, &got);
        if (s.code == STATUS_OK)
            s = op_case_compare(c, COMPARE_TOLERANCE, &want, &got);
        if (s.code != STATUS_OK)
            fail_msg("%s", s.text);
        op_result_release(&want);
        op_result_release(&got);
        op_case_destroy(c);
        l.cases++;
    }
    cuda_ladder_end(&l);
}

/* A NaN wins over every number, wherever it stands in the window. */
static void test_nan_wins(void **state)
{
    (void)state;
    CudaLadder l = cuda_ladder_start();
    for (int64_t channels = 7; channels <= 8; channels++)
        for (int64_t place = 0; place < 4; place++) {
            const Window s = { 1, 2, 2, channels, 2, 2, 0 };
            OpDesc op = max_op(&s, DTYPE_F32);
            OpCase *c;
            OpResult got;
            assert_int_equal(op_case_create(&op, FILL_RANDOM, 3, &c).code, STATUS_OK);
            ((float *)c->in[0])[place * channels + 3] = NAN;
            Status status = op_case_run(c, l.be, NULL, &got);
            if (status.code != STATUS_OK)
                fail_msg("%s", status.text);
            for (int64_t k = 0; k < channels; k++)
                assert_true((isnan(((float *)got.out[0])[k]) != 0) == (k == 3));
            op_result_release(&got);
            op_case_destroy(c);
            l.cases++;
        }
    cuda_ladder_end(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_max),
        cmocka_unit_test(test_average),
        cmocka_unit_test(test_many_rows),
        cmocka_unit_test(test_many_images),
        cmocka_unit_test(test_nan_wins),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
