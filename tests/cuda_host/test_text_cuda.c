/* test_text_cuda.c - the kernels of a Transformer's ops that are neither products nor attention, on the CPU under every thread
 * schedule: against the reference for f32, bf16 and f16, outputs in the memory of an input, numbers out of range, and what
 * tolerances would not show: dropout's bits, the rounding of the stored sum, the order in which rows of one id add up. */
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

static void expect_ok(Status s)
{
    if (s.code != STATUS_OK)
        fail_msg("%s", s.text);
}

static OpCase *new_case(OpDesc op, uint64_t seed)
{
    OpCase *c;
    expect_ok(op_case_create(&op, FILL_RANDOM, seed, &c));
    c->trivial = true;
    return c;
}

static OpResult run_on(const OpCase *c, Backend *be)
{
    OpResult result;
    expect_ok(op_case_run(c, be, NULL, &result));
    return result;
}

static const Dtype floats[] = { DTYPE_F32, DTYPE_BF16, DTYPE_F16 };

/* Rows x columns: whole groups of eight and not, each number of groups a lane, rows too long for registers. */
static const int64_t shapes[][2] = {
    { 1, 1 }, { 5, 1 }, { 1, 5 }, { 3, 7 }, { 5, 16 }, { 4, 100 }, { 9, 256 }, { 2, 264 }, { 7, 768 }, { 35, 48 }, { 33, 129 },
    { 2, 1024 }, { 3, 1032 }, { 2, 2059 },
};

/* One op with rows past 65,535, under one schedule. */
static void check_many(CudaLadder *l, OpDesc op)
{
    OpCase *c = new_case(op, 5);
    fake_set_schedule(0);
    OpResult want = run_on(c, l->ref), got = run_on(c, l->be);
    expect_ok(op_case_compare(c, COMPARE_TOLERANCE, &want, &got));
    l->cases++;
    op_result_release(&want);
    op_result_release(&got);
    op_case_destroy(c);
}

enum { MANY = 65600 };

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

static void layernorm_matches_the_reference(void **state)
{
    (void)state;
    CudaLadder l = cuda_ladder_start();
    for (size_t i = 0; i < COUNT_OF(shapes); i++)
        for (size_t t = 0; t < COUNT_OF(floats); t++)
            for (int parts = 0; parts < 3; parts++)
                cuda_climb(&l, layernorm_op(floats[t], shapes[i][0], shapes[i][1], parts > 0, parts == 2 ? 0.1f : 0),
                           CUDA_RANDOM | CUDA_TRIVIAL);
    check_many(&l, layernorm_op(DTYPE_BF16, MANY, 8, true, 0.1f));
    cuda_ladder_end(&l);
}

static void layernorm_grad_matches_the_reference(void **state)
{
    (void)state;
    CudaLadder l = cuda_ladder_start();
    for (size_t i = 0; i < COUNT_OF(shapes); i++)
        for (size_t t = 0; t < COUNT_OF(floats); t++)
            for (int flags = 0; flags < 4; flags++)
                cuda_climb(&l, layernorm_grad_op(floats[t], shapes[i][0], shapes[i][1], flags & 1 ? 0.25f : 0, flags & 2),
                           CUDA_RANDOM | CUDA_TRIVIAL);
    check_many(&l, layernorm_grad_op(DTYPE_F32, MANY, 8, 0.1f, true));
    cuda_climb(&l, layernorm_grad_op(DTYPE_BF16, 2000, 5, 0.1f, false), CUDA_RANDOM); /* chunks of several rows a warp */
    cuda_ladder_end(&l);
}

/* The sum that layer norm keeps is rounded in a way that is laid down: no tolerance. */
static void the_stored_sum_is_exact(void **state)
{
    (void)state;
    CudaLadder l = cuda_ladder_start();
    for (size_t t = 1; t < COUNT_OF(floats); t++)
        for (int64_t k = 768; k <= 1500; k += 732) {
            OpCase  *c = new_case(layernorm_op(floats[t], 40, k, true, 0.1f), 3);
            OpResult want = run_on(c, l.ref), got = run_on(c, l.be);
            assert_memory_equal(want.out[3], got.out[3], tensor_bytes(&c->op.out[3]));
            l.cases++;
            op_result_release(&want);
            op_result_release(&got);
            op_case_destroy(c);
        }
    cuda_ladder_end(&l);
}

