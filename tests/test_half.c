/* test_half.c - fp16 on the CPU backend: every bit pattern converts rightly, and every op that takes fp16 gives what the
 * reference gives, rounded once. */
#include "../kernels/cpu/half.h"
#include "op_case.h"
#include "ref/ref.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { PATTERNS = 65536 };

static uint32_t bits_of(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

/* IEEE 754 binary16, by its definition. */
static double value_of(uint32_t h)
{
    const int    exponent = (int)(h >> 10 & 31), fraction = (int)(h & 1023);
    const double size = exponent == 31 ? (fraction ? (double)NAN : (double)INFINITY)
                        : exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24);
    return h & 0x8000 ? -size : size;
}

static void every_half_becomes_its_float(void **state)
{
    (void)state;
    uint16_t *halves = malloc(PATTERNS * sizeof *halves), *back = malloc(PATTERNS * sizeof *back);
    float    *floats = malloc(PATTERNS * sizeof *floats);
    assert_true(halves && back && floats);
    for (int h = 0; h < PATTERNS; h++)
        halves[h] = (uint16_t)h;
    half_to_floats(halves, floats, PATTERNS);
    half_from_floats(floats, back, PATTERNS);
    for (uint32_t h = 0; h < PATTERNS; h++) {
        const double want = value_of(h);
        if (isnan(want)) {
            assert_true(isnan(floats[h]) && isnan(f16_to_f32((uint16_t)h)) && !signbit(floats[h]) == !(h >> 15));
            assert_int_equal(back[h], h | 0x200);                          /* quiet, the rest of it kept */
            assert_int_equal(f16_from_f32(f16_to_f32((uint16_t)h)), h | 0x200);
            continue;
        }
        assert_true((double)floats[h] == want && bits_of(floats[h]) == bits_of(f16_to_f32((uint16_t)h)));
        assert_int_equal(back[h], h);
        assert_int_equal(f16_from_f32(floats[h]), h);
    }
    free(halves);
    free(back);
    free(floats);
}

/* Between each two neighbours: the middle goes to the even one, a float next to it to the nearer one. */
static void floats_round_to_the_nearest_half(void **state)
{
    (void)state;
    enum { EACH = 6 };
    float    *floats = malloc(PATTERNS * EACH * sizeof *floats);
    uint16_t *got = malloc(PATTERNS * EACH * sizeof *got), *want = malloc(PATTERNS * EACH * sizeof *want);
    int       n = 0;
    assert_true(floats && got && want);
    for (uint32_t h = 0; h < 0x7c00; h++) { /* the last neighbour is 65536, which is infinity */
        const double low = value_of(h), high = h == 0x7bff ? 65536 : value_of(h + 1);
        const float  middle = (float)((low + high) / 2);
        const float  near[EACH / 2] = { middle, nextafterf(middle, 0), nextafterf(middle, INFINITY) };
        const uint32_t nearest[EACH / 2] = { h + (h & 1), h, h + 1 };
        for (int i = 0; i < EACH / 2; i++) {
            floats[n] = near[i];
            want[n++] = (uint16_t)nearest[i];
            floats[n] = -near[i];
            want[n++] = (uint16_t)(nearest[i] | 0x8000);
        }
    }
    half_from_floats(floats, got, n);
    for (int i = 0; i < n; i++)
        if (got[i] != want[i] || f16_from_f32(floats[i]) != want[i] || ref_round(DTYPE_F16, (double)floats[i]) != value_of(want[i]))
            fail_msg("%.9g becomes %04x, portably %04x, in the reference %.9g; right is %04x", (double)floats[i], got[i],
                     f16_from_f32(floats[i]), ref_round(DTYPE_F16, (double)floats[i]), want[i]);
    const float far[] = { 1e30f, -1e30f, INFINITY, 1e-30f, -1e-45f };
    half_from_floats(far, got, 5);
    assert_memory_equal(got, ((uint16_t[]){ 0x7c00, 0xfc00, 0x7c00, 0, 0x8000 }), 5 * sizeof *got);
    free(floats);
    free(got);
    free(want);
}

/* A double a little off a tie between two halves must not be rounded to the tie on the way. */
static void the_reference_rounds_once(void **state)
{
    (void)state;
    assert_true(ref_round(DTYPE_F16, 1 + 0x1p-11) == 1);
    assert_true(ref_round(DTYPE_F16, 1 + 0x1p-11 + 0x1p-45) == 1 + 0x1p-10);
    assert_true(ref_round(DTYPE_F16, 1 + 0x3p-11 - 0x1p-45) == 1 + 0x1p-10);
    assert_true(ref_round(DTYPE_F16, 65519.999999999) == 65504 && isinf(ref_round(DTYPE_F16, 65520)));
    assert_true(ref_round(DTYPE_F16, 0x1p-25) == 0 && ref_round(DTYPE_F16, 0x1p-25 + 0x1p-70) == 0x1p-24);
    assert_true(isinf(ref_round(DTYPE_F16, 1e300)) && isnan(ref_round(DTYPE_F16, (double)NAN)));
}

