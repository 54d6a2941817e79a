/* test_ops_image.c - concatenation and the losses of segmentation: shape rules, the reference against finite differences
 * and against figures worked out by hand, the CPU backend against the reference for f32 and bf16, both activation layouts,
 * one and two threads. */
#include "op_case.h"

#include "ref/ref.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct { const char *layout; int threads; } variants[] = {
    { "blocked", 1 }, { "blocked", 2 }, { "nhwc", 1 }, { "nhwc", 2 },
};

static void expect_ok(Status s)
{
    if (s.code != STATUS_OK)
        fail_msg("%s", s.text);
}

static Backend *open_ref(void)
{
    Backend *be;
    expect_ok(ref_backend.open(&(BackendOptions){ .threads = 2 }, &be));
    return be;
}

static Backend *open_cpu(size_t variant)
{
    Backend *be;
    const BackendOptions options = { .threads = variants[variant].threads, .layout = variants[variant].layout };
    expect_ok(backend_open("cpu", &options, &be));
    return be;
}

static void check_variants(const OpCase *c, CompareMode mode)
{
    OpResult want, got;
    Backend *ref = open_ref();
    expect_ok(op_case_run(c, ref, NULL, &want));
    for (size_t v = 0; v < COUNT_OF(variants); v++) {
        Backend *be = open_cpu(v);
        Status   s = op_case_run(c, be, NULL, &got);
        if (s.code == STATUS_OK)
            s = op_case_compare(c, mode, &want, &got);
        op_result_release(&got);
        backend_close(be);
        if (s.code != STATUS_OK)
            fail_msg("%s, %d threads: %s", variants[v].layout, variants[v].threads, s.text);
    }
    op_result_release(&want);
    backend_close(ref);
}

static OpCase *new_case(OpDesc op, FillKind fill, uint64_t seed)
{
    OpCase *c;
    expect_ok(op_case_create(&op, fill, seed, &c));
    return c;
}

static void check(OpDesc op, FillKind fill, CompareMode mode)
{
    OpCase *c = new_case(op, fill, 20);
    c->trivial = op.in[1].rank == 3 && tensor_count(&op.in[1]) == 1; /* one pixel, which may be an ignored one */
    check_variants(c, mode);
    op_case_destroy(c);
}

/* ---- concat */

static const int64_t concat_shapes[][5] = { /* N, H, W, A, B */
    { 2, 6, 6, 32, 16 }, { 1, 16, 16, 64, 64 }, { 3, 5, 7, 16, 48 },
    { 2, 3, 5, 8, 8 },    /* only the whole is blocked */
    { 1, 7, 3, 24, 40 },  /* the cut goes through a block */
    { 1, 9, 9, 16, 1 },   /* only a part is blocked */
    { 2, 4, 4, 3, 32 }, { 2, 5, 3, 5, 7 }, { 1, 1, 1, 1, 1 }, { 1, 12, 11, 33, 31 },
};

static void test_concat(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(concat_shapes); i++)
        for (Dtype t = DTYPE_F32; t <= DTYPE_BF16; t++) {
            const int64_t *s = concat_shapes[i];
            const Tensor   a = tensor_act(t, s[0], s[1], s[2], s[3]), b = tensor_act(t, s[0], s[1], s[2], s[4]);
            check((OpDesc){ .kind = OP_concat, .n_in = 2, .in = { a, b } }, FILL_RANDOM, COMPARE_EXACT);
            check((OpDesc){ .kind = OP_concat_grad, .n_in = 1, .in = { tensor_act(t, s[0], s[1], s[2], s[3] + s[4]) },
                            .attr = { .channels = s[3] } }, FILL_RANDOM, COMPARE_EXACT);
        }
}

static void expect_refused(OpDesc op, const char *why)
{
    Status s = op_infer(&op);
    if (s.code != STATUS_USAGE || !strstr(s.text, why))
        fail_msg("expected '%s', got %s", why, s.text);
}

