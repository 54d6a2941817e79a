/* test_interp.c - what the interpreter of cuDNN's graphs computes, against numbers worked out by hand and loops from the
 * definitions. The graphs are built straight through cuDNN's interface (raw_graph.h). */
#include "raw_run.h"

#include "../../kernels/tensor.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define F CUDNN_DATA_FLOAT
#define H CUDNN_DATA_HALF
#define B CUDNN_DATA_BFLOAT16
#define BOOL CUDNN_DATA_BOOLEAN

static float whole(uint64_t stream, int64_t i) { return (float)(rng_below(3, stream, (uint64_t)i, 7) - 3); }

static float *whole_numbers(uint64_t stream, int64_t n)
{
    float *v = raw_floats(n, NULL);
    for (int64_t i = 0; i < n; i++)
        v[i] = whole(stream, i);
    return v;
}

static float *normals(uint64_t stream, int64_t n)
{
    float *v = raw_floats(n, NULL);
    for (int64_t i = 0; i < n; i++)
        v[i] = (float)rng_normal(3, stream, (uint64_t)i);
    return v;
}

static void expect_floats(const float *got, const float *want, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (!(got[i] == want[i]) && !(isnan(got[i]) && isnan(want[i])))
            fail_msg("element %lld is %.9g, not %.9g", (long long)i, (double)got[i], (double)want[i]);
}

static void expect_near(const float *got, const double *want, int64_t n, double limit)
{
    for (int64_t i = 0; i < n; i++)
        if (!(fabs((double)got[i] - want[i]) <= limit * (1 + fabs(want[i]))))
            fail_msg("element %lld is %.9g, not %.9g", (long long)i, (double)got[i], want[i]);
}

static void free_all(void *const *memory, int count)
{
    for (int i = 0; i < count; i++)
        assert_int_equal(cudaFree(memory[i]), cudaSuccess);
}
#define FREE(...) free_all((void *const[]){ __VA_ARGS__ }, (int)(sizeof((void *const[]){ __VA_ARGS__ }) / sizeof(void *)))

static Desc flat(RawGraph *g, int64_t uid, cudnnDataType_t type, int64_t n)
{
    return raw_tensor(g, (RawTensor){ .uid = uid, .type = type, .rank = 3, .dim = { 1, 1, n } });
}

static Desc flat_virtual(RawGraph *g, int64_t uid, cudnnDataType_t type, int64_t n)
{
    return raw_tensor(g, (RawTensor){ .uid = uid, .type = type, .rank = 3, .dim = { 1, 1, n }, .is_virtual = true });
}

/* ---- convolution */

/* One 3x3 image of two channels, NHWC, one 2x2 filter, no padding:
 *   channel 0: 1 2 3 / 4 5 6 / 7 8 9, channel 1: all 10; filter 0: 1 0 / 0 -1, filter 1: 1 1 / 1 1 -> x(p,q) - x(p+1,q+1) + 40 = 36 */
static void a_convolution_by_hand(void **state)
{
    (void)state;
    RawDevice d = raw_device_open();
    RawGraph g = raw_begin(d.api);
    float *x = raw_floats(18, (float[]){ 1, 10, 2, 10, 3, 10, 4, 10, 5, 10, 6, 10, 7, 10, 8, 10, 9, 10 });
    float *w = raw_floats(8, (float[]){ 1, 1, 0, 1, 0, 1, -1, 1 }), *y = raw_floats(4, NULL);
    raw_conv(&g, RAW_FORWARD, raw_nhwc(&g, 1, F, 1, 2, 3, 3), raw_nhwc(&g, 2, F, 1, 2, 2, 2), raw_nhwc(&g, 3, F, 1, 1, 2, 2),
             (RawConv){ .alpha = 1 });
    RAW_RUN(&g, &d, { 1, x }, { 2, w }, { 3, y });
    expect_floats(y, (float[]){ 36, 36, 36, 36 }, 4);
    y[0] = NAN; /* with beta 0 what the output held does not matter; by hand again: one pad row above, stride 2 down, 3 across */
    raw_end(&g);
    g = raw_begin(d.api);
    raw_conv(&g, RAW_FORWARD, raw_nhwc(&g, 1, F, 1, 2, 3, 3), raw_nhwc(&g, 2, F, 1, 2, 2, 2), raw_nhwc(&g, 3, F, 1, 1, 2, 1),
             (RawConv){ .pre = { 1, 0 }, .stride = { 2, 3 } });
    RAW_RUN(&g, &d, { 1, x }, { 2, w }, { 3, y });
    expect_floats(y, (float[]){ 18, 36 }, 2); /* 0 - 2 + 20;  4 - 8 + 40 */
    raw_end(&g);
    FREE(x, w, y);
    raw_device_close(&d);
}

typedef struct Shape { int64_t n, c, h, w, k, r, s; RawConv conv; } Shape;

static int64_t out_size(int64_t in, int64_t r, const RawConv *c, int axis)
{
    return (in + c->pre[axis] + c->post[axis] - c->dilation[axis] * (r - 1) - 1) / c->stride[axis] + 1;
}

/* Every product of the definition, with the three offsets of NHWC arrays, given to `use`. */
static void each_product(const Shape *s, void (*use)(void *context, int64_t x, int64_t w, int64_t y), void *context)
{
    const RawConv *c = &s->conv;
    const int64_t rows = out_size(s->h, s->r, c, 0), columns = out_size(s->w, s->s, c, 1);
    for (int64_t n = 0; n < s->n; n++)
        for (int64_t p = 0; p < rows; p++)
            for (int64_t q = 0; q < columns; q++)
                for (int64_t r = 0; r < s->r; r++)
                    for (int64_t t = 0; t < s->s; t++) {
                        const int64_t h = p * c->stride[0] - c->pre[0] + r * c->dilation[0],
                                      v = q * c->stride[1] - c->pre[1] + t * c->dilation[1];
                        const int64_t fr = c->flip ? s->r - 1 - r : r, ft = c->flip ? s->s - 1 - t : t;
                        for (int64_t k = 0; h >= 0 && h < s->h && v >= 0 && v < s->w && k < s->k; k++)
                            for (int64_t i = 0; i < s->c; i++)
                                use(context, ((n * s->h + h) * s->w + v) * s->c + i, ((k * s->r + fr) * s->s + ft) * s->c + i,
                                    ((n * rows + p) * columns + q) * s->k + k);
                    }
}

typedef struct Sums { const float *a, *b; float *out; RawConvKind kind; } Sums;

