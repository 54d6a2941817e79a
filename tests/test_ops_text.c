/* test_ops_text.c - the ops of a Transformer that are not attention, and softmax cross-entropy: the CPU backend against the
 * reference for f32 and bf16 with the same bits from one, two and three threads; outputs in the memory of an input; dropout's
 * statistics; numbers out of range; ties and losses near zero. The reference itself: test_ref_text.c. */
#include "op_case.h"

#include "ref/ref.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { THREADS = 3, TRIVIAL = 1 };

static void expect_ok(Status s)
{
    if (s.code != STATUS_OK)
        fail_msg("%s", s.text);
}

static Backend *open_cpu(int threads)
{
    Backend *be;
    expect_ok(backend_open("cpu", &(BackendOptions){ .threads = threads }, &be));
    return be;
}

static OpCase *new_case(OpDesc op, FillKind fill, uint64_t seed)
{
    OpCase *c;
    expect_ok(op_case_create(&op, fill, seed, &c));
    return c;
}

static OpResult run_on(const OpCase *c, Backend *be)
{
    OpResult result;
    expect_ok(op_case_run(c, be, NULL, &result));
    backend_close(be);
    return result;
}

static OpResult run_on_ref(const OpCase *c)
{
    Backend *be;
    expect_ok(ref_backend.open(&(BackendOptions){ .threads = 2 }, &be));
    return run_on(c, be);
}

static void expect_same_bits(const OpCase *c, const OpResult *a, const OpResult *b, const char *what)
{
    for (int i = 0; i < c->op.n_out; i++)
        if (memcmp(a->out[i], b->out[i], tensor_bytes(&c->op.out[i]))) {
            char text[256];
            fail_msg("%s: other bits in output %d with %s", op_format(&c->op, text, sizeof text), i, what);
        }
}

/* The sum that layer norm keeps is rounded in a way that is laid down: no tolerance. */
static void check_stored_sum(const OpCase *c, const OpResult *want, const OpResult *got)
{
    if (c->op.kind == OP_layernorm && c->op.n_out == 4 && c->op.in[0].dtype == DTYPE_BF16)
        assert_memory_equal(want->out[3], got->out[3], tensor_bytes(&c->op.out[3]));
}

/* Every number of threads against the reference, and against one thread bit by bit. */
static void check_case(const OpCase *c, CompareMode mode)
{
    OpResult want = run_on_ref(c), one = run_on(c, open_cpu(1));
    expect_ok(op_case_compare(c, mode, &want, &one));
    check_stored_sum(c, &want, &one);
    for (int threads = 2; threads <= THREADS; threads++) {
        OpResult got = run_on(c, open_cpu(threads));
        expect_same_bits(c, &one, &got, "more threads");
        op_result_release(&got);
    }
    op_result_release(&one);
    op_result_release(&want);
}

static void check(OpDesc op, CompareMode mode, int flags)
{
    OpCase *c = new_case(op, mode == COMPARE_EXACT ? FILL_INTEGER : FILL_RANDOM, 20);
    c->trivial = flags & TRIVIAL;
    check_case(c, mode);
    op_case_destroy(c);
}

static const int64_t shapes[][2] = {
    { 1, 1 }, { 5, 1 }, { 1, 5 }, { 3, 7 }, { 5, 16 }, { 2, 64 }, { 4, 100 }, { 7, 768 }, { 70, 48 }, { 130, 33 }, { 33, 129 }, { 2000, 3 },
};

/* Few elements may by chance, and one feature must, give constants. */
static int triviality(const int64_t s[2]) { return s[1] == 1 || s[0] * s[1] < 8 ? TRIVIAL : 0; }

/* ---- layer norm */

static OpDesc layernorm_op(Dtype t, int64_t m, int64_t k, bool residual, float dropout)
{
    const Tensor x = tensor_2d(t, m, k), v = tensor_1d(DTYPE_F32, k);
    return (OpDesc){ .kind = OP_layernorm, .n_in = 3 + residual + (dropout > 0), .in = { x, v, v, x, tensor_1d(DTYPE_I32, 4) },
                     .attr = { .residual = residual, .dropout = dropout, .stream = 5, .eps = 1e-3f } };
}

