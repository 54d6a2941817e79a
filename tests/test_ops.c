/* test_ops.c - op_infer's shapes and refusals, op_cost's figures, in-out slots, and how an op is written in messages. */
#include "../kernels/ops.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

/* Short tensors: f = f32, b = bf16; A act, P plain rank 4, M matrix, V vector. */
#define FA(n, h, w, c) tensor_act(DTYPE_F32, n, h, w, c)
#define BA(n, h, w, c) tensor_act(DTYPE_BF16, n, h, w, c)
#define FP(k, r, s, c) tensor_4d(DTYPE_F32, k, r, s, c)
#define BP(k, r, s, c) tensor_4d(DTYPE_BF16, k, r, s, c)
#define FM(a, b) tensor_2d(DTYPE_F32, a, b)
#define BM(a, b) tensor_2d(DTYPE_BF16, a, b)
#define FV(a) tensor_1d(DTYPE_F32, a)

static Tensor bits(Tensor t)
{
    t.dtype = DTYPE_BIT;
    return t;
}

static Tensor bytes(Tensor t)
{
    t.dtype = DTYPE_U8;
    return t;
}

static void assert_tensor(const Tensor *got, Tensor want)
{
    char a[64], b[64];
    tensor_format(got, a, sizeof a);
    tensor_format(&want, b, sizeof b);
    assert_string_equal(a, b);
    assert_int_equal(got->layout, want.layout);
}

/* Infers and returns; every accepted op must also have a cost in bytes. */
static OpDesc accepted(OpDesc op)
{
    Status s = op_infer(&op);
    if (s.code != STATUS_OK)
        fail_msg("refused: %s", s.text);
    assert_true(op_cost(&op).bytes > 0);
    return op;
}

static void refused(OpDesc op, const char *why)
{
    Status s = op_infer(&op);
    if (s.code != STATUS_USAGE || !strstr(s.text, why) || strncmp(s.text, op_names[op.kind], strlen(op_names[op.kind])))
        fail_msg("%s: expected '%s', got %s '%s'", op_names[op.kind], why, status_code_name(s.code), s.text);
}

#define OPDESC(op, inputs, ...) (OpDesc){ .kind = OP_##op, .n_in = inputs, .in = { __VA_ARGS__ } }
#define OPATTR(op, inputs, attributes, ...) (OpDesc){ .kind = OP_##op, .n_in = inputs, .in = { __VA_ARGS__ }, .attr = attributes }
#define ATTR(...) ((OpAttr){ __VA_ARGS__ })

/* ResNet-50's stem: 7x7/2 on 224 gives 112. */
#define STEM ATTR(.kernel = 7, .stride = 2, .pad = 3)
#define K3 ATTR(.kernel = 3, .stride = 1, .pad = 1)

