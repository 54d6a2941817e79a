/* test_conv.c - convolutions of the CUDA backend: the graphs that cuDNN gets, interpreted on the host, and the own kernels beside
 * them, against the reference. */
#include "cuda_case.h"

#include "../../kernels/cuda/conv.h"
#include "../../kernels/cuda/conv_narrow.h"
#include "fake_cudnn.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

typedef struct ConvShape { int64_t n, h, w, c, k; int kernel, stride, pad; } ConvShape;

static const ConvShape conv_shapes[] = {
    /* ResNet-50's kinds, images made small */
    { 1, 20, 20, 3, 16, 7, 2, 3 },  /* stem: padded channels in 16 bits */
    { 2, 9, 9, 3, 16, 3, 1, 1 },
    { 1, 7, 6, 4, 8, 3, 1, 1 },
    { 1, 7, 6, 1, 5, 3, 1, 0 },
    { 2, 6, 6, 24, 32, 1, 1, 0 },
    { 2, 6, 6, 16, 16, 3, 1, 1 },
    { 2, 9, 8, 16, 24, 3, 2, 1 },   /* rows left over by the stride */
    { 2, 8, 8, 16, 32, 1, 2, 0 },
    { 1, 2, 2, 32, 32, 3, 1, 1 },
    { 2, 1, 1, 64, 16, 1, 1, 0 },
    /* corners */
    { 1, 5, 7, 12, 20, 3, 1, 1 },
    { 3, 7, 5, 5, 3, 3, 2, 1 },
    { 1, 11, 6, 16, 20, 5, 3, 2 },
    /* UNet: up-convolutions, seen from their gradient */
    { 2, 8, 8, 8, 16, 2, 2, 0 },
    { 1, 9, 7, 16, 32, 2, 2, 0 },   /* a row and a column that no output sees */
};

/* Heads of segmentation: the own kernels' shapes, up to their limits. */
static const ConvShape narrow_shapes[] = {
    { 2, 9, 7, 64, 1, 1, 1, 0 }, { 1, 8, 15, 32, 2, 1, 1, 0 }, { 3, 6, 7, 24, 3, 1, 1, 0 }, { 1, 5, 9, 8, 4, 1, 1, 0 }, { 1, 3, 3, 1024, 5, 1, 1, 0 },
    { 1, 17, 19, 40, 7, 1, 1, 0 }, { 1, 4, 4, 128, 8, 1, 1, 0 }, { 1, 1, 1, 8, 2, 1, 1, 0 },
};

static OpDesc conv_op(const ConvShape *s, Dtype t)
{
    return (OpDesc){ .kind = OP_conv2d, .n_in = 2,
        .in = { tensor_act(t, s->n, s->h, s->w, s->c), tensor_4d(t, s->k, s->kernel, s->kernel, s->c), tensor_1d(DTYPE_F32, s->k) },
        .attr = { .kernel = s->kernel, .stride = s->stride, .pad = s->pad } };
}

static Tensor conv_output(const ConvShape *s, Dtype t)
{
    OpDesc op = conv_op(s, t);
    Status status = op_infer(&op);
    if (status.code != STATUS_OK)
        fail_msg("%s", status.text);
    return op.out[0];
}

static OpDesc dgrad_op(const ConvShape *s, Dtype t)
{
    OpDesc op = conv_op(s, t);
    op.kind = OP_conv2d_dgrad;
    op.in[0] = conv_output(s, t);
    op.attr.in_h = s->h;
    op.attr.in_w = s->w;
    return op;
}

static OpDesc wgrad_op(const ConvShape *s, Dtype t)
{
    OpDesc op = conv_op(s, t);
    op.kind = OP_conv2d_wgrad;
    op.in[1] = conv_output(s, t);
    op.n_out = 1;
    return op;
}

static int few(const ConvShape *s) { return s->n * s->h * s->w * s->k < 40 ? CUDA_TRIVIAL : 0; }

static void climb_forward(CudaLadder *l, const ConvShape *s, Dtype t)
{
    OpDesc op = conv_op(s, t);
    cuda_climb(l, op, CUDA_BOTH | few(s));
    op.attr.relu = true;
    cuda_climb(l, op, CUDA_EXACT | few(s));
    op.n_in = 3;
    cuda_climb(l, op, CUDA_BOTH | few(s));
    op.attr.relu = false;
    cuda_climb(l, op, CUDA_EXACT | few(s));
}

static void climb_wgrad(CudaLadder *l, const ConvShape *s, Dtype t)
{
    OpDesc op = wgrad_op(s, t);
    cuda_climb(l, op, CUDA_BOTH | few(s));
    op.attr.accumulate = true;
    cuda_climb(l, op, CUDA_EXACT | few(s));
    op.n_out = 2;
    cuda_climb(l, op, CUDA_BOTH | few(s));
    op.attr.accumulate = false;
    cuda_climb(l, op, CUDA_EXACT | few(s));
}

static void test_conv2d(void **state)
{
    (void)state;
    CudaLadder l = cuda_ladder_start();
    for (size_t i = 0; i < COUNT_OF(conv_shapes); i++)
        for (Dtype t = DTYPE_F32; t <= DTYPE_F16; t++)
            climb_forward(&l, &conv_shapes[i], t);
    cuda_ladder_end(&l);
}

