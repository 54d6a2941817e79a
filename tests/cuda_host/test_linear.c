/* test_linear.c - linear layers of the CUDA backend on fake libraries: what is asked of cuBLASLt against the reference, with and without its
 * epilogues; sums of columns; how algorithms are chosen and remembered; what happens when any call fails. */
#include "../../kernels/cuda/choice_cache.h"
#include "../../kernels/cuda/columns.h"
#include "../../kernels/cuda/matmul.h"
#include "../op_case.h"
#include "../ref/ref.h"
#include "../scratch.h"
#include "fake.h"
#include "fake_cublaslt.h"
#include "idle_libs.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SEED = 41, OPS = 6 };

static FakeCounts before;

/* Its workspaces are small, so that cases are quick. */
static void use_an_a100(void)
{
    FakeDevice a100 = fake_default_device();
    fake_reset();
    a100.capability = 80;
    fake_set_devices(1, &a100, 13000);
}

static int set_up(void **state)
{
    (void)state;
    use_an_a100();
    fake_cublaslt_reset();
    fake_cublaslt()->live = 0;
    idle_libs_use();
    fake_set_library(FAKE_CUBLASLT, fake_cublaslt_api(), NULL);
    before = fake_counts();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    assert_true(fake_nothing_leaked(&before));
    assert_int_equal(fake_cublaslt()->live, 0);
    return 0;
}

static void expect_ok(Status s)
{
    if (s.code != STATUS_OK)
        fail_msg("%s", s.text);
}

static Backend *open_with(const BackendOptions *options)
{
    Backend *be;
    expect_ok(backend_open("cuda", options, &be));
    return be;
}

/* ---- against the reference ---- */

typedef struct Shape { int64_t m, k, o; } Shape;

/* Forward without and with bias, dgrad, wgrad, wgrad with dbias, the same added to what is there. */
static OpDesc op_of(Dtype t, Shape s, int which)
{
    const Tensor x = tensor_2d(t, s.m, s.k), w = tensor_2d(t, s.o, s.k), y = tensor_2d(t, s.m, s.o);
    switch (which) {
    case 0: return (OpDesc){ .kind = OP_linear, .n_in = 2, .in = { x, w } };
    case 1: return (OpDesc){ .kind = OP_linear, .n_in = 3, .in = { x, w, tensor_1d(DTYPE_F32, s.o) } };
    case 2: return (OpDesc){ .kind = OP_linear_dgrad, .n_in = 2, .in = { y, w } };
    case 3: return (OpDesc){ .kind = OP_linear_wgrad, .n_in = 2, .n_out = 1, .in = { x, y }, .attr = { .accumulate = true } };
    case 4: return (OpDesc){ .kind = OP_linear_wgrad, .n_in = 2, .n_out = 2, .in = { x, y } };
    default: return (OpDesc){ .kind = OP_linear_wgrad, .n_in = 2, .n_out = 2, .in = { x, y }, .attr = { .accumulate = true } };
    }
}

static void check_case(Backend *be, Backend *ref, const OpDesc *op, FillKind fill)
{
    OpCase  *c;
    OpResult want, got;
    expect_ok(op_case_create(op, fill, SEED, &c));
    c->trivial = tensor_count(&c->op.out[0]) < 16; /* so few integers may well be equal, or 0 */
    expect_ok(op_case_run(c, ref, NULL, &want));
    expect_ok(op_case_run(c, be, NULL, &got));
    expect_ok(op_case_compare(c, fill == FILL_INTEGER ? COMPARE_EXACT : COMPARE_TOLERANCE, &want, &got));
    op_result_release(&want);
    op_result_release(&got);
    op_case_destroy(c);
}

static void check_all(const Shape *shapes, size_t count)
{
    static const Dtype types[] = { DTYPE_F32, DTYPE_BF16, DTYPE_F16 };
    Backend *be = open_with(NULL), *ref;
    expect_ok(ref_backend.open(&(BackendOptions){ .threads = 1 }, &ref));
    for (size_t s = 0; s < count; s++)
        for (size_t t = 0; t < COUNT_OF(types); t++)
            for (int which = 0; which < OPS; which++)
                for (int fill = FILL_INTEGER; fill <= FILL_RANDOM; fill++) {
                    const OpDesc op = op_of(types[t], shapes[s], which);
                    check_case(be, ref, &op, (FillKind)fill);
                }
    backend_close(ref);
    backend_close(be);
}