static void test_conv2d(void **state)
{
    (void)state;
    OpDesc op = accepted(OPATTR(conv2d, 2, STEM, FA(8, 224, 224, 3), FP(64, 7, 7, 3)));
    assert_int_equal(op.n_out, 1);
    assert_tensor(&op.out[0], FA(8, 112, 112, 64));
    op = accepted(OPATTR(conv2d, 3, K3, BA(1, 5, 7, 24), BP(40, 3, 3, 24), FV(40)));
    assert_tensor(&op.out[0], BA(1, 5, 7, 40));

    refused(OPATTR(conv2d, 1, K3, FA(1, 5, 5, 2)), "wrong number of inputs");
    refused(OPATTR(conv2d, 4, K3, FA(1, 5, 5, 2), FP(4, 3, 3, 2), FV(4), FV(4)), "wrong number of inputs");
    refused(OPATTR(conv2d, 2, K3, FP(1, 5, 5, 2), FP(4, 3, 3, 2)), "needs x act and w (K,R,R,C) of the same type");
    refused(OPATTR(conv2d, 2, K3, FA(1, 5, 5, 2), BP(4, 3, 3, 2)), "of the same type");
    refused(OPATTR(conv2d, 2, K3, FA(1, 5, 5, 2), FM(4, 18)), "needs x act and w");
    refused(OPATTR(conv2d, 2, K3, FA(1, 5, 5, 2), FP(4, 3, 3, 3)), "the weights do not fit");
    refused(OPATTR(conv2d, 2, K3, FA(1, 5, 5, 2), FP(4, 1, 3, 2)), "the weights do not fit");
    refused(OPATTR(conv2d, 2, K3, FA(1, 5, 5, 2), FP(4, 3, 1, 2)), "the weights do not fit");
    refused(OPATTR(conv2d, 3, K3, FA(1, 5, 5, 2), FP(4, 3, 3, 2), FV(5)), "the bias must be f32 (K)");
    refused(OPATTR(conv2d, 3, K3, FA(1, 5, 5, 2), FP(4, 3, 3, 2), tensor_1d(DTYPE_BF16, 4)), "the bias must be f32 (K)");
    refused(OPATTR(conv2d, 2, ATTR(.kernel = 3, .pad = 1), FA(1, 5, 5, 2), FP(4, 3, 3, 2)), "needs kernel >= 1, stride >= 1");
    refused(OPATTR(conv2d, 2, ATTR(.kernel = 3, .stride = 1, .pad = 3), FA(1, 5, 5, 2), FP(4, 3, 3, 2)), "0 <= pad < kernel");
    refused(OPATTR(conv2d, 2, ATTR(.kernel = 3, .stride = 1, .pad = -1), FA(1, 5, 5, 2), FP(4, 3, 3, 2)), "0 <= pad < kernel");
    refused(OPATTR(conv2d, 2, ATTR(.kernel = 7, .stride = 1, .pad = 0), FA(1, 9, 6, 2), FP(4, 7, 7, 2)), "the window is larger than the padded input");
    refused(OPATTR(conv2d, 2, K3, FA(0, 5, 5, 2), FP(4, 3, 3, 2)), "every dimension must be at least 1");
}

static void test_conv2d_gradients(void **state)
{
    (void)state;
    const OpAttr stem = ATTR(.kernel = 7, .stride = 2, .pad = 3, .in_h = 224, .in_w = 223);
    OpDesc op = accepted(OPATTR(conv2d_dgrad, 2, stem, BA(8, 112, 112, 64), BP(64, 7, 7, 3)));
    assert_tensor(&op.out[0], BA(8, 224, 223, 3));
    refused(OPATTR(conv2d_dgrad, 1, stem, FA(8, 112, 112, 64)), "wrong number of inputs");
    refused(OPATTR(conv2d_dgrad, 2, stem, FA(8, 112, 112, 64), BP(64, 7, 7, 3)), "needs dy act and w");
    refused(OPATTR(conv2d_dgrad, 2, STEM, FA(8, 112, 112, 64), FP(64, 7, 7, 3)), "the window is larger"); /* in_h is missing */
    refused(OPATTR(conv2d_dgrad, 2, stem, FA(8, 111, 112, 64), FP(64, 7, 7, 3)), "do not belong to one convolution");
    refused(OPATTR(conv2d_dgrad, 2, stem, FA(8, 112, 112, 64), FP(32, 7, 7, 3)), "do not belong to one convolution");
    refused(OPATTR(conv2d_dgrad, 2, stem, FA(8, 112, 112, 64), FP(64, 3, 3, 3)), "do not belong to one convolution");

    op = accepted(OPATTR(conv2d_wgrad, 2, STEM, BA(8, 224, 224, 3), BA(8, 112, 112, 64)));
    assert_int_equal(op.n_out, 1); /* dbias only if asked for */
    assert_tensor(&op.out[0], FP(64, 7, 7, 3));
    op = OPATTR(conv2d_wgrad, 2, STEM, FA(8, 224, 224, 3), FA(8, 112, 112, 64));
    op.n_out = 2;
    op = accepted(op);
    assert_int_equal(op.n_out, 2);
    assert_tensor(&op.out[1], FV(64));
    refused(OPATTR(conv2d_wgrad, 3, STEM, FA(8, 224, 224, 3), FA(8, 112, 112, 64), FV(1)), "wrong number of inputs");
    refused(OPATTR(conv2d_wgrad, 2, STEM, FA(8, 224, 224, 3), BA(8, 112, 112, 64)), "of the same type");
    refused(OPATTR(conv2d_wgrad, 2, STEM, FA(8, 224, 224, 3), FA(4, 112, 112, 64)), "do not belong to one convolution");
    refused(OPATTR(conv2d_wgrad, 2, ATTR(.kernel = 0, .stride = 1), FA(1, 4, 4, 3), FA(1, 4, 4, 3)), "kernel >= 1");
}