static void add_product(void *context, int64_t x, int64_t w, int64_t y)
{
    Sums *s = context;
    if (s->kind == RAW_FORWARD)
        s->out[y] += s->a[x] * s->b[w];
    else if (s->kind == RAW_DGRAD)
        s->out[x] += s->a[y] * s->b[w];
    else
        s->out[w] += s->a[x] * s->b[y];
}

static void check_conv(RawConvKind kind, Shape s)
{
    RawDevice d = raw_device_open();
    RawGraph g = raw_begin(d.api);
    const int64_t p = out_size(s.h, s.r, &s.conv, 0), q = out_size(s.w, s.s, &s.conv, 1);
    const int64_t nx = s.n * s.c * s.h * s.w, nw = s.k * s.c * s.r * s.s, ny = s.n * s.k * p * q;
    const int64_t n = kind == RAW_FORWARD ? ny : kind == RAW_DGRAD ? nx : nw;
    float *x = whole_numbers(1, nx), *w = whole_numbers(2, nw), *y = whole_numbers(3, ny),
          *out = kind == RAW_FORWARD ? y
                 : kind == RAW_DGRAD ? x
                                     : w;
    float *sum = calloc((size_t)n, sizeof *sum);
    assert_non_null(sum);
    Sums sums = { .a = kind == RAW_DGRAD ? y : x, .b = kind == RAW_WGRAD ? y : w, .out = sum, .kind = kind };
    each_product(&s, add_product, &sums);
    const double alpha = s.conv.alpha == 0 ? 1 : s.conv.alpha;
    for (int64_t i = 0; i < n; i++)
        sum[i] = (float)(alpha * (double)sum[i] + s.conv.beta * (double)out[i]);
    raw_conv(&g, kind, raw_nhwc(&g, 1, F, s.n, s.c, s.h, s.w), raw_nhwc(&g, 2, F, s.k, s.c, s.r, s.s),
             raw_nhwc(&g, 3, F, s.n, s.k, p, q), s.conv);
    RAW_RUN(&g, &d, { 1, x }, { 2, w }, { 3, y });
    expect_floats(out, sum, n);
    free(sum);
    raw_end(&g);
    FREE(x, w, y);
    raw_device_close(&d);
}

static void convolutions_follow_the_definition(void **state)
{
    (void)state;
    static const Shape shapes[] = {
        { 2, 3, 7, 5, 4, 3, 3, { .pre = { 1, 1 }, .post = { 1, 1 }, .stride = { 1, 1 }, .dilation = { 1, 1 } } },
        { 1, 2, 9, 8, 3, 3, 2, { .pre = { 2, 0 }, .post = { 1, 2 }, .stride = { 2, 3 }, .dilation = { 1, 1 } } },
        { 2, 1, 8, 8, 2, 3, 3, { .pre = { 1, 2 }, .post = { 2, 1 }, .stride = { 2, 1 }, .dilation = { 2, 3 } } },
        { 3, 4, 1, 1, 5, 1, 1, { .stride = { 1, 1 }, .dilation = { 1, 1 } } },
        { 1, 2, 4, 4, 2, 2, 2, { .stride = { 2, 2 }, .dilation = { 1, 1 }, .flip = true } },
        { 1,
          2,
          3,
          3,
          2,
          1,
          1,
          { .pre = { 4, 4 }, .post = { 4, 4 }, .stride = { 3, 3 }, .dilation = { 1, 1 } } }, /* windows in the padding alone */
        { 2,
          3,
          6,
          6,
          2,
          3,
          3,
          { .pre = { 1, 1 }, .post = { 1, 1 }, .stride = { 2, 2 }, .dilation = { 1, 1 }, .alpha = 0.5, .beta = 1 } },
    };
    for (size_t i = 0; i < COUNT_OF(shapes); i++)
        for (int kind = RAW_FORWARD; kind <= RAW_WGRAD; kind++)
            check_conv((RawConvKind)kind, shapes[i]);
}

/* The same convolution with NCHW strides, and with rows that have a pitch. */
static void strides_are_followed(void **state)
{
    (void)state;
    RawDevice d = raw_device_open();
    RawGraph g = raw_begin(d.api);
    float *x =
        raw_floats(16, (float[]){ 1, 2, 3, 4, NAN, NAN, NAN, NAN, 5, 6, 7, 8, NAN, NAN, NAN, NAN }); /* two channels of 2x2 */
    float *w = raw_floats(2, (float[]){ 1, 10 }), *y = raw_floats(8, NULL);
    Desc tx = raw_tensor(&g, (RawTensor){ .uid = 1, .type = F, .rank = 4, .dim = { 1, 2, 2, 2 }, .stride = { 16, 8, 2, 1 } });
    Desc ty = raw_tensor(&g, (RawTensor){ .uid = 3, .type = F, .rank = 4, .dim = { 1, 1, 2, 2 }, .stride = { 8, 8, 4, 2 } });
    raw_conv(&g, RAW_FORWARD, tx, raw_nhwc(&g, 2, F, 1, 2, 1, 1), ty, (RawConv){ .alpha = 1 });
    RAW_RUN(&g, &d, { 1, x }, { 2, w }, { 3, y });
    expect_floats(y, (float[]){ 51, NAN, 62, NAN, 73, NAN, 84, NAN }, 8);
    raw_end(&g);
    FREE(x, w, y);
    raw_device_close(&d);
}

/* ---- types */

/* 2049 has 12 significant bits, 257 nine: fp16 keeps 11, bf16 8; ties go to even. 70000 is past fp16. */
static void virtual_tensors_round_to_their_type(void **state)
{
    (void)state;
    static const struct { cudnnDataType_t type; float want[4]; } rows[] = {
        { F, { 2049, 2051, 70000, 257 } }, { H, { 2048, 2052, INFINITY, 257 } }, { B, { 2048, 2048, 70144, 256 } },
        { CUDNN_DATA_INT8, { 127, 127, 127, 127 } }, { CUDNN_DATA_INT32, { 2049, 2051, 70000, 257 } },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        RawDevice d = raw_device_open();
        RawGraph g = raw_begin(d.api);
        float *x = raw_floats(4, (float[]){ 2049, 2051, 70000, 257 }), *y = raw_floats(4, NULL);
        Desc between = flat_virtual(&g, 2, rows[i].type, 4);
        raw_point(&g, CUDNN_POINTWISE_IDENTITY, flat(&g, 1, F, 4), NULL, NULL, between);
        raw_point(&g, CUDNN_POINTWISE_IDENTITY, between, NULL, NULL, flat(&g, 3, F, 4));
        RAW_RUN(&g, &d, { 1, x }, { 3, y });
        expect_floats(y, rows[i].want, 4);
        raw_end(&g);
        FREE(x, y);
        raw_device_close(&d);
    }
}