static OpDesc layernorm_grad_op(Dtype t, int64_t m, int64_t k, float dropout, bool accumulate)
{
    const Tensor x = tensor_2d(t, m, k), v = tensor_1d(DTYPE_F32, k), rows = tensor_1d(DTYPE_F32, m);
    return (OpDesc){ .kind = OP_layernorm_grad, .n_in = 5 + (dropout > 0), .in = { x, x, v, rows, rows, tensor_1d(DTYPE_I32, 4) },
                     .attr = { .residual = dropout > 0, .dropout = dropout, .stream = 5, .accumulate = accumulate } };
}

static void test_layernorm(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(shapes); i++)
        for (Dtype t = DTYPE_F32; t <= DTYPE_BF16; t++)
            for (int parts = 0; parts < 3; parts++)
                check(layernorm_op(t, shapes[i][0], shapes[i][1], parts > 0, parts == 2 ? 0.1f : 0), COMPARE_TOLERANCE, TRIVIAL);
}

static void test_layernorm_grad(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(shapes); i++)
        for (Dtype t = DTYPE_F32; t <= DTYPE_BF16; t++)
            for (int flags = 0; flags < 4; flags++)
                check(layernorm_grad_op(t, shapes[i][0], shapes[i][1], flags & 1 ? 0.25f : 0, flags & 2), COMPARE_TOLERANCE,
                      triviality(shapes[i]));
}

/* Mean 1000, deviation 1: squares less squared means would leave nothing of the variance in fp32. */
static void test_layernorm_far_from_zero(void **state)
{
    (void)state;
    OpCase *c = new_case(layernorm_op(DTYPE_F32, 3, 768, false, 0), FILL_RANDOM, 4);
    float  *x = c->in[0];
    for (int i = 0; i < 3 * 768; i++)
        x[i] = 1000 + (float)rng_normal(8, 0, (uint64_t)i);
    OpResult want = run_on_ref(c), got = run_on(c, open_cpu(2));
    for (int m = 0; m < 3; m++) {
        const double mean = (double)((float *)want.out[1])[m], invstd = (double)((float *)want.out[2])[m];
        assert_true(fabs((double)((float *)got.out[1])[m] - mean) < 2e-7 * mean);
        assert_true(fabs((double)((float *)got.out[2])[m] - invstd) < 2e-6 * invstd);
    }
    op_result_release(&want);
    op_result_release(&got);
    op_case_destroy(c);
}

/* ---- gelu, tanh, dropout */

static void test_activations(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(shapes); i++)
        for (Dtype t = DTYPE_F32; t <= DTYPE_BF16; t++) {
            const Tensor x = tensor_2d(t, shapes[i][0], shapes[i][1]);
            for (int k = 0; k < 2; k++) {
                check((OpDesc){ .kind = k ? OP_tanh : OP_gelu, .n_in = 1, .in = { x } }, COMPARE_TOLERANCE, TRIVIAL);
                check((OpDesc){ .kind = k ? OP_tanh_grad : OP_gelu_grad, .n_in = 2, .in = { x, x } }, COMPARE_TOLERANCE, TRIVIAL);
            }
        }
}

/* Far to both sides: gelu keeps its relative accuracy where it comes close to zero. */
static void test_gelu_on_a_grid(void **state)
{
    (void)state;
    enum { N = 20001 };
    OpCase *c = new_case((OpDesc){ .kind = OP_gelu, .n_in = 1, .in = { tensor_2d(DTYPE_F32, 1, N) } }, FILL_RANDOM, 1);
    float  *x = c->in[0];
    for (int i = 0; i < N; i++)
        x[i] = (float)(i - N / 2) * 0.001f;
    OpResult want = run_on_ref(c), got = run_on(c, open_cpu(2));
    for (int i = 0; i < N; i++) {
        const double w = (double)((float *)want.out[0])[i], g = (double)((float *)got.out[0])[i];
        if (!(fabs(g - w) <= (x[i] > -5 ? 0x1p-20 : 0x1p-17) * fabs(w) + 0x1p-100))
            fail_msg("gelu(%g) = %.9g, want %.9g", (double)x[i], g, w);
    }
    op_result_release(&want);
    op_result_release(&got);
    op_case_destroy(c);
}

