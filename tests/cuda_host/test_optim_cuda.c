/* test_optim_cuda.c - the kernels of an update, on the CPU under every thread schedule: the rules of optim_rules.h, and each op
 * against the reference for lengths around packs, blocks of threads and blocks of tensors, with and without alignment. */
#include "../optim_rules.h"
#include "../ref/ref.h"
#include "cuda_case.h"
#include "fake.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void expect_ok(Status s)
{
    if (s.code != STATUS_OK)
        fail_msg("%s", s.text);
}

static Backend *open_cuda(int schedule)
{
    Backend *be = cuda_case_open();
    fake_set_schedule(schedule);
    return be;
}

static Backend *open_in_order(void) { return open_cuda(0); }
static Backend *open_reversed(void) { return open_cuda(1); }
static Backend *open_lowest_first(void) { return open_cuda(3); }
static Backend *open_highest_first(void) { return open_cuda(4); }

static const OpKind optimizers[] = { OP_sgd, OP_adamw, OP_lamb, OP_lars };
static const int64_t lengths[] = { 1, 3, 5, 1023, 4096, 8193, 20003 };

static bool is_layerwise(OpKind kind) { return kind == OP_lamb || kind == OP_lars; }

static OpDesc optimizer(OpKind kind, int64_t n, int64_t tensors, bool flag)
{
    const Tensor g = tensor_1d(DTYPE_F32, n), eight = tensor_1d(DTYPE_F32, 8);
    return (OpDesc){ .kind = kind, .n_in = 3 + is_layerwise(kind), .in = { g, eight, eight, tensor_1d(DTYPE_I32, tensors + 1) },
                     .attr = { .momentum = 0.9f, .beta1 = 0.9f, .beta2 = 0.99f, .eps = 1e-3f, .weight_decay = 0.1f, .trust = 0.1f,
                               .nesterov = flag, .adapt = flag } };
}

static void optimizers_match_the_reference(void **state)
{
    (void)state;
    CudaLadder l = cuda_ladder_start();
    for (size_t k = 0; k < COUNT_OF(optimizers); k++)
        for (int flag = 0; flag < 2; flag++) {
            for (size_t i = 0; i < COUNT_OF(lengths); i++)
                for (int64_t tensors = 1; tensors <= (is_layerwise(optimizers[k]) ? 7 : 1); tensors += 6)
                    cuda_climb(&l, optimizer(optimizers[k], lengths[i], tensors, flag), CUDA_RANDOM | CUDA_TRIVIAL);
            if (is_layerwise(optimizers[k])) /* more tensors than threads */
                cuda_climb(&l, optimizer(optimizers[k], 1000, 259, flag), CUDA_RANDOM | CUDA_TRIVIAL);
        }
    cuda_ladder_end(&l);
}

static void small_ops_match_the_reference(void **state)
{
    (void)state;
    const Tensor eight = tensor_1d(DTYPE_F32, 8), one = tensor_1d(DTYPE_F32, 1);
    CudaLadder l = cuda_ladder_start();
    for (size_t i = 0; i < COUNT_OF(lengths); i++) {
        const Tensor x = tensor_1d(DTYPE_F32, lengths[i]);
        for (int inputs = 1; inputs <= 2; inputs++)
            cuda_climb(&l, (OpDesc){ .kind = OP_sqnorm, .n_in = inputs, .in = { x, eight } }, CUDA_BOTH | CUDA_TRIVIAL);
        cuda_climb(&l, (OpDesc){ .kind = OP_restore, .n_in = 2, .in = { x, eight } }, CUDA_EXACT | CUDA_TRIVIAL);
    }
    cuda_climb(&l, (OpDesc){ .kind = OP_window_scale, .n_in = 2, .in = { one, eight } }, CUDA_RANDOM | CUDA_TRIVIAL);
    cuda_climb(&l, (OpDesc){ .kind = OP_step_control, .n_in = 2, .in = { eight, one } }, CUDA_RANDOM | CUDA_TRIVIAL);
    cuda_ladder_end(&l);
}