static void halves_are_read_and_written(void **state)
{
    (void)state;
    RawDevice d = raw_device_open();
    RawGraph g = raw_begin(d.api);
    uint16_t *x = raw_alloc(8), *y = raw_alloc(8), *z = raw_alloc(8);
    const float in[4] = { 1.5f, -0.25f, 3, 0.1f };
    for (int i = 0; i < 4; i++)
        x[i] = f16_from_f32(in[i]);
    raw_point(&g, CUDNN_POINTWISE_ADD, flat(&g, 1, H, 4), flat(&g, 1, H, 4), NULL, flat(&g, 2, H, 4));
    raw_point(&g, CUDNN_POINTWISE_IDENTITY, flat(&g, 1, H, 4), NULL, NULL, flat(&g, 3, B, 4));
    RAW_RUN(&g, &d, { 1, x }, { 2, y }, { 3, z });
    for (int i = 0; i < 4; i++) {
        assert_int_equal(y[i], f16_from_f32(2 * f16_to_f32(f16_from_f32(in[i]))));
        assert_int_equal(z[i], bf16_from_f32(f16_to_f32(f16_from_f32(in[i]))));
    }
    raw_end(&g);
    FREE(x, y, z);
    raw_device_close(&d);
}

/* Two pixels of five channels, NHWC: bit i of the mask is element i in memory, not in the order of the indices. */
static void booleans_are_bits_in_the_order_of_memory(void **state)
{
    (void)state;
    RawDevice d = raw_device_open();
    RawGraph g = raw_begin(d.api);
    float *x = raw_floats(10, (float[]){ 1, -1, 2, 0, 3, /**/ -1, 4, NAN, 5, 6 }), zero = 0, *y = raw_floats(10, NULL);
    uint8_t *mask = raw_alloc(2);
    Desc tx = raw_nhwc(&g, 1, F, 1, 5, 1, 2), tm = raw_nhwc(&g, 2, BOOL, 1, 5, 1, 2);
    raw_point(&g, CUDNN_POINTWISE_CMP_GT, tx, raw_scalar(&g, 3, F), NULL, tm);
    RAW_RUN(&g, &d, { 1, x }, { 2, mask }, { 3, &zero });
    assert_int_equal(mask[0], 0x55); /* elements 0 2 4 6 */
    assert_int_equal(mask[1] & 3, 3); /* 8 9 */
    raw_end(&g);
    g = raw_begin(d.api);
    float *ones = raw_floats(10, (float[]){ 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 });
    raw_point(&g, CUDNN_POINTWISE_MUL, raw_nhwc(&g, 1, F, 1, 5, 1, 2), raw_nhwc(&g, 2, BOOL, 1, 5, 1, 2), NULL,
              raw_nhwc(&g, 3, F, 1, 5, 1, 2));
    RAW_RUN(&g, &d, { 1, ones }, { 2, mask }, { 3, y });
    expect_floats(y, (float[]){ 1, 0, 3, 0, 5, 0, 7, 0, 9, 10 }, 10);
    raw_end(&g);
    FREE(x, y, ones, mask);
    raw_device_close(&d);
}

/* ---- pointwise */

static void pointwise_modes_compute_what_their_names_say(void **state)
{
    (void)state;
    static const struct { cudnnPointwiseMode_t mode; float x, b; double want;
    } rows[] = {
        { CUDNN_POINTWISE_ADD, 3, 4, 7 },         { CUDNN_POINTWISE_SUB, 3, 4, -1 },        { CUDNN_POINTWISE_MUL, 3, 4, 12 },
        { CUDNN_POINTWISE_DIV, 3, 4, 0.75 },      { CUDNN_POINTWISE_ADD_SQUARE, 3, 4, 19 }, { CUDNN_POINTWISE_MAX, 3, 4, 4 },
        { CUDNN_POINTWISE_MIN, 3, 4, 3 },         { CUDNN_POINTWISE_POW, 3, 4, 81 },        { CUDNN_POINTWISE_MOD, 11, 4, 3 },
        { CUDNN_POINTWISE_CMP_EQ, 3, 3, 1 },      { CUDNN_POINTWISE_CMP_NEQ, 3, 3, 0 },     { CUDNN_POINTWISE_CMP_GT, 3, 3, 0 },
        { CUDNN_POINTWISE_CMP_GE, 3, 3, 1 },      { CUDNN_POINTWISE_CMP_LT, 3, 4, 1 },      { CUDNN_POINTWISE_CMP_LE, 4, 3, 0 },
        { CUDNN_POINTWISE_LOGICAL_AND, 1, 0, 0 }, { CUDNN_POINTWISE_LOGICAL_OR, 1, 0, 1 },
    };
    static const struct { cudnnPointwiseMode_t mode; float x; double want;
    } unary[] = {
        { CUDNN_POINTWISE_ABS, -2, 2 },
        { CUDNN_POINTWISE_CEIL, 1.25f, 2 },
        { CUDNN_POINTWISE_FLOOR, -1.25f, -2 },
        { CUDNN_POINTWISE_EXP, 1, 2.718281828 },
        { CUDNN_POINTWISE_LOG, 2, 0.6931471806 },
        { CUDNN_POINTWISE_NEG, 2, -2 },
        { CUDNN_POINTWISE_SQRT, 9, 3 },
        { CUDNN_POINTWISE_RSQRT, 4, 0.5 },
        { CUDNN_POINTWISE_RECIPROCAL, 4, 0.25 },
        { CUDNN_POINTWISE_SIN, 1, 0.8414709848 },
        { CUDNN_POINTWISE_COS, 1, 0.5403023059 },
        { CUDNN_POINTWISE_TAN, 1, 1.557407725 },
        { CUDNN_POINTWISE_ERF, 1, 0.8427007929 },
        { CUDNN_POINTWISE_IDENTITY, 5, 5 },
        { CUDNN_POINTWISE_LOGICAL_NOT, 0, 1 },
        { CUDNN_POINTWISE_RELU_FWD, -2, 0 },
        { CUDNN_POINTWISE_RELU_FWD, 2, 2 },
        { CUDNN_POINTWISE_RELU_FWD, NAN, 0 },
        { CUDNN_POINTWISE_TANH_FWD, 0.5f, 0.4621171573 },
        { CUDNN_POINTWISE_SIGMOID_FWD, 1, 0.7310585786 },
        { CUDNN_POINTWISE_ELU_FWD, -1, -0.6321205588 },
        { CUDNN_POINTWISE_GELU_FWD, 1, 0.8413447461 },
        { CUDNN_POINTWISE_GELU_FWD, -3, -0.0040496940 },
        { CUDNN_POINTWISE_SOFTPLUS_FWD, 0, 0.6931471806 },
        { CUDNN_POINTWISE_SWISH_FWD, 1, 0.7310585786 },
        { CUDNN_POINTWISE_GELU_APPROX_TANH_FWD, 1, 0.8411919906 },
    };
    for (size_t i = 0; i < COUNT_OF(rows) + COUNT_OF(unary); i++) {
        const bool two = i < COUNT_OF(rows);
        const size_t k = two ? i : i - COUNT_OF(rows);
        RawDevice d = raw_device_open();
        RawGraph g = raw_begin(d.api);
        float *x = raw_floats(1, two ? &rows[k].x : &unary[k].x), *b = raw_floats(1, two ? &rows[k].b : NULL),
              *y = raw_floats(1, NULL);
        raw_point(&g, two ? rows[k].mode : unary[k].mode, flat(&g, 1, F, 1), two ? flat(&g, 2, F, 1) : NULL, NULL,
                  flat(&g, 3, F, 1));
        raw_run(&g, &d, two ? (RawBind[]){ { 1, x }, { 3, y }, { 2, b } } : (RawBind[]){ { 1, x }, { 3, y } }, two ? 3 : 2);
        expect_near(y, two ? &rows[k].want : &unary[k].want, 1, 1e-7);
        raw_end(&g);
        FREE(x, b, y);
        raw_device_close(&d);
    }
}