static void test_batchnorm(void **state)
{
    (void)state;
    Tensor x = BA(2, 7, 7, 32), v = FV(32);
    OpDesc op = accepted(OPDESC(batchnorm, 5, x, v, v, v, v));
    assert_int_equal(op.n_out, 3);
    assert_tensor(&op.out[0], x);
    assert_tensor(&op.out[1], v);
    assert_tensor(&op.out[2], v);
    op = accepted(OPATTR(batchnorm, 6, ATTR(.relu = true, .residual = true), x, v, v, v, v, x));
    assert_int_equal(op.n_out, 4);
    assert_tensor(&op.out[3], bits(x));
    refused(OPDESC(batchnorm, 6, x, v, v, v, v, x), "wrong number of inputs");
    refused(OPATTR(batchnorm, 5, ATTR(.residual = true), x, v, v, v, v), "wrong number of inputs");
    refused(OPDESC(batchnorm, 5, BP(2, 7, 7, 32), v, v, v, v), "x must be an f32 or bf16 act");
    refused(OPDESC(batchnorm, 5, x, v, v, v, FV(31)), "scale, shift and statistics must be f32 (C)");
    refused(OPATTR(batchnorm, 6, ATTR(.residual = true), x, v, v, v, v, FA(2, 7, 7, 32)), "the residual must have the type and shape of x");

    op = accepted(OPATTR(batchnorm_grad, 6, ATTR(.relu = true, .residual = true), x, x, v, v, v, bits(x)));
    assert_int_equal(op.n_out, 4);
    assert_tensor(&op.out[0], x);
    assert_tensor(&op.out[1], v);
    assert_tensor(&op.out[3], x);
    assert_int_equal(accepted(OPDESC(batchnorm_grad, 5, x, x, v, v, v)).n_out, 3);
    refused(OPATTR(batchnorm_grad, 5, ATTR(.relu = true), x, x, v, v, v), "wrong number of inputs");
    refused(OPDESC(batchnorm_grad, 5, x, BA(2, 7, 7, 16), v, v, v), "the type and shape of x");
    refused(OPDESC(batchnorm_grad, 5, x, x, v, FV(1), v), "must be f32 (C)");
    refused(OPATTR(batchnorm_grad, 6, ATTR(.relu = true), x, x, v, v, v, bytes(x)), "the mask must be bits of the shape of x");
    refused(OPATTR(batchnorm_grad, 6, ATTR(.relu = true), x, x, v, v, v, bits(BA(2, 7, 7, 16))), "the mask must be bits");

    op = accepted(OPATTR(batchnorm_infer, 6, ATTR(.relu = true, .residual = true), x, v, v, v, v, x));
    assert_int_equal(op.n_out, 1);
    refused(OPDESC(batchnorm_infer, 4, x, v, v, v), "wrong number of inputs");
    refused(OPDESC(batchnorm_infer, 5, FM(2, 32), v, v, v, v), "x must be");
}