static OpDesc dropout_op(Dtype t, int64_t m, int64_t k, float p, uint32_t stream)
{
    return (OpDesc){ .kind = OP_dropout, .n_in = 2, .in = { tensor_2d(t, m, k), tensor_1d(DTYPE_I32, 4) },
                     .attr = { .dropout = p, .stream = stream } };
}

static void test_dropout(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(shapes); i++)
        for (Dtype t = DTYPE_F32; t <= DTYPE_BF16; t++) {
            check(dropout_op(t, shapes[i][0], shapes[i][1], 0, 1), COMPARE_EXACT, TRIVIAL);
            check(dropout_op(t, shapes[i][0], shapes[i][1], 0.5f, 1), COMPARE_EXACT, TRIVIAL); /* times 2 */
            check(dropout_op(t, shapes[i][0], shapes[i][1], 0.1f, 0xffffffffu), COMPARE_TOLERANCE, TRIVIAL);
        }
}

/* Without dropout every pattern of bits comes through, which arithmetic would not do for denormals and NaN. */
static void test_no_dropout_copies_bits(void **state)
{
    (void)state;
    OpCase *c = new_case(dropout_op(DTYPE_BF16, 256, 256, 0, 1), FILL_RANDOM, 3);
    for (int i = 0; i < 65536; i++)
        ((uint16_t *)c->in[0])[i] = (uint16_t)i;
    OpResult got = run_on(c, open_cpu(2));
    assert_memory_equal(got.out[0], c->in[0], 65536 * sizeof(uint16_t));
    op_result_release(&got);
    op_case_destroy(c);
}

/* The share of zeros in a matrix of ones, and how often two masks agree. */
static double share_of_zeros(float p, uint32_t stream, int32_t draw, float *y)
{
    enum { M = 300, K = 1000 };
    OpCase *c = new_case(dropout_op(DTYPE_F32, M, K, p, stream), FILL_RANDOM, 3);
    double  zeros = 0;
    ((int32_t *)c->in[1])[2] = draw;
    for (int i = 0; i < M * K; i++)
        ((float *)c->in[0])[i] = 1;
    OpResult got = run_on(c, open_cpu(2));
    memcpy(y, got.out[0], sizeof(float) * M * K);
    for (int i = 0; i < M * K; i++)
        zeros += y[i] == 0;
    op_result_release(&got);
    op_case_destroy(c);
    return zeros / (M * K);
}

/* Within five deviations; another stream or draw gives an independent mask. */
static void test_dropout_statistics(void **state)
{
    (void)state;
    enum { N = 300 * 1000 };
    float *a = malloc(N * sizeof *a), *b = malloc(N * sizeof *b);
    assert_true(a && b);
    for (int i = 0; i < 3; i++) {
        const double p = (double[]){ 0.1, 0.5, 0.9 }[i], deviation = sqrt(p * (1 - p) / N);
        assert_true(fabs(share_of_zeros((float)p, 7, 1, a) - p) < 5 * deviation);
        for (int j = 0; j < N; j++)
            assert_true(a[j] == 0 || fabs((double)a[j] * (1 - p) - 1) < 1e-6);
        for (int other = 0; other < 2; other++) {
            share_of_zeros((float)p, other ? 8 : 7, other ? 1 : 2, b);
            double agree = 0, expected = p * p + (1 - p) * (1 - p);
            for (int j = 0; j < N; j++)
                agree += (a[j] == 0) == (b[j] == 0);
            assert_true(fabs(agree / N - expected) < 5 * sqrt(expected * (1 - expected) / N));
        }
    }
    free(a);
    free(b);
}

/* ---- rows picked by number */

