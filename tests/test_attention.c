/* test_attention.c - attention and its gradient: the reference against finite differences and by hand, the CPU backend
 * against the reference for spans of every awkward kind, bad spans refused, the same bits for any number of threads. */
#include "../kernels/dropout.h"
#include "op_case.h"
#include "ref/ref.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MAX_SPANS = 8 };

typedef struct Shape {
    int64_t tokens, width, seq;
    int     heads;
    int64_t spans;
    int32_t span[MAX_SPANS][2];
    float   dropout;
    float   spread; /* factor on q and k: large scores; 0 = 1 */
} Shape;

static const Shape shapes[] = {
    { 6, 8, 8, 2, 1, { { 0, 6 } }, 0, 0 },
    { 40, 64, 32, 2, 3, { { 0, 7 }, { 7, 1 }, { 8, 32 } }, 0, 0 },                  /* back to back */
    { 70, 48, 40, 4, 5, { { 60, 9 }, { 3, 17 }, { 21, 0 }, { 22, 33 }, { 58, 1 } }, 0.1f, 0 }, /* gaps, empty, out of order */
    { 70, 96, 64, 3, 2, { { 5, 64 }, { 0, 0 } }, 0.5f, 0 },
    { 131, 64, 130, 1, 1, { { 1, 130 } }, 0.25f, 3 },                               /* peaked */
    { 50, 20, 49, 5, 2, { { 0, 1 }, { 1, 49 } }, 0.1f, 0 },                         /* head size 4 */
    { 100, 66, 65, 2, 2, { { 0, 35 }, { 35, 65 } }, 0.1f, 0 },                      /* head size 33: an odd place in memory */
    { 9, 3, 5, 3, 2, { { 0, 4 }, { 4, 5 } }, 0.1f, 0 },                             /* head size 1 */
    { 300, 64, 300, 1, 2, { { 257, 43 }, { 0, 257 } }, 0.1f, 0 },
    { 160, 768, 128, 12, 2, { { 0, 128 }, { 130, 30 } }, 0.1f, 0 },                /* BERT base */
};

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

static const int32_t rng_words[4] = { 12345, -6, 3, 0 };

static void need(Status s)
{
    if (s.code != STATUS_OK)
        fail_msg("%s", s.text);
}

static Backend *open_ref(void)
{
    Backend *be;
    need(ref_backend.open(&(BackendOptions){ .threads = 2 }, &be));
    return be;
}

static Backend *open_cpu(int threads)
{
    Backend *be;
    need(backend_open("cpu", &(BackendOptions){ .threads = threads }, &be));
    return be;
}

/* ---- the reference */

/* Loss = sum of weight y, in double, of the forward op. */
static double loss(const OpDesc *op, const double *const *in, double *const *out, const double *weight)
{
    double sum = 0;
    ref_compute(op, in, out);
    for (int64_t i = 0; i < tensor_count(&op->out[0]); i++)
        sum += weight[i] * out[0][i];
    return sum;
}

static double *normals(int64_t n, uint64_t stream)
{
    double *a = malloc((size_t)n * sizeof *a);
    assert_non_null(a);
    for (int64_t i = 0; i < n; i++)
        a[i] = rng_normal(11, stream, (uint64_t)i);
    return a;
}

static void check_differences(const Shape *s)
{
    const double step = 1e-5;
    OpDesc forward = forward_op(s, DTYPE_F32), gradient = gradient_op(s, DTYPE_F32);
    need(op_infer(&forward));
    need(op_infer(&gradient));
    const int64_t n = tensor_count(&forward.in[0]);
    double spans[2 * MAX_SPANS], rng[4];
    for (int i = 0; i < 2 * s->spans; i++)
        spans[i] = s->span[i / 2][i % 2];
    for (int i = 0; i < 4; i++)
        rng[i] = rng_words[i];
    double *qkv = normals(n, 1), *y = normals(n / 3, 2), *dy = normals(n / 3, 3), *dqkv = normals(n, 4);
    double *lse = normals(s->tokens * s->heads, 5);
    const double *in[] = { qkv, spans, rng }, *gradient_in[] = { qkv, y, dy, lse, spans, rng };
    double *out[] = { y, lse };
    ref_compute(&forward, in, out);
    ref_compute(&gradient, gradient_in, (double *[]){ dqkv });
    double largest = 0, worst = 0;
    for (int64_t i = 0; i < n; i++) {
        const double kept = qkv[i];
        qkv[i] = kept + step;
        const double above = loss(&forward, in, out, dy);
        qkv[i] = kept - step;
        const double below = loss(&forward, in, out, dy);
        qkv[i] = kept;
        largest = fmax(largest, fabs(dqkv[i]));
        worst = fmax(worst, fabs((above - below) / (2 * step) - dqkv[i]));
    }
    assert_true(largest > 0.1 && worst < 1e-7 * largest);
    free(qkv), free(y), free(dy), free(dqkv), free(lse);
}

