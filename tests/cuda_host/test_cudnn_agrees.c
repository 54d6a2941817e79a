/* test_cudnn_agrees.c - the stand-in for cuDNN accepts and refuses the same descriptors as the real library.
 *
 * Each case builds one operation graph, right or wrong in one way, through the backend interface; with the real library in a child
 * process of its own, since a wrong graph may crash it. No device is needed up to the graph. Skipped where there is no cuDNN. */
#include "fake_cudnn.h"
#include "raw_graph.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define F CUDNN_DATA_FLOAT
#define H CUDNN_DATA_HALF

/* ---- cases. `wrong` picks what is wrong; 0 = nothing. */

static Desc channel(RawGraph *g, int64_t uid, int64_t c) { return raw_nhwc(g, uid, F, 1, c, 1, 1); }

static void tensor_case(RawGraph *g, int wrong)
{
    RawTensor t = { .uid = 1, .type = H, .rank = 4, .dim = { 2, 8, 4, 4 }, .stride = { 128, 1, 32, 8 } };
    switch (wrong) {
    case 1: t.dim[1] = 0; break;
    case 2: t.dim[1] = -8; break;
    case 3: t.alignment = 3; break;
    case 4: t.is_virtual = t.by_value = true; break;
    case 5: t.type = (cudnnDataType_t)77; break;
    case 6: t.stride[3] = -8; break;
    case 7: t.by_value = true; break; /* more than one number */
    case 8: t.alignment = 1; break;
    default: break;
    }
    raw_tensor(g, t);
}