static const int64_t pick_shapes[][3] = { /* V, T, W */
    { 1, 1, 1 }, { 2, 65, 16 }, { 30, 7, 5 }, { 512, 40, 300 }, { 9, 33, 256 }, { 100, 64, 768 }, { 3, 200, 17 },
};

static void test_embedding(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(pick_shapes); i++)
        for (Dtype t = DTYPE_F32; t <= DTYPE_BF16; t++)
            for (int pairs = 1; pairs <= 3; pairs++) {
                OpDesc op = { .kind = OP_embedding, .n_in = 2 * pairs, .out = { { .dtype = t } } };
                for (int k = 0; k < pairs; k++) {
                    op.in[2 * k] = tensor_2d(DTYPE_F32, pick_shapes[i][0] + k, pick_shapes[i][2]);
                    op.in[2 * k + 1] = tensor_1d(DTYPE_I32, pick_shapes[i][1]);
                }
                check(op, COMPARE_EXACT, TRIVIAL);
                check(op, COMPARE_TOLERANCE, TRIVIAL);
            }
}

static void test_gradients_of_picked_rows(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(pick_shapes); i++)
        for (Dtype t = DTYPE_F32; t <= DTYPE_BF16; t++) {
            const int64_t v = pick_shapes[i][0], n = pick_shapes[i][1], w = pick_shapes[i][2];
            OpDesc op = { .kind = OP_embedding_grad, .n_in = 2, .in = { tensor_2d(t, n, w), tensor_1d(DTYPE_I32, n) }, .attr = { .rows = v } };
            for (int accumulate = 0; accumulate < 2; accumulate++) {
                op.attr.accumulate = accumulate;
                check(op, COMPARE_EXACT, TRIVIAL);
                check(op, COMPARE_TOLERANCE, TRIVIAL);
            }
            op.attr.accumulate = false;
            op.kind = OP_gather_rows_grad;
            check(op, COMPARE_EXACT, TRIVIAL);
            check(op, COMPARE_TOLERANCE, TRIVIAL);
            check((OpDesc){ .kind = OP_gather_rows, .n_in = 2, .in = { tensor_2d(t, v, w), tensor_1d(DTYPE_I32, n) } }, COMPARE_EXACT, TRIVIAL);
        }
}

/* 1e8 - 1e8 + 1 is 1 in the order of t, and 0 from the other end. */
static void test_rows_of_one_id_add_up_in_order(void **state)
{
    (void)state;
    static const float terms[] = { 1e8f, -1e8f, 1 };
    static const OpKind kinds[] = { OP_embedding_grad, OP_gather_rows_grad };
    for (size_t k = 0; k < COUNT_OF(kinds); k++)
        for (int64_t width = 5; width <= 300; width += 295) {
            OpCase *c = new_case((OpDesc){ .kind = kinds[k], .n_in = 2, .in = { tensor_2d(DTYPE_F32, 3, width), tensor_1d(DTYPE_I32, 3) },
                                           .attr = { .rows = 4 } }, FILL_RANDOM, 1);
            for (int64_t i = 0; i < 3 * width; i++)
                ((float *)c->in[0])[i] = terms[i / width];
            memcpy(c->in[1], (int32_t[]){ 2, 2, 2 }, 3 * sizeof(int32_t));
            OpResult got = run_on(c, open_cpu(2));
            for (int64_t i = 0; i < 4 * width; i++)
                assert_true(((float *)got.out[0])[i] == (float)(i / width == 2));
            op_result_release(&got);
            op_case_destroy(c);
        }
}