static void test_pools(void **state)
{
    (void)state;
    const OpAttr a = ATTR(.kernel = 3, .stride = 2, .pad = 1, .in_h = 112, .in_w = 112);
    OpDesc op = accepted(OPATTR(maxpool, 1, a, FA(2, 112, 112, 64)));
    assert_int_equal(op.n_out, 2);
    assert_tensor(&op.out[0], FA(2, 56, 56, 64));
    assert_tensor(&op.out[1], bytes(FA(2, 56, 56, 64)));
    refused(OPATTR(maxpool, 2, a, FA(2, 8, 8, 4), FA(2, 8, 8, 4)), "wrong number of inputs");
    refused(OPATTR(maxpool, 1, a, FP(2, 8, 8, 4)), "x must be an f32 or bf16 act");
    refused(OPATTR(maxpool, 1, ATTR(.kernel = 16, .stride = 1), FA(2, 18, 18, 4)), "the kernel at most 15");
    refused(OPATTR(maxpool, 1, ATTR(.kernel = 9, .stride = 1), FA(2, 8, 8, 4)), "the window is larger");

    op = accepted(OPATTR(maxpool_grad, 2, a, BA(2, 56, 56, 64), bytes(BA(2, 56, 56, 64))));
    assert_tensor(&op.out[0], BA(2, 112, 112, 64));
    refused(OPATTR(maxpool_grad, 1, a, FA(2, 56, 56, 64)), "wrong number of inputs");
    refused(OPATTR(maxpool_grad, 2, a, FA(2, 56, 56, 64), FA(2, 56, 56, 64)), "needs dy act and its u8 index");
    refused(OPATTR(maxpool_grad, 2, a, FA(2, 56, 56, 64), bytes(FA(2, 56, 56, 32))), "needs dy act and its u8 index");
    refused(OPATTR(maxpool_grad, 2, a, FA(2, 55, 56, 64), bytes(FA(2, 55, 56, 64))), "dy does not belong to in_h and in_w");
    refused(OPATTR(maxpool_grad, 2, ATTR(.kernel = 3, .stride = 2), FA(1, 1, 1, 4), bytes(FA(1, 1, 1, 4))), "the window is larger");

    assert_tensor(&accepted(OPDESC(avgpool, 1, BA(2, 7, 7, 64))).out[0], BM(2, 64));
    refused(OPDESC(avgpool, 2, BA(2, 7, 7, 64), FV(1)), "wrong number of inputs");
    refused(OPDESC(avgpool, 1, BM(2, 64)), "x must be");
    assert_tensor(&accepted(OPATTR(avgpool_grad, 1, ATTR(.in_h = 7, .in_w = 5), BM(2, 64))).out[0], BA(2, 7, 5, 64));
    refused(OPATTR(avgpool_grad, 1, ATTR(.in_h = 7), BM(2, 64)), "needs dy (N,C) and the input's in_h and in_w");
    refused(OPATTR(avgpool_grad, 1, ATTR(.in_h = 7, .in_w = 7), FV(64)), "needs dy (N,C)");
    refused(OPATTR(avgpool_grad, 2, ATTR(.in_h = 7, .in_w = 7), BM(2, 64), FV(1)), "wrong number of inputs");
}

static void test_linear(void **state)
{
    (void)state;
    assert_tensor(&accepted(OPDESC(linear, 3, BM(8, 2048), BM(1000, 2048), FV(1000))).out[0], BM(8, 1000));
    refused(OPDESC(linear, 1, FM(8, 16)), "wrong number of inputs");
    refused(OPDESC(linear, 2, FM(8, 16), FM(10, 15)), "needs x (M,K) and w (O,K) of the same type");
    refused(OPDESC(linear, 2, FM(8, 16), BM(10, 16)), "of the same type");
    refused(OPDESC(linear, 3, FM(8, 16), FM(10, 16), FV(16)), "the bias must be f32 (O)");
    assert_tensor(&accepted(OPDESC(linear_dgrad, 2, BM(8, 10), BM(10, 16))).out[0], BM(8, 16));
    refused(OPDESC(linear_dgrad, 3, FM(8, 10), FM(10, 16), FV(1)), "wrong number of inputs");
    refused(OPDESC(linear_dgrad, 2, FM(8, 16), FM(10, 16)), "needs dy (M,O) and w (O,K)");
    OpDesc op = OPDESC(linear_wgrad, 2, BM(8, 16), BM(8, 10));
    assert_int_equal(accepted(op).n_out, 1);
    op.n_out = 2;
    op = accepted(op);
    assert_tensor(&op.out[0], FM(10, 16));
    assert_tensor(&op.out[1], FV(10));
    refused(OPDESC(linear_wgrad, 1, FM(8, 16)), "wrong number of inputs");
    refused(OPDESC(linear_wgrad, 2, FM(8, 16), FM(9, 10)), "needs x (M,K) and dy (M,O)");
}

