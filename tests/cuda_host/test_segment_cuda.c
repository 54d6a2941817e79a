/* test_segment_cuda.c - the losses of segmentation of the CUDA backend (segment_loss.cu) on the host. */
#include "cuda_case.h"

#include "../ref/ref.h"
#include "fake.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static OpDesc loss_op(Dtype t, int64_t n, int64_t h, int64_t w, int64_t classes, int outputs)
{
    return (OpDesc){ .kind = classes == 1 ? OP_bce_dice : OP_pixel_xent, .n_in = 3, .n_out = outputs,
                     .in = { tensor_act(t, n, h, w, classes), { .dtype = DTYPE_U8, .rank = 3, .dim = { n, h, w } },
                             tensor_1d(DTYPE_F32, 1) } };
}

static void expect_ok(Status s)
{
    if (s.code != STATUS_OK)
        fail_msg("%s", s.text);
}

static const int64_t shapes[][4] = { /* N, H, W, C */
    { 2, 40, 33, 1 }, { 3, 4, 5, 1 }, { 1, 1, 1, 1 }, { 2, 48, 64, 1 }, { 1, 3, 3, 1 },
    { 2, 40, 33, 2 }, { 3, 4, 5, 2 }, { 1, 1, 1, 2 }, { 2, 48, 64, 2 }, { 3, 7, 9, 2 }, /* the last: images begin within 16 bytes */
    { 1, 33, 35, 3 }, { 2, 9, 11, 16 }, { 1, 33, 32, 32 }, { 2, 47, 50, 4 }, { 2, 7, 5, 21 }, { 1, 6, 7, 64 },
};

/* Small integers tie all the time: the first class wins. */
static void climb_ties(CudaLadder *l, const OpDesc *op)
{
    OpCase *c;
    expect_ok(op_case_create(op, FILL_INTEGER, 20, &c));
    c->trivial = tensor_count(&op->in[1]) == 1;
    cuda_climb_case(l, c, COMPARE_TOLERANCE);
    op_case_destroy(c);
}

static void test_losses(void **state)
{
    (void)state;
    CudaLadder l = cuda_ladder_start();
    for (size_t i = 0; i < COUNT_OF(shapes); i++)
        for (Dtype t = DTYPE_F32; t <= DTYPE_F16; t++)
            for (int outputs = t == DTYPE_F32 ? 1 : 2; outputs <= 2; outputs++) {
                const int64_t *s = shapes[i];
                const OpDesc   op = loss_op(t, s[0], s[1], s[2], s[3], outputs);
                cuda_climb(&l, op, CUDA_RANDOM | (s[1] == 1 ? CUDA_TRIVIAL : 0));
                if (outputs == 2)
                    climb_ties(&l, &op);
            }
    cuda_ladder_end(&l);
}

static void test_in_place(void **state)
{
    (void)state;
    CudaLadder l = cuda_ladder_start();
    for (size_t i = 0; i < COUNT_OF(shapes); i++)
        for (Dtype t = DTYPE_F32; t <= DTYPE_F16; t++)
            cuda_climb_in_place(&l, loss_op(t, shapes[i][0], shapes[i][1], shapes[i][2], shapes[i][3], 2));
    cuda_ladder_end(&l);
}

/* ---- one loss with everything under the test's control: f32 logits; x becomes their gradient */

typedef struct Loss {
    OpCase *c;
    float  *x;
    uint8_t *labels;
    float   metrics[5 + 3 * 64];
    double *wanted, *gradient; /* metrics and gradient of the reference */
} Loss;

static Loss loss_create(int64_t n, int64_t h, int64_t w, int64_t classes)
{
    Loss         l = { .c = NULL };
    const OpDesc op = loss_op(DTYPE_F32, n, h, w, classes, 2);
    expect_ok(op_case_create(&op, FILL_RANDOM, 1, &l.c));
    l.x = l.c->in[0];
    l.labels = l.c->in[1];
    *(float *)l.c->in[2] = 0.25f;
    memset(l.x, 0, tensor_bytes(&l.c->op.in[0]));
    memset(l.labels, 0, tensor_bytes(&l.c->op.in[1]));
    memset(l.c->out[0], 0, tensor_bytes(&l.c->op.out[0]));
    l.wanted = calloc((size_t)l.c->op.out[0].dim[0], sizeof *l.wanted);
    l.gradient = calloc((size_t)tensor_count(&l.c->op.in[0]), sizeof *l.gradient);
    assert_true(l.wanted && l.gradient);
    return l;
}

static void loss_destroy(Loss *l)
{
    op_case_destroy(l->c);
    free(l->wanted);
    free(l->gradient);
}

static void loss_reference(Loss *l)
{
    const OpDesc *op = &l->c->op;
    const int64_t count = tensor_count(&op->in[0]), pixels = tensor_count(&op->in[1]);
    double *x = calloc((size_t)count, sizeof *x), *labels = calloc((size_t)pixels, sizeof *labels), scale = 0.25;
    assert_true(x && labels);
    ref_load(&op->in[0], l->x, x);
    ref_load(&op->in[1], l->labels, labels);
    memset(l->wanted, 0, (size_t)op->out[0].dim[0] * sizeof *l->wanted);
    ref_compute(op, (const double *[]){ x, labels, &scale }, (double *[]){ l->wanted, l->gradient });
    free(x);
    free(labels);
}