/* dy f'(x), f' by central differences of the forward mode's own values. */
static void backward_modes_are_derivatives(void **state)
{
    (void)state;
    static const struct { cudnnPointwiseMode_t forward, backward;
    } pairs[] = {
        { CUDNN_POINTWISE_RELU_FWD, CUDNN_POINTWISE_RELU_BWD },
        { CUDNN_POINTWISE_TANH_FWD, CUDNN_POINTWISE_TANH_BWD },
        { CUDNN_POINTWISE_SIGMOID_FWD, CUDNN_POINTWISE_SIGMOID_BWD },
        { CUDNN_POINTWISE_GELU_FWD, CUDNN_POINTWISE_GELU_BWD },
        { CUDNN_POINTWISE_SWISH_FWD, CUDNN_POINTWISE_SWISH_BWD },
        { CUDNN_POINTWISE_GELU_APPROX_TANH_FWD, CUDNN_POINTWISE_GELU_APPROX_TANH_BWD },
    };
    const float at[6] = { -2.5f, -1, -0.25f, 0.25f, 1, 2.5f }, step = 0x1p-8f;
    for (size_t i = 0; i < COUNT_OF(pairs); i++) {
        RawDevice d = raw_device_open();
        RawGraph g = raw_begin(d.api);
        float *x = raw_floats(6, at), *near = raw_floats(12, NULL), *y = raw_floats(12, NULL), *dy = normals(1, 6),
              *dx = raw_floats(6, NULL);
        double want[6];
        for (int k = 0; k < 6; k++) {
            near[2 * k] = at[k] - step;
            near[2 * k + 1] = at[k] + step;
        }
        raw_point(&g, pairs[i].forward, flat(&g, 1, F, 12), NULL, NULL, flat(&g, 2, F, 12));
        raw_point_backward(&g, pairs[i].backward, flat(&g, 3, F, 6), flat(&g, 4, F, 6), flat(&g, 5, F, 6));
        RAW_RUN(&g, &d, { 1, near }, { 2, y }, { 3, dy }, { 4, x }, { 5, dx });
        for (int k = 0; k < 6; k++)
            want[k] = (double)dy[k] * ((double)y[2 * k + 1] - (double)y[2 * k]) / (2 * (double)step);
        expect_near(dx, want, 6, 1e-4);
        raw_end(&g);
        FREE(x, near, y, dy, dx);
        raw_device_close(&d);
    }
}

static void pointwise_inputs_are_broadcast_scaled_and_clipped(void **state)
{
    (void)state;
    RawDevice d = raw_device_open();
    RawGraph g = raw_begin(d.api);
    float *x = raw_floats(8, (float[]){ 1, 2, 3, 4, 5, 6, 7, 8 }), *bias = raw_floats(2, (float[]){ 10, 20 }),
          *y = raw_floats(8, NULL), *z = raw_floats(8, NULL);
    Desc tx = raw_nhwc(&g, 1, F, 1, 2, 2, 2), tb = raw_nhwc(&g, 2, F, 1, 2, 1, 1), ty = raw_nhwc(&g, 3, F, 1, 2, 2, 2),
         tz = raw_nhwc(&g, 4, F, 1, 2, 2, 2);
    raw_point_as(&g, CUDNN_POINTWISE_SUB, tb, tx, NULL, ty, (RawPoint){ .compute = F, .scaled = true, .alpha1 = 2, .alpha2 = 3 });
    raw_point_as(&g, CUDNN_POINTWISE_RELU_FWD, ty, NULL, NULL, tz,
                 (RawPoint){ .compute = F, .clipped = true, .lower = 5, .upper = 20, .slope = 0.5 });
    RAW_RUN(&g, &d, { 1, x }, { 2, bias }, { 3, y }, { 4, z });
    expect_floats(y, (float[]){ 17, 34, 11, 28, 5, 22, -1, 16 }, 8);
    expect_floats(z, (float[]){ 17, 20, 11, 20, 5, 20, 2, 16 }, 8); /* 5 + (-1 - 5) / 2 */
    raw_end(&g);
    FREE(x, bias, y, z);
    raw_device_close(&d);
}

/* x where column < 2, else -9: an index, a comparison and a choice, as a padding mask is built. */
static void an_index_and_a_choice(void **state)
{
    (void)state;
    RawDevice d = raw_device_open();
    RawGraph g = raw_begin(d.api);
    float *x = raw_floats(6, (float[]){ 1, 2, 3, 4, 5, NAN }), *y = raw_floats(6, NULL), low = -9;
    int32_t limit = 2;
    const RawTensor rows = { .rank = 4, .dim = { 1, 1, 2, 3 } };
    RawTensor tx = rows, column = rows, mask = rows, ty = rows;
    tx.uid = 1; tx.type = F;
    column.uid = 2; column.type = CUDNN_DATA_INT32; column.is_virtual = true;
    mask.uid = 3; mask.type = BOOL; mask.is_virtual = true;
    ty.uid = 6; ty.type = F;
    Desc dx = raw_tensor(&g, tx), dc = raw_tensor(&g, column), dm = raw_tensor(&g, mask);
    raw_point_as(&g, CUDNN_POINTWISE_GEN_INDEX, dx, NULL, NULL, dc, (RawPoint){ .compute = CUDNN_DATA_INT32, .axis = 3 });
    raw_point_as(&g, CUDNN_POINTWISE_CMP_LT, dc, raw_scalar(&g, 4, CUDNN_DATA_INT32), NULL, dm, (RawPoint){ .compute = BOOL });
    raw_point(&g, CUDNN_POINTWISE_BINARY_SELECT, dx, raw_scalar(&g, 5, F), dm, raw_tensor(&g, ty));
    RAW_RUN(&g, &d, { 1, x }, { 4, &limit }, { 5, &low }, { 6, y });
    expect_floats(y, (float[]){ 1, 2, -9, 4, 5, -9 }, 6);
    raw_end(&g);
    FREE(x, y);
    raw_device_close(&d);
}