/* Runs with a bad number in place of element `at` of input `slot`: refused with this text, and nothing written. */
static void check_refusal(OpDesc op, int slot, int at, int32_t bad, const char *text)
{
    OpCase  *c = new_case(op, FILL_RANDOM, 1);
    Backend *be = open_cpu(2), *ref;
    OpResult got;
    ((int32_t *)c->in[slot])[at] = bad;
    Status s = op_case_run(c, be, NULL, &got);
    assert_int_equal(s.code, STATUS_NUMERIC);
    if (!strstr(s.text, text))
        fail_msg("'%s' is not in '%s'", text, s.text);
    expect_ok(ref_backend.open(&(BackendOptions){ .threads = 1 }, &ref));
    assert_int_equal(op_case_run(c, ref, NULL, &got).code, STATUS_NUMERIC);
    backend_close(ref);

    void *buf[OP_MAX_IN + OP_MAX_OUT];
    memcpy(buf, c->in, sizeof(void *) * (size_t)c->op.n_in);
    for (int i = 0; i < c->op.n_out; i++) {
        buf[c->op.n_in + i] = malloc(tensor_bytes(&c->op.out[i]));
        assert_non_null(buf[c->op.n_in + i]);
        memset(buf[c->op.n_in + i], 0x77, tensor_bytes(&c->op.out[i]));
    }
    void *scratch = malloc(1 << 16);
    assert_int_equal(be->vtable->kernels[op.kind]->run(be, &c->op, NULL, buf, scratch).code, STATUS_NUMERIC);
    for (int i = 0; i < c->op.n_out; i++) {
        for (size_t b = 0; b < tensor_bytes(&c->op.out[i]); b++)
            assert_int_equal(((unsigned char *)buf[c->op.n_in + i])[b], 0x77);
        free(buf[c->op.n_in + i]);
    }
    free(scratch);
    op_case_destroy(c);
    backend_close(be);
}

static void test_numbers_out_of_range(void **state)
{
    (void)state;
    const Tensor m = tensor_2d(DTYPE_F32, 6, 8), ids = tensor_1d(DTYPE_I32, 6), table = tensor_2d(DTYPE_F32, 20, 8);
    static const int32_t bad[] = { 20, -2, INT32_MAX, INT32_MIN };
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        char id[96], row[96], label[96];
        snprintf(id, sizeof id, "id %d at position 4 is outside 0..19 of a table of 20 rows", (int)bad[i]);
        snprintf(row, sizeof row, "row %d at position 4 is outside 0..19", (int)bad[i]);
        snprintf(label, sizeof label, "label %d of sample 4 is outside 0..19", (int)bad[i]);
        check_refusal((OpDesc){ .kind = OP_embedding, .n_in = 4, .in = { table, ids, table, ids } }, 3, 4, bad[i], id);
        check_refusal((OpDesc){ .kind = OP_embedding_grad, .n_in = 2, .in = { m, ids }, .attr = { .rows = 20 } }, 1, 4, bad[i], id);
        check_refusal((OpDesc){ .kind = OP_gather_rows, .n_in = 2, .in = { table, ids } }, 1, 4, bad[i], row);
        check_refusal((OpDesc){ .kind = OP_gather_rows_grad, .n_in = 2, .in = { m, ids }, .attr = { .rows = 20 } }, 1, 4, bad[i], row);
        check_refusal((OpDesc){ .kind = OP_softmax_xent, .n_in = 3, .n_out = 2,
                                .in = { tensor_2d(DTYPE_BF16, 6, 20), ids, tensor_1d(DTYPE_F32, 1) } }, 1, 4, bad[i], label);
    }
}

/* ---- softmax cross-entropy */

static OpDesc softmax_op(Dtype t, int64_t rows, int64_t classes, int outputs)
{
    return (OpDesc){ .kind = OP_softmax_xent, .n_in = 3, .n_out = outputs,
                     .in = { tensor_2d(t, rows, classes), tensor_1d(DTYPE_I32, rows), tensor_1d(DTYPE_F32, 1) } };
}

static void test_softmax_xent(void **state)
{
    (void)state;
    static const int64_t sizes[][2] = { { 8, 10 }, { 64, 1000 }, { 5, 2 }, { 3, 17 }, { 33, 100 }, { 4, 30522 }, { 6, 1 }, { 9, 64 }, { 1, 15 } };
    for (size_t i = 0; i < COUNT_OF(sizes); i++)
        for (Dtype t = DTYPE_F32; t <= DTYPE_BF16; t++)
            for (int outputs = 1; outputs <= 2; outputs++)
                check(softmax_op(t, sizes[i][0], sizes[i][1], outputs), COMPARE_TOLERANCE, sizes[i][1] == 1 ? TRIVIAL : 0);
}