static void test_shapes_refused(void **state)
{
    (void)state;
    const Tensor a = tensor_act(DTYPE_F32, 2, 4, 4, 3), one = tensor_1d(DTYPE_F32, 1);
    const Tensor wider = tensor_act(DTYPE_F32, 2, 4, 5, 3), half = tensor_act(DTYPE_BF16, 2, 4, 4, 3);
    const Tensor logits = tensor_act(DTYPE_F32, 2, 4, 4, 1), many = tensor_act(DTYPE_F32, 2, 4, 4, 65);
    Tensor labels = { .dtype = DTYPE_U8, .rank = 3, .dim = { 2, 4, 4 } }, wide = labels;
    wide.dim[2] = 5;
    expect_refused((OpDesc){ .kind = OP_concat, .n_in = 2, .in = { a, wider } }, "differ in channels only");
    expect_refused((OpDesc){ .kind = OP_concat, .n_in = 2, .in = { a, half } }, "differ in channels only");
    expect_refused((OpDesc){ .kind = OP_concat_grad, .n_in = 1, .in = { a }, .attr = { .channels = 3 } }, "more channels");
    expect_refused((OpDesc){ .kind = OP_pixel_xent, .n_in = 3, .in = { logits, labels, one } }, "2 to 64 classes");
    expect_refused((OpDesc){ .kind = OP_pixel_xent, .n_in = 3, .in = { many, labels, one } }, "2 to 64 classes");
    expect_refused((OpDesc){ .kind = OP_pixel_xent, .n_in = 3, .in = { a, wide, one } }, "labels must be");
    expect_refused((OpDesc){ .kind = OP_bce_dice, .n_in = 3, .in = { a, labels, one } }, "one channel");
    expect_refused((OpDesc){ .kind = OP_bce_dice, .n_in = 3, .in = { logits, labels, tensor_1d(DTYPE_F32, 2) } }, "scale");
}

/* ---- losses */

static Tensor labels_of(int64_t n, int64_t h, int64_t w)
{
    return (Tensor){ .dtype = DTYPE_U8, .rank = 3, .dim = { n, h, w } };
}

static OpDesc loss_op(Dtype t, int64_t n, int64_t h, int64_t w, int64_t classes, int outputs)
{
    return (OpDesc){ .kind = classes == 1 ? OP_bce_dice : OP_pixel_xent, .n_in = 3, .n_out = outputs,
                     .in = { tensor_act(t, n, h, w, classes), labels_of(n, h, w), tensor_1d(DTYPE_F32, 1) } };
}

static void test_losses(void **state)
{
    (void)state;
    static const int64_t shapes[][4] = { /* N, H, W, C; 16 and 32 classes may be blocked */
        { 2, 40, 33, 1 }, { 3, 4, 5, 1 }, { 1, 1, 1, 1 }, { 2, 40, 33, 2 }, { 3, 4, 5, 2 }, { 1, 1, 1, 2 }, { 1, 33, 35, 3 },
        { 2, 9, 11, 16 }, { 1, 33, 32, 32 }, { 2, 7, 5, 21 }, { 1, 6, 7, 64 },
    };
    for (size_t i = 0; i < COUNT_OF(shapes); i++)
        for (Dtype t = DTYPE_F32; t <= DTYPE_BF16; t++)
            for (int outputs = 1; outputs <= 2; outputs++) {
                const int64_t *s = shapes[i];
                check(loss_op(t, s[0], s[1], s[2], s[3], outputs), FILL_RANDOM, COMPARE_TOLERANCE);
                check(loss_op(t, s[0], s[1], s[2], s[3], outputs), FILL_INTEGER, COMPARE_TOLERANCE); /* ties: the first wins */
            }
}

/* One loss with everything under the test's control: f32 logits, their gradient in the same memory. */
typedef struct Loss {
    OpDesc   op;
    float   *x, scale, metrics[5 + 3 * 64];
    uint8_t *labels;
    double  *wanted, *gradient; /* metrics and gradient of the reference */
    Status   status;
} Loss;

static Loss loss_create(int64_t n, int64_t h, int64_t w, int64_t classes)
{
    Loss l = { .op = loss_op(DTYPE_F32, n, h, w, classes, 2), .scale = 0.25f };
    expect_ok(op_infer(&l.op));
    const size_t count = (size_t)tensor_count(&l.op.in[0]);
    l.x = calloc(count, sizeof *l.x);
    l.labels = calloc((size_t)(n * h * w), 1);
    l.wanted = calloc((size_t)l.op.out[0].dim[0], sizeof *l.wanted);
    l.gradient = calloc(count, sizeof *l.gradient);
    assert_true(l.x && l.labels && l.wanted && l.gradient);
    return l;
}