/* Mean 1000, deviation 1: squares less squared means would leave nothing of the variance in fp32. */
static void layernorm_far_from_zero(void **state)
{
    (void)state;
    CudaLadder l = cuda_ladder_start();
    for (int64_t k = 768; k <= 1536; k += 768) {
        OpCase *c = new_case(layernorm_op(DTYPE_F32, 3, k, false, 0), 4);
        for (int i = 0; i < 3 * k; i++)
            ((float *)c->in[0])[i] = 1000 + (float)rng_normal(8, 0, (uint64_t)i);
        OpResult want = run_on(c, l.ref), got = run_on(c, l.be);
        for (int m = 0; m < 3; m++) {
            const double mean = (double)((float *)want.out[1])[m], invstd = (double)((float *)want.out[2])[m];
            assert_true(fabs((double)((float *)got.out[1])[m] - mean) < 2e-7 * mean);
            assert_true(fabs((double)((float *)got.out[2])[m] - invstd) < 2e-6 * invstd);
        }
        l.cases++;
        op_result_release(&want);
        op_result_release(&got);
        op_case_destroy(c);
    }
    cuda_ladder_end(&l);
}

/* ---- gelu, tanh, dropout */

static OpDesc activation_op(OpKind kind, Dtype t, int64_t m, int64_t k)
{
    const Tensor x = tensor_2d(t, m, k);
    return (OpDesc){ .kind = kind, .n_in = 1 + (kind == OP_gelu_grad || kind == OP_tanh_grad), .in = { x, x } };
}

static void activations_match_the_reference(void **state)
{
    (void)state;
    static const OpKind kinds[] = { OP_gelu, OP_gelu_grad, OP_tanh, OP_tanh_grad };
    CudaLadder l = cuda_ladder_start();
    for (size_t k = 0; k < COUNT_OF(kinds); k++) {
        for (size_t i = 0; i < COUNT_OF(shapes); i++)
            for (size_t t = 0; t < COUNT_OF(floats); t++)
                cuda_climb(&l, activation_op(kinds[k], floats[t], shapes[i][0], shapes[i][1]), CUDA_RANDOM | CUDA_TRIVIAL);
        check_many(&l, activation_op(kinds[k], DTYPE_BF16, MANY, 8));
    }
    cuda_ladder_end(&l);
}

/* Far to both sides: gelu keeps its relative accuracy where it comes close to zero. */
static void gelu_on_a_grid(void **state)
{
    (void)state;
    enum { N = 20001 };
    CudaLadder l = cuda_ladder_start();
    OpCase *c = new_case(activation_op(OP_gelu, DTYPE_F32, 1, N), 1);
    float  *x = c->in[0];
    for (int i = 0; i < N; i++)
        x[i] = (float)(i - N / 2) * 0.001f;
    OpResult want = run_on(c, l.ref), got = run_on(c, l.be);
    for (int i = 0; i < N; i++) {
        const double w = (double)((float *)want.out[0])[i], g = (double)((float *)got.out[0])[i];
        if (!(fabs(g - w) <= (x[i] > -5 ? 0x1p-20 : 0x1p-17) * fabs(w) + 0x1p-100))
            fail_msg("gelu(%g) = %.9g, want %.9g", (double)x[i], g, w);
    }
    op_result_release(&got);
    x[0] = INFINITY;
    x[1] = -INFINITY;
    x[2] = NAN;
    got = run_on(c, l.be);
    assert_true(((float *)got.out[0])[0] == INFINITY && ((float *)got.out[0])[1] == 0 && isnan(((float *)got.out[0])[2]));
    l.cases++;
    op_result_release(&want);
    op_result_release(&got);
    op_case_destroy(c);
    cuda_ladder_end(&l);
}

static OpDesc dropout_op(Dtype t, int64_t m, int64_t k, float p, uint32_t stream)
{
    return (OpDesc){ .kind = OP_dropout, .n_in = 2, .in = { tensor_2d(t, m, k), tensor_1d(DTYPE_I32, 4) },
                     .attr = { .dropout = p, .stream = stream } };
}

static void dropout_matches_the_reference(void **state)
{
    (void)state;
    CudaLadder l = cuda_ladder_start();
    for (size_t i = 0; i < COUNT_OF(shapes); i++)
        for (size_t t = 0; t < COUNT_OF(floats); t++) {
            cuda_climb(&l, dropout_op(floats[t], shapes[i][0], shapes[i][1], 0, 1), CUDA_EXACT | CUDA_TRIVIAL);
            cuda_climb(&l, dropout_op(floats[t], shapes[i][0], shapes[i][1], 0.5f, 1), CUDA_EXACT | CUDA_TRIVIAL); /* times 2 */
            cuda_climb(&l, dropout_op(floats[t], shapes[i][0], shapes[i][1], 0.1f, 0xffffffffu), CUDA_RANDOM | CUDA_TRIVIAL);
        }
    check_many(&l, dropout_op(DTYPE_F16, MANY, 8, 0.5f, 1));
    cuda_climb(&l, dropout_op(DTYPE_F32, 4, 40, 0.999999f, 1), CUDA_EXACT | CUDA_TRIVIAL); /* rounds to 1: drops everything */
    cuda_ladder_end(&l);
}