static void products_are_the_references(void **state)
{
    (void)state;
    static const Shape shapes[] = { { 5, 7, 3 }, { 1, 1, 1 }, { 33, 40, 24 } };
    check_all(shapes, COUNT_OF(shapes));
    assert_true(fake_cublaslt()->products > 0);
}

/* Where the library has no such algorithm, own kernels add the bias and sum the gradient. */
static void products_without_epilogues_are_too(void **state)
{
    (void)state;
    static const Shape shapes[] = { { 33, 7, 5 } };
    fake_cublaslt()->no_epilogues = true;
    check_all(shapes, COUNT_OF(shapes));
}

/* In every order that streams can have, what is enqueued comes to the same. */
static void the_order_of_streams_does_not_matter(void **state)
{
    (void)state;
    static const Shape shapes[] = { { 6, 9, 5 } };
    for (int order = FAKE_LATE; order <= FAKE_FIRST_AT_ONCE; order++) {
        fake_set_order((FakeOrder)order);
        check_all(shapes, 1);
    }
}

/* f32 is f32 unless TF32 was asked for: a factor that TF32 cannot hold tells. */
static void tf32_only_where_it_was_asked_for(void **state)
{
    (void)state;
    const float x = 1.0f + 0x1p-12f, w = 1.0f;
    for (int tf32 = 0; tf32 < 2; tf32++) {
        Backend *be = open_with(&(BackendOptions){ .tf32 = tf32 });
        OpDesc   op = op_of(DTYPE_F32, (Shape){ 1, 1, 1 }, 0);
        void    *buf[3], *scratch, *kernel_state;
        OpNeeds  needs;
        float    y;
        const Kernel *k = be->vtable->kernels[OP_linear];
        expect_ok(op_infer(&op));
        expect_ok(backend_query(be, &op, &needs));
        for (int i = 0; i < 3; i++)
            expect_ok(backend_alloc(be, sizeof(float), &buf[i]));
        expect_ok(backend_alloc(be, needs.scratch, &scratch));
        expect_ok(backend_upload(be, &op.in[0], buf[0], &x));
        expect_ok(backend_upload(be, &op.in[1], buf[1], &w));
        expect_ok(k->prepare(be, &op, &kernel_state));
        expect_ok(k->run(be, &op, kernel_state, buf, scratch));
        expect_ok(backend_sync(be));
        expect_ok(backend_download(be, &op.out[0], buf[2], &y));
        assert_true(y == (tf32 ? 1.0f : x));
        k->release(kernel_state);
        for (int i = 0; i < 3; i++)
            backend_free(be, buf[i]);
        backend_free(be, scratch);
        backend_close(be);
    }
}

/* ---- an op on its own ---- */

/* Buffers of an op, its state and scratch. */
typedef struct Layer { Backend *be; OpDesc op; void *buf[OP_MAX_IN + OP_MAX_OUT], *scratch, *state; } Layer;

static Status layer_open(Backend *be, const OpDesc *op, Layer *l)
{
    OpNeeds needs;
    *l = (Layer){ .be = be, .op = *op };
    TRY(op_infer(&l->op));
    TRY(backend_query(be, &l->op, &needs));
    for (int i = 0; i < l->op.n_in + l->op.n_out; i++) {
        const Tensor *t = i < l->op.n_in ? &l->op.in[i] : &l->op.out[i - l->op.n_in];
        TRY(backend_alloc(be, backend_bytes(be, t) + 1, &l->buf[i]));
        TRY(cuda_status(cudaMemsetAsync(l->buf[i], 0x3f, backend_bytes(be, t) + 1, cuda_of(be)->stream), "cudaMemsetAsync"));
    }
    TRY(backend_alloc(be, needs.scratch + 1, &l->scratch));
    return be->vtable->kernels[op->kind]->prepare(be, &l->op, &l->state);
}

static Status layer_run(Layer *l)
{
    TRY(l->be->vtable->kernels[l->op.kind]->run(l->be, &l->op, l->state, l->buf, l->scratch));
    return backend_sync(l->be);
}

static Status layer_tune(Layer *l)
{
    return l->be->vtable->kernels[l->op.kind]->tune(l->be, &l->op, l->state, l->buf, l->scratch);
}

static void layer_close(Layer *l)
{
    if (l->state)
        l->be->vtable->kernels[l->op.kind]->release(l->state);
    for (int i = 0; i < OP_MAX_IN + OP_MAX_OUT; i++)
        backend_free(l->be, l->buf[i]);
    backend_free(l->be, l->scratch);
}