static void attribute_case(RawGraph *g, int wrong)
{
    Desc d = raw_create(g, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    const int64_t dim[4] = { 2, 8, 4, 4 }, stride[4] = { 128, 1, 32, 8 };
    if (wrong == 1)
        raw_set_int(g, d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_INT64, H); /* its type is DATA_TYPE */
    else if (wrong != 2)
        raw_set_int(g, d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, H);
    if (wrong == 3)
        raw_set_int(g, d, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, CUDNN_POINTWISE_ADD); /* another descriptor's */
    if (wrong != 4)
        raw_set(g, d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dim);
    if (wrong != 5)
        raw_set(g, d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, wrong == 6 ? 3 : 4, stride);
    if (wrong != 7)
        raw_set_int(g, d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1);
    if (wrong != 8)
        raw_set_int(g, d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 16);
    raw_finalize(g, d, "tensor");
    if (wrong == 9)
        raw_set_int(g, d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 2); /* after finalizing */
    if (wrong == 10)
        raw_finalize(g, d, "tensor");
    if (wrong == 11)
        raw_set(g, d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 0, dim);
}

static void conv_case(RawGraph *g, int wrong)
{
    int64_t c = 8, k = 16, p = 5, n = 2;
    RawConv s = { .pre = { 1, 1 }, .post = { 1, 1 }, .stride = { 2, 2 } };
    switch (wrong) {
    case 1: p = 6; break;
    case 2: k = 24; break;  /* of the output only */
    case 3: n = 3; break;   /* of the output only */
    case 4: c = 7; break;   /* of the filter only; no divisor of 8 */
    case 5: s.pre[0] = 2; break;
    case 6: s.stride[0] = 3; break;
    case 7: s.pre[0] = -1; break;
    case 8: s.post[1] = 0; break; /* the output size stays */
    case 9: s.dilation[0] = s.dilation[1] = 2; break;
    case 10: s.in_double = true; break;
    case 11: s.flip = true; break;
    case 12: s.beta = 1; break;
    default: break;
    }
    Desc x = raw_nhwc(g, 1, H, 2, 8, 9, 9), w = raw_nhwc(g, 2, H, 16, c, 3, 3), y = raw_nhwc(g, 3, H, n, k, p, 5);
    raw_conv(g, RAW_FORWARD, wrong == 13 ? NULL : x, w, wrong == 14 ? NULL : y, s);
    raw_finish(g);
}

static void conv_grad_case(RawGraph *g, int wrong)
{
    const RawConvKind kind = wrong >= 10 ? RAW_WGRAD : RAW_DGRAD;
    const RawConv s = { .pre = { 1, 1 }, .post = { 1, 1 }, .stride = { 2, 2 } };
    int64_t h = 9, c = 8, k = 16, p = 5;
    switch (wrong % 10) {
    case 1: h = 10; break; /* one more than needed: still the same output */
    case 2: h = 11; break;
    case 3: c = 7; break;
    case 4: k = 24; break;
    case 5: p = 4; break;
    default: break;
    }
    raw_conv(g, kind, raw_nhwc(g, 1, H, 2, 8, h, 9), raw_nhwc(g, 2, H, 16, c, 3, 3), raw_nhwc(g, 3, H, 2, k, p, 5), s);
    raw_finish(g);
}

static void point_case(RawGraph *g, int wrong)
{
    Desc x = raw_nhwc(g, 1, H, 2, 8, 4, 4), y = raw_nhwc(g, 3, H, 2, 8, 4, wrong == 1 ? 5 : 4),
         b = channel(g, 2, wrong == 2 ? 7 : 8);
    switch (wrong) {
    case 3: raw_point(g, CUDNN_POINTWISE_ADD, x, NULL, NULL, y); break;
    case 4: raw_point(g, CUDNN_POINTWISE_RELU_FWD, x, b, NULL, y); break;
    case 5: raw_point(g, CUDNN_POINTWISE_ADD, b, x, NULL, y); break; /* the first input is broadcast */
    case 6: raw_point(g, CUDNN_POINTWISE_RELU_FWD, b, NULL, NULL, y); break;
    case 7: raw_point(g, CUDNN_POINTWISE_ADD, x, b, NULL, NULL); break;
    case 8: raw_point(g, CUDNN_POINTWISE_RELU_FWD, x, NULL, NULL, b); break; /* an output smaller than the input */
    case 9: raw_point(g, CUDNN_POINTWISE_BINARY_SELECT, x, b, NULL, y); break;
    case 10:
        raw_point_as(g, CUDNN_POINTWISE_GEN_INDEX, x, NULL, NULL, raw_nhwc(g, 4, CUDNN_DATA_INT32, 2, 8, 4, 4),
                     (RawPoint){ .compute = CUDNN_DATA_INT32, .axis = 9 });
        break;
    case 11:
        raw_point_as(g, CUDNN_POINTWISE_GEN_INDEX, x, NULL, NULL, raw_nhwc(g, 4, CUDNN_DATA_INT32, 2, 8, 4, 4),
                     (RawPoint){ .compute = CUDNN_DATA_INT32, .axis = 2 });
        break;
    case 12: raw_point(g, CUDNN_POINTWISE_ADD, channel(g, 5, 8), channel(g, 6, 8), NULL, y); break;
    case 13: raw_point(g, (cudnnPointwiseMode_t)99, x, NULL, NULL, y); break;
    case 14:
        raw_point(g, CUDNN_POINTWISE_ADD, x,
                  raw_tensor(g, (RawTensor){ .uid = 2, .type = F, .rank = 1, .dim = { 1 }, .by_value = true }), NULL, y);
        break;
    case 15: raw_point_backward(g, CUDNN_POINTWISE_RELU_BWD, x, raw_nhwc(g, 7, H, 2, 8, 4, 4), y); break;
    case 16: raw_point_backward(g, CUDNN_POINTWISE_RELU_BWD, x, NULL, y); break;
    case 17: raw_point(g, CUDNN_POINTWISE_RELU_BWD, x, NULL, NULL, y); break;
    case 18:
        raw_point_as(g, CUDNN_POINTWISE_CMP_GT, x, raw_scalar(g, 8, F), NULL, raw_nhwc(g, 4, CUDNN_DATA_BOOLEAN, 2, 8, 4, 4),
                     (RawPoint){ .compute = F });
        break;
    case 19:
        raw_point_as(g, CUDNN_POINTWISE_BINARY_SELECT, x, raw_scalar(g, 8, F), raw_nhwc(g, 4, CUDNN_DATA_BOOLEAN, 2, 8, 4, 4), y,
                     (RawPoint){ .compute = F });
        break;
    case 20:
        raw_point_as(g, CUDNN_POINTWISE_BINARY_SELECT, x, raw_scalar(g, 8, F), raw_nhwc(g, 4, CUDNN_DATA_BOOLEAN, 2, 8, 4, 3), y,
                     (RawPoint){ .compute = F });
        break;
    case 21:
        raw_point_as(g, CUDNN_POINTWISE_MUL, x, raw_nhwc(g, 4, CUDNN_DATA_BOOLEAN, 2, 8, 4, 4), NULL, y,
                     (RawPoint){ .compute = F });
        break;
    case 22: raw_point_as(g, CUDNN_POINTWISE_ADD, x, b, NULL, y, (RawPoint){ .compute = H }); break;
    default: raw_point(g, CUDNN_POINTWISE_ADD, x, b, NULL, y); break;
    }
    raw_finish(g);
}

static Desc rows(RawGraph *g, int64_t uid, cudnnDataType_t type, int64_t a, int64_t b, int64_t c)
{
    return raw_tensor(g, (RawTensor){ .uid = uid, .type = type, .rank = 3, .dim = { a, b, c } });
}

static void reduce_case(RawGraph *g, int wrong)
{
    Desc x = rows(g, 1, H, 2, 8, 16);
    Desc y = wrong == 1 ? rows(g, 2, F, 2, 8, 2) : wrong == 2 ? rows(g, 2, F, 3, 8, 1) : wrong == 3 ? rows(g, 2, F, 2, 8, 16)
           : wrong == 4 ? raw_nhwc(g, 2, F, 2, 8, 1, 1) : wrong == 5 ? rows(g, 2, F, 1, 1, 1) : rows(g, 2, F, 2, 8, 1);
    raw_reduce(g, wrong == 6 ? (cudnnReduceTensorOp_t)99 : CUDNN_REDUCE_TENSOR_ADD, x, y);
    raw_finish(g);
}

static Desc batch(RawGraph *g, int64_t uid, cudnnDataType_t type, int64_t b, int64_t h, int64_t m, int64_t n)
{
    return raw_tensor(g, (RawTensor){ .uid = uid, .type = type, .rank = 4, .dim = { b, h, m, n } });
}

static void matmul_case(RawGraph *g, int wrong)
{
    Desc a = batch(g, 1, H, 2, 4, 8, 16),
         b = batch(g, 2, H,
                   wrong == 1   ? 3
                   : wrong == 2 ? 1
                                : 2,
                   wrong == 3 ? 2 : 4, wrong == 4 ? 15 : 16, 32),
         c = batch(g, 3, H, wrong == 5 ? 4 : 2, 4, wrong == 6 ? 7 : 8, wrong == 7 ? 31 : 32), m = NULL;
    if (wrong >= 8 && wrong <= 11)
        m = batch(g, 4, wrong == 9 ? H : CUDNN_DATA_INT32, wrong == 10 ? 3 : 2, wrong == 11 ? 4 : 1, 1, 1);
    if (wrong == 12)
        c = rows(g, 3, H, 8, 8, 32);
    if (wrong == 13) {
        a = raw_tensor(g, (RawTensor){ .uid = 1, .type = H, .rank = 2, .dim = { 8, 16 } });
        b = raw_tensor(g, (RawTensor){ .uid = 2, .type = H, .rank = 2, .dim = { 16, 32 } });
        c = raw_tensor(g, (RawTensor){ .uid = 3, .type = H, .rank = 2, .dim = { 8, 32 } });
    }
    raw_matmul(g, a, b, wrong == 14 ? NULL : c, m, NULL, NULL);
    raw_finish(g);
}

static void reshape_case(RawGraph *g, int wrong)
{
    Desc x = raw_tensor(g, (RawTensor){ .uid = 1, .type = H, .rank = 4, .dim = { 2, 4, 8, 8 } });
    Desc y = raw_tensor(
        g, (RawTensor){ .uid = 2, .type = H, .rank = 4, .dim = { 2, 4, 8, wrong == 1 ? 7 : 8 }, .stride = { 256, 64, 1, 8 } });
    if (wrong == 2)
        y = rows(g, 2, H, 8, 8, 8);
    raw_reshape(g, x, y);
    raw_finish(g);
}

static void norm_case(RawGraph *g, int wrong)
{
    const int64_t c = 8;
    RawNorm n = { .x = raw_nhwc(g, 1, H, 2, c, 4, 4),
                  .scale = channel(g, 2, c),
                  .bias = channel(g, 3, c),
                  .epsilon = raw_scalar(g, 4, F),
                  .factor = raw_scalar(g, 5, F),
                  .run_mean = channel(g, 6, c),
                  .run_var = channel(g, 7, c),
                  .mean = channel(g, 8, c),
                  .invstd = channel(g, 9, c),
                  .next_mean = channel(g, 10, c),
                  .next_var = channel(g, 11, c),
                  .y = raw_nhwc(g, 12, H, 2, c, 4, 4) };
    cudnnBackendNormFwdPhase_t phase = CUDNN_NORM_FWD_TRAINING;
    switch (wrong) {
    case 1: n.y = raw_nhwc(g, 12, H, 2, c, 4, 5); break;
    case 2: n.scale = channel(g, 2, 7); break;
    case 3: n.mean = channel(g, 8, 7); break;
    case 4: n.scale = NULL; break;
    case 5: n.epsilon = NULL; break;
    case 6: n.mean = NULL; break;
    case 7: n.invstd = NULL; break;
    case 8: n.next_mean = NULL; break;
    case 9: n.factor = NULL; break;
    case 10: n.run_mean = n.run_var = n.next_mean = n.next_var = n.factor = NULL; break;
    case 11: n.bias = NULL; break;
    case 12:
        phase = CUDNN_NORM_FWD_INFERENCE;
        n.factor = n.run_mean = n.run_var = n.next_mean = n.next_var = n.epsilon = NULL;
        break;
    case 13:
        phase = CUDNN_NORM_FWD_INFERENCE;
        n.factor = n.run_mean = n.run_var = n.next_mean = n.next_var = n.epsilon = n.mean = NULL;
        break;
    case 14: n.next_var = channel(g, 11, 7); break;
    case 15: n.epsilon = channel(g, 4, c); break;
    case 16: n.x = NULL; break;
    case 17: n.epsilon = channel(g, 4, 1); break; /* in memory instead of by value */
    case 18: n.factor = channel(g, 5, 1); break;
    default: break;
    }
    raw_norm(g, CUDNN_BATCH_NORM, phase, n);
    raw_finish(g);
}

static void layer_norm_case(RawGraph *g, int wrong)
{
    const RawTensor row = { .type = F, .rank = 4, .dim = { 16, 1, 1, 1 } },
                    column = { .type = F, .rank = 4, .dim = { 1, 32, 1, 1 }, .nhwc = true };
    RawTensor mean = row, invstd = row, scale = column, bias = column;
    mean.uid = 4;
    invstd.uid = 5;
    scale.uid = 2;
    bias.uid = 3;
    if (wrong == 1)
        mean.dim[0] = 15;
    if (wrong == 2)
        scale.dim[1] = 31;
    RawNorm n = { .x = raw_nhwc(g, 1, H, 16, 32, 1, 1),
                  .scale = raw_tensor(g, scale),
                  .bias = raw_tensor(g, bias),
                  .epsilon = raw_scalar(g, 7, F),
                  .mean = raw_tensor(g, mean),
                  .invstd = raw_tensor(g, invstd),
                  .y = raw_nhwc(g, 6, H, 16, 32, 1, 1) };
    raw_norm(g, CUDNN_LAYER_NORM, CUDNN_NORM_FWD_TRAINING, n);
    raw_finish(g);
}

static void norm_grad_case(RawGraph *g, int wrong)
{
    const int64_t c = 8;
    RawNormGrad n = { .x = raw_nhwc(g, 1, H, 2, c, 4, 4),
                      .mean = channel(g, 2, c),
                      .invstd = channel(g, 3, c),
                      .dy = raw_nhwc(g, 4, H, 2, c, 4, 4),
                      .scale = channel(g, 5, c),
                      .dscale = channel(g, 6, c),
                      .dbias = channel(g, 7, c),
                      .dx = raw_nhwc(g, 8, H, 2, c, 4, 4) };
    switch (wrong) {
    case 1: n.dx = raw_nhwc(g, 8, H, 2, c, 4, 5); break;
    case 2: n.dy = raw_nhwc(g, 4, H, 2, 7, 4, 4); break;
    case 3: n.mean = NULL; break;
    case 4: n.scale = NULL; break;
    case 5: n.dscale = NULL; break;
    case 6: n.dbias = NULL; break;
    case 7: n.dscale = channel(g, 6, 7); break;
    case 8: n.mean = channel(g, 2, 4); break;
    case 9: n.dy = NULL; break;
    default: break;
    }
    raw_norm_backward(g, CUDNN_BATCH_NORM, n);
    raw_finish(g);
}

static void pool_case(RawGraph *g, int wrong)
{
    RawPool p = { .mode = CUDNN_RESAMPLE_MAXPOOL, .window = 3, .pre = 1, .post = 1, .stride = 2 };
    int64_t out = 5, c = 8;
    cudnnDataType_t index = CUDNN_DATA_INT8;
    bool none = false;
    switch (wrong) {
    case 1: out = 4; break;
    case 2: out = 6; break;
    case 3: c = 4; break;
    case 4: index = CUDNN_DATA_INT32; break;
    case 5: none = true; break;
    case 6: p.mode = CUDNN_RESAMPLE_AVGPOOL_INCLUDE_PADDING; none = true; break;
    case 7: p.mode = CUDNN_RESAMPLE_AVGPOOL_EXCLUDE_PADDING; none = true; break;
    case 8: p.mode = CUDNN_RESAMPLE_AVGPOOL_INCLUDE_PADDING; break; /* an average with an index */
    case 9: p.stride = 3; break;
    default: break;
    }
    raw_pool(g, p, raw_nhwc(g, 1, H, 2, 8, 9, 9), raw_nhwc(g, 2, H, 2, c, out, 5),
             none ? NULL : raw_nhwc(g, 3, index, 2, c, out, 5));
    raw_finish(g);
}

static void pool_grad_case(RawGraph *g, int wrong)
{
    RawPool p = { .mode = CUDNN_RESAMPLE_MAXPOOL, .window = 3, .pre = 1, .post = 1, .stride = 2 };
    raw_pool_backward(g, p, raw_nhwc(g, 1, H, 2, 8, wrong == 1 ? 11 : 9, 9), raw_nhwc(g, 2, H, 2, wrong == 2 ? 4 : 8, 5, 5),
                      wrong == 3 ? NULL : raw_nhwc(g, 3, CUDNN_DATA_INT8, 2, 8, wrong == 4 ? 4 : 5, 5));
    raw_finish(g);
}

/* Graphs of two ops. */
static void graph_case(RawGraph *g, int wrong)
{
    Desc x = raw_nhwc(g, 1, H, 2, 8, 4, 4), m = raw_virtual_nhwc(g, 2, wrong == 1 ? H : F, 2, 8, 4, 4),
         y = raw_nhwc(g, 3, H, 2, 8, 4, 4), again = raw_virtual_nhwc(g, 2, F, 2, 8, 4, 4), b = channel(g, 4, 8);
    if (wrong != 2) /* else: a virtual tensor that nothing makes */
        raw_point(g, CUDNN_POINTWISE_ADD, x, b, NULL, m);
    if (wrong == 3)
        raw_point(g, CUDNN_POINTWISE_EXP, x, NULL, NULL, again); /* made twice */
    if (wrong != 4) /* else: a virtual tensor that nothing reads */
        raw_point(g, CUDNN_POINTWISE_RELU_FWD, wrong == 5 ? again : m, NULL, NULL, y);
    if (wrong == 6) { /* the later op first */
        Desc op = g->op[0];
        g->op[0] = g->op[1];
        g->op[1] = op;
    }
    if (wrong == 7)
        raw_point(g, CUDNN_POINTWISE_EXP, y, NULL, NULL, raw_nhwc(g, 1, H, 2, 8, 4, 4)); /* a ring */
    if (wrong == 8)
        g->ops = 0;
    if (wrong == 9)
        raw_point(g, CUDNN_POINTWISE_EXP, m, NULL, NULL, raw_nhwc(g, 6, H, 2, 8, 4, 4));
    if (wrong == 10)
        g->op[0] = x; /* no op */
    if (wrong == 11)
        raw_point(g, CUDNN_POINTWISE_EXP, x, NULL, NULL, raw_nhwc(g, 3, F, 2, 8, 4, 4)); /* the same id with another type */
    raw_finish(g);
}

/* Ragged rows, as packed sequences have. */
static void ragged_case(RawGraph *g, int wrong)
{
    Desc offsets = raw_tensor(
        g, (RawTensor){ .uid = 9, .type = wrong == 1 ? F : CUDNN_DATA_INT32, .rank = 4, .dim = { wrong == 2 ? 2 : 3, 1, 1, 1 } });
    raw_tensor(
        g, (RawTensor){ .uid = 1, .type = H, .rank = 4, .dim = { 2, 4, 16, 8 }, .stride = { 1536, 8, 96, 1 }, .ragged = offsets });
}

typedef struct Case {
    const char *name;
    void      (*build)(RawGraph *g, int wrong);
    int         wrong;     /* how many variants, the right one too */
    unsigned    stricter;  /* bit w: variant w is refused here although cuDNN takes it, by intention */
} Case;

#define BIT(n) (1u << (n))
static const Case cases[] = {
    { "tensor", tensor_case, 9, BIT(1) },
    { "attribute", attribute_case, 12, BIT(2) | BIT(7) },
    { "conv", conv_case, 15, 0 },
    { "conv gradient", conv_grad_case, 16, 0 },
    { "pointwise", point_case, 23, BIT(1) | BIT(2) | BIT(4) | BIT(8) | BIT(20) | BIT(22) },
    { "reduction", reduce_case, 7, BIT(1) },
    { "matmul", matmul_case, 15, BIT(9) },
    { "reshape", reshape_case, 3, 0 },
    { "norm", norm_case, 19, BIT(8) | BIT(9) | BIT(13) },
    { "layer norm", layer_norm_case, 3, 0 },
    { "norm gradient", norm_grad_case, 10, 0 },
    { "pool", pool_case, 10, BIT(4) | BIT(8) },
    { "pool gradient", pool_grad_case, 5, 0 },
    { "graph", graph_case, 12, BIT(2) | BIT(4) },
    { "ragged", ragged_case, 3, 0 },
};

/* ---- both libraries */

static bool accepts(const CudnnApi *api, const Case *c, int wrong, char *words, size_t size)
{
    RawGraph g = raw_begin(api);
    c->build(&g, wrong);
    snprintf(words, size, "%s", g.words);
    raw_end(&g);
    return g.status == CUDNN_STATUS_SUCCESS;
}

typedef enum Answer { ACCEPTED, REFUSED, CRASHED } Answer;

/* In a child: 0, 1, or death. Its words come through a pipe. */
static Answer ask_apart(const CudnnApi *api, const Case *c, int wrong, char *words, size_t size)
{
    int ends[2], state = 0;
    assert_int_equal(pipe(ends), 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        static const int deadly[] = { SIGSEGV, SIGILL, SIGFPE, SIGBUS, SIGABRT };
        for (size_t i = 0; i < COUNT_OF(deadly); i++)
            signal(deadly[i], SIG_DFL); /* not cmocka's */
        const bool yes = accepts(api, c, wrong, words, size);
        const ssize_t sent = write(ends[1], words, size);
        _exit(sent < 0 ? 2 : yes ? 0 : 1);
    }
    close(ends[1]);
    const ssize_t got = read(ends[0], words, size);
    close(ends[0]);
    if (got <= 0)
        words[0] = '\0';
    assert_int_equal(waitpid(child, &state, 0), child);
    return !WIFEXITED(state) ? CRASHED : WEXITSTATUS(state) == 0 ? ACCEPTED : REFUSED;
}

/* NULL if it is not there. Never closed. */
static void *open_real(CudnnApi *api)
{
    void *library = dlopen("libcudnn.so.9", RTLD_NOW | RTLD_LOCAL);
    if (!library)
        library = dlopen("/usr/local/cuda/lib64/libcudnn.so.9", RTLD_NOW | RTLD_LOCAL);
    bool whole = library != NULL;
#define LOAD(name) whole = whole && (*(void **)(void *)&api->name = dlsym(library, #name)) != NULL;
    CUDNN_FUNCTIONS(LOAD)
#undef LOAD
    return whole ? library : NULL;
}

static void the_same_graphs_are_taken(void **state)
{
    (void)state;
    CudnnApi real;
    int asked = 0, wrong_answers = 0;
    if (!open_real(&real)) {
        print_message("skipped: no libcudnn.so.9 on this machine\n");
        skip();
    }
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        for (int wrong = 0; wrong < cases[i].wrong; wrong++) {
            char theirs[512] = "", ours[512] = "";
            const Answer answer = ask_apart(&real, &cases[i], wrong, theirs, sizeof theirs);
            const bool taken = accepts(fake_cudnn_api(), &cases[i], wrong, ours, sizeof ours);
            const bool stricter = cases[i].stricter >> wrong & 1;
            asked++;
            if (taken != (answer == ACCEPTED && !stricter)) {
                print_message("%s, variant %d: cuDNN %s (%s), the stand-in %s (%s)\n", cases[i].name, wrong,
                              answer == ACCEPTED  ? "takes it"
                              : answer == REFUSED ? "refuses it"
                                                  : "crashes",
                              theirs, taken ? "takes it" : "refuses it", ours);
                wrong_answers++;
            }
        }
    assert_true(asked > 100);
    assert_int_equal(wrong_answers, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(the_same_graphs_are_taken) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