static void loss_destroy(Loss *l)
{
    free(l->x);
    free(l->labels);
    free(l->wanted);
    free(l->gradient);
}

static void loss_reference(Loss *l)
{
    const int64_t count = tensor_count(&l->op.in[0]), pixels = tensor_count(&l->op.in[1]);
    double *x = calloc((size_t)count, sizeof *x), *labels = calloc((size_t)pixels, sizeof *labels), scale = (double)l->scale;
    ref_load(&l->op.in[0], l->x, x);
    ref_load(&l->op.in[1], l->labels, labels);
    memset(l->wanted, 0, (size_t)l->op.out[0].dim[0] * sizeof *l->wanted);
    ref_compute(&l->op, (const double *[]){ x, labels, &scale }, (double *[]){ l->wanted, l->gradient });
    free(x);
    free(labels);
}

typedef struct Slots { void *buf[5]; } Slots;
static Slots loss_slots(Loss *l) { return (Slots){ { l->x, l->labels, &l->scale, l->metrics, l->x } }; }

/* In place, with threads; x becomes the gradient. */
static void loss_run(Loss *l, int threads)
{
    Backend *be;
    OpNeeds  needs;
    void    *scratch;
    expect_ok(backend_open("cpu", &(BackendOptions){ .threads = threads, .layout = "nhwc" }, &be));
    expect_ok(backend_query(be, &l->op, &needs));
    expect_ok(backend_alloc(be, needs.scratch, &scratch));
    memset(l->metrics, 0, sizeof l->metrics);
    l->status = be->vtable->kernels[l->op.kind]->run(be, &l->op, NULL, loss_slots(l).buf, scratch);
    backend_free(be, scratch);
    backend_close(be);
}

static void expect_close(const Loss *l, double relative)
{
    double largest = 0, worst = 0;
    for (int64_t i = 0; i < l->op.out[0].dim[0]; i++)
        if (!(fabs((double)l->metrics[i] - l->wanted[i]) <= relative * fabs(l->wanted[i])))
            fail_msg("metric %d is %.9g, not %.9g", (int)i, (double)l->metrics[i], l->wanted[i]);
    for (int64_t i = 0; i < tensor_count(&l->op.in[0]); i++) {
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
        loss_run(&l, 2);
        expect_ok(l.status);
        expect_close(&l, 1e-6);
        assert_true(l.metrics[1] == 1 && l.metrics[2] == 1 && l.metrics[3] == 1); /* every pixel right; Dice 1 */
        assert_true(l.metrics[5] == (ones ? 262144 : 0) && l.metrics[6] == l.metrics[5] && l.metrics[7] == l.metrics[5]);
        assert_true(l.metrics[0] > 0 && l.metrics[0] < (ones ? 1e-4f : 1)); /* soft Dice of zeros: sum p + 1 below */
        loss_destroy(&l);
    }
}

/* 1024 x 1024 random pixels: sums of a million terms to a few units of fp32; counts exactly; the same bits from any number
 * of threads. */
static void test_large_sums(void **state)
{
    (void)state;
    for (int classes = 1; classes <= 3; classes++) {
        Loss l = loss_create(1, 1024, 1024, classes), two = loss_create(1, 1024, 1024, classes);
        for (int64_t i = 0; i < tensor_count(&l.op.in[0]); i++)
            two.x[i] = l.x[i] = (float)rng_below(3, 1, (uint64_t)i, 4001) / 1000 - 2;
        for (int i = 0; i < 1024 * 1024; i++)
            two.labels[i] = l.labels[i] = (uint8_t)rng_below(3, 2, (uint64_t)i, classes == 1 ? 2 : classes);
        loss_reference(&l);
        loss_run(&l, 2);
        loss_run(&two, 1);
        expect_ok(l.status);
        expect_close(&l, 1e-6);
        for (int64_t i = classes == 1 ? 5 : 1; i < l.op.out[0].dim[0]; i++)
            assert_true(i == 3 || (double)l.metrics[i] == l.wanted[i]);
        assert_memory_equal(l.metrics, two.metrics, sizeof l.metrics);
        assert_memory_equal(l.x, two.x, (size_t)tensor_count(&l.op.in[0]) * sizeof(float));
        loss_destroy(&l);
        loss_destroy(&two);
    }
}