static void loss_run(Loss *l, int schedule)
{
    Backend *be = cuda_case_open();
    OpResult got;
    fake_set_schedule(schedule);
    expect_ok(op_case_run(l->c, be, NULL, &got));
    backend_close(be);
    memcpy(l->metrics, got.out[0], tensor_bytes(&l->c->op.out[0]));
    memcpy(l->x, got.out[1], tensor_bytes(&l->c->op.out[1]));
    op_result_release(&got);
}

static void expect_close(const Loss *l, double relative)
{
    double largest = 0, worst = 0;
    for (int64_t i = 0; i < l->c->op.out[0].dim[0]; i++)
        if (!(fabs((double)l->metrics[i] - l->wanted[i]) <= relative * fabs(l->wanted[i])))
            fail_msg("metric %d is %.9g, not %.9g", (int)i, (double)l->metrics[i], l->wanted[i]);
    for (int64_t i = 0; i < tensor_count(&l->c->op.in[0]); i++) {
        assert_true(isfinite(l->x[i]));
        largest = fmax(largest, fabs(l->gradient[i]));
        worst = fmax(worst, fabs((double)l->x[i] - l->gradient[i]));
    }
    if (worst > relative * largest)
        fail_msg("the gradient is off by %g where the largest is %g", worst, largest);
}

/* tests/CASES.md D10: 512 x 512 pixels, all ones found as ones, and all zeros found as zeros. */
static void test_dice_of_large_images(void **state)
{
    (void)state;
    for (int ones = 0; ones < 2; ones++) {
        Loss l = loss_create(1, 512, 512, 1);
        for (int i = 0; i < 512 * 512; i++) {
            l.x[i] = ones ? 12 : -12;
            l.labels[i] = (uint8_t)ones;
        }
        loss_reference(&l);
        loss_run(&l, 4);
        expect_close(&l, 1e-6);
        assert_true(l.metrics[1] == 1 && l.metrics[2] == 1 && l.metrics[3] == 1); /* every pixel right; Dice 1 */
        assert_true(l.metrics[5] == (ones ? 262144 : 0) && l.metrics[6] == l.metrics[5] && l.metrics[7] == l.metrics[5]);
        assert_true(l.metrics[0] > 0 && l.metrics[0] < (ones ? 1e-4f : 1)); /* soft Dice of zeros: sum p + 1 below */
        loss_destroy(&l);
    }
}

/* 1024 x 1024 random pixels: sums of a million terms to a few units of fp32; counts exactly. */
static void test_large_sums(void **state)
{
    (void)state;
    for (int classes = 1; classes <= 3; classes++) {
        Loss l = loss_create(1, 1024, 1024, classes);
        for (int64_t i = 0; i < tensor_count(&l.c->op.in[0]); i++)
            l.x[i] = (float)rng_below(3, 1, (uint64_t)i, 4001) / 1000 - 2;
        for (int i = 0; i < 1024 * 1024; i++)
            l.labels[i] = (uint8_t)rng_below(3, 2, (uint64_t)i, classes == 1 ? 2 : classes);
        loss_reference(&l);
        loss_run(&l, 1);
        expect_close(&l, 1e-6);
        for (int64_t i = classes == 1 ? 5 : 1; i < l.c->op.out[0].dim[0]; i++)
            assert_true(i == 3 || (double)l.metrics[i] == l.wanted[i]);
        loss_destroy(&l);
    }
}

/* More images than the grid has blocks, a pixel each; Dice counts each of them. */
static void test_many_images(void **state)
{
    (void)state;
    for (int classes = 1; classes <= 3; classes++) {
        Loss l = loss_create(2100, 1, 1, classes);
        for (int64_t i = 0; i < tensor_count(&l.c->op.in[0]); i++)
            l.x[i] = (float)rng_normal(1, 2, (uint64_t)i);
        for (int i = 0; i < 2100; i++)
            l.labels[i] = (uint8_t)(i % 7 == 3 ? 255 : rng_below(3, 2, (uint64_t)i, classes == 1 ? 2 : classes));
        loss_reference(&l);
        loss_run(&l, 0);
        expect_close(&l, 2e-6);
        assert_true(l.metrics[4] == 1800);
        loss_destroy(&l);
    }
}

