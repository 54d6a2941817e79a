/* test_attention_cuda.c - attention and its gradient by the CUDA backend: against the reference for spans of every awkward kind, on tensor
 * cores and without, under all schedules; the dropout mask bit for bit; bad spans as a fault at sync; NaN; memory. */
#include "../../kernels/cuda/cuda.h"
#include "../../kernels/dropout.h"
#include "cuda_case.h"

#include "../ref/ref.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MAX_SPANS = 8, WITHOUT_TENSOR_CORES = 75 };

typedef struct Shape {
    int64_t tokens, width, seq;
    int     heads;
    int64_t spans;
    int32_t span[MAX_SPANS][2];
    float   dropout;
    float   spread; /* factor on q and k: large scores; 0 = 1 */
} Shape;

static const Shape shapes[] = {
    { 6, 16, 8, 2, 1, { { 0, 6 } }, 0, 0 },
    { 40, 64, 32, 2, 3, { { 0, 7 }, { 7, 1 }, { 8, 32 } }, 0, 0 },                             /* back to back */
    { 70, 48, 40, 2, 5, { { 60, 9 }, { 3, 17 }, { 21, 0 }, { 22, 33 }, { 58, 1 } }, 0.1f, 0 }, /* gaps, empty, out of order */
    { 70, 96, 64, 3, 2, { { 5, 64 }, { 0, 0 } }, 0.5f, 0 },
    { 131, 64, 130, 1, 1, { { 1, 130 } }, 0.25f, 3 },                                          /* peaked, three tiles */
    { 50, 20, 49, 5, 2, { { 0, 1 }, { 1, 49 } }, 0.1f, 0 },                                    /* head size 4 */
    { 60, 66, 35, 2, 2, { { 0, 25 }, { 25, 35 } }, 0.1f, 0 },                                  /* head size 33: an odd place in memory */
    { 9, 3, 5, 3, 2, { { 0, 4 }, { 4, 5 } }, 0.1f, 0 },                                        /* head size 1 */
    { 80, 256, 67, 2, 2, { { 13, 67 }, { 0, 13 } }, 0.1f, 0 },                                 /* head size 128 */
    { 160, 128, 128, 2, 2, { { 0, 128 }, { 130, 30 } }, 0.1f, 0 },                             /* head size 64, as in BERT */
};

static const int32_t rng_words[4] = { 12345, -6, 3, 0 };

static OpDesc forward_op(const Shape *s, Dtype t)
{
    return (OpDesc){ .kind = OP_attention, .n_in = 2 + (s->dropout > 0),
        .in = { tensor_2d(t, s->tokens, 3 * s->width), tensor_2d(DTYPE_I32, s->spans, 2), tensor_1d(DTYPE_I32, 4) },
        .attr = { .heads = s->heads, .seq = s->seq, .dropout = s->dropout, .stream = 7 } };
}

static OpDesc gradient_op(const Shape *s, Dtype t)
{
    const Tensor y = tensor_2d(t, s->tokens, s->width);
    return (OpDesc){ .kind = OP_attention_grad, .n_in = 5 + (s->dropout > 0),
        .in = { tensor_2d(t, s->tokens, 3 * s->width), y, y, tensor_2d(DTYPE_F32, s->tokens, s->heads),
                tensor_2d(DTYPE_I32, s->spans, 2), tensor_1d(DTYPE_I32, 4) },
        .attr = { .heads = s->heads, .seq = s->seq, .dropout = s->dropout, .stream = 7 } };
}

