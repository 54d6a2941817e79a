/* test_op_case.c - the case runner must catch a kernel that breaks its promises: a backend that is the reference but for
 * one misbehaving op, one test a misbehaviour. */
#include "fault_alloc.h"
#include "op_case.h"

#include "ref/ref.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* The reference with one kernel replaced. */
typedef struct Impostor {
    Backend       *ref;
    BackendVtable  vtable;
    const Kernel  *kernels[OP_COUNT];
} Impostor;

static void impostor_open(Impostor *i, OpKind kind, const Kernel *kernel)
{
    assert_int_equal(ref_backend.open(&(BackendOptions){ .threads = 1 }, &i->ref).code, STATUS_OK);
    i->vtable = ref_backend;
    memcpy(i->kernels, ref_backend.kernels, sizeof i->kernels);
    i->kernels[kind] = kernel;
    i->vtable.kernels = i->kernels;
    i->ref->vtable = &i->vtable;
}

/* Runs `add` on f32[4,8] through the kernel and expects the text, or success for NULL. */
static void expect(const Kernel *kernel, const char *text)
{
    Tensor t = tensor_2d(DTYPE_F32, 4, 8);
    Impostor impostor;
    OpCase *c;
    OpResult result, want;
    impostor_open(&impostor, OP_add, kernel);
    assert_int_equal(op_case_create(&(OpDesc){ .kind = OP_add, .n_in = 2, .in = { t, t } }, FILL_RANDOM, 1, &c).code, STATUS_OK);
    Status s = op_case_run(c, impostor.ref, NULL, &result);
    if (s.code == STATUS_OK) {
        impostor.ref->vtable = &ref_backend;
        assert_int_equal(op_case_run(c, impostor.ref, NULL, &want).code, STATUS_OK);
        s = op_case_compare(c, COMPARE_EXACT, &want, &result);
        op_result_release(&want);
    }
    if (text ? !strstr(s.text, text) : s.code != STATUS_OK)
        fail_msg("expected '%s', got '%s'", text ? text : "ok", s.text);
    op_result_release(&result);
    op_case_destroy(c);
    backend_close(impostor.ref);
}

static Status run_add(const OpDesc *op, void *const *buf, int64_t from, int64_t to)
{
    for (int64_t i = from; i < to; i++)
        ((float *)buf[2])[i] = ((float *)buf[0])[i] + ((float *)buf[1])[i];
    (void)op;
    return status_ok();
}

static Status run_right(Backend *be, const OpDesc *op, void *state, void *const *buf, void *scratch)
{
    (void)be, (void)state, (void)scratch;
    return run_add(op, buf, 0, 32);
}

static Status run_short(Backend *be, const OpDesc *op, void *state, void *const *buf, void *scratch)
{
    (void)be, (void)state, (void)scratch;
    return run_add(op, buf, 0, 31);
}

static Status run_past_end(Backend *be, const OpDesc *op, void *state, void *const *buf, void *scratch)
{
    (void)be, (void)state, (void)scratch;
    ((float *)buf[2])[32] = 0;
    return run_add(op, buf, 0, 32);
}

static Status run_before_start(Backend *be, const OpDesc *op, void *state, void *const *buf, void *scratch)
{
    (void)be, (void)state, (void)scratch;
    ((float *)buf[2])[-1] = 0;
    return run_add(op, buf, 0, 32);
}

static Status run_writes_input(Backend *be, const OpDesc *op, void *state, void *const *buf, void *scratch)
{
    (void)be, (void)state, (void)scratch;
    Status s = run_add(op, buf, 0, 32);
    ((float *)buf[1])[3] = 7;
    return s;
}

static Status query_scratch(Backend *be, const OpDesc *op, OpNeeds *needs)
{
    (void)be, (void)op;
    needs->scratch = 8;
    return status_ok();
}

static Status run_reads_scratch(Backend *be, const OpDesc *op, void *state, void *const *buf, void *scratch)
{
    (void)be, (void)state;
    Status s = run_add(op, buf, 0, 32);
    ((float *)buf[2])[9] += ((float *)scratch)[1];
    return s;
}

static Status run_past_scratch(Backend *be, const OpDesc *op, void *state, void *const *buf, void *scratch)
{
    (void)be, (void)state;
    ((float *)scratch)[2] = 0;
    return run_add(op, buf, 0, 32);
}

/* The state counts the runs, so no two are equal. */
static Status prepare_counter(Backend *be, const OpDesc *op, void **state)
{
    (void)be, (void)op;
    *state = calloc(1, sizeof(int));
    return *state ? status_ok() : status_error(STATUS_OOM, "no memory for a counter");
}

static Status run_changes(Backend *be, const OpDesc *op, void *state, void *const *buf, void *scratch)
{
    (void)be, (void)scratch;
    Status s = run_add(op, buf, 0, 32);
    ((float *)buf[2])[0] += (float)(*(int *)state)++;
    return s;
}

static Status run_wrong(Backend *be, const OpDesc *op, void *state, void *const *buf, void *scratch)
{
    (void)be, (void)state, (void)scratch;
    Status s = run_add(op, buf, 0, 32);
    ((float *)buf[2])[17] *= 1.0001f;
    return s;
}

static Status run_zero(Backend *be, const OpDesc *op, void *state, void *const *buf, void *scratch)
{
    (void)be, (void)state, (void)scratch, (void)op;
    memset(buf[2], 0, 32 * sizeof(float));
    return status_ok();
}