static void workspace_is_the_documented_constant(void **state)
{
    (void)state;
    Backend *be = open_with(NULL), *plan = open_with(&(BackendOptions){ .gpu = "a100-40g" });
    for (int which = 0; which < OPS; which++) {
        OpDesc  op = op_of(DTYPE_BF16, (Shape){ 4096, 768, 3072 }, which);
        OpNeeds here, planned;
        expect_ok(op_infer(&op));
        expect_ok(backend_query(be, &op, &here));
        expect_ok(backend_query(plan, &op, &planned));
        assert_int_equal(here.scratch, planned.scratch);
        assert_true(here.scratch >= lt_workspace(cuda_of(be)) && here.scratch < lt_workspace(cuda_of(be)) + (8 << 20));
        void *kernel_state;
        assert_int_equal(plan->vtable->kernels[op.kind]->prepare(plan, &op, &kernel_state).code, STATUS_UNSUPPORTED);
    }
    backend_close(plan);
    backend_close(be);
}

/* ---- choosing an algorithm ---- */

static int algorithm_used(Backend *be, Status *tuned)
{
    const OpDesc op = op_of(DTYPE_BF16, (Shape){ 16, 32, 8 }, 5);
    Layer l;
    expect_ok(layer_open(be, &op, &l));
    *tuned = layer_tune(&l);
    fake_cublaslt()->last_algorithm = -1;
    if (tuned->code == STATUS_OK)
        expect_ok(layer_run(&l));
    layer_close(&l);
    return fake_cublaslt()->last_algorithm;
}

static void tuning_keeps_the_fastest(void **state)
{
    (void)state;
    Status s;
    for (int fastest = 0; fastest < 8; fastest += 3) {
        Backend *be = open_with(NULL);
        fake_cublaslt()->fastest = fastest;
        assert_int_equal(algorithm_used(be, &s), fastest);
        backend_close(be);
    }
    Backend *be = open_with(&(BackendOptions){ .no_tune = true });
    fake_cublaslt()->fastest = 5;
    assert_int_equal(algorithm_used(be, &s), 0);
    backend_close(be);
}

static void tuning_passes_over_what_will_not_run(void **state)
{
    (void)state;
    Status   s;
    Backend *be = open_with(NULL);
    fake_cublaslt()->broken_proposals = 3;
    assert_int_equal(algorithm_used(be, &s), 3); /* the nearest to the fastest, which is 0, that does */
    fake_cublaslt()->broken_proposals = 8;
    algorithm_used(be, &s);
    assert_int_equal(s.code, STATUS_UNSUPPORTED);
    assert_non_null(strstr(s.text, "linear_wgrad bf16[16,32] bf16[16,8]"));
    assert_non_null(strstr(s.text, "CUBLAS_STATUS_NOT_SUPPORTED"));
    backend_close(be);
}

static void no_algorithm_is_said_so(void **state)
{
    (void)state;
    Backend     *be = open_with(NULL);
    const OpDesc op = op_of(DTYPE_F16, (Shape){ 2, 4, 3 }, 2);
    Layer        l;
    fake_cublaslt()->proposals = 0;
    Status s = layer_open(be, &op, &l);
    assert_int_equal(s.code, STATUS_UNSUPPORTED);
    assert_non_null(strstr(s.text, "cuBLASLt has no algorithm for linear_dgrad f16[2,3]"));
    layer_close(&l);
    backend_close(be);
}

typedef struct Noted { int count; char op[128], choice[160]; double us; } Noted;

static void note(void *context, const char *op, const char *choice, size_t bytes, double us)
{
    Noted *n = context;
    (void)bytes;
    n->count++;
    n->us = us;
    snprintf(n->op, sizeof n->op, "%s", op);
    snprintf(n->choice, sizeof n->choice, "%s", choice);
}

/* A backend that keeps its choices in this folder. */
static Backend *open_in(const char *folder)
{
    Backend     *be = open_with(NULL);
    CudaBackend *cuda = cuda_of(be);
    choice_cache_destroy(cuda->choices);
    expect_ok(choice_cache_create(folder, &cuda->choices));
    return be;
}

/* Not before choices are listed is the backend's own cache closed. */
static void close_with(Backend *be, Noted *noted)
{
    CudaBackend *cuda = cuda_of(be);
    *noted = (Noted){ 0 };
    cuda_choices(be, note, noted);
    choice_cache_destroy(cuda->choices);
    cuda->choices = NULL;
    backend_close(be);
}