static void test_softmax_xent(void **state)
{
    (void)state;
    Tensor labels = tensor_1d(DTYPE_I32, 8);
    OpDesc op = OPDESC(softmax_xent, 3, FM(8, 10), labels, FV(1));
    assert_int_equal(accepted(op).n_out, 1);
    op.n_out = 2;
    op = accepted(op);
    assert_tensor(&op.out[0], FV(4));
    assert_tensor(&op.out[1], FM(8, 10));
    refused(OPDESC(softmax_xent, 2, FM(8, 10), labels), "wrong number of inputs");
    refused(OPDESC(softmax_xent, 3, FV(8), labels, FV(1)), "the logits must be a matrix");
    refused(OPDESC(softmax_xent, 3, FM(7, 10), labels, FV(1)), "the labels must be i32 (M)");
    refused(OPDESC(softmax_xent, 3, FM(8, 10), FV(8), FV(1)), "the labels must be i32 (M)");
    refused(OPDESC(softmax_xent, 3, FM(8, 10), labels, FV(2)), "the scale must be f32 (1)");
}

static void test_pointwise(void **state)
{
    (void)state;
    Tensor image = tensor_4d(DTYPE_U8, 2, 8, 8, 3);
    assert_tensor(&accepted(OPDESC(normalize_u8, 1, image)).out[0], FA(2, 8, 8, 3));
    OpDesc op = OPDESC(normalize_u8, 1, image);
    op.out[0].dtype = DTYPE_BF16;
    assert_tensor(&accepted(op).out[0], BA(2, 8, 8, 3));
    refused(OPDESC(normalize_u8, 0, image), "wrong number of inputs");
    refused(OPDESC(normalize_u8, 1, FA(2, 8, 8, 3)), "the image must be u8 (N,H,W,C) with C <= 4");
    refused(OPDESC(normalize_u8, 1, tensor_4d(DTYPE_U8, 2, 8, 8, 5)), "C <= 4");

    assert_tensor(&accepted(OPDESC(relu_grad, 2, BM(3, 4), BM(3, 4))).out[0], BM(3, 4));
    refused(OPDESC(relu_grad, 1, BM(3, 4)), "wrong number of inputs");
    refused(OPDESC(relu_grad, 2, BM(3, 4), FM(3, 4)), "dy and y must have the same type and shape");
    assert_tensor(&accepted(OPDESC(add, 2, BA(1, 2, 3, 4), BA(1, 2, 3, 4))).out[0], BA(1, 2, 3, 4));
    refused(OPDESC(add, 3, FV(1), FV(1), FV(1)), "wrong number of inputs");
    refused(OPDESC(add, 2, FV(1), FV(2)), "both inputs must have the same type and shape");

    op = OPDESC(cast, 1, FA(1, 2, 3, 4));
    op.out[0].dtype = DTYPE_BF16;
    assert_tensor(&accepted(op).out[0], BA(1, 2, 3, 4));
    op.out[0].dtype = DTYPE_U8;
    refused(op, "casts are between f32, bf16 and f16");
    op.n_in = 0;
    refused(op, "wrong number of inputs");
    refused(OPDESC(cast, 1, image), "casts are between f32, bf16 and f16");

    op = OPDESC(repack, 1, FP(4, 3, 3, 2));
    op.out[0].dtype = DTYPE_BF16;
    op.out[0].layout = LAYOUT_PRIVATE + 3;
    op = accepted(op);
    assert_int_equal(op.out[0].layout, LAYOUT_PRIVATE + 3);
    assert_int_equal(op.out[0].dtype, DTYPE_BF16);
    refused(OPDESC(repack, 1, BP(4, 3, 3, 2)), "weights are repacked from f32");
    refused(OPDESC(repack, 2, FP(4, 3, 3, 2), FV(1)), "wrong number of inputs");
}

