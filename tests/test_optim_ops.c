/* test_optim_ops.c - the ops of an update on the reference and on the CPU backend: optim_rules.h, and that norms of tensors do not
 * depend on the number of threads. */
#include "optim_rules.h"
#include "ref/ref.h"

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

static Backend *open_cpu(int threads)
{
    Backend *be = NULL;
    expect_ok(backend_open("cpu", &(BackendOptions){ .threads = threads }, &be));
    return be;
}

static Backend *open_two_threads(void) { return open_cpu(2); }

static Backend *open_ref(void)
{
    Backend *be = NULL;
    expect_ok(ref_backend.open(&(BackendOptions){ .threads = 1 }, &be));
    return be;
}

enum { LENGTH = 20000 };

/* LAMB or LARS on three tensors; memory of the CPU backend is the host's. */
static void update(Backend *be, OpKind kind, float *data)
{
    const Tensor g = tensor_1d(DTYPE_F32, LENGTH), eight = tensor_1d(DTYPE_F32, 8);
    float   hyper[8] = { 0.1f }, control[8] = { 1, 1, 0, 1, 0, 0, 1, 0 };
    int32_t table[4] = { 0, 5000, 5001, LENGTH };
    void   *buf[] = { data + 3 * LENGTH, hyper, control, table, data, data + LENGTH, data + 2 * LENGTH }, *scratch;
    OpNeeds needs;
    OpDesc  op = { .kind = kind, .n_in = 4, .in = { g, eight, eight, tensor_1d(DTYPE_I32, 4) },
                   .attr = { .momentum = 0.9f, .beta1 = 0.9f, .beta2 = 0.99f, .eps = 1e-6f, .weight_decay = 0.1f, .trust = 0.1f, .adapt = true } };
    expect_ok(op_infer(&op));
    expect_ok(backend_query(be, &op, &needs));
    expect_ok(backend_alloc(be, needs.scratch, &scratch));
    expect_ok(be->vtable->kernels[kind]->run(be, &op, NULL, buf, scratch));
    backend_free(be, scratch);
}

/* The trust ratio decides every bit of w, so it must be the same sum for any number of threads. */
static void norms_do_not_depend_on_threads(void **state)
{
    (void)state;
    for (int lars = 0; lars < 2; lars++) {
        float *first = NULL;
        for (int threads = 1; threads <= 3; threads++) {
            Backend *be = open_cpu(threads);
            float   *data = malloc(4 * LENGTH * sizeof *data);
            assert_non_null(data);
            for (int i = 0; i < 4 * LENGTH; i++)
                data[i] = fabsf((float)rng_normal(1, 1, (uint64_t)i));
            update(be, lars ? OP_lars : OP_lamb, data);
            backend_close(be);
            if (first)
                assert_memory_equal(data, first, 4 * LENGTH * sizeof *data);
            else
                first = data;
            if (data != first)
                free(data);
        }
        free(first);
    }
}

int main(void)
{
    const OptimBackends backends = { 2, { open_ref, open_two_threads } };
    const struct CMUnitTest tests[] = { cmocka_unit_test(norms_do_not_depend_on_threads) };
    return optim_rules_run("rules", &backends) + cmocka_run_group_tests_name("threads", tests, NULL, NULL);
}