/* Ones and twos: exact in every order. Past the most blocks that there are. */
static void a_long_sum_of_squares_is_exact(void **state)
{
    (void)state;
    enum { N = 4200001 };
    CudaLadder l = cuda_ladder_start();
    const Tensor x = tensor_1d(DTYPE_F32, N), sum = tensor_1d(DTYPE_F32, 1);
    OpDesc  op = { .kind = OP_sqnorm, .n_in = 1, .in = { x } };
    OpNeeds needs;
    float  *host = malloc(N * sizeof *host), begun = 3, got = 0;
    double  want = 3;
    void   *buf[2], *scratch;
    assert_non_null(host);
    for (int i = 0; i < N; i++) {
        host[i] = (float)(1 + i % 2);
        want += (double)host[i] * (double)host[i];
    }
    fake_set_schedule(0);
    expect_ok(op_infer(&op));
    expect_ok(backend_query(l.be, &op, &needs));
    expect_ok(backend_alloc(l.be, tensor_bytes(&x), &buf[0]));
    expect_ok(backend_alloc(l.be, tensor_bytes(&sum), &buf[1]));
    expect_ok(backend_alloc(l.be, needs.scratch, &scratch));
    expect_ok(backend_upload(l.be, &x, buf[0], host));
    expect_ok(backend_upload(l.be, &sum, buf[1], &begun));
    expect_ok(l.be->vtable->kernels[OP_sqnorm]->run(l.be, &op, NULL, buf, scratch));
    expect_ok(backend_download(l.be, &sum, buf[1], &got));
    assert_true((double)got == want);
    l.cases++;
    for (int i = 0; i < 2; i++)
        backend_free(l.be, buf[i]);
    backend_free(l.be, scratch);
    free(host);
    cuda_ladder_end(&l);
}

/* A gradient that is not finite anywhere makes the sum so: what a skip is decided by. */
static void sums_of_what_is_not_finite(void **state)
{
    (void)state;
    static const float bad[] = { INFINITY, -INFINITY, NAN };
    CudaLadder l = cuda_ladder_start();
    for (size_t i = 0; i < COUNT_OF(bad); i++)
        for (int64_t at = 0; at < 9000; at += 8999) {
            OpDesc   op = { .kind = OP_sqnorm, .n_in = 1, .in = { tensor_1d(DTYPE_F32, 9000) } };
            OpCase  *c;
            OpResult got;
            expect_ok(op_case_create(&op, FILL_RANDOM, 1, &c));
            ((float *)c->in[0])[at] = bad[i];
            expect_ok(op_case_run(c, l.be, NULL, &got));
            assert_false(isfinite(*(float *)got.out[0]));
            l.cases++;
            op_result_release(&got);
            op_case_destroy(c);
        }
    cuda_ladder_end(&l);
}

/* Tensors that begin where packs of four do not, empty ones, and elements outside of all of them: these stay as they are. */
static void tensors_may_lie_anywhere(void **state)
{
    (void)state;
    static const int32_t table[] = { 3, 3, 10, 8300, 8300, 8301, 19999 };
    CudaLadder l = cuda_ladder_start();
    for (size_t k = 2; k < COUNT_OF(optimizers); k++) {
        const OpDesc op = optimizer(optimizers[k], 20003, COUNT_OF(table) - 1, true);
        OpCase *c;
        expect_ok(op_case_create(&op, FILL_RANDOM, 6, &c));
        memcpy(c->in[3], table, sizeof table);
        cuda_climb_case(&l, c, COMPARE_TOLERANCE);
        op_case_destroy(c);
    }
    cuda_ladder_end(&l);
}

int main(void)
{
    const OptimBackends backends = { 4, { open_in_order, open_reversed, open_lowest_first, open_highest_first } };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(optimizers_match_the_reference),
        cmocka_unit_test(small_ops_match_the_reference),
        cmocka_unit_test(a_long_sum_of_squares_is_exact),
        cmocka_unit_test(sums_of_what_is_not_finite),
        cmocka_unit_test(tensors_may_lie_anywhere),
    };
    return optim_rules_run("rules", &backends) + cmocka_run_group_tests_name("kernels", tests, NULL, NULL);
}