static void test_zero_and_optimizer(void **state)
{
    (void)state;
    OpDesc op = accepted((OpDesc){ .kind = OP_zero, .out = { FP(4, 3, 3, 2) } });
    assert_int_equal(op.n_out, 1);
    assert_tensor(&op.out[0], FP(4, 3, 3, 2));
    refused(OPDESC(zero, 1, FV(1)), "wrong number of inputs");
    assert_tensor(&accepted(OPDESC(sqnorm, 1, FP(4, 3, 3, 2))).out[0], FV(1));
    refused(OPDESC(sqnorm, 2, FV(1), FV(1)), "control must be f32 (8)");
    refused(OPDESC(sqnorm, 1, BM(1, 1)), "x must be f32");
    op = accepted(OPDESC(sgd, 3, FM(3, 5), FV(8), FV(8)));
    assert_int_equal(op.n_out, 2);
    assert_tensor(&op.out[0], FM(3, 5));
    assert_tensor(&op.out[1], FM(3, 5));
    refused(OPDESC(sgd, 2, FM(3, 5), FV(8)), "wrong number of inputs");
    refused(OPDESC(sgd, 3, BM(3, 5), FV(8), FV(8)), "needs g f32, hyper f32 (8) and control f32 (8)");
    refused(OPDESC(sgd, 3, FM(3, 5), FV(4), FV(8)), "needs g f32, hyper f32 (8) and control f32 (8)");
    refused(OPDESC(sgd, 3, FM(3, 5), FV(8), FV(7)), "needs g f32, hyper f32 (8) and control f32 (8)");
    assert_int_equal(accepted(OPDESC(adamw, 3, FM(3, 5), FV(8), FV(8))).n_out, 3);
    refused(OPDESC(adamw, 4, FM(3, 5), FV(8), FV(8), tensor_1d(DTYPE_I32, 2)), "wrong number of inputs");
    assert_int_equal(accepted(OPDESC(lamb, 4, FM(3, 5), FV(8), FV(8), tensor_1d(DTYPE_I32, 2))).n_out, 3);
    assert_int_equal(accepted(OPDESC(lars, 4, FM(3, 5), FV(8), FV(8), tensor_1d(DTYPE_I32, 9))).n_out, 2);
    refused(OPDESC(lamb, 3, FM(3, 5), FV(8), FV(8)), "wrong number of inputs");
    refused(OPDESC(lars, 4, FM(3, 5), FV(8), FV(8), tensor_1d(DTYPE_I32, 1)), "the table of tensors must be i32 (n + 1)");
    refused(OPDESC(lars, 4, FM(3, 5), FV(8), FV(8), FV(2)), "the table of tensors must be i32 (n + 1)");
    assert_tensor(&accepted(OPDESC(restore, 2, FM(3, 5), FV(8))).out[0], FM(3, 5));
    refused(OPDESC(restore, 2, BM(3, 5), FV(8)), "needs saved f32 and control f32 (8)");
    assert_tensor(&accepted(OPDESC(window_scale, 2, FV(1), FV(8))).out[0], FV(1));
    refused(OPDESC(window_scale, 2, FV(2), FV(8)), "needs scale f32 (1) and control f32 (8)");
    assert_tensor(&accepted(OPDESC(step_control, 2, FV(8), FV(1))).out[0], FV(8));
    refused(OPDESC(step_control, 2, FV(8), FV(2)), "needs hyper f32 (8) and the square sum f32 (1)");
}

