/* optim_rules.c - the bodies of optim_rules.h. */
#include "optim_rules.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* The backends of a test's state, opened one after the other. */
static const OptimBackends *backends_of(void **state) { return *state; }

/* One call whose inputs and outputs are on the host; what the outputs hold before and after the call goes through the device. */
static Status call(Backend *be, OpDesc op, void *const *host)
{
    void   *buf[OP_MAX_IN + OP_MAX_OUT] = { NULL }, *scratch = NULL;
    OpNeeds needs;
    Status  s, after = status_ok();
    TRY_GOTO(s, op_infer(&op), out);
    TRY_GOTO(s, backend_query(be, &op, &needs), out);
    TRY_GOTO(s, backend_alloc(be, needs.scratch, &scratch), out);
    for (int i = 0; i < op.n_in + op.n_out; i++) {
        const Tensor *t = i < op.n_in ? &op.in[i] : &op.out[i - op.n_in];
        TRY_GOTO(s, backend_alloc(be, backend_bytes(be, t), &buf[i]), out);
        TRY_GOTO(s, backend_upload(be, t, buf[i], host[i]), out);
    }
    s = be->vtable->kernels[op.kind]->run(be, &op, NULL, buf, scratch);
    if (s.code == STATUS_OK)
        s = backend_sync(be);
    for (int i = 0; i < op.n_out && after.code == STATUS_OK; i++)
        after = backend_download(be, &op.out[i], buf[op.n_in + i], host[op.n_in + i]);
    if (s.code == STATUS_OK)
        s = after;
out:
    for (int i = 0; i < op.n_in + op.n_out; i++)
        backend_free(be, buf[i]);
    backend_free(be, scratch);
    return s;
}

static void expect_call(Backend *be, OpDesc op, void *const *buf)
{
    Status s = call(be, op, buf);
    if (s.code != STATUS_OK)
        fail_msg("%s", s.text);
}

static void expect_floats(const char *what, const float *got, const double *want, int n)
{
    for (int i = 0; i < n; i++)
        if (!(fabs((double)got[i] - want[i]) <= 2e-7 * fmax(1, fabs(want[i]))))
            fail_msg("%s: element %d is %.9g, expected %.9g", what, i, (double)got[i], want[i]);
}

static OpDesc optimizer(OpKind kind, int64_t n, int64_t tensors, OpAttr attr)
{
    const Tensor g = tensor_1d(DTYPE_F32, n), eight = tensor_1d(DTYPE_F32, 8);
    return (OpDesc){ .kind = kind, .n_in = tensors ? 4 : 3, .in = { g, eight, eight, tensor_1d(DTYPE_I32, tensors + 1) }, .attr = attr };
}

/* torch.optim.AdamW([1, -2, 0.5], lr=0.1, betas=(0.5, 0.75), eps=0.125, weight_decay=0.25) in float64, after one and after
 * two steps. The gradients come times a loss scale of 8. */
static void adamw_is_that_of_torch(void **state)
{
    static const double want[2][3] = { { 0.8861111111111111, -1.87, 0.4875 }, { 0.8432899631464823, -1.8930314609296794, 0.390621888031951 } };
    for (size_t b = 0; b < (size_t)backends_of(state)->count; b++) {
        Backend *be = backends_of(state)->open[b]();
        float g[2][3] = { { 8, -4, 0 }, { -2, 16, 32 } }, hyper[8] = { 0.1f }, control[8] = { 0.125f, 1, 0, 8, 0, 0, 1, 0 };
        float w[3] = { 1, -2, 0.5f }, m[3] = { 0 }, v[3] = { 0 };
        OpDesc op = optimizer(OP_adamw, 3, 0, (OpAttr){ .beta1 = 0.5f, .beta2 = 0.75f, .eps = 0.125f, .weight_decay = 0.25f });
        for (int step = 0; step < 2; step++) {
            control[6] = (float)(step + 1);
            expect_call(be, op, (void *[]){ g[step], hyper, control, w, m, v });
            expect_floats("w", w, want[step], 3);
        }
        expect_floats("m", m, (double[]){ 0.125, 0.875, 2 }, 3);
        expect_floats("v", v, (double[]){ 0.203125, 1.046875, 4 }, 3);
        backend_close(be);
    }
}

