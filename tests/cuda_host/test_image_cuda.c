/* test_image_cuda.c - the CUDA backend's ops that move and convert (pointwise.cu, normalize.cu, layout.cu, concat.cu) on the host. */
#include "cuda_case.h"
#include "fake.h"

#include "../../kernels/cuda/cuda.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const int64_t act_shapes[][4] = {
    { 2, 8, 8, 64 }, { 1, 9, 7, 24 }, { 2, 3, 5, 7 }, { 2, 4, 4, 1 }, { 5, 1, 1, 10 }, { 2, 13, 11, 3 }, { 1, 1, 1, 1 }, { 1, 33, 32, 17 },
};

static Tensor act(size_t i, Dtype t)
{
    return tensor_act(t, act_shapes[i][0], act_shapes[i][1], act_shapes[i][2], act_shapes[i][3]);
}

static void test_pointwise(void **state)
{
    (void)state;
    CudaLadder l = cuda_ladder_start();
    for (size_t i = 0; i < COUNT_OF(act_shapes); i++)
        for (Dtype t = DTYPE_F32; t <= DTYPE_F16; t++) {
            const Tensor x = act(i, t), m = tensor_2d(t, act_shapes[i][0], act_shapes[i][3]);
            const int    few = tensor_count(&x) < 20 ? CUDA_TRIVIAL : 0;
            cuda_climb(&l, (OpDesc){ .kind = OP_add, .n_in = 2, .in = { x, x } }, CUDA_BOTH | few);
            cuda_climb(&l, (OpDesc){ .kind = OP_add, .n_in = 2, .in = { m, m } }, CUDA_BOTH | CUDA_TRIVIAL);
            cuda_climb(&l, (OpDesc){ .kind = OP_relu_grad, .n_in = 2, .in = { x, x } }, CUDA_BOTH | few);
            cuda_climb(&l, (OpDesc){ .kind = OP_zero, .out = { x } }, CUDA_EXACT | CUDA_TRIVIAL);
            cuda_climb_in_place(&l, (OpDesc){ .kind = OP_add, .n_in = 2, .in = { x, x } });
            cuda_climb_in_place(&l, (OpDesc){ .kind = OP_relu_grad, .n_in = 2, .in = { x, x } });
        }
    cuda_ladder_end(&l);
}

static void test_cast(void **state)
{
    (void)state;
    CudaLadder l = cuda_ladder_start();
    for (size_t i = 0; i < COUNT_OF(act_shapes); i++)
        for (Dtype from = DTYPE_F32; from <= DTYPE_F16; from++)
            for (Dtype to = DTYPE_F32; to <= DTYPE_F16; to++) {
                const Tensor x = act(i, from);
                cuda_climb(&l, (OpDesc){ .kind = OP_cast, .n_in = 1, .in = { x }, .out = { { .dtype = to } } },
                           CUDA_BOTH | (tensor_count(&x) < 20 ? CUDA_TRIVIAL : 0));
            }
    cuda_ladder_end(&l);
}