static Status query_refuses(Backend *be, const OpDesc *op, OpNeeds *needs)
{
    (void)be, (void)op, (void)needs;
    return status_error(STATUS_UNSUPPORTED, "no adder here");
}

static void test_promises_are_checked(void **state)
{
    (void)state;
    expect(&(Kernel){ .run = run_right }, NULL);
    expect(&(Kernel){ .run = run_short }, "1 of 32 elements differ, first [3,7]: got");
    expect(&(Kernel){ .run = run_past_end }, "output 0: wrote 1 bytes past the end of its 128");
    expect(&(Kernel){ .run = run_before_start }, "output 0: wrote 4 bytes before its buffer");
    expect(&(Kernel){ .run = run_writes_input }, "input 1 was written to");
    expect(&(Kernel){ .query = query_scratch, .run = run_right }, NULL);
    expect(&(Kernel){ .query = query_scratch, .run = run_reads_scratch }, "first [1,1]");
    expect(&(Kernel){ .query = query_scratch, .run = run_past_scratch }, "scratch 0: wrote 1 bytes past the end of its 8");
    expect(&(Kernel){ .prepare = prepare_counter, .run = run_changes, .release = free }, "second run gave other bits in output 0");
    expect(&(Kernel){ .run = run_wrong }, "1 of 32 elements differ, first [2,1]");
    expect(&(Kernel){ .run = run_zero }, "32 of 32 elements differ");
    expect(&(Kernel){ .query = query_refuses, .run = run_right }, "add: no adder here");
}

/* Masks and indices come from the forward op, in-out slots start from the same values on every run. */
static void test_made_inputs(void **state)
{
    (void)state;
    Backend *be;
    assert_int_equal(ref_backend.open(&(BackendOptions){ .threads = 1 }, &be).code, STATUS_OK);
    Tensor x = tensor_act(DTYPE_F32, 2, 5, 5, 3), y = tensor_act(DTYPE_F32, 2, 3, 3, 3), v = tensor_1d(DTYPE_F32, 3), bit = x, u8 = y;
    bit.dtype = DTYPE_BIT;
    u8.dtype = DTYPE_U8;
    const OpDesc ops[] = {
        { .kind = OP_batchnorm_grad, .n_in = 6, .in = { x, x, v, v, v, bit }, .attr = { .relu = true, .residual = true, .accumulate = true, .eps = 1e-5f } },
        { .kind = OP_maxpool_grad, .n_in = 2, .in = { y, u8 }, .attr = { .kernel = 3, .stride = 2, .pad = 1, .in_h = 5, .in_w = 5 } },
        { .kind = OP_batchnorm, .n_in = 5, .in = { x, v, v, v, v }, .attr = { .relu = true, .eps = 1e-5f, .momentum = 0.1f } },
        { .kind = OP_sgd, .n_in = 3, .in = { x, tensor_1d(DTYPE_F32, 8), tensor_1d(DTYPE_F32, 8) }, .attr = { .momentum = 0.9f } },
    };
    for (size_t i = 0; i < COUNT_OF(ops); i++) {
        OpCase *c;
        OpResult a, b;
        assert_int_equal(op_case_create(&ops[i], FILL_RANDOM, 2, &c).code, STATUS_OK);
        Status s = op_case_run(c, be, NULL, &a);
        if (s.code == STATUS_OK)
            s = op_case_run(c, be, NULL, &b);
        if (s.code == STATUS_OK)
            s = op_case_compare(c, COMPARE_EXACT, &a, &b);
        if (s.code != STATUS_OK)
            fail_msg("%s", s.text);
        op_result_release(&a);
        op_result_release(&b);
        op_case_destroy(c);
    }
    backend_close(be);
}

static void test_infer_errors_pass_through(void **state)
{
    (void)state;
    OpCase *c;
    Status s = op_case_create(&(OpDesc){ .kind = OP_add, .n_in = 1, .in = { tensor_1d(DTYPE_F32, 3) } }, FILL_RANDOM, 1, &c);
    assert_int_equal(s.code, STATUS_USAGE);
    assert_null(c);
}

/* The runner and the reference end in STATUS_OOM whichever allocation fails, and leak nothing. */
static Status whole_case(void *context)
{
    (void)context;
    Backend *be;
    OpCase *c;
    OpResult result;
    Tensor x = tensor_act(DTYPE_F32, 1, 3, 3, 2), v = tensor_1d(DTYPE_F32, 2), bit = x;
    bit.dtype = DTYPE_BIT;
    const OpDesc op = { .kind = OP_batchnorm_grad, .n_in = 6, .in = { x, x, v, v, v, bit }, .attr = { .relu = true, .eps = 1e-5f } };
    TRY(ref_backend.open(&(BackendOptions){ .threads = 1 }, &be));
    Status s = op_case_create(&op, FILL_RANDOM, 2, &c);
    if (s.code == STATUS_OK) {
        s = op_case_run(c, be, NULL, &result);
        if (s.code == STATUS_OK)
            s = op_case_compare(c, COMPARE_EXACT, &result, &result);
        op_result_release(&result);
    }
    op_case_destroy(c);
    backend_close(be);
    return s;
}

static void test_every_allocation_may_fail(void **state)
{
    (void)state;
    assert_true(fault_alloc_sweep(whole_case, NULL) > 40);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_promises_are_checked),
        cmocka_unit_test(test_made_inputs),
        cmocka_unit_test(test_infer_errors_pass_through),
        cmocka_unit_test(test_every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