/* ---- every op */

#define A(...) tensor_act(DTYPE_F16, __VA_ARGS__)
#define P(...) tensor_4d(DTYPE_F16, __VA_ARGS__)
#define M(...) tensor_2d(DTYPE_F16, __VA_ARGS__)
#define V(n) tensor_1d(DTYPE_F32, n)
#define IDS(n) tensor_1d(DTYPE_I32, n)
#define OPDESC(name, count, ...) .kind = OP_##name, .n_in = count, .in = { __VA_ARGS__ }
#define BITS(n, h, w, c) { .dtype = DTYPE_BIT, .layout = LAYOUT_ACT, .rank = 4, .dim = { n, h, w, c } }
#define BYTES(n, h, w, c) { .dtype = DTYPE_U8, .layout = LAYOUT_ACT, .rank = 4, .dim = { n, h, w, c } }
#define MASK(n, h, w) { .dtype = DTYPE_U8, .rank = 3, .dim = { n, h, w } }
#define TO(type) .out = { { .dtype = type } }

/* Every op with an fp16 slot but attention, which needs spans and is in test_attention.c. */
static int make_ops(OpDesc ops[64])
{
    const OpDesc list[] = {
        { OPDESC(normalize_u8, 1, tensor_4d(DTYPE_U8, 2, 5, 7, 3)), TO(DTYPE_F16),
          .attr = { .mean = { 0.485f, 0.456f, 0.406f }, .deviation = { 0.229f, 0.224f, 0.225f } } },
        { OPDESC(conv2d, 3, A(2, 8, 8, 32), P(48, 3, 3, 32), V(48)), .attr = { .kernel = 3, .stride = 1, .pad = 1, .relu = true } },
        { OPDESC(conv2d, 2, A(1, 9, 7, 3), P(16, 7, 7, 3)), .attr = { .kernel = 7, .stride = 2, .pad = 3 } },
        { OPDESC(conv2d_dgrad, 2, A(2, 4, 4, 32), P(32, 3, 3, 16)), .attr = { .kernel = 3, .stride = 2, .pad = 1, .in_h = 8, .in_w = 8 } },
        { OPDESC(conv2d_wgrad, 2, A(2, 8, 8, 16), A(2, 8, 8, 32)), .n_out = 2,
          .attr = { .kernel = 3, .stride = 1, .pad = 1, .accumulate = true } },
        { OPDESC(relu_grad, 2, A(2, 3, 5, 7), A(2, 3, 5, 7)) },
        { OPDESC(batchnorm, 6, A(2, 5, 5, 16), V(16), V(16), V(16), V(16), A(2, 5, 5, 16)),
          .attr = { .relu = true, .residual = true, .eps = 1e-5f, .momentum = 0.1f } },
        { OPDESC(batchnorm_grad, 6, A(2, 5, 5, 16), A(2, 5, 5, 16), V(16), V(16), V(16), BITS(2, 5, 5, 16)),
          .attr = { .relu = true, .residual = true, .accumulate = true, .eps = 1e-5f } },
        { OPDESC(batchnorm_grad, 5, A(2, 5, 5, 7), A(2, 5, 5, 7), V(7), V(7), V(7)), .attr = { .eps = 1e-5f } },
        { OPDESC(batchnorm_infer, 5, A(2, 5, 5, 7), V(7), V(7), V(7), V(7)), .attr = { .relu = true, .eps = 1e-5f } },
        { OPDESC(maxpool, 1, A(2, 7, 7, 16)), .attr = { .kernel = 3, .stride = 2, .pad = 1 } },
        { OPDESC(maxpool_grad, 2, A(2, 4, 4, 16), BYTES(2, 4, 4, 16)), .attr = { .kernel = 3, .stride = 2, .pad = 1, .in_h = 7, .in_w = 7 } },
        { OPDESC(avgpool, 1, A(3, 5, 5, 16)) },
        { OPDESC(avgpool_grad, 1, M(3, 16)), .attr = { .in_h = 5, .in_w = 5 } },
        { OPDESC(concat, 2, A(2, 3, 5, 16), A(2, 3, 5, 32)) },
        { OPDESC(concat_grad, 1, A(2, 3, 5, 48)), .attr = { .channels = 16 } },
        { OPDESC(linear, 3, M(5, 70), M(11, 70), V(11)) },
        { OPDESC(linear_dgrad, 2, M(5, 11), M(11, 70)) },
        { OPDESC(linear_wgrad, 2, M(5, 70), M(5, 11)), .n_out = 2, .attr = { .accumulate = true } },
        { OPDESC(embedding, 4, tensor_2d(DTYPE_F32, 9, 33), IDS(6), tensor_2d(DTYPE_F32, 4, 33), IDS(6)), TO(DTYPE_F16) },
        { OPDESC(embedding_grad, 2, M(6, 33), IDS(6)), .attr = { .rows = 9 } },
        { OPDESC(gather_rows, 2, M(6, 33), IDS(4)) },
        { OPDESC(gather_rows_grad, 2, M(4, 33), IDS(4)), .attr = { .rows = 6 } },
        { OPDESC(layernorm, 3, M(5, 70), V(70), V(70)), .attr = { .eps = 1e-5f } },
        { OPDESC(layernorm, 5, M(5, 70), V(70), V(70), M(5, 70), IDS(4)), .attr = { .residual = true, .dropout = 0.25f, .stream = 3, .eps = 1e-5f } },
        { OPDESC(layernorm_grad, 6, M(5, 70), M(5, 70), V(70), V(5), V(5), IDS(4)), .attr = { .dropout = 0.25f, .stream = 3, .eps = 1e-5f } },
        { OPDESC(gelu, 1, M(3, 37)) },
        { OPDESC(gelu_grad, 2, M(3, 37), M(3, 37)) },
        { OPDESC(tanh, 1, M(3, 37)) },
        { OPDESC(tanh_grad, 2, M(3, 37), M(3, 37)) },
        { OPDESC(dropout, 2, M(3, 67), IDS(4)), .attr = { .dropout = 0.25f, .stream = 3 } },
        { OPDESC(softmax_xent, 3, M(6, 10), IDS(6), V(1)), .n_out = 2 },
        { OPDESC(pixel_xent, 3, A(2, 6, 6, 5), MASK(2, 6, 6), V(1)), .n_out = 2 },
        { OPDESC(bce_dice, 3, A(2, 6, 6, 1), MASK(2, 6, 6), V(1)), .n_out = 2 },
        { OPDESC(add, 2, A(2, 3, 5, 16), A(2, 3, 5, 16)) },
        { OPDESC(cast, 1, A(2, 3, 5, 16)), TO(DTYPE_F32) },
        { OPDESC(cast, 1, tensor_act(DTYPE_F32, 2, 3, 5, 16)), TO(DTYPE_F16) },
        { OPDESC(cast, 1, tensor_act(DTYPE_BF16, 2, 3, 5, 16)), TO(DTYPE_F16) },
        { OPDESC(cast, 1, A(2, 3, 5, 16)), TO(DTYPE_BF16) },
        { OPDESC(repack, 1, tensor_4d(DTYPE_F32, 16, 3, 3, 5)), TO(DTYPE_F16) },
        { .kind = OP_zero, .out = { A(2, 3, 5, 16) } },
    };
    memcpy(ops, list, sizeof list);
    return (int)COUNT_OF(list);
}