static void reductions_run_over_the_axes_that_vanish(void **state)
{
    (void)state;
    static const struct { cudnnReduceTensorOp_t mode; double columns[3], all;
    } rows[] = {
        /* of {1 -2 3; 4 5 -6} */
        { CUDNN_REDUCE_TENSOR_ADD, { 5, 3, -3 }, 5 },
        { CUDNN_REDUCE_TENSOR_MUL, { 4, -10, -18 }, 720 },
        { CUDNN_REDUCE_TENSOR_MIN, { 1, -2, -6 }, -6 },
        { CUDNN_REDUCE_TENSOR_MAX, { 4, 5, 3 }, 5 },
        { CUDNN_REDUCE_TENSOR_AMAX, { 4, 5, 6 }, 6 },
        { CUDNN_REDUCE_TENSOR_AVG, { 2.5, 1.5, -1.5 }, 5.0 / 6 },
        { CUDNN_REDUCE_TENSOR_NORM1, { 5, 7, 9 }, 21 },
        { CUDNN_REDUCE_TENSOR_NORM2, { 4.1231056256, 5.3851648071, 6.7082039325 }, 9.5393920142 },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        RawDevice d = raw_device_open();
        RawGraph g = raw_begin(d.api);
        float *x = raw_floats(6, (float[]){ 1, -2, 3, 4, 5, -6 }), *columns = raw_floats(3, NULL), *all = raw_floats(1, NULL);
        Desc tx = raw_tensor(&g, (RawTensor){ .uid = 1, .type = F, .rank = 3, .dim = { 1, 2, 3 } });
        raw_reduce(&g, rows[i].mode, tx, raw_tensor(&g, (RawTensor){ .uid = 2, .type = F, .rank = 3, .dim = { 1, 1, 3 } }));
        raw_reduce(&g, rows[i].mode, tx, raw_tensor(&g, (RawTensor){ .uid = 3, .type = F, .rank = 3, .dim = { 1, 1, 1 } }));
        RAW_RUN(&g, &d, { 1, x }, { 2, columns }, { 3, all });
        expect_near(columns, rows[i].columns, 3, 1e-7);
        expect_near(all, &rows[i].all, 1, 1e-7);
        raw_end(&g);
        FREE(x, columns, all);
        raw_device_close(&d);
    }
}

/* ---- matrices */

/* b stored transposed; the matrix of a serves both batch entries. */
static void matmul_follows_the_definition(void **state)
{
    (void)state;
    enum { M = 3, N = 4, K = 5 };
    RawDevice d = raw_device_open();
    RawGraph g = raw_begin(d.api);
    float *a = whole_numbers(1, M * K), *b = whole_numbers(2, 2 * N * K), *c = raw_floats(2 * M * N, NULL), want[2 * M * N];
    for (int l = 0; l < 2; l++)
        for (int i = 0; i < M; i++)
            for (int j = 0; j < N; j++) {
                want[(l * M + i) * N + j] = 0;
                for (int k = 0; k < K; k++)
                    want[(l * M + i) * N + j] += a[i * K + k] * b[l * N * K + j * K + k];
            }
    raw_matmul(&g, raw_tensor(&g, (RawTensor){ .uid = 1, .type = F, .rank = 3, .dim = { 1, M, K } }),
               raw_tensor(&g, (RawTensor){ .uid = 2, .type = F, .rank = 3, .dim = { 2, K, N }, .stride = { N * K, 1, K } }),
               raw_tensor(&g, (RawTensor){ .uid = 3, .type = F, .rank = 3, .dim = { 2, M, N } }), NULL, NULL, NULL);
    RAW_RUN(&g, &d, { 1, a }, { 2, b }, { 3, c });
    expect_floats(c, want, 2 * M * N);
    raw_end(&g);
    FREE(a, b, c);
    raw_device_close(&d);
}

/* Entry 0 has 2 of 3 rows, entry 1 has 1; sums stop at K too. What lies outside is 0 in a virtual tensor, and is not written in memory. */
static void overrides_cut_products(void **state)
{
    (void)state;
    RawDevice d = raw_device_open();
    RawGraph g = raw_begin(d.api);
    float *a = raw_floats(12, (float[]){ 1, 2, 3, 4, NAN, NAN, /**/ 5, NAN, NAN, NAN, NAN, NAN }),
          *b = raw_floats(4, (float[]){ 1, 10, 1, NAN });
    float *c = raw_floats(6, (float[]){ -1, -1, -1, -1, -1, -1 }), *again = raw_floats(6, NULL);
    int32_t *m = raw_alloc(8), *k = raw_alloc(8);
    m[0] = 2; m[1] = 1;
    k[0] = 2; k[1] = 1;
    Desc ta = raw_tensor(&g, (RawTensor){ .uid = 1, .type = F, .rank = 4, .dim = { 2, 1, 3, 2 } }),
         tb = raw_tensor(&g, (RawTensor){ .uid = 2, .type = F, .rank = 4, .dim = { 2, 1, 2, 1 } }),
         tm = raw_tensor(&g, (RawTensor){ .uid = 4, .type = CUDNN_DATA_INT32, .rank = 4, .dim = { 2, 1, 1, 1 } }),
         tk = raw_tensor(&g, (RawTensor){ .uid = 5, .type = CUDNN_DATA_INT32, .rank = 4, .dim = { 2, 1, 1, 1 } }),
         between = raw_tensor(&g, (RawTensor){ .uid = 6, .type = F, .rank = 4, .dim = { 2, 1, 3, 1 }, .is_virtual = true });
    raw_matmul(&g, ta, tb, raw_tensor(&g, (RawTensor){ .uid = 3, .type = F, .rank = 4, .dim = { 2, 1, 3, 1 } }), tm, NULL, tk);
    raw_matmul(&g, ta, tb, between, tm, NULL, tk);
    raw_point(&g, CUDNN_POINTWISE_EXP, between, NULL, NULL,
              raw_tensor(&g, (RawTensor){ .uid = 7, .type = F, .rank = 4, .dim = { 2, 1, 3, 1 } }));
    RAW_RUN(&g, &d, { 1, a }, { 2, b }, { 3, c }, { 4, m }, { 5, k }, { 7, again });
    expect_floats(c, (float[]){ 21, 43, -1, 5, -1, -1 }, 6);
    assert_true(again[2] == 1 && again[4] == 1 && again[5] == 1);
    raw_end(&g);
    FREE(a, b, c, again, m, k);
    raw_device_close(&d);
}