static void test_conv2d_dgrad(void **state)
{
    (void)state;
    CudaLadder l = cuda_ladder_start();
    for (size_t i = 0; i < COUNT_OF(conv_shapes); i++)
        for (Dtype t = DTYPE_F32; t <= DTYPE_F16; t++)
            cuda_climb(&l, dgrad_op(&conv_shapes[i], t), CUDA_BOTH | few(&conv_shapes[i]));
    cuda_ladder_end(&l);
}

static void test_conv2d_wgrad(void **state)
{
    (void)state;
    CudaLadder l = cuda_ladder_start();
    for (size_t i = 0; i < COUNT_OF(conv_shapes); i++)
        for (Dtype t = DTYPE_F32; t <= DTYPE_F16; t++)
            climb_wgrad(&l, &conv_shapes[i], t);
    cuda_ladder_end(&l);
}

static void test_narrow(void **state)
{
    (void)state;
    CudaLadder l = cuda_ladder_start();
    const int64_t before = fake_cudnn_counts().executed;
    for (size_t i = 0; i < COUNT_OF(narrow_shapes); i++)
        for (Dtype t = DTYPE_F32; t <= DTYPE_F16; t++) {
            climb_forward(&l, &narrow_shapes[i], t);
            cuda_climb(&l, dgrad_op(&narrow_shapes[i], t), CUDA_BOTH | few(&narrow_shapes[i]));
            climb_wgrad(&l, &narrow_shapes[i], t);
        }
    const ConvShape large = { 1, 257, 256, 8, 2, 1, 1, 0 }; /* past 65,535 pixels */
    cuda_climb(&l, conv_op(&large, DTYPE_BF16), CUDA_EXACT);
    cuda_climb(&l, dgrad_op(&large, DTYPE_BF16), CUDA_EXACT);
    cuda_climb(&l, wgrad_op(&large, DTYPE_F32), CUDA_EXACT);
    assert_int_equal(fake_cudnn_counts().executed, before); /* not cuDNN's */
    cuda_ladder_end(&l);
}

static OpNeeds query(Backend *be, OpDesc op)
{
    OpNeeds needs = { 0 };
    Status  s = op_infer(&op);
    if (s.code == STATUS_OK)
        s = backend_query(be, &op, &needs);
    if (s.code != STATUS_OK)
        fail_msg("%s", s.text);
    return needs;
}

/* Images of few channels in 16 bits, and only those, wish for padding; the gradient of the weights stays plain. */
static void test_padding_is_wished_where_it_helps(void **state)
{
    (void)state;
    Backend *be = cuda_case_open();
    for (int64_t c = 1; c <= 8; c++)
        for (Dtype t = DTYPE_F32; t <= DTYPE_F16; t++) {
            const ConvShape s = { 1, 8, 8, c, 16, 3, 1, 1 };
            const int       wish = t != DTYPE_F32 && c <= 4 ? LAYOUT_PADDED : LAYOUT_ANY;
            const OpNeeds   forward = query(be, conv_op(&s, t)), wgrad = query(be, wgrad_op(&s, t)), dgrad = query(be, dgrad_op(&s, t));
            assert_int_equal(forward.in_layout[0], wish);
            assert_int_equal(forward.in_layout[1], wish);
            assert_int_equal(forward.out_layout[0], LAYOUT_ANY);
            assert_int_equal(wgrad.in_layout[0], wish);
            assert_int_equal(wgrad.in_layout[1], LAYOUT_ANY);
            assert_int_equal(wgrad.out_layout[0], LAYOUT_ANY);
            assert_int_equal(dgrad.in_layout[1], LAYOUT_ANY);
        }
    backend_close(be);
}

/* Padded rows where no one wished for them are refused, not read as something else. */
static void test_other_layouts_are_refused(void **state)
{
    (void)state;
    Backend        *be = cuda_case_open();
    const ConvShape wide = { 1, 8, 8, 12, 16, 3, 1, 1 }, narrow = { 1, 8, 8, 16, 2, 1, 1, 0 };
    const ConvShape *shapes[] = { &wide, &narrow };
    for (size_t i = 0; i < COUNT_OF(shapes); i++) {
        OpDesc ops[] = { conv_op(shapes[i], DTYPE_BF16), dgrad_op(shapes[i], DTYPE_BF16), wgrad_op(shapes[i], DTYPE_BF16) };
        for (size_t k = 0; k < COUNT_OF(ops); k++)
            for (int slot = 0; slot < 3; slot++) {
                OpNeeds needs;
                OpDesc  op = ops[k];
                assert_int_equal(op_infer(&op).code, STATUS_OK);
                *(slot < 2 ? &op.in[slot].layout : &op.out[0].layout) = LAYOUT_PADDED;
                assert_int_equal(backend_query(be, &op, &needs).code, STATUS_UNSUPPORTED);
            }
    }
    backend_close(be);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_conv2d),
        cmocka_unit_test(test_conv2d_dgrad),
        cmocka_unit_test(test_conv2d_wgrad),
        cmocka_unit_test(test_narrow),
        cmocka_unit_test(test_padding_is_wished_where_it_helps),
        cmocka_unit_test(test_other_layouts_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