/* Every bit pattern of bf16 through f32 and back, and of f16; what is too large for f16 is infinite, NaN stays one. */
static void test_cast_of_every_number(void **state)
{
    (void)state;
    enum { N = 65536 };
    static const Dtype half[] = { DTYPE_BF16, DTYPE_F16 };
    Backend  *be = cuda_case_open();
    float    *wide = malloc(N * sizeof *wide);
    uint16_t *narrow = malloc(N * sizeof *narrow);
    void     *at[3];
    assert_true(wide && narrow);
    for (size_t h = 0; h < COUNT_OF(half); h++) {
        OpDesc out = { .kind = OP_cast, .n_in = 1, .in = { tensor_1d(half[h], N) }, .out = { { .dtype = DTYPE_F32 } } };
        OpDesc back = { .kind = OP_cast, .n_in = 1, .in = { tensor_1d(DTYPE_F32, N) }, .out = { { .dtype = half[h] } } };
        assert_int_equal(op_infer(&out).code, STATUS_OK);
        assert_int_equal(op_infer(&back).code, STATUS_OK);
        for (int i = 0; i < 3; i++)
            assert_int_equal(backend_alloc(be, N * sizeof(float), &at[i]).code, STATUS_OK);
        for (int i = 0; i < N; i++)
            narrow[i] = (uint16_t)i;
        assert_int_equal(backend_upload(be, &out.in[0], at[0], narrow).code, STATUS_OK);
        assert_int_equal(be->vtable->kernels[OP_cast]->run(be, &out, NULL, at, NULL).code, STATUS_OK);
        assert_int_equal(be->vtable->kernels[OP_cast]->run(be, &back, NULL, at + 1, NULL).code, STATUS_OK);
        assert_int_equal(backend_download(be, &out.out[0], at[1], wide).code, STATUS_OK);
        assert_int_equal(backend_download(be, &back.out[0], at[2], narrow).code, STATUS_OK);
        for (int i = 0; i < N; i++) {
            const float f = half[h] == DTYPE_BF16 ? bf16_to_f32((uint16_t)i) : f16_to_f32((uint16_t)i);
            assert_true(f == f ? wide[i] == f && narrow[i] == i : wide[i] != wide[i]);
            if (f != f)
                assert_true((narrow[i] & 0x7fff) > (half[h] == DTYPE_BF16 ? 0x7f80 : 0x7c00));
        }
        for (int i = 0; i < 3; i++)
            backend_free(be, at[i]);
    }
    backend_close(be);
    free(wide);
    free(narrow);
}

/* ---- LAYOUT_PADDED */

static OpNeeds layouts_of(int in, int out)
{
    OpNeeds needs = { .scratch = 0 };
    for (int i = 0; i < OP_MAX_IN; i++)
        needs.in_layout[i] = LAYOUT_ANY;
    for (int i = 0; i < OP_MAX_OUT; i++)
        needs.out_layout[i] = LAYOUT_ANY;
    needs.in_layout[0] = in;
    needs.out_layout[0] = out;
    return needs;
}

static void test_repack(void **state)
{
    (void)state;
    static const int64_t shapes[][4] = { { 64, 7, 7, 3 }, { 5, 3, 3, 1 }, { 3, 1, 1, 2 }, { 8, 3, 3, 4 }, { 7, 3, 3, 8 }, { 3, 1, 2, 13 } };
    CudaLadder l = cuda_ladder_start();
    for (size_t i = 0; i < COUNT_OF(shapes); i++)
        for (Dtype t = DTYPE_F32; t <= DTYPE_F16; t++)
            for (int padded = 0; padded < 4; padded++) {
                const OpNeeds layouts = layouts_of(padded & 1 ? LAYOUT_PADDED : LAYOUT_PLAIN, padded & 2 ? LAYOUT_PADDED : LAYOUT_PLAIN);
                const Tensor  w = tensor_4d(DTYPE_F32, shapes[i][0], shapes[i][1], shapes[i][2], shapes[i][3]);
                cuda_climb_layouts(&l, (OpDesc){ .kind = OP_repack, .n_in = 1, .in = { w }, .out = { { .dtype = t } } }, &layouts,
                                   CUDA_BOTH | CUDA_TRIVIAL);
            }
    cuda_ladder_end(&l);
}

static OpDesc normalize_op(Dtype t, const int64_t shape[4])
{
    return (OpDesc){ .kind = OP_normalize_u8, .n_in = 1, .in = { tensor_4d(DTYPE_U8, shape[0], shape[1], shape[2], shape[3]) },
                     .out = { { .dtype = t } },
                     .attr = { .mean = { 0.485f, 0.456f, 0.406f, 0.5f }, .deviation = { 0.229f, 0.224f, 0.225f, 0.25f } } };
}

static const int64_t image_shapes[][4] = {
    { 2, 32, 32, 3 }, { 1, 28, 28, 1 }, { 3, 5, 7, 4 }, { 1, 1, 3, 2 }, { 3, 11, 13, 2 }, { 1, 1, 1, 1 }, { 1, 101, 103, 3 },
};