/* Tensors {3, 4} and {0, 0} and {2}, first step, no decay, eps far below: u = g / |g|. |w| / |u| = 5 / sqrt(2), 1 (w is 0), 2. */
static void lamb_by_hand(void **state)
{
    for (size_t b = 0; b < (size_t)backends_of(state)->count; b++) {
        Backend *be = backends_of(state)->open[b]();
        for (int adapt = 0; adapt < 2; adapt++) {
            const double r = adapt ? 5 / sqrt(2) : 1, r2 = adapt ? 2 : 1;
            float   g[5] = { 1, -2, 4, 4, -8 }, hyper[8] = { 0.1f }, control[8] = { 0.5f, 0.25f, 0, 2, 0, 0, 1, 0 };
            float   w[5] = { 3, 4, 0, 0, 2 }, m[5] = { 0 }, v[5] = { 0 };
            int32_t table[4] = { 0, 2, 4, 5 };
            OpDesc  op = optimizer(OP_lamb, 5, 3, (OpAttr){ .beta1 = 0.9f, .beta2 = 0.999f, .eps = 1e-12f, .adapt = adapt });
            expect_call(be, op, (void *[]){ g, hyper, control, table, w, m, v });
            expect_floats("w", w, (double[]){ 3 - 0.1 * r, 4 + 0.1 * r, -0.1, -0.1, 2 + 0.1 * r2 }, 5);
            expect_floats("m", m, (double[]){ 0.0125, -0.025, 0.05, 0.05, -0.1 }, 5);
        }
        /* Decay is part of u: without a gradient u = 0.5 w, so r = 2 and w goes down by lr w. */
        float   none[2] = { 0, 0 }, hyper[8] = { 0.1f }, control[8] = { 1, 1, 0, 1, 0, 0, 1, 0 };
        float   w[2] = { 3, 4 }, m[2] = { 0 }, v[2] = { 0 };
        int32_t table[2] = { 0, 2 };
        OpAttr  attr = { .beta1 = 0.9f, .beta2 = 0.999f, .eps = 1e-6f, .weight_decay = 0.5f, .adapt = true };
        expect_call(be, optimizer(OP_lamb, 2, 1, attr), (void *[]){ none, hyper, control, table, w, m, v });
        expect_floats("decayed w", w, (double[]){ 2.7, 3.6 }, 2);
        backend_close(be);
    }
}

/* Tensor {3, 4} with g' = {6, 8}: r = 0.5 5 / (10 + 0.25 5) = 2 / 9; then a second step from m; {0} has r = 1. */
static void lars_by_hand(void **state)
{
    for (size_t b = 0; b < (size_t)backends_of(state)->count; b++) {
        Backend *be = backends_of(state)->open[b]();
        float   g[3] = { 12, 16, 2 }, hyper[8] = { 0.1f }, control[8] = { 0.5f, 1, 0, 2, 0, 0, 1, 0 };
        float   w[3] = { 3, 4, 0 }, m[3] = { 1, 0, 0 };
        int32_t table[3] = { 0, 2, 3 };
        OpAttr  attr = { .momentum = 0.5f, .trust = 0.5f, .weight_decay = 0.25f, .adapt = true };
        expect_call(be, optimizer(OP_lars, 3, 2, attr), (void *[]){ g, hyper, control, table, w, m });
        expect_floats("m", m, (double[]){ 0.5 + 0.1 * 2 / 9 * 6.75, 0.1 * 2 / 9 * 9, 0.1 }, 3);
        expect_floats("w", w, (double[]){ 3 - 0.5 - 0.1 * 2 / 9 * 6.75, 4 - 0.1 * 2 / 9 * 9, -0.1 }, 3);
        attr.adapt = false;
        memcpy(w, (float[]){ 3, 4, 0 }, sizeof w);
        memset(m, 0, sizeof m);
        expect_call(be, optimizer(OP_lars, 3, 2, attr), (void *[]){ g, hyper, control, table, w, m });
        expect_floats("w without adaptation", w, (double[]){ 3 - 0.675, 4 - 0.9, -0.1 }, 3);
        backend_close(be);
    }
}

static void a_broken_table_is_refused(void **state)
{
    static const int32_t broken[][3] = { { 0, 3, 2 }, { -1, 1, 4 }, { 0, 2, 5 } };
    for (size_t b = 0; b < (size_t)backends_of(state)->count; b++) {
        Backend *be = backends_of(state)->open[b]();
        for (size_t i = 0; i < COUNT_OF(broken); i++) {
            float   g[4] = { 1, 1, 1, 1 }, w[4] = { 0 }, m[4] = { 0 }, v[4] = { 0 }, hyper[8] = { 0.1f }, control[8] = { 1, 1, 0, 1, 0, 0, 1, 0 };
            int32_t table[3];
            memcpy(table, broken[i], sizeof table);
            Status s = call(be, optimizer(i ? OP_lamb : OP_lars, 4, 2, (OpAttr){ .eps = 1 }), (void *[]){ g, hyper, control, table, w, m, v });
            assert_int_equal(s.code, STATUS_NUMERIC);
            assert_non_null(strstr(s.text, i ? "lamb: " : "lars: "));
            assert_true(w[0] == 0 && m[0] == 0);
        }
        backend_close(be);
    }
}