/* An image of 255 only counts nowhere and gets no gradient; of the other image only what is labelled. */
static void test_ignored_pixels(void **state)
{
    (void)state;
    for (int classes = 1; classes <= 4; classes++) {
        Loss l = loss_create(2, 5, 7, classes);
        for (int i = 0; i < 70 * classes; i++)
            l.x[i] = (float)rng_normal(1, 2, (uint64_t)i);
        memset(l.labels, 255, 70);
        l.labels[35] = 0;
        l.labels[69] = 1;
        loss_reference(&l);
        loss_run(&l, 2);
        expect_ok(l.status);
        expect_close(&l, 2e-6);
        assert_true(l.metrics[2] == (classes == 1 ? 1 : 2) && l.metrics[4] == 1);
        for (int i = 0; i < 70 * classes; i++)
            assert_true((l.x[i] != 0) == (i / classes == 35 || i / classes == 69));
        memset(l.labels, 255, 70);
        loss_run(&l, 2);
        for (int i = 0; i < l.op.out[0].dim[0]; i++)
            assert_true(l.metrics[i] == 0);
        for (int i = 0; i < 70 * classes; i++)
            assert_true(l.x[i] == 0);
        loss_destroy(&l);
    }
}

/* A class that does not exist is an error of the data and says where it stands, on both backends in the same words. */
static void test_bad_labels(void **state)
{
    (void)state;
    for (int classes = 1; classes <= 4; classes++) {
        const int bad[] = { classes == 1 ? 2 : classes, 200, 254 };
        Backend  *ref = open_ref();
        for (size_t i = 0; i < COUNT_OF(bad); i++) {
            Loss l = loss_create(2, 40, 33, classes);
            l.labels[40 * 33 + 33 + 5] = (uint8_t)bad[i];
            l.labels[40 * 33 + 33 + 6] = 253;
            loss_run(&l, 2);
            char text[160];
            snprintf(text, sizeof text, "%s: label %d of image 1 at row 1, column 5 is outside 0..%d (255 = ignore)",
                     op_names[l.op.kind], bad[i], bad[0] - 1);
            assert_int_equal(l.status.code, STATUS_NUMERIC);
            assert_string_equal(l.status.text, text);
            Status s = ref->vtable->kernels[l.op.kind]->run(ref, &l.op, NULL, loss_slots(&l).buf, NULL);
            assert_int_equal(s.code, STATUS_NUMERIC);
            assert_string_equal(s.text, text);
            loss_destroy(&l);
        }
        backend_close(ref);
    }
}

/* Logits so large that exp overflows; what is not a number shows in the loss. */
static void test_extreme_logits(void **state)
{
    (void)state;
    for (int classes = 1; classes <= 3; classes++) {
        Loss l = loss_create(1, 4, 8, classes);
        for (int i = 0; i < 32 * classes; i++)
            l.x[i] = (i % 2 ? -1.0f : 1.0f) * (i % 3 ? 1e4f : 90);
        for (int i = 0; i < 32; i++)
            l.labels[i] = (uint8_t)(i / 8 % 2);
        loss_reference(&l);
        loss_run(&l, 1);
        expect_close(&l, 1e-6);
        memset(l.x, 0, (size_t)(32 * classes) * sizeof *l.x);
        l.x[9 * classes + classes - 1] = NAN;
        loss_run(&l, 1);
        assert_true(isnan(l.metrics[0]));
        loss_destroy(&l);
    }
}

/* Small losses keep their digits: log(1 + e^-20) is no 0. */
static void test_confident_pixels(void **state)
{
    (void)state;
    for (int classes = 1; classes <= 2; classes++) {
        Loss l = loss_create(1, 8, 8, classes);
        for (int i = 0; i < 64; i++) {
            l.labels[i] = (uint8_t)(i % 2);
            for (int c = 0; c < classes; c++)
                l.x[i * classes + c] = classes == 1 ? (i % 2 ? 20 : -20) : c == i % 2 ? 10 : -10;
        }
        l.scale = 1;
        loss_reference(&l);
        loss_run(&l, 1);
        expect_close(&l, 1e-6);
        assert_true(l.metrics[0] > 1e-10f);
        loss_destroy(&l);
    }
}

/* ---- the reference */

