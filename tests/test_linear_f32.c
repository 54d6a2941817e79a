/* test_linear_f32.c - fp32 linear layers of the CPU backend, forward, dgrad and wgrad, against the reference: sizes that cut
 * the tiles of gemm_f32.c everywhere they can be cut, sums in several pieces, added to what is there, one to four threads.
 * Small integers exactly, then random inputs within compare.c's table; and the same bits for every number of threads. */
#include "../kernels/cpu/gemm_f32.h"
#include "op_case.h"

#include "ref/ref.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum { SEED = 31, OPS = 5 };

static const int thread_counts[] = { 1, 2, 3, 4 };

typedef struct Shape { int64_t m, k, o; } Shape;

/* Forward without and with bias, dgrad, wgrad, wgrad with dbias that accumulates. */
static OpDesc op_of(Shape s, int which)
{
    const Tensor x = tensor_2d(DTYPE_F32, s.m, s.k), w = tensor_2d(DTYPE_F32, s.o, s.k), y = tensor_2d(DTYPE_F32, s.m, s.o);
    switch (which) {
    case 0: return (OpDesc){ .kind = OP_linear, .n_in = 2, .in = { x, w } };
    case 1: return (OpDesc){ .kind = OP_linear, .n_in = 3, .in = { x, w, tensor_1d(DTYPE_F32, s.o) } };
    case 2: return (OpDesc){ .kind = OP_linear_dgrad, .n_in = 2, .in = { y, w } };
    case 3: return (OpDesc){ .kind = OP_linear_wgrad, .n_in = 2, .n_out = 1, .in = { x, y } };
    default:
        return (OpDesc){ .kind = OP_linear_wgrad, .n_in = 2, .n_out = 2, .in = { x, y }, .attr = { .accumulate = true } };
    }
}

static OpResult run_on(const OpCase *c, int threads)
{
    Backend *be;
    OpResult result;
    assert_int_equal(backend_open("cpu", &(BackendOptions){ .threads = threads }, &be).code, STATUS_OK);
    const Status s = op_case_run(c, be, NULL, &result);
    if (s.code != STATUS_OK)
        fail_msg("%d threads: %s", threads, s.text);
    backend_close(be);
    return result;
}

/* One op with all numbers of threads; true if every result is right. */
static bool check(Backend *ref, const OpDesc *op, FillKind fill)
{
    OpCase  *c;
    OpResult want, first = { 0 };
    bool     right = true;
    assert_int_equal(op_case_create(op, fill, SEED, &c).code, STATUS_OK);
    assert_int_equal(op_case_run(c, ref, NULL, &want).code, STATUS_OK);
    c->trivial = tensor_count(&c->op.out[0]) < 16; /* so few integers may well be equal, or 0 */
    for (size_t i = 0; i < COUNT_OF(thread_counts); i++) {
        OpResult     got = run_on(c, thread_counts[i]);
        const Status s = op_case_compare(c, fill == FILL_INTEGER ? COMPARE_EXACT : COMPARE_TOLERANCE, &want, &got);
        if (s.code != STATUS_OK) {
            right = false;
            print_error("%d threads: %s\n", thread_counts[i], s.text);
        }
        if (i > 0 && gemm_f32_fits(&c->op) && memcmp(got.out[0], first.out[0], tensor_bytes(&c->op.out[0]))) {
            right = false;
            print_error("%s (%d, %d) (%d, %d): other bits with %d threads than with one\n", op_names[op->kind], (int)op->in[0].dim[0],
                        (int)op->in[0].dim[1], (int)op->in[1].dim[0], (int)op->in[1].dim[1], thread_counts[i]);
        }
        if (i == 0)
            first = got;
        else
            op_result_release(&got);
    }
    op_result_release(&first);
    op_result_release(&want);
    op_case_destroy(c);
    return right;
}

static void check_shapes(const Shape *shapes, size_t count)
{
    Backend *ref;
    int      wrong = 0;
    assert_int_equal(ref_backend.open(&(BackendOptions){ .threads = 2 }, &ref).code, STATUS_OK);
    for (size_t i = 0; i < count; i++)
        for (int which = 0; which < OPS; which++) {
            const OpDesc op = op_of(shapes[i], which);
            wrong += !check(ref, &op, FILL_INTEGER);
            wrong += !check(ref, &op, FILL_RANDOM);
        }
    backend_close(ref);
    assert_int_equal(wrong, 0);
}

/* Every height of a tile, one and two vectors wide, every place where a vector can be cut. */
static void test_tiles(void **state)
{
    (void)state;
    Shape shapes[34];
    for (int i = 0; i < (int)COUNT_OF(shapes); i++)
        shapes[i] = (Shape){ 32 + i, 1 + (7 * i + 31) % 34, 1 + (5 * i + 13) % 34 };
    check_shapes(shapes, COUNT_OF(shapes));
}

static void test_edges(void **state)
{
    (void)state;
    static const Shape shapes[] = {
        { 1, 1, 1 }, { 1, 70, 33 }, { 7, 1, 40 }, { 5, 33, 1 }, { 15, 17, 31 }, /* too few rows for most own kernels */
        { 32, 1, 1 }, { 64, 1, 1 }, { 32, 1, 100 }, { 100, 1, 3 }, { 33, 257, 1 },
        { 32, 16, 16 }, { 32, 48, 42 }, { 42, 32, 14 }, { 128, 64, 64 },        /* nothing is cut */
        { 47, 100, 131 }, { 97, 31, 205 },
    };
    check_shapes(shapes, COUNT_OF(shapes));
}

/* Sums over more terms than a chunk has, and more rows and columns than stay packed at a time. */
static void test_chunks(void **state)
{
    (void)state;
    static const Shape shapes[] = {
        { 34, 770, 35 }, { 34, 1541, 35 },  /* forward in two and three pieces */
        { 37, 35, 517 }, { 37, 35, 1025 },  /* dgrad too */
        { 517, 33, 15 }, { 1025, 18, 20 },  /* wgrad too */
        { 421, 768, 17 }, { 621, 19, 512 }, /* x or dy in several chunks, with one thread at least */
        { 512, 621, 16 },
    };
    check_shapes(shapes, COUNT_OF(shapes));
}

static void test_fits(void **state)
{
    (void)state;
    OpDesc op = op_of((Shape){ 64, 64, 64 }, 1);
#ifdef __AVX512F__
    assert_true(gemm_f32_fits(&op));
#else
    assert_false(gemm_f32_fits(&op));
#endif
    op.in[0].dtype = op.in[1].dtype = DTYPE_BF16;
    assert_false(gemm_f32_fits(&op));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tiles),
        cmocka_unit_test(test_edges),
        cmocka_unit_test(test_chunks),
        cmocka_unit_test(test_fits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