enum { LENGTH = 20000 };

/* The gradients of a skipped update are not even looked at. */
static void a_skipped_update_writes_nothing(void **state)
{
    static const OpKind kinds[] = { OP_sgd, OP_adamw, OP_lamb, OP_lars };
    float   *g = malloc(LENGTH * sizeof *g), *data = malloc(3 * LENGTH * sizeof *data), *before = malloc(3 * LENGTH * sizeof *before);
    float    hyper[8] = { 0.1f }, control[8] = { 1, 1, 1, 1, 0, 1, 1, 1 };
    int32_t  table[2] = { 0, LENGTH };
    assert_true(g && data && before);
    for (int i = 0; i < LENGTH; i++)
        g[i] = NAN;
    for (int i = 0; i < 3 * LENGTH; i++)
        before[i] = (float)rng_normal(1, 1, (uint64_t)i);
    for (size_t b = 0; b < (size_t)backends_of(state)->count; b++)
        for (size_t k = 0; k < COUNT_OF(kinds); k++) {
            Backend   *be = backends_of(state)->open[b]();
            const bool layerwise = kinds[k] == OP_lamb || kinds[k] == OP_lars;
            void      *out = data, *m = data + LENGTH, *v = data + 2 * LENGTH;
            OpAttr     attr = { .momentum = 0.9f, .beta1 = 0.9f, .beta2 = 0.99f, .eps = 1e-6f, .weight_decay = 0.1f, .trust = 0.1f, .adapt = true };
            void      *with_table[] = { g, hyper, control, table, out, m, v }, *without[] = { g, hyper, control, out, m, v };
            memcpy(data, before, 3 * LENGTH * sizeof *data);
            expect_call(be, optimizer(kinds[k], LENGTH, layerwise, attr), layerwise ? with_table : without);
            assert_memory_equal(data, before, 3 * LENGTH * sizeof *data);
            control[2] = 0; /* the same call is not idle by itself */
            expect_call(be, optimizer(kinds[k], LENGTH, layerwise, attr), layerwise ? with_table : without);
            assert_true(isnan(data[0]) && isnan(data[LENGTH - 1]));
            control[2] = 1;
            backend_close(be);
        }
    free(g);
    free(data);
    free(before);
}

/* ---- the loss scale and clipping: step_control alone ---- */

typedef struct Scaler { Backend *be; float hyper[8], control[8]; } Scaler;

static void update(Scaler *s, float sum)
{
    const Tensor eight = tensor_1d(DTYPE_F32, 8);
    expect_call(s->be, (OpDesc){ .kind = OP_step_control, .n_in = 2, .in = { eight, tensor_1d(DTYPE_F32, 1) } },
                (void *[]){ s->hyper, &sum, s->control });
}

static Scaler scaler_open(Backend *be, float max_norm, float interval, float scale)
{
    return (Scaler){ be, { 0.1f, max_norm, interval, 2, 0.5f, 1, 16777216, 0 }, { 1 / scale, 1, 0, scale } };
}

static void expect_control(const Scaler *s, float scale, float in_row, float skipped, float done, float skipped_in_row)
{
    const float want[5] = { scale, in_row, skipped, done, skipped_in_row };
    for (int i = 0; i < 5; i++)
        if (s->control[3 + i] != want[i])
            fail_msg("control[%d] is %g, expected %g", 3 + i, (double)s->control[3 + i], (double)want[i]);
}

static void the_scale_halves_and_grows(void **state)
{
    for (size_t b = 0; b < (size_t)backends_of(state)->count; b++) {
        Scaler s = scaler_open(backends_of(state)->open[b](), 0, 3, 1024);
        update(&s, 1);
        update(&s, 1);
        expect_control(&s, 1024, 2, 0, 2, 0);
        update(&s, 1);
        expect_control(&s, 2048, 0, 0, 3, 0); /* grown; this window's gradients were still scaled by 1024 */
        assert_true(s.control[0] == 1.0f / 1024 && s.control[2] == 0);
        update(&s, 1);
        assert_true(s.control[0] == 1.0f / 2048);
        update(&s, INFINITY);
        expect_control(&s, 1024, 0, 1, 4, 1); /* skipped; the run of finite updates begins anew */
        assert_true(s.control[2] == 1 && s.control[1] == 1);
        update(&s, NAN);
        expect_control(&s, 512, 0, 2, 4, 2);
        for (int i = 0; i < 2; i++)
            update(&s, 1);
        expect_control(&s, 512, 2, 2, 6, 0);
        assert_true(s.control[2] == 0 && s.control[0] == 1.0f / 512);
        backend_close(s.be);
    }
}