static void need(Status s)
{
    if (s.code != STATUS_OK)
        fail_msg("%s", s.text);
}

static void every_op_agrees_with_the_reference(void **state)
{
    (void)state;
    static const char *const layouts[] = { "blocked", "nhwc" };
    OpDesc   ops[64];
    Backend *ref, *be;
    int      failures = 0;
    const int count = make_ops(ops);
    need(ref_backend.open(&(BackendOptions){ .threads = 1 }, &ref));
    for (int i = 0; i < count; i++) {
        OpCase  *c;
        OpResult want, got;
        need(op_case_create(&ops[i], FILL_RANDOM, 9, &c));
        c->trivial = ops[i].kind == OP_zero;
        need(op_case_run(c, ref, NULL, &want));
        for (size_t k = 0; k < COUNT_OF(layouts); k++) {
            need(backend_open("cpu", &(BackendOptions){ .threads = 1 + (int)k, .layout = layouts[k] }, &be));
            Status s = op_case_run(c, be, NULL, &got);
            if (s.code == STATUS_OK)
                s = op_case_compare(c, COMPARE_TOLERANCE, &want, &got);
            if (s.code != STATUS_OK) {
                failures++;
                print_error("%s: %s\n", layouts[k], s.text);
            }
            op_result_release(&got);
            backend_close(be);
        }
        op_result_release(&want);
        op_case_destroy(c);
    }
    backend_close(ref);
    assert_int_equal(failures, 0);
}

/* The list above has them all: what is not in it works on f32 alone. */
static void no_op_is_left_out(void **state)
{
    (void)state;
    static const OpKind others[] = { OP_attention, OP_attention_grad, OP_sqnorm, OP_window_scale, OP_step_control, OP_sgd, OP_adamw,
                                     OP_lamb, OP_lars, OP_restore };
    bool      seen[OP_COUNT] = { false };
    OpDesc    ops[64];
    const int count = make_ops(ops);
    for (int i = 0; i < count; i++)
        seen[ops[i].kind] = true;
    for (size_t i = 0; i < COUNT_OF(others); i++)
        seen[others[i]] = true;
    for (int kind = 0; kind < OP_COUNT; kind++)
        if (!seen[kind])
            fail_msg("%s is not tested in fp16", op_names[kind]);
}