/* 2 images of 2 x 2 in 1 channel: logits 0 and log 3 (p = 1/2, 3/4), the rest ignored. */
static void test_bce_dice_by_hand(void **state)
{
    (void)state;
    Loss l = loss_create(2, 2, 2, 1);
    memset(l.labels, 255, 8);
    l.x[0] = 0, l.labels[0] = 0;
    l.x[1] = logf(3), l.labels[1] = 1;
    loss_reference(&l);
    const double entropy = (log(2) + log(4.0 / 3)) / 2, soft = (2 * 0.75 + 1) / (1.25 + 1 + 1);
    assert_true(fabs(l.wanted[0] - (entropy + 1 - soft)) < 1e-7);
    assert_true(l.wanted[1] == 0.5 && l.wanted[2] == 1 && fabs(l.wanted[3] - 2.0 / 3) < 1e-15 && l.wanted[4] == 1);
    assert_true(l.wanted[5] == 1 && l.wanted[6] == 2 && l.wanted[7] == 1);
    loss_destroy(&l);
}

/* Three classes, one image of 1 x 4: found 0 2 1 1, true 0 1 1 255. */
static void test_pixel_xent_by_hand(void **state)
{
    (void)state;
    Loss l = loss_create(1, 1, 4, 3);
    static const float x[12] = { 1, 1, 0, 0, 0, 2, -1, 3, 0, 0, 5, 0 };
    static const uint8_t labels[4] = { 0, 1, 1, 255 };
    memcpy(l.x, x, sizeof x);
    memcpy(l.labels, labels, 4);
    loss_reference(&l);
    const double want[14] = { 0, 2, 3, 1, 1, 1, 1, 1, 1, 1, 2, 0, 1, 0 }; /* Dice: foreground found 2, true 2, both */
    const double loss = log(2 + exp(-1)) + 2 + log(1 + 2 * exp(-2)) + log(1 + exp(-3) + exp(-4));
    assert_true(fabs(l.wanted[0] - loss) < 1e-12);
    for (int i = 1; i < 14; i++)
        assert_true(l.wanted[i] == want[i]);
    loss_destroy(&l);
}

/* The gradient that the op gives is that of scale times the loss: central differences in double. */
static void test_reference_gradients(void **state)
{
    (void)state;
    for (int64_t classes = 1; classes <= 4; classes++) {
        OpDesc op = loss_op(DTYPE_F32, 2, 3, 4, classes, 2);
        expect_ok(op_infer(&op));
        double x[96], labels[24], metrics[17], dx[96], ignored[96], scale = 0.3;
        const int64_t count = 24 * classes;
        for (int64_t i = 0; i < count; i++)
            x[i] = 2 * rng_normal(5, 1, (uint64_t)i);
        for (int i = 0; i < 24; i++)
            labels[i] = i % 7 == 3 ? 255 : (double)rng_below(5, 2, (uint64_t)i, classes == 1 ? 2 : classes);
        memset(metrics, 0, sizeof metrics);
        ref_compute(&op, (const double *[]){ x, labels, &scale }, (double *[]){ metrics, dx });
        for (int64_t i = 0; i < count; i++) {
            const double kept = x[i], h = 1e-5;
            double       side[2];
            for (int k = 0; k < 2; k++) {
                x[i] = kept + (k ? -h : h);
                memset(metrics, 0, sizeof metrics);
                ref_compute(&op, (const double *[]){ x, labels, &scale }, (double *[]){ metrics, ignored });
                side[k] = metrics[0];
            }
            x[i] = kept;
            const double difference = scale * (side[0] - side[1]) / (2 * h);
            if (fabs(difference - dx[i]) > 1e-9)
                fail_msg("%d classes, logit %d: %g, not %g", (int)classes, (int)i, dx[i], difference);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_concat),
        cmocka_unit_test(test_shapes_refused),
        cmocka_unit_test(test_losses),
        cmocka_unit_test(test_dice_of_large_images),
        cmocka_unit_test(test_large_sums),
        cmocka_unit_test(test_ignored_pixels),
        cmocka_unit_test(test_bad_labels),
        cmocka_unit_test(test_extreme_logits),
        cmocka_unit_test(test_confident_pixels),
        cmocka_unit_test(test_bce_dice_by_hand),
        cmocka_unit_test(test_pixel_xent_by_hand),
        cmocka_unit_test(test_reference_gradients),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