/* tests/CASES.md D8: never below the floor, never above the cap, exact at every interval. */
static void the_scale_has_a_floor_and_a_cap(void **state)
{
    for (size_t b = 0; b < (size_t)backends_of(state)->count; b++) {
        Scaler s = scaler_open(backends_of(state)->open[b](), 0, 100, 65536);
        for (int i = 1; i <= 200; i++) {
            update(&s, INFINITY);
            expect_control(&s, i < 16 ? 65536 / (float)(1 << i) : 1, 0, (float)i, 0, (float)i);
        }
        for (int i = 1; i <= 3000; i++) {
            update(&s, 1);
            float grown = i / 100 < 24 ? (float)(1 << i / 100) : 16777216;
            expect_control(&s, grown, (float)(i % 100), 200, (float)i, 0);
        }
        backend_close(s.be);
    }
}

static void without_a_loss_scale_nothing_is_skipped(void **state)
{
    for (size_t b = 0; b < (size_t)backends_of(state)->count; b++) {
        Scaler s = scaler_open(backends_of(state)->open[b](), 0, 0, 1);
        update(&s, 4);
        update(&s, INFINITY);
        expect_control(&s, 1, 0, 0, 2, 0);
        assert_true(s.control[0] == 1 && s.control[1] == 1 && s.control[2] == 0);
        backend_close(s.be);
    }
}

/* torch.nn.utils.clip_grad_norm_([3, 4, 12], 2): 2 / (13 + 1e-6). */
static void clipping_is_that_of_torch(void **state)
{
    for (size_t b = 0; b < (size_t)backends_of(state)->count; b++) {
        Scaler s = scaler_open(backends_of(state)->open[b](), 2, 0, 1);
        update(&s, 169);
        expect_floats("clip", &s.control[1], (double[]){ 0.46153842603550577 / 3 }, 1);
        update(&s, 3.9f);
        assert_true(s.control[1] == 1);
        update(&s, 0);
        assert_true(s.control[1] == 1);
        update(&s, INFINITY); /* as there: finite gradients become 0 */
        assert_true(s.control[1] == 0);
        update(&s, NAN);
        assert_true(isnan(s.control[1]));
        backend_close(s.be);
    }
}

static void restore_copies_after_a_skip_alone(void **state)
{
    for (size_t b = 0; b < (size_t)backends_of(state)->count; b++) {
        Backend *be = backends_of(state)->open[b]();
        float    saved[3] = { 1, 2, 3 }, x[3] = { 7, INFINITY, NAN }, control[8] = { 1, 1, 0, 1 };
        OpDesc   op = { .kind = OP_restore, .n_in = 2, .in = { tensor_1d(DTYPE_F32, 3), tensor_1d(DTYPE_F32, 8) } };
        expect_call(be, op, (void *[]){ saved, control, x });
        assert_true(x[0] == 7 && isinf(x[1]) && isnan(x[2]));
        control[2] = 1;
        expect_call(be, op, (void *[]){ saved, control, x });
        assert_memory_equal(x, saved, sizeof x);
        backend_close(be);
    }
}

int optim_rules_run(const char *group, const OptimBackends *backends)
{
    OptimBackends list = *backends, *on = &list;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(adamw_is_that_of_torch, on),
        cmocka_unit_test_prestate(lamb_by_hand, on),
        cmocka_unit_test_prestate(lars_by_hand, on),
        cmocka_unit_test_prestate(a_broken_table_is_refused, on),
        cmocka_unit_test_prestate(a_skipped_update_writes_nothing, on),
        cmocka_unit_test_prestate(the_scale_halves_and_grows, on),
        cmocka_unit_test_prestate(the_scale_has_a_floor_and_a_cap, on),
        cmocka_unit_test_prestate(without_a_loss_scale_nothing_is_skipped, on),
        cmocka_unit_test_prestate(clipping_is_that_of_torch, on),
        cmocka_unit_test_prestate(restore_copies_after_a_skip_alone, on),
    };
    return cmocka_run_group_tests_name(group, tests, NULL, NULL);
}