static void a_choice_is_remembered(void **state)
{
    (void)state;
    Status s;
    Noted  noted;
    void  *folder = NULL;
    scratch_setup(&folder);
    Backend *be = open_in(folder);
    fake_cublaslt()->fastest = 2;
    assert_int_equal(algorithm_used(be, &s), 2);
    close_with(be, &noted);
    assert_int_equal(noted.count, 1);
    assert_non_null(strstr(noted.op, "linear_wgrad bf16[16,32]"));
    assert_string_equal(noted.choice, "proposal 2, algorithm 2");
    assert_true(noted.us > 9 && noted.us < 12);
    be = open_in(folder);
    fake_cublaslt()->fastest = 6;
    fake_cublaslt()->products = 0;
    assert_int_equal(algorithm_used(be, &s), 2);
    assert_int_equal(fake_cublaslt()->products, 2); /* one to see that it still runs, one that was wanted: nothing was timed */
    close_with(be, &noted);
    assert_string_equal(noted.choice, "proposal 2, algorithm 2");
    be = open_in(folder);
    fake_cublaslt()->proposals = 2; /* as after a change of the library: what the cache says is not there */
    fake_cublaslt()->fastest = 1;
    assert_int_equal(algorithm_used(be, &s), 1);
    close_with(be, &noted);
    scratch_teardown(&folder);
}

/* ---- every call failing once ---- */

static Status use_a_layer(int which)
{
    Backend *be = NULL;
    Layer    l = { 0 };
    Status   status;
    OpDesc   op = op_of(DTYPE_BF16, (Shape){ 6, 8, 4 }, which);
    TRY_GOTO(status, backend_open("cuda", NULL, &be), out);
    TRY_GOTO(status, layer_open(be, &op, &l), out);
    TRY_GOTO(status, layer_tune(&l), out);
    status = layer_run(&l);
out:
    if (l.be)
        layer_close(&l);
    backend_close(be);
    return status;
}

static void every_call_may_fail(void **state)
{
    (void)state;
    for (int which = 1; which < OPS; which += 4)
        for (int64_t at = 1;; at++) {
            const FakeFault fault = { .at = at, .error = { [FAKE_RUNTIME] = cudaErrorUnknown, [FAKE_CUBLASLT] = CUBLAS_STATUS_INTERNAL_ERROR } };
            fake_set_fault(&fault);
            const Status s = use_a_layer(which);
            const bool   met = fake_fault_met();
            const char  *call = fake_fault_call();
            fake_set_fault(NULL);
            if (!met) {
                assert_int_equal(s.code, STATUS_OK);
                break;
            }
            const bool freeing = strstr(call, "Destroy") || strstr(call, "Free") || strstr(call, "cudaStreamSynchronize");
            const bool proposal = !strcmp(call, "cublasLtMatmul"); /* tuning passes over one that fails; the run is the last of them */
            if (s.code == STATUS_OK && !freeing && !proposal && !strstr(call, "GetLastError") && !strstr(call, "PeekAtLastError"))
                fail_msg("call %lld, %s, failed and nothing came of it", (long long)at, call);
            assert_true(fake_nothing_leaked(&before));
            assert_int_equal(fake_cublaslt()->live, 0);
            use_an_a100();
        }
}

/* ---- sums of columns ---- */

static double value_at(const Columns *c, const void *x, int64_t row, int64_t column)
{
    const int64_t i = row * c->pitch + column;
    switch (c->dtype) {
    case DTYPE_F32:  return (double)((const float *)x)[i];
    case DTYPE_BF16: return (double)bf16_to_f32(((const uint16_t *)x)[i]);
    default:         return (double)f16_to_f32(((const uint16_t *)x)[i]);
    }
}

/* Small whole numbers, exact in every type and in every order of adding; NaN between the columns and the pitch. */
static void fill(const Columns *c, void *x)
{
    const size_t size = (size_t)dtype_bits(c->dtype) / 8;
    memset(x, 0xff, (size_t)(c->rows * c->pitch) * size);
    for (int64_t r = 0; r < c->rows; r++)
        for (int64_t k = 0; k < c->columns; k++) {
            const float v = (float)((r * 7 + k * 3) % 5 - 2);
            if (c->dtype == DTYPE_F32)
                ((float *)x)[r * c->pitch + k] = v;
            else
                ((uint16_t *)x)[r * c->pitch + k] = c->dtype == DTYPE_BF16 ? bf16_from_f32(v) : f16_from_f32(v);
        }
}