/* ---- what the wrapper has to keep */

/* Runs an op on plain buffers; outputs may lie on inputs. */
static void run_on(Backend *be, OpDesc op, void *const *buf)
{
    OpNeeds needs;
    void   *state = NULL;
    need(op_infer(&op));
    need(backend_query(be, &op, &needs));
    const Kernel *kernel = be->vtable->kernels[op.kind];
    void *scratch = aligned_alloc(64, (needs.scratch + 64) / 64 * 64);
    assert_non_null(scratch);
    need(kernel->prepare(be, &op, &state));
    need(kernel->run(be, &op, state, buf, scratch));
    kernel->release(state);
    free(scratch);
}

static void outputs_may_lie_on_inputs(void **state)
{
    (void)state;
    Backend *be;
    float    x[3] = { 1, -2, 3 }, y[3] = { 1, -1, 0.5f };
    uint16_t a[3], b[3];
    need(backend_open("cpu", &(BackendOptions){ .threads = 1 }, &be));
    half_from_floats(x, a, 3);
    half_from_floats(y, b, 3);
    run_on(be, (OpDesc){ OPDESC(add, 2, M(1, 3), M(1, 3)) }, (void *[]){ a, b, a });
    half_to_floats(a, x, 3);
    assert_memory_equal(x, ((float[]){ 2, -3, 3.5f }), sizeof x);
    run_on(be, (OpDesc){ OPDESC(relu_grad, 2, M(1, 3), M(1, 3)) }, (void *[]){ a, b, a });
    half_to_floats(a, x, 3);
    assert_memory_equal(x, ((float[]){ 2, 0, 3.5f }), sizeof x);
    backend_close(be);
}

/* The range of fp16, with sums in fp32: 2 x 200 x 200 is too large at the end alone; 300 x 300 - 300 x 300 + 1 is 1. */
static void sums_are_fp32_and_results_fp16(void **state)
{
    (void)state;
    Backend *be;
    float    f[6] = { 200, 200, 0, 300, -300, 1 }, g[6] = { 200, 200, 0, 300, 300, 1 }, got[4];
    uint16_t x[6], w[6], y[4];
    need(backend_open("cpu", &(BackendOptions){ .threads = 1 }, &be));
    half_from_floats(f, x, 6);
    half_from_floats(g, w, 6);
    run_on(be, (OpDesc){ OPDESC(linear, 2, M(2, 3), M(2, 3)) }, (void *[]){ x, w, y });
    half_to_floats(y, got, 4);
    assert_true(isinf(got[0]) && isinf(got[1]) && got[2] == 0 && got[3] == 1);
    backend_close(be);
}

static void half_tensors_take_half_the_bytes(void **state)
{
    (void)state;
    Backend *be;
    OpNeeds  needs;
    OpDesc   op = { OPDESC(conv2d, 2, A(2, 8, 8, 32), P(40, 3, 3, 32)), .attr = { .kernel = 3, .stride = 1, .pad = 1 } };
    need(backend_open("cpu", &(BackendOptions){ .threads = 1, .layout = "blocked" }, &be));
    need(op_infer(&op));
    need(backend_query(be, &op, &needs));
    for (int i = 0; i < 2; i++) {
        Tensor half = op.in[i], whole;
        if (needs.in_layout[i] != LAYOUT_ANY)
            half.layout = needs.in_layout[i];
        whole = half;
        whole.dtype = DTYPE_F32;
        assert_int_equal(2 * backend_bytes(be, &half), backend_bytes(be, &whole));
    }
    backend_close(be);
}

static void fp16_is_said_to_be_numerics_only(void **state)
{
    (void)state;
    Backend    *be;
    BackendInfo info;
    need(backend_open("cpu", NULL, &be));
    backend_describe(be, &info);
    assert_false(info.fast_fp16);
    assert_string_equal(info.fp16_reason, "this CPU backend runs fp16 as numerics only: values rounded to fp16, sums in fp32");
    backend_close(be);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_half_becomes_its_float),
        cmocka_unit_test(floats_round_to_the_nearest_half),
        cmocka_unit_test(the_reference_rounds_once),
        cmocka_unit_test(every_op_agrees_with_the_reference),
        cmocka_unit_test(no_op_is_left_out),
        cmocka_unit_test(outputs_may_lie_on_inputs),
        cmocka_unit_test(sums_are_fp32_and_results_fp16),
        cmocka_unit_test(half_tensors_take_half_the_bytes),
        cmocka_unit_test(fp16_is_said_to_be_numerics_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