/* One row; metrics from zero. Returns the loss. */
static double loss_of(Dtype t, int64_t classes, double (*logit)(int64_t c), int32_t label, float metrics[4])
{
    OpCase *c = new_case(softmax_op(t, 1, classes, 2), FILL_RANDOM, 1);
    Tensor  one = tensor_1d(t, 1);
    const size_t size = (size_t)dtype_bits(t) / 8;
    for (int64_t i = 0; i < classes; i++) {
        double v = logit(i);
        ref_store(&one, &v, (char *)c->in[0] + (size_t)i * size);
    }
    memset(c->out[0], 0, 4 * sizeof(float));
    *(int32_t *)c->in[1] = label;
    OpResult got = run_on(c, open_cpu(2));
    memcpy(metrics, got.out[0], 4 * sizeof(float));
    op_result_release(&got);
    op_case_destroy(c);
    return (double)metrics[0];
}

static double steep(int64_t c) { return c == 777 ? 30 : 10 + (double)(c % 32) / 8; }
static double spread(int64_t c) { return (double)(c * 7919 % 30522) / 1024 - 12; }
static double twice(int64_t c) { return c == 17 || c == 40 || c == 66 ? 3 : (double)(c % 5) / 4; }
static double none(int64_t c) { return c == 3 ? (double)NAN : 1; }
static double huge(int64_t c) { return c == 5 ? 3e38 : c == 6 ? -3e38 : 0; }

static double exact_loss(Dtype t, int64_t classes, double (*logit)(int64_t c), int32_t label)
{
    double sum = 0, x = ref_round(t, logit(label));
    for (int64_t c = 0; c < classes; c++)
        if (c != label)
            sum += exp(ref_round(t, logit(c)) - x);
    return log1p(sum);
}

/* To a millionth, also where it is nearly zero: log(1 + 30521 e^-16 or so) and, for a lone label, e^-17. */
static void test_loss_accuracy(void **state)
{
    (void)state;
    float metrics[4];
    for (Dtype t = DTYPE_F32; t <= DTYPE_BF16; t++) {
        static const struct { double (*logit)(int64_t); int64_t classes; int32_t label; } cases[] = {
            { steep, 30522, 777 }, { steep, 30522, 3 }, { spread, 30522, 30000 }, { spread, 30522, 0 }, { steep, 778, 777 },
        };
        for (size_t i = 0; i < COUNT_OF(cases); i++) {
            const double got = loss_of(t, cases[i].classes, cases[i].logit, cases[i].label, metrics);
            const double want = exact_loss(t, cases[i].classes, cases[i].logit, cases[i].label);
            if (!(fabs(got - want) <= 1e-6 * want))
                fail_msg("case %zu: loss %.9g, want %.9g", i, got, want);
        }
    }
}

static void test_first_of_equals_wins(void **state)
{
    (void)state;
    float metrics[4];
    for (Dtype t = DTYPE_F32; t <= DTYPE_BF16; t++)
        for (int classes = 67; classes <= 80; classes += 13)
            for (int32_t label = 0; label < classes; label++) {
                loss_of(t, classes, twice, label, metrics);
                assert_true(metrics[1] == (float)(label == 17) && metrics[2] == 1);
            }
    assert_true(isnan(loss_of(DTYPE_F32, 40, none, 0, metrics)) && isnan(loss_of(DTYPE_F32, 40, none, 3, metrics)));
    assert_true(loss_of(DTYPE_F32, 40, huge, 5, metrics) == 0 && metrics[1] == 1);
    assert_true(loss_of(DTYPE_F32, 40, huge, 0, metrics) == (double)3e38f);
}

/* ---- outputs in the memory of an input */