static void need(Status s)
{
    if (s.code != STATUS_OK)
        fail_msg("%s", s.text);
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

static void set_common(OpCase *c, const Shape *s, int spans_slot)
{
    memcpy(c->in[spans_slot], s->span, (size_t)s->spans * sizeof s->span[0]);
    if (s->dropout > 0)
        memcpy(c->in[spans_slot + 1], rng_words, sizeof rng_words);
    for (int64_t i = 0; s->spread > 0 && i < tensor_count(&c->op.in[0]); i++)
        if (i % (3 * s->width) < 2 * s->width)
            set_element(&c->op.in[0], c->in[0], i, (double)s->spread * element(&c->op.in[0], c->in[0], i));
}

static OpCase *make_forward(const Shape *s, Dtype t)
{
    OpCase *c;
    OpDesc  op = forward_op(s, t);
    need(op_case_create(&op, FILL_RANDOM, 3, &c));
    set_common(c, s, 1);
    return c;
}

/* With y and lse of the reference's forward op. */
static OpCase *make_gradient(const Shape *s, Dtype t, Backend *ref)
{
    OpCase  *c, *forward = make_forward(s, t);
    OpDesc   op = gradient_op(s, t);
    OpResult made;
    need(op_case_create(&op, FILL_RANDOM, 3, &c));
    set_common(c, s, 4);
    need(op_case_run(forward, ref, NULL, &made));
    memcpy(c->in[0], forward->in[0], tensor_bytes(&op.in[0]));
    memcpy(c->in[1], made.out[0], tensor_bytes(&op.in[1]));
    memcpy(c->in[3], made.out[1], tensor_bytes(&op.in[3]));
    op_result_release(&made);
    op_case_destroy(forward);
    return c;
}

/* Shape `start` and every `step`-th after it. */
static void climb_shapes(CudaLadder *l, Dtype first, size_t start, size_t step)
{
    for (size_t i = start; i < COUNT_OF(shapes); i += step)
        for (Dtype t = first; t <= (i == 2 || i + 1 == COUNT_OF(shapes) ? DTYPE_F16 : DTYPE_BF16); t++) {
            OpCase *forward = make_forward(&shapes[i], t), *gradient = make_gradient(&shapes[i], t, l->ref);
            cuda_climb_case(l, forward, COMPARE_TOLERANCE);
            cuda_climb_case(l, gradient, COMPARE_TOLERANCE);
            op_case_destroy(forward);
            op_case_destroy(gradient);
        }
}

static void test_against_reference(void **state)
{
    (void)state;
    CudaLadder l = cuda_ladder_start();
    climb_shapes(&l, DTYPE_F32, 0, 1);
    cuda_ladder_end(&l);
}

static void test_without_tensor_cores(void **state)
{
    (void)state;
    CudaLadder l = cuda_ladder_start();
    cuda_of(l.be)->capability = WITHOUT_TENSOR_CORES;
    climb_shapes(&l, DTYPE_BF16, 2, 2);
    cuda_ladder_end(&l);
}

/* More rows than a grid's second dimension could count, nearly all in no span; then many sequences. */
static void test_many_rows(void **state)
{
    (void)state;
    static const struct { int64_t tokens, spans; } sizes[] = { { 66000, 2 }, { 6300, 2100 } };
    CudaLadder l = cuda_ladder_start();
    for (size_t k = 0; k < COUNT_OF(sizes); k++, l.cases++) {
        const Shape s = { sizes[k].tokens, 8, 3, 1, sizes[k].spans, { { 0, 0 } }, 0, 0 };
        OpDesc op = forward_op(&s, DTYPE_F16);
        OpCase *c;
        OpResult want, got;
        need(op_case_create(&op, FILL_RANDOM, 3, &c));
        int32_t *span = c->in[1];
        for (int32_t b = 0; b < s.spans; b++) {
            span[2 * b] = (int32_t)s.tokens - 3 * (b + 1);
            span[2 * b + 1] = 1 + b % 3;
        }
        c->trivial = true;
        need(op_case_run(c, l.ref, NULL, &want));
        need(op_case_run(c, l.be, NULL, &got));
        need(op_case_compare(c, COMPARE_TOLERANCE, &want, &got));
        op_result_release(&want);
        op_result_release(&got);
        op_case_destroy(c);
    }
    cuda_ladder_end(&l);
}

/* q = 0 makes all weights equal; v = one-hot of the key then shows the mask itself: y[i][j] = keep / (1 - p) / n. */
static void test_mask_is_exact(void **state)
{
    (void)state;
    enum { N = 48, SEQ = 52, HEADS = 2 };
    static const Shape s = { N + 1, N * HEADS, SEQ, HEADS, 2, { { 0, 0 }, { 1, N } }, 0.5f, 0 };
    CudaLadder l = cuda_ladder_start();
    for (Dtype t = DTYPE_F32; t <= DTYPE_F16; t++) {
        OpCase *c = make_forward(&s, t);
        const Tensor *qkv = &c->op.in[0];
        OpResult got;
        for (int64_t i = 0; i < tensor_count(qkv); i++) {
            const int64_t row = i / (3 * N * HEADS), column = i % (3 * N * HEADS);
            set_element(qkv, c->in[0], i, column >= 2 * N * HEADS && column % N == row - 1 ? N : 0); /* y = keep / (1 - p) = 0 or 2 */
        }
        need(op_case_run(c, l.be, NULL, &got));
        int kept = 0;
        for (int64_t h = 0; h < HEADS; h++)
            for (int64_t i = 0; i < N; i++)
                for (int64_t j = 0; j < N; j++) {
                    const bool keep = dropout_keeps(rng_words, 7, (HEADS + h) * SEQ + i, SEQ, j, 0.5f); /* span 1 */
                    const double y = element(&c->op.out[0], got.out[0], (1 + i) * N * HEADS + h * N + j);
                    kept += keep;
                    assert_true(keep ? fabs(y - 2) < 1e-5 : y == 0);
                }
        assert_in_range(kept, HEADS * N * N * 2 / 5, HEADS * N * N * 3 / 5);
        op_result_release(&got);
        op_case_destroy(c);
        l.cases++;
    }
    cuda_ladder_end(&l);
}

/* Rows in no span are exactly 0 in every output, whatever qkv and dy hold there; others are not. */
static void test_rows_in_no_span(void **state)
{
    (void)state;
    const Shape *s = &shapes[2];
    CudaLadder l = cuda_ladder_start();
    for (Dtype t = DTYPE_F32; t <= DTYPE_BF16; t++) {
        OpCase *c[2] = { make_forward(s, t), make_gradient(s, t, l.ref) };
        for (int k = 0; k < 2; k++, l.cases++) {
            OpResult got;
            need(op_case_run(c[k], l.be, NULL, &got));
            for (int o = 0; o < c[k]->op.n_out; o++)
                for (int64_t row = 0; row < s->tokens; row++) {
                    const Tensor *out = &c[k]->op.out[o];
                    bool   inside = false;
                    double largest = 0;
                    for (int64_t b = 0; b < s->spans; b++)
                        inside |= row >= s->span[b][0] && row < s->span[b][0] + s->span[b][1];
                    for (int64_t i = 0; i < out->dim[1]; i++)
                        largest = fmax(largest, fabs(element(out, got.out[o], row * out->dim[1] + i)));
                    assert_true(inside == (largest > 0));
                }
            op_result_release(&got);
            op_case_destroy(c[k]);
        }
    }
    cuda_ladder_end(&l);
}

/* The kernels touch nothing outside the tensors (op_case checks the guards), and sync tells. */
static void test_bad_spans(void **state)
{
    (void)state;
    static const int32_t bad[][2] = { { -1, 3 }, { 0, -1 }, { 0, 33 }, { 35, 6 }, { 41, 0 }, { 6, 2 }, { INT32_MAX, 1 },
                                      { 1, INT32_MAX }, { INT32_MIN, INT32_MIN } };
    CudaLadder l = cuda_ladder_start();
    for (Dtype t = DTYPE_F32; t <= DTYPE_BF16; t++) {
        OpCase *c[2] = { make_forward(&shapes[1], t), make_gradient(&shapes[1], t, l.ref) };
        for (int k = 0; k < 2; k++) {
            OpResult got;
            int32_t *span = (int32_t *)c[k]->in[k ? 4 : 1] + 4;
            for (size_t i = 0; i < COUNT_OF(bad); i++, l.cases++) {
                memcpy(span, bad[i], sizeof bad[i]);
                assert_int_equal(op_case_run(c[k], l.be, NULL, &got).code, STATUS_NUMERIC);
            }
            memcpy(span, shapes[1].span[2], sizeof shapes[1].span[2]);
            need(op_case_run(c[k], l.be, NULL, &got)); /* the fault is forgotten once it was told */
            op_result_release(&got);
            op_case_destroy(c[k]);
        }
    }
    cuda_ladder_end(&l);
}

/* One NaN in a query spoils its row; in a key, all rows of the head and span; nothing hides it. */
static void test_nan_is_not_hidden(void **state)
{
    (void)state;
    const Shape *s = &shapes[1];
    CudaLadder l = cuda_ladder_start();
    for (Dtype t = DTYPE_F32; t <= DTYPE_F16; t++)
        for (int part = 0; part < 2; part++, l.cases++) {
            OpCase  *c = make_forward(s, t);
            OpResult got;
            const Tensor *y = &c->op.out[0];
            set_element(&c->op.in[0], c->in[0], 10 * 3 * s->width + part * s->width + 5, (double)NAN);
            need(op_case_run(c, l.be, NULL, &got));
            for (int64_t row = 0; row < s->tokens; row++)
                assert_true((isfinite(element(y, got.out[0], row * s->width)) != 0) == (part ? row < 8 : row != 10));
            assert_true(isfinite(element(y, got.out[0], 10 * s->width + s->width / 2)));
            op_result_release(&got);
            op_case_destroy(c);
        }
    cuda_ladder_end(&l);
}

/* Scratch grows with the rows, not with the square of the sequence; heads of more than 128 features are refused. */
static void test_limits(void **state)
{
    (void)state;
    CudaLadder l = cuda_ladder_start();
    for (int gradient = 0; gradient < 2; gradient++, l.cases++) {
        OpNeeds needs;
        const Shape s = { 1 << 14, 768, 8192, 12, 1, { { 0, 0 } }, 0.1f, 0 }, wide = { 4, 129, 4, 1, 1, { { 0, 4 } }, 0, 0 };
        OpDesc op = gradient ? gradient_op(&s, DTYPE_BF16) : forward_op(&s, DTYPE_BF16);
        need(op_infer(&op));
        need(backend_query(l.be, &op, &needs));
        assert_true(needs.scratch <= sizeof(float) * 12 << 14);
        op = gradient ? gradient_op(&wide, DTYPE_F32) : forward_op(&wide, DTYPE_F32);
        need(op_infer(&op));
        assert_int_equal(backend_query(l.be, &op, &needs).code, STATUS_UNSUPPORTED);
    }
    cuda_ladder_end(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_reference),
        cmocka_unit_test(test_without_tensor_cores),
        cmocka_unit_test(test_many_rows),
        cmocka_unit_test(test_mask_is_exact),
        cmocka_unit_test(test_rows_in_no_span),
        cmocka_unit_test(test_bad_spans),
        cmocka_unit_test(test_nan_is_not_hidden),
        cmocka_unit_test(test_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