static void assert_cost(OpDesc op, double flops, double moved)
{
    OpCost cost = op_cost(&op);
    if (cost.flops != flops || cost.bytes != moved)
        fail_msg("%s: %.0f FLOPs and %.0f bytes, expected %.0f and %.0f", op_names[op.kind], cost.flops, cost.bytes, flops, moved);
}

/* Worked out by hand; He et al. 2015 counts the stem at 118 million multiply-adds an image (112 112 64 147). */
static void test_cost(void **state)
{
    (void)state;
    const double stem = 2.0 * 118013952, image = 224 * 224 * 3, maps = 112 * 112 * 64, weights = 64 * 147;
    const OpAttr a = ATTR(.kernel = 7, .stride = 2, .pad = 3, .in_h = 224, .in_w = 224);
    assert_cost(accepted(OPATTR(conv2d, 2, a, FA(8, 224, 224, 3), FP(64, 7, 7, 3))), 8 * stem, 4 * (8 * image + weights + 8 * maps));
    assert_cost(accepted(OPATTR(conv2d_dgrad, 2, a, BA(8, 112, 112, 64), BP(64, 7, 7, 3))), 8 * stem, 2 * (8 * image + weights + 8 * maps));
    OpDesc wgrad = accepted(OPATTR(conv2d_wgrad, 2, a, BA(8, 224, 224, 3), BA(8, 112, 112, 64)));
    assert_cost(wgrad, 8 * stem, 2 * (8 * image + 8 * maps) + 4 * weights);
    wgrad.attr.accumulate = true; /* dw is read as well */
    assert_cost(wgrad, 8 * stem, 2 * (8 * image + 8 * maps) + 8 * weights);

    assert_cost(accepted(OPDESC(linear, 3, FM(8, 2048), FM(1000, 2048), FV(1000))), 2.0 * 8 * 2048 * 1000,
                4.0 * (8 * 2048 + 1000 * 2048 + 1000 + 8 * 1000));
    assert_cost(accepted(OPDESC(linear_dgrad, 2, FM(8, 1000), FM(1000, 2048))), 2.0 * 8 * 2048 * 1000, 4.0 * (8 * 1000 + 1000 * 2048 + 8 * 2048));
    assert_cost(accepted(OPDESC(linear_wgrad, 2, FM(8, 2048), FM(8, 1000))), 2.0 * 8 * 2048 * 1000, 4.0 * (8 * 2048 + 8 * 1000 + 1000 * 2048));

    Tensor x = BA(2, 4, 4, 16), v = FV(16);
    OpDesc norm = accepted(OPATTR(batchnorm, 6, ATTR(.relu = true, .residual = true), x, v, v, v, v, x));
    assert_cost(norm, 512 * 9.0, 3 * 1024 + 8 * 64 + 64); /* x, residual, y; six vectors, two of them both ways; mask */
    assert_cost(accepted(OPDESC(sqnorm, 1, FV(100))), 200, 400 + 8);
    assert_cost(accepted(OPDESC(sgd, 3, FV(100), FV(8), FV(8))), 600, 400 + 64 + 800 + 800);
    assert_cost(accepted(OPDESC(adamw, 3, FV(100), FV(8), FV(8))), 1400, 400 + 64 + 3 * 800);
    assert_cost(accepted((OpDesc){ .kind = OP_zero, .out = { FV(100) } }), 0, 400);
    assert_cost(accepted(OPDESC(add, 2, BM(2, 50), BM(2, 50))), 100, 600);
    OpDesc cast = OPDESC(cast, 1, FV(100));
    cast.out[0].dtype = DTYPE_BF16;
    assert_cost(accepted(cast), 0, 600);
    assert_cost(accepted(OPATTR(maxpool, 1, ATTR(.kernel = 2, .stride = 2), FA(1, 4, 4, 8))), 4 * 32, 4 * 128 + 4 * 32 + 32);

    /* tables: the rows that are picked, all of a small one */
    const Tensor ids = tensor_1d(DTYPE_I32, 10);
    assert_cost(accepted(OPDESC(embedding, 4, FM(1000, 8), ids, FM(2, 8), ids)), 80, 4.0 * (80 + 10 + 16 + 10 + 80));
    assert_cost(accepted(OPDESC(gather_rows, 2, BM(1000, 8), ids)), 0, 2.0 * 80 + 40 + 2 * 80);
    OpDesc scatter = accepted(OPATTR(embedding_grad, 2, ATTR(.rows = 1000), BM(10, 8), ids));
    assert_cost(scatter, 80, 2.0 * 80 + 40 + 4 * 8000); /* zeros and all */
    scatter.attr.accumulate = true;
    assert_cost(scatter, 80, 2.0 * 80 + 40 + 2 * 4 * 80);
}