/* Two sequences of 2 and 1 rows lie back to back; the tensor has room for 3 rows each. Nothing past the end is read or written. */
static void ragged_rows_end_where_the_offsets_say(void **state)
{
    (void)state;
    RawDevice d = raw_device_open();
    RawGraph g = raw_begin(d.api);
    float *x = raw_floats(6, (float[]){ 1, 2, 3, 4, 5, 6 }), *y = raw_floats(7, (float[]){ 0, 0, 0, 0, 0, 0, -7 }),
          *one = raw_floats(4, (float[]){ 0, 1, 1, 0 });
    int32_t *offset = raw_alloc(12), *rows = raw_alloc(8);
    offset[0] = 0; offset[1] = 4; offset[2] = 6;
    rows[0] = 2; rows[1] = 1;
    Desc to = raw_tensor(&g, (RawTensor){ .uid = 9, .type = CUDNN_DATA_INT32, .rank = 4, .dim = { 3, 1, 1, 1 } }),
         tm = raw_tensor(&g, (RawTensor){ .uid = 8, .type = CUDNN_DATA_INT32, .rank = 4, .dim = { 2, 1, 1, 1 } });
    Desc tx = raw_tensor(
             &g, (RawTensor){ .uid = 1, .type = F, .rank = 4, .dim = { 2, 1, 3, 2 }, .stride = { 6, 6, 2, 1 }, .ragged = to }),
         ty = raw_tensor(
             &g, (RawTensor){ .uid = 2, .type = F, .rank = 4, .dim = { 2, 1, 3, 2 }, .stride = { 6, 6, 2, 1 }, .ragged = to }),
         swap = raw_tensor(&g, (RawTensor){ .uid = 3, .type = F, .rank = 4, .dim = { 1, 1, 2, 2 } });
    raw_matmul(&g, tx, swap, ty, tm, NULL, NULL);
    RAW_RUN(&g, &d, { 1, x }, { 2, y }, { 3, one }, { 8, rows }, { 9, offset });
    expect_floats(y, (float[]){ 2, 1, 4, 3, 6, 5, -7 }, 7);
    raw_end(&g);
    FREE(x, y, one, offset, rows);
    raw_device_close(&d);
}

/* {1 2 3; 4 5 6} seen as 3x2 with the strides of its transpose. */
static void reshape_sees_the_same_memory(void **state)
{
    (void)state;
    RawDevice d = raw_device_open();
    RawGraph g = raw_begin(d.api);
    float *x = raw_floats(6, (float[]){ 1, 2, 3, 4, 5, 6 }), *y = raw_floats(6, NULL);
    Desc turned = raw_tensor(
        &g, (RawTensor){ .uid = 2, .type = F, .rank = 3, .dim = { 1, 3, 2 }, .stride = { 6, 1, 3 }, .is_virtual = true });
    raw_reshape(&g, raw_tensor(&g, (RawTensor){ .uid = 1, .type = F, .rank = 3, .dim = { 1, 2, 3 } }), turned);
    raw_point(&g, CUDNN_POINTWISE_IDENTITY, turned, NULL, NULL,
              raw_tensor(&g, (RawTensor){ .uid = 3, .type = F, .rank = 3, .dim = { 1, 3, 2 } }));
    RAW_RUN(&g, &d, { 1, x }, { 3, y });
    expect_floats(y, (float[]){ 1, 4, 2, 5, 3, 6 }, 6);
    raw_end(&g);
    FREE(x, y);
    raw_device_close(&d);
}

/* ---- norms */

/* One channel of 1 2 3 6: mean 3, biased variance 3.5, unbiased 14/3; epsilon 0.5 gives invstd 1/2. */
static void batch_norm_by_hand(void **state)
{
    (void)state;
    RawDevice d = raw_device_open();
    RawGraph g = raw_begin(d.api);
    float *x = raw_floats(8, (float[]){ 1, -1, 2, -2, 3, -3, 6, -6 }), *scale = raw_floats(2, (float[]){ 2, 1 }),
          *bias = raw_floats(2, (float[]){ 10, 0 });
    float *run = raw_floats(2, (float[]){ 1, 1 }), *var = raw_floats(2, (float[]){ 1, 1 }), *mean = raw_floats(2, NULL),
          *invstd = raw_floats(2, NULL);
    float *y = raw_floats(8, NULL), epsilon = 0.5f, factor = 0.25f;
    Desc channel[8];
    for (int i = 0; i < 8; i++)
        channel[i] = raw_nhwc(&g, 10 + i, F, 1, 2, 1, 1);
    raw_norm(&g, CUDNN_BATCH_NORM, CUDNN_NORM_FWD_TRAINING,
             (RawNorm){ .x = raw_nhwc(&g, 1, F, 2, 2, 1, 2),
                        .scale = channel[0],
                        .bias = channel[1],
                        .epsilon = raw_scalar(&g, 2, F),
                        .factor = raw_scalar(&g, 3, F),
                        .run_mean = channel[2],
                        .run_var = channel[3],
                        .mean = channel[4],
                        .invstd = channel[5],
                        .next_mean = channel[6],
                        .next_var = channel[7],
                        .y = raw_nhwc(&g, 4, F, 2, 2, 1, 2) });
    RAW_RUN(&g, &d, { 1, x }, { 2, &epsilon }, { 3, &factor }, { 4, y }, { 10, scale }, { 11, bias }, { 12, run }, { 13, var },
            { 14, mean }, { 15, invstd }, { 16, run }, { 17, var });
    expect_floats(mean, (float[]){ 3, -3 }, 2);
    expect_floats(invstd, (float[]){ 0.5f, 0.5f }, 2);
    expect_floats(y, (float[]){ 8, 1, 9, 0.5f, 10, 0, 13, -1.5f }, 8);
    expect_floats(run, (float[]){ 1.5f, 0 }, 2); /* 3/4 1 + 1/4 mean */
    expect_near(var, (double[]){ 0.75 + 14.0 / 12, 0.75 + 14.0 / 12 }, 2, 1e-7);
    raw_end(&g);
    g = raw_begin(d.api); /* inference with these statistics gives the same */
    memset(y, 0xff, 8 * sizeof *y);
    for (int i = 0; i < 4; i++)
        channel[i] = raw_nhwc(&g, 10 + i, F, 1, 2, 1, 1);
    raw_norm(&g, CUDNN_BATCH_NORM, CUDNN_NORM_FWD_INFERENCE,
             (RawNorm){ .x = raw_nhwc(&g, 1, F, 2, 2, 1, 2),
                        .scale = channel[0],
                        .bias = channel[1],
                        .mean = channel[2],
                        .invstd = channel[3],
                        .y = raw_nhwc(&g, 4, F, 2, 2, 1, 2) });
    RAW_RUN(&g, &d, { 1, x }, { 4, y }, { 10, scale }, { 11, bias }, { 12, mean }, { 13, invstd });
    expect_floats(y, (float[]){ 8, 1, 9, 0.5f, 10, 0, 13, -1.5f }, 8);
    raw_end(&g);
    FREE(x, scale, bias, run, var, mean, invstd, y);
    raw_device_close(&d);
}