/* An image of 255 only counts nowhere and gets no gradient; of the other image only what is labelled. */
static void test_ignored_pixels(void **state)
{
    (void)state;
    for (int classes = 1; classes <= 4; classes++)
        for (int width = 7; width <= 8; width++) { /* a pixel and several at a time */
            Loss      l = loss_create(2, 5, width, classes);
            const int image = 5 * width, pixels = 2 * image;
            for (int i = 0; i < pixels * classes; i++)
                l.x[i] = (float)rng_normal(1, 2, (uint64_t)i);
            memset(l.labels, 255, (size_t)pixels);
            l.labels[image] = 0;
            l.labels[pixels - 1] = 1;
            loss_reference(&l);
            loss_run(&l, 3);
            expect_close(&l, 2e-6);
            assert_true(l.metrics[2] == (classes == 1 ? 1 : 2) && l.metrics[4] == 1);
            for (int i = 0; i < pixels * classes; i++)
                assert_true((l.x[i] != 0) == (i / classes == image || i / classes == pixels - 1));
            memset(l.labels, 255, (size_t)pixels);
            loss_run(&l, 0);
            for (int i = 0; i < l.c->op.out[0].dim[0]; i++)
                assert_true(l.metrics[i] == 0);
            for (int i = 0; i < pixels * classes; i++)
                assert_true(l.x[i] == 0);
            loss_destroy(&l);
        }
}

/* A class that does not exist is an error of the data, found when the host waits. */
static void test_bad_labels(void **state)
{
    (void)state;
    CudaLadder l = cuda_ladder_start();
    for (int classes = 1; classes <= 4; classes++) {
        const int bad[] = { classes == 1 ? 2 : classes, 200, 254 };
        for (int width = 33; width <= 36; width += 3)
            for (size_t i = 0; i < COUNT_OF(bad); i++) {
                const OpDesc op = loss_op(DTYPE_F16, 2, 10, width, classes, 2);
                const int    at = 10 * width + width + 5;
                char         text[96];
                snprintf(text, sizeof text, "%s: %d at position %d is out of range: it must be below %d", op_names[op.kind], bad[i], at,
                         bad[0]);
                cuda_climb_refused(&l, op, 1, at, bad[i], text);
            }
    }
    cuda_ladder_end(&l);
}

/* Logits so large that exp overflows; minus infinity; what is not a number shows in the loss. */
static void test_extreme_logits(void **state)
{
    (void)state;
    for (int classes = 1; classes <= 4; classes++) {
        Loss l = loss_create(1, 4, 8, classes);
        for (int i = 0; i < 32 * classes; i++)
            l.x[i] = (i % 2 ? -1.0f : 1.0f) * (i % 3 ? 1e4f : 90);
        for (int i = 0; i < 32; i++)
            l.labels[i] = (uint8_t)(i / 8 % 2);
        loss_reference(&l);
        loss_run(&l, 0);
        expect_close(&l, 1e-6);
        if (classes > 1) { /* probabilities 1 and 0 */
            for (int i = 0; i < 32; i++)
                for (int k = 0; k < classes; k++)
                    l.x[i * classes + k] = k == l.labels[i] ? 1 : k == 0 ? -200 : -INFINITY;
            loss_run(&l, 0);
            assert_true(l.metrics[0] == 0 && l.metrics[1] == 32);
            for (int i = 0; i < 32 * classes; i++)
                assert_true(l.x[i] == 0);
        }
        memset(l.x, 0, (size_t)(32 * classes) * sizeof *l.x);
        l.x[9 * classes + classes - 1] = NAN;
        loss_run(&l, 0);
        assert_true(isnan(l.metrics[0]));
        loss_destroy(&l);
    }
}

/* Small losses keep their digits: log(1 + e^-20) is no 0. */
static void test_confident_pixels(void **state)
{
    (void)state;
    for (int classes = 1; classes <= 3; classes++) {
        Loss l = loss_create(1, 8, 8, classes);
        for (int i = 0; i < 64; i++) {
            l.labels[i] = (uint8_t)(i % 2);
            for (int c = 0; c < classes; c++)
                l.x[i * classes + c] = classes == 1 ? (i % 2 ? 20 : -20) : c == i % 2 ? 10 : -10;
        }
        loss_reference(&l);
        loss_run(&l, 0);
        expect_close(&l, 1e-6);
        assert_true(l.metrics[0] > 1e-10f);
        loss_destroy(&l);
    }
}

/* The bytes that segment_loss.cu states. */
static void test_bytes_as_stated(void **state)
{
    (void)state;
    for (Dtype t = DTYPE_F32; t <= DTYPE_F16; t++)
        for (int classes = 1; classes <= 3; classes++)
            for (int outputs = 1; outputs <= 2; outputs++) {
                OpDesc       op = loss_op(t, 2, 9, 11, classes, outputs);
                const double s = dtype_bits(t) / 8, pixels = 2 * 9 * 11, metrics = classes == 1 ? 8 : 5 + 3 * classes;
                expect_ok(op_infer(&op));
                assert_true(op_cost(&op).bytes == outputs * pixels * classes * s + pixels + 4 + 8 * metrics);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_losses),
        cmocka_unit_test(test_in_place),
        cmocka_unit_test(test_dice_of_large_images),
        cmocka_unit_test(test_large_sums),
        cmocka_unit_test(test_many_images),
        cmocka_unit_test(test_ignored_pixels),
        cmocka_unit_test(test_bad_labels),
        cmocka_unit_test(test_extreme_logits),
        cmocka_unit_test(test_confident_pixels),
        cmocka_unit_test(test_bytes_as_stated),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