static void test_inout_slots(void **state)
{
    (void)state;
    for (int kind = 0; kind < OP_COUNT; kind++)
        for (int accumulate = 0; accumulate < 2; accumulate++)
            for (int slot = 0; slot < OP_MAX_OUT; slot++) {
                OpDesc op = { .kind = (OpKind)kind, .attr = { .accumulate = accumulate } };
                bool all = kind == OP_sqnorm || kind == OP_step_control || kind == OP_sgd || kind == OP_adamw || kind == OP_lamb
                    || kind == OP_lars || kind == OP_restore;
                bool metrics = kind == OP_softmax_xent || kind == OP_pixel_xent || kind == OP_bce_dice;
                bool first = kind == OP_conv2d_wgrad || kind == OP_linear_wgrad || kind == OP_embedding_grad;
                bool norm = kind == OP_batchnorm_grad || kind == OP_layernorm_grad;
                bool want = all || (metrics && slot == 0) || (accumulate && (first || (norm && (slot == 1 || slot == 2))));
                assert_int_equal(op_out_is_inout(&op, slot), want);
                assert_int_equal(op_in_is_inout(&op, slot), kind == OP_batchnorm && slot == 3);
            }
    assert_true(op_in_is_inout(&(OpDesc){ .kind = OP_batchnorm }, 4));
    assert_false(op_in_is_inout(&(OpDesc){ .kind = OP_batchnorm }, 5));
}

static void test_format(void **state)
{
    (void)state;
    char text[256], small[12];
    OpDesc op = accepted(OPATTR(conv2d, 2, K3, FA(8, 56, 56, 64), FP(64, 3, 3, 64)));
    assert_string_equal(op_format(&op, text, sizeof text), "conv2d f32[8,56,56,64] f32[64,3,3,64] -> f32[8,56,56,64] k3 s1 p1");
    assert_string_equal(op_format(&op, small, sizeof small), "conv2d f32[");
    Tensor x = BA(1, 1, 1, 2), v = FV(2);
    op = accepted(OPATTR(batchnorm_grad, 6, ATTR(.relu = true, .residual = true, .accumulate = true), x, x, v, v, v, bits(x)));
    assert_string_equal(op_format(&op, text, sizeof text),
        "batchnorm_grad bf16[1,1,1,2] bf16[1,1,1,2] f32[2] f32[2] f32[2] bit[1,1,1,2] -> bf16[1,1,1,2] f32[2] f32[2] bf16[1,1,1,2] +add +relu +=");
    for (int kind = 0; kind < OP_COUNT; kind++)
        assert_true(strlen(op_names[kind]) > 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_conv2d),
        cmocka_unit_test(test_conv2d_gradients),
        cmocka_unit_test(test_batchnorm),
        cmocka_unit_test(test_pools),
        cmocka_unit_test(test_linear),
        cmocka_unit_test(test_softmax_xent),
        cmocka_unit_test(test_pointwise),
        cmocka_unit_test(test_zero_and_optimizer),
        cmocka_unit_test(test_cost),
        cmocka_unit_test(test_inout_slots),
        cmocka_unit_test(test_format),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