/* L = sum dy y of the definition, statistics over rows (layer) or columns (batch) of x (R,C), in double. */
typedef struct NormCase { int rows, columns; bool layer; const float *x, *scale, *dy; double epsilon; } NormCase;

static double norm_loss(const NormCase *n, const double *x, const double *scale, const double *bias)
{
    const int groups = n->layer ? n->rows : n->columns, size = n->layer ? n->columns : n->rows;
    double loss = 0;
    for (int g = 0; g < groups; g++) {
        double mean = 0, var = 0;
        for (int i = 0; i < size; i++)
            mean += x[n->layer ? g * n->columns + i : i * n->columns + g] / size;
        for (int i = 0; i < size; i++)
            var += pow(x[n->layer ? g * n->columns + i : i * n->columns + g] - mean, 2) / size;
        for (int i = 0; i < size; i++) {
            const int at = n->layer ? g * n->columns + i : i * n->columns + g, c = at % n->columns;
            loss += (double)n->dy[at] * (scale[c] * (x[at] - mean) / sqrt(var + n->epsilon) + bias[c]);
        }
    }
    return loss;
}

static void norm_slopes(const NormCase *n, double *x, double *scale, double *bias, double *of, int count, double *slope)
{
    for (int i = 0; i < count; i++) {
        const double kept = of[i], step = 1e-5;
        of[i] = kept + step;
        const double above = norm_loss(n, x, scale, bias);
        of[i] = kept - step;
        slope[i] = (above - norm_loss(n, x, scale, bias)) / (2 * step);
        of[i] = kept;
    }
}

/* Forward and backward in one graph, against differences. */
static void check_norm(bool layer)
{
    enum { R = 6, C = 5 };
    RawDevice d = raw_device_open();
    RawGraph g = raw_begin(d.api);
    float *x = normals(1, R * C), *scale = normals(2, C), *bias = normals(3, C), *dy = normals(4, R * C), epsilon = 0.125f;
    float *y = raw_floats(R * C, NULL), *dx = raw_floats(R * C, NULL), *dscale = raw_floats(C, NULL), *dbias = raw_floats(C, NULL),
          *mean = raw_floats(R + C, NULL), *invstd = raw_floats(R + C, NULL);
    const NormCase n = { R, C, layer, x, scale, dy, (double)epsilon };
    double wx[R * C], ws[C], wb[C], want_x[R * C], want_s[C], want_b[C];
    for (int i = 0; i < R * C; i++)
        wx[i] = (double)x[i];
    for (int i = 0; i < C; i++) {
        ws[i] = (double)scale[i];
        wb[i] = (double)bias[i];
    }
    norm_slopes(&n, wx, ws, wb, wx, R * C, want_x);
    norm_slopes(&n, wx, ws, wb, ws, C, want_s);
    norm_slopes(&n, wx, ws, wb, wb, C, want_b);
    Desc tx = raw_nhwc(&g, 1, F, R, C, 1, 1), ts = raw_nhwc(&g, 2, F, 1, C, 1, 1),
         tm = layer ? raw_nhwc(&g, 5, F, R, 1, 1, 1) : raw_nhwc(&g, 5, F, 1, C, 1, 1),
         ti = layer ? raw_nhwc(&g, 6, F, R, 1, 1, 1) : raw_nhwc(&g, 6, F, 1, C, 1, 1);
    const cudnnBackendNormMode_t mode = layer ? CUDNN_LAYER_NORM : CUDNN_BATCH_NORM;
    raw_norm(&g, mode, CUDNN_NORM_FWD_TRAINING,
             (RawNorm){ .x = tx,
                        .scale = ts,
                        .bias = raw_nhwc(&g, 3, F, 1, C, 1, 1),
                        .epsilon = raw_scalar(&g, 4, F),
                        .mean = tm,
                        .invstd = ti,
                        .y = raw_nhwc(&g, 7, F, R, C, 1, 1) });
    raw_norm_backward(&g, mode,
                      (RawNormGrad){ .x = tx,
                                     .mean = tm,
                                     .invstd = ti,
                                     .dy = raw_nhwc(&g, 8, F, R, C, 1, 1),
                                     .scale = ts,
                                     .dscale = raw_nhwc(&g, 9, F, 1, C, 1, 1),
                                     .dbias = raw_nhwc(&g, 10, F, 1, C, 1, 1),
                                     .dx = raw_nhwc(&g, 11, F, R, C, 1, 1) });
    RAW_RUN(&g, &d, { 1, x }, { 2, scale }, { 3, bias }, { 4, &epsilon }, { 5, mean }, { 6, invstd }, { 7, y }, { 8, dy },
            { 9, dscale }, { 10, dbias }, { 11, dx });
    double loss = 0;
    for (int i = 0; i < R * C; i++)
        loss += (double)dy[i] * (double)y[i];
    assert_true(fabs(loss - norm_loss(&n, wx, ws, wb)) < 1e-5);
    expect_near(dx, want_x, R * C, 2e-6);
    expect_near(dscale, want_s, C, 2e-6);
    expect_near(dbias, want_b, C, 2e-6);
    raw_end(&g);
    FREE(x, scale, bias, dy, y, dx, dscale, dbias, mean, invstd);
    raw_device_close(&d);
}

static void norm_gradients_are_derivatives(void **state)
{
    (void)state;
    check_norm(false);
    check_norm(true);
}