static void test_normalize_u8(void **state)
{
    (void)state;
    CudaLadder l = cuda_ladder_start();
    for (size_t i = 0; i < COUNT_OF(image_shapes); i++)
        for (Dtype t = DTYPE_F32; t <= DTYPE_F16; t++)
            for (int padded = 0; padded < 2; padded++) {
                const OpNeeds layouts = layouts_of(LAYOUT_ANY, padded ? LAYOUT_PADDED : LAYOUT_ACT);
                cuda_climb_layouts(&l, normalize_op(t, image_shapes[i]), &layouts, CUDA_RANDOM);
            }
    cuda_ladder_end(&l);
}

/* The padding is zero whatever was there before; the rest is what a plain download sees. */
static void check_padding(Backend *be, OpDesc op)
{
    assert_int_equal(op_infer(&op).code, STATUS_OK);
    op.out[0].layout = LAYOUT_PADDED;
    const int64_t rows = tensor_count(&op.out[0]) / op.out[0].dim[3], pitch = CUDA_PAD, width = op.out[0].dim[3];
    const size_t  size = (size_t)dtype_bits(op.out[0].dtype) / 8, bytes = (size_t)(rows * pitch) * size;
    const Tensor  raw = tensor_1d(DTYPE_U8, (int64_t)bytes);
    uint8_t      *host = malloc(bytes + tensor_bytes(&op.in[0]));
    void         *buf[2];
    assert_non_null(host);
    assert_int_equal(cuda_tensor_bytes(&op.out[0]), bytes);
    assert_int_equal(backend_alloc(be, tensor_bytes(&op.in[0]), &buf[0]).code, STATUS_OK);
    assert_int_equal(backend_alloc(be, bytes, &buf[1]).code, STATUS_OK);
    memset(host, 0x3c, bytes + tensor_bytes(&op.in[0]));
    assert_int_equal(backend_upload(be, &op.in[0], buf[0], host).code, STATUS_OK);
    assert_int_equal(backend_upload(be, &raw, buf[1], host).code, STATUS_OK);
    assert_int_equal(be->vtable->kernels[op.kind]->run(be, &op, NULL, buf, NULL).code, STATUS_OK);
    assert_int_equal(backend_download(be, &raw, buf[1], host).code, STATUS_OK);
    for (int64_t i = 0; i < rows * pitch; i++)
        for (size_t b = 0; b < size; b++)
            if (i % pitch >= width)
                assert_int_equal(host[(size_t)i * size + b], 0);
    backend_free(be, buf[0]);
    backend_free(be, buf[1]);
    free(host);
}

static void test_padding_is_zero(void **state)
{
    (void)state;
    Backend *be = cuda_case_open();
    for (Dtype t = DTYPE_F32; t <= DTYPE_F16; t++)
        for (size_t i = 0; i < COUNT_OF(image_shapes); i++) {
            const int64_t *s = image_shapes[i];
            check_padding(be, normalize_op(t, s));
            check_padding(be, (OpDesc){ .kind = OP_repack, .n_in = 1, .in = { tensor_4d(DTYPE_F32, s[0], s[1], s[2], s[3]) },
                                        .out = { { .dtype = t } } });
        }
    backend_close(be);
}

/* What no kernel can read is refused when it is asked, not when it runs. */
static void test_layouts_refused(void **state)
{
    (void)state;
    Backend *be = cuda_case_open();
    OpNeeds  needs;
    const Tensor x = tensor_act(DTYPE_BF16, 2, 3, 4, 3);
    OpDesc ops[] = {
        { .kind = OP_add, .n_in = 2, .in = { x, x } },
        { .kind = OP_concat, .n_in = 2, .in = { x, x } },
        { .kind = OP_concat_grad, .n_in = 1, .in = { x }, .attr = { .channels = 1 } },
        { .kind = OP_cast, .n_in = 1, .in = { x }, .out = { { .dtype = DTYPE_F32 } } },
    };
    for (size_t i = 0; i < COUNT_OF(ops); i++) {
        assert_int_equal(op_infer(&ops[i]).code, STATUS_OK);
        assert_int_equal(backend_query(be, &ops[i], &needs).code, STATUS_OK);
        ops[i].in[0].layout = LAYOUT_PADDED;
        assert_int_equal(backend_query(be, &ops[i], &needs).code, STATUS_UNSUPPORTED);
    }
    backend_close(be);
}