/* Without dropout every pattern of bits comes through, which arithmetic would not do for NaN. */
static void no_dropout_copies_bits(void **state)
{
    (void)state;
    CudaLadder l = cuda_ladder_start();
    OpCase *c = new_case(dropout_op(DTYPE_BF16, 256, 256, 0, 1), 3);
    for (int i = 0; i < 65536; i++)
        ((uint16_t *)c->in[0])[i] = (uint16_t)i;
    OpResult got = run_on(c, l.be);
    assert_memory_equal(got.out[0], c->in[0], 65536 * sizeof(uint16_t));
    l.cases++;
    op_result_release(&got);
    op_case_destroy(c);
    cuda_ladder_end(&l);
}

static void outputs_may_lie_on_inputs(void **state)
{
    (void)state;
    CudaLadder l = cuda_ladder_start();
    for (size_t t = 0; t < COUNT_OF(floats); t++)
        for (int64_t k = 7; k <= 1160; k += k < 768 ? 761 : 392) {
            cuda_climb_in_place(&l, layernorm_op(floats[t], 9, k, true, 0.1f));
            cuda_climb_in_place(&l, layernorm_grad_op(floats[t], 9, k, 0.1f, false));
            cuda_climb_in_place(&l, layernorm_grad_op(floats[t], 9, k, 0, false));
            cuda_climb_in_place(&l, activation_op(OP_gelu_grad, floats[t], 9, k));
            cuda_climb_in_place(&l, activation_op(OP_tanh_grad, floats[t], 9, k));
            cuda_climb_in_place(&l, dropout_op(floats[t], 9, k, 0.1f, 1));
            cuda_climb_in_place(&l, dropout_op(floats[t], 9, k, 0, 1));
        }
    cuda_ladder_end(&l);
}

/* ---- rows picked by number */

static const int64_t pick_shapes[][3] = { /* V, T, W: few and many rows an id, more than a section */
    { 1, 1, 1 }, { 2, 65, 16 }, { 30, 7, 5 }, { 512, 40, 300 }, { 9, 33, 256 }, { 100, 64, 768 }, { 3, 400, 17 },
};

/* The most ids that are sorted in one launch, and more: by one, two and three digits. */
static const int64_t sort_shapes[][3] = { { 2, 2048, 8 }, { 2, 2049, 12 }, { 300, 2600, 3 }, { 66000, 2049, 1 } };

static OpDesc embedding_op(Dtype t, int pairs, int64_t rows, int64_t count, int64_t width)
{
    OpDesc op = { .kind = OP_embedding, .n_in = 2 * pairs, .out = { { .dtype = t } } };
    for (int k = 0; k < pairs; k++) {
        op.in[2 * k] = tensor_2d(DTYPE_F32, rows + k, width);
        op.in[2 * k + 1] = tensor_1d(DTYPE_I32, count);
    }
    return op;
}

static OpDesc scatter_op(OpKind kind, Dtype t, int64_t rows, int64_t count, int64_t width, bool accumulate)
{
    return (OpDesc){ .kind = kind, .n_in = 2, .in = { tensor_2d(t, count, width), tensor_1d(DTYPE_I32, count) },
                     .attr = { .rows = rows, .accumulate = accumulate } };
}

static OpDesc gather_op(Dtype t, int64_t rows, int64_t count, int64_t width)
{
    return (OpDesc){ .kind = OP_gather_rows, .n_in = 2, .in = { tensor_2d(t, rows, width), tensor_1d(DTYPE_I32, count) } };
}

static void embedding_matches_the_reference(void **state)
{
    (void)state;
    CudaLadder l = cuda_ladder_start();
    for (size_t i = 0; i < COUNT_OF(pick_shapes); i++)
        for (size_t t = 0; t < COUNT_OF(floats); t++) {
            for (int pairs = 1; pairs <= 3; pairs++)
                cuda_climb(&l, embedding_op(floats[t], pairs, pick_shapes[i][0], pick_shapes[i][1], pick_shapes[i][2]),
                           CUDA_BOTH | CUDA_TRIVIAL);
            cuda_climb(&l, gather_op(floats[t], pick_shapes[i][0], pick_shapes[i][1], pick_shapes[i][2]), CUDA_EXACT | CUDA_TRIVIAL);
        }
    check_many(&l, embedding_op(DTYPE_BF16, 2, 50, MANY, 8));
    check_many(&l, gather_op(DTYPE_F16, 50, MANY, 8));
    cuda_ladder_end(&l);
}