static void statistics_are_sums(void **state)
{
    (void)state;
    RawDevice d = raw_device_open();
    RawGraph g = raw_begin(d.api);
    float *x = raw_floats(6, (float[]){ 1, 2, 3, 4, 5, 6 }), *sum = raw_floats(2, NULL), *squares = raw_floats(2, NULL);
    raw_genstats(&g, raw_nhwc(&g, 1, F, 3, 2, 1, 1), raw_nhwc(&g, 2, F, 1, 2, 1, 1), raw_nhwc(&g, 3, F, 1, 2, 1, 1));
    RAW_RUN(&g, &d, { 1, x }, { 2, sum }, { 3, squares });
    expect_floats(sum, (float[]){ 9, 12 }, 2);
    expect_floats(squares, (float[]){ 35, 56 }, 2);
    raw_end(&g);
    FREE(x, sum, squares);
    raw_device_close(&d);
}

/* ---- pooling: 3x3 windows by 2 over a 4x4 image with one pad before and one behind */

static void run_pool(RawPool p, const float *image, float *out, int8_t *place, const float *grad, float *back)
{
    RawDevice d = raw_device_open();
    RawGraph g = raw_begin(d.api);
    float *x = raw_floats(16, image), *y = raw_floats(4, NULL), *dy = raw_floats(4, grad), *dx = raw_floats(16, NULL);
    int8_t *index = raw_alloc(4);
    const bool largest = p.mode == CUDNN_RESAMPLE_MAXPOOL;
    Desc ti = largest ? raw_nhwc(&g, 3, CUDNN_DATA_INT8, 1, 1, 2, 2) : NULL;
    raw_pool(&g, p, raw_nhwc(&g, 1, F, 1, 1, 4, 4), raw_nhwc(&g, 2, F, 1, 1, 2, 2), ti);
    raw_pool_backward(&g, p, raw_nhwc(&g, 5, F, 1, 1, 4, 4), raw_nhwc(&g, 4, F, 1, 1, 2, 2), ti);
    raw_run(&g, &d, (RawBind[]){ { 1, x }, { 2, y }, { 4, dy }, { 5, dx }, { 3, index } }, largest ? 5 : 4);
    memcpy(out, y, 4 * sizeof *y);
    memcpy(place, index, 4);
    memcpy(back, dx, 16 * sizeof *dx);
    raw_end(&g);
    FREE(x, y, dy, dx, index);
    raw_device_close(&d);
}

static void pooling_by_hand(void **state)
{
    (void)state;
    const float image[16] = { -1, -2, -3, -4, -5, -1, -7, -8, -9, -3, -0.5f, -0.5f, -4, -4, -2, -9 },
                grad[4] = { 1, 10, 100, 1000 };
    float out[4], back[16];
    int8_t place[4];
    RawPool p = { .mode = CUDNN_RESAMPLE_MAXPOOL, .window = 3, .pre = 1, .post = 1, .stride = 2 };
    run_pool(p, image, out, place, grad, back); /* the padding is never the largest; of equal ones the first in its window wins */
    expect_floats(out, (float[]){ -1, -1, -1, -0.5f }, 4);
    assert_memory_equal(place, ((int8_t[]){ 4, 6, 2, 4 }), 4);
    expect_floats(back, (float[]){ 1, 0, 0, 0, 0, 110, 0, 0, 0, 0, 1000, 0, 0, 0, 0, 0 }, 16);
    p.mode = CUDNN_RESAMPLE_AVGPOOL_INCLUDE_PADDING; /* windows hold 4, 6, 6, 9 pixels */
    run_pool(p, image, out, place, (float[]){ 9, 18, 27, 36 }, back);
    expect_near(out, (double[]){ -1, -25.0 / 9, -26.0 / 9, -35.0 / 9 }, 4, 1e-7);
    expect_floats(back, (float[]){ 1, 3, 2, 2, 4, 10, 6, 6, 3, 7, 4, 4, 3, 7, 4, 4 }, 16);
    p.mode = CUDNN_RESAMPLE_AVGPOOL_EXCLUDE_PADDING;
    run_pool(p, image, out, place, (float[]){ 4, 0, 0, 0 }, back);
    expect_near(out, (double[]){ -9.0 / 4, -25.0 / 6, -26.0 / 6, -35.0 / 9 }, 4, 1e-7);
    expect_floats(back, (float[]){ 1, 1, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }, 16);
}

static void ops_run_in_the_order_of_their_tensors(void **state)
{
    (void)state;
    RawDevice d = raw_device_open();
    RawGraph g = raw_begin(d.api);
    float *x = raw_floats(2, (float[]){ 1, 2 }), *y = raw_floats(2, NULL);
    Desc a = flat_virtual(&g, 2, F, 2), b = flat_virtual(&g, 3, F, 2);
    raw_point(&g, CUDNN_POINTWISE_NEG, b, NULL, NULL, flat(&g, 4, F, 2));
    raw_point(&g, CUDNN_POINTWISE_ADD, a, a, NULL, b);
    raw_point(&g, CUDNN_POINTWISE_MUL, flat(&g, 1, F, 2), flat(&g, 1, F, 2), NULL, a);
    RAW_RUN(&g, &d, { 1, x }, { 4, y });
    expect_floats(y, (float[]){ -2, -8 }, 2);
    raw_end(&g);
    FREE(x, y);
    raw_device_close(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_convolution_by_hand),
        cmocka_unit_test(convolutions_follow_the_definition),
        cmocka_unit_test(strides_are_followed),
        cmocka_unit_test(virtual_tensors_round_to_their_type),
        cmocka_unit_test(halves_are_read_and_written),
        cmocka_unit_test(booleans_are_bits_in_the_order_of_memory),
        cmocka_unit_test(pointwise_modes_compute_what_their_names_say),
        cmocka_unit_test(backward_modes_are_derivatives),
        cmocka_unit_test(pointwise_inputs_are_broadcast_scaled_and_clipped),
        cmocka_unit_test(an_index_and_a_choice),
        cmocka_unit_test(reductions_run_over_the_axes_that_vanish),
        cmocka_unit_test(matmul_follows_the_definition),
        cmocka_unit_test(overrides_cut_products),
        cmocka_unit_test(ragged_rows_end_where_the_offsets_say),
        cmocka_unit_test(reshape_sees_the_same_memory),
        cmocka_unit_test(batch_norm_by_hand),
        cmocka_unit_test(norm_gradients_are_derivatives),
        cmocka_unit_test(statistics_are_sums),
        cmocka_unit_test(pooling_by_hand),
        cmocka_unit_test(ops_run_in_the_order_of_their_tensors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