/* ---- concat */

static void test_concat(void **state)
{
    (void)state;
    static const int64_t shapes[][5] = { /* N, H, W, A, B */
        { 2, 6, 6, 32, 16 }, { 1, 16, 16, 64, 64 }, { 2, 3, 5, 8, 8 }, { 1, 7, 3, 24, 40 }, { 1, 9, 9, 16, 1 },
        { 2, 4, 4, 3, 32 },  { 2, 5, 3, 5, 7 },     { 1, 1, 1, 1, 1 }, { 1, 12, 11, 33, 31 }, { 1, 2, 3, 1000, 1600 }, { 1, 2, 3, 301, 2 },
    };
    CudaLadder l = cuda_ladder_start();
    for (size_t i = 0; i < COUNT_OF(shapes); i++)
        for (Dtype t = DTYPE_F32; t <= DTYPE_F16; t++) {
            const int64_t *s = shapes[i];
            const Tensor   a = tensor_act(t, s[0], s[1], s[2], s[3]), b = tensor_act(t, s[0], s[1], s[2], s[4]);
            const Tensor   whole = tensor_act(t, s[0], s[1], s[2], s[3] + s[4]);
            cuda_climb(&l, (OpDesc){ .kind = OP_concat, .n_in = 2, .in = { a, b } }, CUDA_BOTH | CUDA_TRIVIAL);
            cuda_climb(&l, (OpDesc){ .kind = OP_concat_grad, .n_in = 1, .in = { whole }, .attr = { .channels = s[3] } },
                       CUDA_BOTH | CUDA_TRIVIAL);
        }
    cuda_ladder_end(&l);
}

/* ---- sizes beyond the grid */

/* y = x + x over so many elements that the grid goes round twice, and a few more. */
static void test_more_than_a_grid(void **state)
{
    (void)state;
    const int64_t n = (int64_t)16384 * 256 * 8 + 1003;
    Backend  *be = cuda_case_open();
    OpDesc    op = { .kind = OP_add, .n_in = 2, .in = { tensor_1d(DTYPE_BF16, n), tensor_1d(DTYPE_BF16, n) } };
    uint16_t *host = malloc((size_t)n * sizeof *host);
    void     *x, *y;
    assert_non_null(host);
    assert_int_equal(op_infer(&op).code, STATUS_OK);
    assert_int_equal(backend_alloc(be, (size_t)n * 2, &x).code, STATUS_OK);
    assert_int_equal(backend_alloc(be, (size_t)n * 2, &y).code, STATUS_OK);
    for (int64_t i = 0; i < n; i++)
        host[i] = bf16_from_f32((float)(i * 7919 % 128));
    assert_int_equal(backend_upload(be, &op.in[0], x, host).code, STATUS_OK);
    assert_int_equal(be->vtable->kernels[OP_add]->run(be, &op, NULL, (void *[]){ x, x, y }, NULL).code, STATUS_OK);
    assert_int_equal(backend_download(be, &op.out[0], y, host).code, STATUS_OK);
    for (int64_t i = 0; i < n; i++)
        if (bf16_to_f32(host[i]) != (float)(i * 7919 % 128 * 2))
            fail_msg("element %lld", (long long)i);
    backend_free(be, x);
    backend_free(be, y);
    backend_close(be);
    free(host);
}

/* 70,000 images of one pixel: rows are counted in 64 bits, not by the grid's second dimension. */
static void test_many_rows(void **state)
{
    (void)state;
    CudaLadder l = cuda_ladder_start();
    const Tensor a = tensor_act(DTYPE_F16, 70000, 1, 1, 3), b = tensor_act(DTYPE_F16, 70000, 1, 1, 2);
    cuda_climb(&l, (OpDesc){ .kind = OP_concat, .n_in = 2, .in = { a, b } }, CUDA_EXACT);
    cuda_climb(&l, normalize_op(DTYPE_F16, (const int64_t[]){ 70000, 1, 1, 3 }), CUDA_RANDOM);
    cuda_ladder_end(&l);
}