static void gradients_of_picked_rows_match_the_reference(void **state)
{
    (void)state;
    CudaLadder l = cuda_ladder_start();
    for (size_t i = 0; i < COUNT_OF(pick_shapes); i++)
        for (size_t t = 0; t < COUNT_OF(floats); t++) {
            const int64_t *s = pick_shapes[i];
            for (int accumulate = 0; accumulate < 2; accumulate++)
                cuda_climb(&l, scatter_op(OP_embedding_grad, floats[t], s[0], s[1], s[2], accumulate), CUDA_BOTH | CUDA_TRIVIAL);
            cuda_climb(&l, scatter_op(OP_gather_rows_grad, floats[t], s[0], s[1], s[2], false), CUDA_BOTH | CUDA_TRIVIAL);
        }
    for (size_t i = 0; i < COUNT_OF(sort_shapes); i++)
        cuda_climb(&l, scatter_op(OP_embedding_grad, DTYPE_BF16, sort_shapes[i][0], sort_shapes[i][1], sort_shapes[i][2], i % 2),
                   CUDA_EXACT | CUDA_TRIVIAL);
    check_many(&l, scatter_op(OP_embedding_grad, DTYPE_F32, 40, MANY, 4, true));
    cuda_ladder_end(&l);
}

/* 1e8 - 1e8 + 1 is 1 in the order of t, and 0 from the other end; with 3000 more of another id both sorts are used. */
static void rows_of_one_id_add_up_in_order(void **state)
{
    (void)state;
    static const OpKind kinds[] = { OP_embedding_grad, OP_gather_rows_grad };
    CudaLadder l = cuda_ladder_start();
    for (size_t k = 0; k < COUNT_OF(kinds); k++)
        for (int64_t others = 0; others <= 3000; others += 3000) {
            const int64_t width = others ? 5 : 300, count = others + 3;
            OpCase  *c = new_case(scatter_op(kinds[k], DTYPE_F32, 4, count, width, false), 1);
            float   *dy = c->in[0];
            int32_t *ids = c->in[1];
            for (int64_t t = 0; t < count; t++) {
                ids[t] = t % 1000 == 999 || t >= others ? 2 : 3;
                for (int64_t j = 0; j < width; j++)
                    dy[t * width + j] = 0;
            }
            static const float terms[] = { 1e8f, -1e8f, 1 };
            for (int64_t i = 0; i < 3 * width; i++)
                dy[others * width + i] = terms[i / width];
            OpResult got = run_on(c, l.be);
            for (int64_t i = 0; i < 4 * width; i++)
                assert_true(((float *)got.out[0])[i] == (float)(i / width == 2));
            l.cases++;
            op_result_release(&got);
            op_case_destroy(c);
        }
    cuda_ladder_end(&l);
}

static void numbers_out_of_range_are_refused(void **state)
{
    (void)state;
    static const int32_t bad[] = { 20, -2, INT32_MAX, INT32_MIN };
    CudaLadder l = cuda_ladder_start();
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        char text[64];
        const struct { OpDesc op; int slot; } ops[] = {
            { embedding_op(DTYPE_F32, 2, 19, 6, 8), 3 },
            { scatter_op(OP_embedding_grad, DTYPE_F32, 20, 6, 8, false), 1 },
            { scatter_op(OP_embedding_grad, DTYPE_F32, 20, 2500, 8, true), 1 },
            { gather_op(DTYPE_BF16, 20, 6, 8), 1 },
            { scatter_op(OP_gather_rows_grad, DTYPE_BF16, 20, 6, 8, false), 1 },
        };
        for (size_t k = 0; k < COUNT_OF(ops); k++) {
            snprintf(text, sizeof text, "%s: %d at position 4 ", op_names[ops[k].op.kind], (int)bad[i]);
            cuda_climb_refused(&l, ops[k].op, ops[k].slot, 4, bad[i], text);
            cuda_climb_refused(&l, ops[k].op, ops[k].slot, 4, bad[i], "below 20");
        }
    }
    cuda_ladder_end(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layernorm_matches_the_reference),
        cmocka_unit_test(layernorm_grad_matches_the_reference),
        cmocka_unit_test(the_stored_sum_is_exact),
        cmocka_unit_test(layernorm_far_from_zero),
        cmocka_unit_test(activations_match_the_reference),
        cmocka_unit_test(gelu_on_a_grid),
        cmocka_unit_test(dropout_matches_the_reference),
        cmocka_unit_test(no_dropout_copies_bits),
        cmocka_unit_test(outputs_may_lie_on_inputs),
        cmocka_unit_test(embedding_matches_the_reference),
        cmocka_unit_test(gradients_of_picked_rows_match_the_reference),
        cmocka_unit_test(rows_of_one_id_add_up_in_order),
        cmocka_unit_test(numbers_out_of_range_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