static void test_reference_gradient(void **state)
{
    (void)state;
    static const Shape small[] = {
        { 6, 8, 8, 2, 1, { { 0, 6 } }, 0, 0 },
        { 11, 6, 6, 2, 3, { { 7, 3 }, { 1, 5 }, { 6, 1 } }, 0, 0 },
        { 11, 6, 9, 3, 3, { { 7, 3 }, { 1, 5 }, { 0, 0 } }, 0.3f, 0 },
    };
    for (size_t i = 0; i < COUNT_OF(small); i++)
        check_differences(&small[i]);
}

/* Two keys with scores 0 and ln 3: weights 1/4 and 3/4. */
static void test_reference_by_hand(void **state)
{
    (void)state;
    OpDesc op = { .kind = OP_attention, .n_in = 2, .in = { tensor_2d(DTYPE_F32, 3, 3), tensor_2d(DTYPE_I32, 1, 2) },
                  .attr = { .heads = 1, .seq = 2 } };
    need(op_infer(&op));
    const double qkv[] = { 9, 9, 9, 1, 0, 4, 0, log(3), 8 }, spans[] = { 1, 2 };
    double y[3] = { 5, 5, 5 }, lse[3] = { 5, 5, 5 };
    ref_compute(&op, (const double *[]){ qkv, spans }, (double *[]){ y, lse });
    assert_true(y[0] == 0 && lse[0] == 0);
    assert_true(fabs(y[1] - 7) < 1e-14 && fabs(y[2] - 6) < 1e-14);
    assert_true(fabs(lse[1] - log(4)) < 1e-14 && fabs(lse[2] - log(2)) < 1e-14);
}

/* ---- the backend against it */