/* Nothing to do is no error: no grid of zero blocks. */
static void test_nothing(void **state)
{
    (void)state;
    static const OpKind kinds[] = { OP_add, OP_relu_grad, OP_cast, OP_repack, OP_zero, OP_normalize_u8, OP_concat, OP_concat_grad };
    Backend *be = cuda_case_open();
    const FakeCounts before = fake_counts();
    for (size_t i = 0; i < COUNT_OF(kinds); i++) {
        const Tensor none = tensor_act(DTYPE_F32, 0, 4, 4, 3);
        OpDesc op = { .kind = kinds[i], .n_in = 2, .in = { none, none }, .out = { none, none } };
        op.in[1].dtype = kinds[i] == OP_add ? DTYPE_F32 : DTYPE_BF16;
        if (kinds[i] == OP_cast || kinds[i] == OP_repack)
            op.out[0].dtype = DTYPE_BF16;
        void *buf[4] = { NULL, NULL, NULL, NULL };
        assert_int_equal(be->vtable->kernels[op.kind]->run(be, &op, NULL, buf, NULL).code, STATUS_OK);
    }
    assert_int_equal(backend_sync(be).code, STATUS_OK);
    assert_int_equal(fake_counts().launches, before.launches);
    backend_close(be);
}

/* ---- bytes: the formulas at the head of the .cu files against op_cost */

static void expect_bytes(OpDesc op, double bytes)
{
    assert_int_equal(op_infer(&op).code, STATUS_OK);
    assert_true(op_cost(&op).bytes == bytes);
}

static void test_bytes_as_stated(void **state)
{
    (void)state;
    for (Dtype t = DTYPE_F32; t <= DTYPE_F16; t++) {
        const double s = dtype_bits(t) / 8, n = 2 * 5 * 7 * 6, pixels = 2 * 5 * 7;
        const Tensor x = tensor_act(t, 2, 5, 7, 6), image = tensor_4d(DTYPE_U8, 2, 5, 7, 3), w = tensor_4d(DTYPE_F32, 2, 5, 7, 6);
        expect_bytes((OpDesc){ .kind = OP_add, .n_in = 2, .in = { x, x } }, 3 * s * n);
        expect_bytes((OpDesc){ .kind = OP_relu_grad, .n_in = 2, .in = { x, x } }, 3 * s * n);
        expect_bytes((OpDesc){ .kind = OP_zero, .out = { x } }, s * n);
        expect_bytes((OpDesc){ .kind = OP_normalize_u8, .n_in = 1, .in = { image }, .out = { { .dtype = t } } }, pixels * 3 * (1 + s));
        expect_bytes((OpDesc){ .kind = OP_cast, .n_in = 1, .in = { x }, .out = { { .dtype = DTYPE_F32 } } }, n * (s + 4));
        expect_bytes((OpDesc){ .kind = OP_repack, .n_in = 1, .in = { w }, .out = { { .dtype = t } } }, n * (4 + s));
        expect_bytes((OpDesc){ .kind = OP_concat, .n_in = 2, .in = { x, x } }, 2 * pixels * 12 * s);
        expect_bytes((OpDesc){ .kind = OP_concat_grad, .n_in = 1, .in = { x }, .attr = { .channels = 2 } }, 2 * pixels * 6 * s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pointwise),
        cmocka_unit_test(test_cast),
        cmocka_unit_test(test_cast_of_every_number),
        cmocka_unit_test(test_repack),
        cmocka_unit_test(test_normalize_u8),
        cmocka_unit_test(test_padding_is_zero),
        cmocka_unit_test(test_layouts_refused),
        cmocka_unit_test(test_concat),
        cmocka_unit_test(test_more_than_a_grid),
        cmocka_unit_test(test_many_rows),
        cmocka_unit_test(test_nothing),
        cmocka_unit_test(test_bytes_as_stated),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