/* The kernel on bare buffers; output `slot` lies in input `input`. Its result must be that of separate buffers. */
static void check_alias(const OpCase *c, Backend *be, const OpResult *apart, int slot, int input)
{
    void   *buf[OP_MAX_IN + OP_MAX_OUT] = { NULL }, *scratch;
    OpNeeds needs;
    expect_ok(backend_query(be, &c->op, &needs));
    expect_ok(backend_alloc(be, needs.scratch, &scratch));
    for (int i = 0; i < c->op.n_in; i++) {
        expect_ok(backend_alloc(be, tensor_bytes(&c->op.in[i]), &buf[i]));
        memcpy(buf[i], c->in[i], tensor_bytes(&c->op.in[i]));
    }
    void **out = buf + c->op.n_in;
    for (int i = 0; i < c->op.n_out; i++) {
        if (i == slot) {
            out[i] = buf[input];
            continue;
        }
        expect_ok(backend_alloc(be, tensor_bytes(&c->op.out[i]), &out[i]));
        if (c->out[i])
            memcpy(out[i], c->out[i], tensor_bytes(&c->op.out[i]));
    }
    expect_ok(be->vtable->kernels[c->op.kind]->run(be, &c->op, NULL, buf, scratch));
    for (int i = 0; i < c->op.n_out; i++)
        if (memcmp(out[i], apart->out[i], tensor_bytes(&c->op.out[i]))) {
            char text[256];
            fail_msg("%s: output %d differs when output %d lies on input %d", op_format(&c->op, text, sizeof text), i, slot, input);
        }
    for (int i = 0; i < c->op.n_in + c->op.n_out; i++)
        if (i != c->op.n_in + slot)
            backend_free(be, buf[i]);
    backend_free(be, scratch);
}

static void check_aliases(OpDesc op)
{
    OpCase  *c = new_case(op, FILL_RANDOM, 11);
    Backend *be = open_cpu(2);
    OpResult apart;
    int      found = 0;
    expect_ok(op_case_run(c, be, NULL, &apart));
    for (int slot = 0; slot < c->op.n_out; slot++)
        for (int turn = 0, input; (input = op_in_place_input(&c->op, slot, turn)) >= 0; turn++, found++)
            check_alias(c, be, &apart, slot, input);
    assert_true(found > 0);
    op_result_release(&apart);
    op_case_destroy(c);
    backend_close(be);
}

static void test_in_place(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(shapes); i++)
        for (Dtype t = DTYPE_F32; t <= DTYPE_BF16; t++) {
            const int64_t m = shapes[i][0], k = shapes[i][1];
            const Tensor  x = tensor_2d(t, m, k);
            check_aliases(layernorm_op(t, m, k, true, 0));
            check_aliases(layernorm_op(t, m, k, true, 0.1f));
            check_aliases(layernorm_grad_op(t, m, k, 0, false));
            check_aliases(layernorm_grad_op(t, m, k, 0.1f, true));
            check_aliases((OpDesc){ .kind = OP_gelu_grad, .n_in = 2, .in = { x, x } });
            check_aliases((OpDesc){ .kind = OP_tanh_grad, .n_in = 2, .in = { x, x } });
            check_aliases(dropout_op(t, m, k, 0, 1));
            check_aliases(dropout_op(t, m, k, 0.3f, 1));
            check_aliases(softmax_op(t, m, k, 2));
        }
    check_aliases(softmax_op(DTYPE_F32, 3, 30522, 2));
    check_aliases(softmax_op(DTYPE_BF16, 3, 30522, 2));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layernorm),
        cmocka_unit_test(test_layernorm_grad),
        cmocka_unit_test(test_layernorm_far_from_zero),
        cmocka_unit_test(test_activations),
        cmocka_unit_test(test_gelu_on_a_grid),
        cmocka_unit_test(test_dropout),
        cmocka_unit_test(test_no_dropout_copies_bits),
        cmocka_unit_test(test_dropout_statistics),
        cmocka_unit_test(test_embedding),
        cmocka_unit_test(test_gradients_of_picked_rows),
        cmocka_unit_test(test_rows_of_one_id_add_up_in_order),
        cmocka_unit_test(test_numbers_out_of_range),
        cmocka_unit_test(test_softmax_xent),
        cmocka_unit_test(test_loss_accuracy),
        cmocka_unit_test(test_first_of_equals_wins),
        cmocka_unit_test(test_in_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