static void set_common(OpCase *c, const Shape *s, int spans_slot)
{
    memcpy(c->in[spans_slot], s->span, (size_t)s->spans * sizeof s->span[0]);
    if (s->dropout > 0)
        memcpy(c->in[spans_slot + 1], rng_words, sizeof rng_words);
    const Tensor one = tensor_1d(c->op.in[0].dtype, 1);
    const size_t size = (size_t)dtype_bits(one.dtype) / 8;
    for (int64_t i = 0; s->spread > 0 && i < tensor_count(&c->op.in[0]); i++) {
        double v;
        if (i % (3 * s->width) >= 2 * s->width)
            continue;
        ref_load(&one, (char *)c->in[0] + (size_t)i * size, &v);
        v *= (double)s->spread;
        ref_store(&one, &v, (char *)c->in[0] + (size_t)i * size);
    }
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

static bool compare_with_ref(const OpCase *c, Backend *ref, int threads)
{
    Backend *be = open_cpu(threads);
    OpResult want, got;
    need(op_case_run(c, ref, NULL, &want));
    Status s = op_case_run(c, be, NULL, &got);
    if (s.code == STATUS_OK)
        s = op_case_compare(c, COMPARE_TOLERANCE, &want, &got);
    if (s.code != STATUS_OK)
        print_error("%d threads: %s\n", threads, s.text);
    op_result_release(&want);
    op_result_release(&got);
    backend_close(be);
    return s.code == STATUS_OK;
}

static void test_against_reference(void **state)
{
    (void)state;
    Backend *ref = open_ref();
    int failures = 0;
    for (size_t i = 0; i < COUNT_OF(shapes); i++)
        for (Dtype t = DTYPE_F32; t <= (i == 2 ? DTYPE_F16 : DTYPE_BF16); t++) {
            OpCase *forward = make_forward(&shapes[i], t), *gradient = make_gradient(&shapes[i], t, ref);
            failures += !compare_with_ref(forward, ref, 1 + (int)i % 3);
            failures += !compare_with_ref(gradient, ref, 1 + (int)i % 3);
            op_case_destroy(forward);
            op_case_destroy(gradient);
        }
    backend_close(ref);
    assert_int_equal(failures, 0);
}

static bool same_outputs(const OpDesc *op, const OpResult *a, const OpResult *b)
{
    bool same = true;
    for (int i = 0; i < op->n_out; i++)
        same = same && !memcmp(a->out[i], b->out[i], tensor_bytes(&op->out[i]));
    return same;
}

static void test_threads_do_not_show(void **state)
{
    (void)state;
    Backend *ref = open_ref();
    const Shape *s = &shapes[2];
    for (Dtype t = DTYPE_F32; t <= DTYPE_BF16; t++) {
        OpCase *c[2] = { make_forward(s, t), make_gradient(s, t, ref) };
        for (int k = 0; k < 2; k++) {
            OpResult one, more;
            Backend *be = open_cpu(1);
            need(op_case_run(c[k], be, NULL, &one));
            backend_close(be);
            for (int threads = 2; threads <= 3; threads++) {
                be = open_cpu(threads);
                need(op_case_run(c[k], be, NULL, &more));
                assert_true(same_outputs(&c[k]->op, &one, &more));
                op_result_release(&more);
                backend_close(be);
            }
            op_result_release(&one);
            op_case_destroy(c[k]);
        }
    }
    backend_close(ref);
}

static float element_of(const Tensor *t, const void *data, int64_t i)
{
    return t->dtype == DTYPE_F32 ? ((const float *)data)[i] : bf16_to_f32(((const uint16_t *)data)[i]);
}

/* Rows in no span are exactly 0 in every output, whatever qkv and dy hold there; others are not. */
static void test_rows_in_no_span(void **state)
{
    (void)state;
    Backend *ref = open_ref(), *be = open_cpu(2);
    const Shape *s = &shapes[2];
    for (Dtype t = DTYPE_F32; t <= DTYPE_BF16; t++) {
        OpCase *c[2] = { make_forward(s, t), make_gradient(s, t, ref) };
        for (int k = 0; k < 2; k++) {
            OpResult got;
            need(op_case_run(c[k], be, NULL, &got));
            for (int o = 0; o < c[k]->op.n_out; o++) {
                const Tensor *out = &c[k]->op.out[o];
                for (int64_t row = 0; row < s->tokens; row++) {
                    bool inside = false;
                    float largest = 0;
                    for (int64_t b = 0; b < s->spans; b++)
                        inside |= row >= s->span[b][0] && row < s->span[b][0] + s->span[b][1];
                    for (int64_t i = 0; i < out->dim[1]; i++)
                        largest = fmaxf(largest, fabsf(element_of(out, got.out[o], row * out->dim[1] + i)));
                    assert_true(inside == (largest > 0));
                }
            }
            op_result_release(&got);
            op_case_destroy(c[k]);
        }
    }
    backend_close(be);
    backend_close(ref);
}

/* q = 0 makes all weights equal; v = one-hot of the key then shows the mask itself: y[i][j] = keep / (1 - p) / n. */
static void test_mask_is_exact(void **state)
{
    (void)state;
    enum { N = 48, SEQ = 52, HEADS = 2 };
    static const Shape s = { N + 1, N * HEADS, SEQ, HEADS, 2, { { 0, 0 }, { 1, N } }, 0.5f, 0 };
    for (Dtype t = DTYPE_F32; t <= DTYPE_BF16; t++) {
        Backend *be = open_cpu(2);
        OpCase  *c = make_forward(&s, t);
        OpResult got;
        const Tensor one = tensor_1d(t, 1);
        for (int64_t row = 0; row <= N; row++)
            for (int64_t i = 0; i < 3 * N * HEADS; i++) {
                double v = i >= 2 * N * HEADS && i % N == row - 1 ? N : 0; /* y = keep / (1 - p) = 0 or 2 */
                ref_store(&one, &v, (char *)c->in[0] + (size_t)((row * 3 * N * HEADS + i) * dtype_bits(t) / 8));
            }
        need(op_case_run(c, be, NULL, &got));
        int kept = 0;
        for (int64_t h = 0; h < HEADS; h++)
            for (int64_t i = 0; i < N; i++)
                for (int64_t j = 0; j < N; j++) {
                    const bool keep = dropout_keeps(rng_words, 7, (HEADS + h) * SEQ + i, SEQ, j, 0.5f); /* span 1 */
                    const float y = element_of(&c->op.out[0], got.out[0], (1 + i) * N * HEADS + h * N + j);
                    kept += keep;
                    assert_true(keep ? fabsf(y - 2) < 1e-5f : y == 0);
                }
        assert_in_range(kept, HEADS * N * N * 2 / 5, HEADS * N * N * 3 / 5);
        op_result_release(&got);
        op_case_destroy(c);
        backend_close(be);
    }
}

/* Weights and values that are exact in bf16 give exact results: n = 2^k equal scores, small integers in v. */
static void test_equal_scores_are_exact(void **state)
{
    (void)state;
    static const Shape s = { 64, 64, 64, 2, 1, { { 0, 64 } }, 0, 0 };
    for (Dtype t = DTYPE_F32; t <= DTYPE_BF16; t++) {
        Backend *be = open_cpu(2);
        OpCase  *c = make_forward(&s, t);
        OpResult got;
        const Tensor one = tensor_1d(t, 1);
        for (int64_t i = 0; i < tensor_count(&c->op.in[0]); i++) {
            double v = i % 192 < 64 ? 0 : (double)(i * 7 % 5) - 2;
            ref_store(&one, &v, (char *)c->in[0] + (size_t)(i * dtype_bits(t) / 8));
        }
        need(op_case_run(c, be, NULL, &got));
        for (int64_t d = 0; d < 64; d++) {
            double mean = 0;
            for (int64_t j = 0; j < 64; j++)
                mean += ((double)((j * 192 + 128 + d) * 7 % 5) - 2) / 64;
            assert_true((double)element_of(&c->op.out[0], got.out[0], 5 * 64 + d) == ref_round(t, mean));
        }
        op_result_release(&got);
        op_case_destroy(c);
        backend_close(be);
    }
}

static void test_bad_spans(void **state)
{
    (void)state;
    static const int32_t bad[][2] = { { -1, 3 }, { 0, -1 }, { 0, 33 }, { 35, 6 }, { 41, 0 }, { 6, 2 }, { INT32_MAX, 1 },
                                      { 1, INT32_MAX }, { INT32_MIN, INT32_MIN } };
    Backend *ref = open_ref(), *be = open_cpu(2);
    Shape s = shapes[1];
    OpCase *c[2] = { make_forward(&s, DTYPE_F32), make_gradient(&s, DTYPE_F32, ref) };
    for (int k = 0; k < 2; k++) {
        OpResult got;
        for (size_t i = 0; i < COUNT_OF(bad); i++) {
            memcpy((int32_t *)c[k]->in[k ? 4 : 1] + 4, bad[i], sizeof bad[i]);
            assert_int_equal(op_case_run(c[k], be, NULL, &got).code, STATUS_NUMERIC);
            assert_int_equal(op_case_run(c[k], ref, NULL, &got).code, STATUS_NUMERIC);
        }
        op_case_destroy(c[k]);
    }
    backend_close(be);
    backend_close(ref);
}

/* One NaN in a query spoils its row; in a key, all rows of the head and span; nothing hides it. */
static void test_nan_is_not_hidden(void **state)
{
    (void)state;
    Backend *be = open_cpu(2);
    const Shape *s = &shapes[1];
    for (Dtype t = DTYPE_F32; t <= DTYPE_BF16; t++)
        for (int part = 0; part < 2; part++) {
            OpCase  *c = make_forward(s, t);
            OpResult got;
            const Tensor one = tensor_1d(t, 1), *y = &c->op.out[0];
            double nan = (double)NAN;
            ref_store(&one, &nan, (char *)c->in[0] + (size_t)((10 * 3 * s->width + part * s->width + 5) * dtype_bits(t) / 8));
            need(op_case_run(c, be, NULL, &got));
            for (int64_t row = 0; row < s->tokens; row++)
                assert_true(isfinite(element_of(y, got.out[0], row * s->width)) == (part ? row < 8 : row != 10));
            assert_true(isfinite(element_of(y, got.out[0], 10 * s->width + s->width / 2)));
            op_result_release(&got);
            op_case_destroy(c);
        }
    backend_close(be);
}

/* Memory grows with the sequence, not with its square: 16 times the rows need at most 17 times the bytes. */
static void test_scratch_is_bounded(void **state)
{
    (void)state;
    Backend *be = open_cpu(2);
    for (Dtype t = DTYPE_F32; t <= DTYPE_BF16; t++)
        for (int gradient = 0; gradient < 2; gradient++) {
            OpNeeds needs[2];
            for (int k = 0; k < 2; k++) {
                const Shape s = { 1 << 14, 768, k ? 8192 : 512, 12, 1, { { 0, 0 } }, 0.1f, 0 };
                OpDesc op = gradient ? gradient_op(&s, t) : forward_op(&s, t);
                need(op_infer(&op));
                need(backend_query(be, &op, &needs[k]));
            }
            assert_true(needs[0].scratch < (size_t)8 << 20 && needs[1].scratch < 17 * needs[0].scratch);
        }
    backend_close(be);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference_gradient),
        cmocka_unit_test(test_reference_by_hand),
        cmocka_unit_test(test_against_reference),
        cmocka_unit_test(test_threads_do_not_show),
        cmocka_unit_test(test_rows_in_no_span),
        cmocka_unit_test(test_mask_is_exact),
        cmocka_unit_test(test_equal_scores_are_exact),
        cmocka_unit_test(test_bad_spans),
        cmocka_unit_test(test_nan_is_not_hidden),
        cmocka_unit_test(test_scratch_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