static void check_columns(Backend *be, const Columns *c, bool accumulate)
{
    const size_t bytes = (size_t)(c->rows * c->pitch) * (size_t)dtype_bits(c->dtype) / 8;
    void  *host = malloc(bytes + 1), *x, *sum, *scratch;
    float *got = calloc((size_t)c->columns + 1, sizeof *got);
    assert_true(host && got);
    fill(c, host);
    for (int64_t k = 0; k < c->columns; k++)
        got[k] = accumulate ? 3.0f : NAN;
    expect_ok(backend_alloc(be, bytes + 1, &x));
    expect_ok(backend_alloc(be, (size_t)c->columns * sizeof(float) + 1, &sum));
    expect_ok(backend_alloc(be, columns_scratch(c) + 1, &scratch));
    expect_ok(cuda_status(cudaMemcpy(x, host, bytes, cudaMemcpyHostToDevice), "cudaMemcpy"));
    expect_ok(cuda_status(cudaMemcpy(sum, got, (size_t)c->columns * sizeof(float), cudaMemcpyHostToDevice), "cudaMemcpy"));
    expect_ok(columns_sum(be, c, x, sum, accumulate, scratch));
    expect_ok(backend_sync(be));
    expect_ok(cuda_status(cudaMemcpy(got, sum, (size_t)c->columns * sizeof(float), cudaMemcpyDeviceToHost), "cudaMemcpy"));
    for (int64_t k = 0; k < c->columns; k++) {
        double want = accumulate ? 3 : 0;
        for (int64_t r = 0; r < c->rows; r++)
            want += value_at(c, host, r, k);
        if ((double)got[k] != want)
            fail_msg("%s, %lld x %lld of pitch %lld: column %lld is %g, not %g", dtype_name(c->dtype), (long long)c->rows, (long long)c->columns,
                     (long long)c->pitch, (long long)k, (double)got[k], want);
    }
    backend_free(be, x);
    backend_free(be, sum);
    backend_free(be, scratch);
    free(host);
    free(got);
}

static void columns_add_up(void **state)
{
    (void)state;
    static const struct { int64_t rows, columns, pitch; } sizes[] = {
        { 0, 5, 5 }, { 1, 1, 1 }, { 3, 7, 7 }, { 70, 64, 64 }, { 600, 24, 24 }, { 1000, 3, 8 }, { 300, 514, 514 }, { 5000, 2, 2 }, { 4, 0, 0 },
        { 2100, 16, 16 }, { 70000, 8, 8 },
    };
    static const Dtype types[] = { DTYPE_F32, DTYPE_BF16, DTYPE_F16 };
    static const int   schedules[] = { 0, 1, 3, 4 };
    Backend *be = open_with(NULL);
    for (size_t s = 0; s < COUNT_OF(schedules); s++)
        for (size_t i = 0; i < COUNT_OF(sizes); i++)
            for (size_t t = 0; t < COUNT_OF(types); t++) {
                const Columns c = { types[t], sizes[i].rows, sizes[i].columns, sizes[i].pitch };
                if (sizes[i].rows > 10000 && (s || t != 1))
                    continue; /* once will do */
                fake_set_schedule(schedules[s]);
                check_columns(be, &c, i % 2);
            }
    backend_close(be);
}

static void a_tensor_is_its_rows(void **state)
{
    (void)state;
    Tensor  t = tensor_act(DTYPE_BF16, 2, 3, 5, 3);
    Columns c = columns_of(&t);
    assert_true(c.rows == 30 && c.columns == 3 && c.pitch == 3 && c.dtype == DTYPE_BF16);
    t.layout = LAYOUT_PADDED;
    c = columns_of(&t);
    assert_true(c.rows == 30 && c.columns == 3 && c.pitch == 8);
}

int main(void)
{
    unsetenv("HOME"); /* no choices of earlier runs */
    unsetenv("XDG_CACHE_HOME");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(products_are_the_references, set_up, tear_down),
        cmocka_unit_test_setup_teardown(products_without_epilogues_are_too, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_order_of_streams_does_not_matter, set_up, tear_down),
        cmocka_unit_test_setup_teardown(tf32_only_where_it_was_asked_for, set_up, tear_down),
        cmocka_unit_test_setup_teardown(workspace_is_the_documented_constant, set_up, tear_down),
        cmocka_unit_test_setup_teardown(tuning_keeps_the_fastest, set_up, tear_down),
        cmocka_unit_test_setup_teardown(tuning_passes_over_what_will_not_run, set_up, tear_down),
        cmocka_unit_test_setup_teardown(no_algorithm_is_said_so, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_choice_is_remembered, set_up, tear_down),
        cmocka_unit_test_setup_teardown(every_call_may_fail, set_up, tear_down),
        cmocka_unit_test_setup_teardown(columns_add_up, set_up, tear_down),
        cmocka_unit_test(a_tensor_is_its_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
