/* test_vec_math.c - the error bounds that kernels/cpu/vec_math.h states, against libm in double over grids that are dense in
 * the exponent as well as in the value; special values; and the decisions of dropout_vec.h against dropout.h. */
#include "../kernels/cpu/dropout_vec.h"
#include "../kernels/cpu/vec_math.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

typedef enum Function { RECIPROCAL, EXP, LOG, TANH, TAIL, DENSITY } Function;

static float evaluate(Function f, float x)
{
    VecF v = vec_set(x), density = v;
    switch (f) {
    case RECIPROCAL: v = vec_reciprocal(v); break;
    case EXP:  v = vec_exp(v); break;
    case LOG:  v = vec_log(v); break;
    case TANH: v = vec_tanh(v); break;
    default:   v = vec_normal_tail(v, &density); break;
    }
    return f == DENSITY ? density[LANES - 1] : v[LANES - 1];
}

static double exact(Function f, double x)
{
    switch (f) {
    case RECIPROCAL: return 1 / x;
    case EXP:  return exp(x);
    case LOG:  return log(x);
    case TANH: return tanh(x);
    case TAIL: return 0.5 * erfc(x * 0.70710678118654752);
    default:   return 0.39894228040143268 * exp(-0.5 * x * x);
    }
}

/* The spacing of floats at v. */
static double ulp(double v) { return ldexp(1, (fabs(v) < 0x1p-126 ? -126 : ilogb(v)) - 23); }

/* Worst error over low .. high in `steps` steps of equal size: in ulp, relative, and absolute. */
typedef struct Error { double ulps, relative, absolute; } Error;

static Error worst(Function f, double low, double high, int steps)
{
    Error e = { 0, 0, 0 };
    for (int i = 0; i <= steps; i++) {
        const float x = (float)(low + (high - low) * i / steps);
        const double want = exact(f, (double)x), off = fabs((double)evaluate(f, x) - want);
        if (!(off < 1)) /* NaN too */
            fail_msg("function %d at %.9g: %.9g, want %.9g", (int)f, (double)x, (double)evaluate(f, x), want);
        e.absolute = fmax(e.absolute, off);
        e.relative = fmax(e.relative, off / fabs(want));
        e.ulps = fmax(e.ulps, off / ulp(want));
    }
    return e;
}

static void check(const char *what, double got, double limit)
{
    if (!(got <= limit))
        fail_msg("%s: error %g is above %g", what, got, limit);
}

static void test_reciprocal(void **state)
{
    (void)state;
    check("reciprocal in ulp", worst(RECIPROCAL, 1, 4, 200000).ulps, 1);
    check("reciprocal in ulp", worst(RECIPROCAL, -1, -2, 100000).ulps, 1);
    for (int e = -100; e < 100; e++)
        for (int i = 0; i < 200; i++) {
            const float x = (float)ldexp(1 + i / 200.0, e);
            check("reciprocal, relative", fabs((double)evaluate(RECIPROCAL, x) * (double)x - 1), 0x1p-23);
        }
    assert_true(evaluate(RECIPROCAL, 1) == 1 && evaluate(RECIPROCAL, -4) == -0.25f && isnan(evaluate(RECIPROCAL, NAN)));
}

static void test_exp(void **state)
{
    (void)state;
    check("exp in ulp", worst(EXP, -87.3, 0, 200000).ulps, 1.2);
    check("exp near 0 in ulp", worst(EXP, -0.4, 0.4, 100000).ulps, 1.2);
    for (float x = 0; x < 88.3f; x += 0.0013f)
        check("exp above 0, relative", fabs((double)evaluate(EXP, x) / exp((double)x) - 1), 1.2 * 0x1p-23);
    assert_true(evaluate(EXP, 0) == 1 && evaluate(EXP, -0.0f) == 1);
    assert_true(evaluate(EXP, -88) == 0 && evaluate(EXP, -1e30f) == 0 && evaluate(EXP, -INFINITY) == 0);
    assert_true(isinf(evaluate(EXP, 89)) && isinf(evaluate(EXP, 3e38f)) && isinf(evaluate(EXP, INFINITY)));
    assert_true(isnan(evaluate(EXP, NAN)) && isnan(evaluate(EXP, -NAN)));
}

static void test_log(void **state)
{
    (void)state;
    check("log around 1 in ulp", worst(LOG, 0.5, 2, 200000).ulps, 1);
    check("log close to 1 in ulp", worst(LOG, 0.999, 1.001, 50000).ulps, 1);
    for (int e = -126; e < 128; e++)
        check("log of any size in ulp", worst(LOG, ldexp(1, e), ldexp(1.999, e), 500).ulps, 1);
    assert_true(evaluate(LOG, 1) == 0 && evaluate(LOG, 0) == -INFINITY && evaluate(LOG, INFINITY) == INFINITY);
    assert_true(isnan(evaluate(LOG, -1)) && isnan(evaluate(LOG, NAN)) && isnan(evaluate(LOG, -INFINITY)));
}

static void test_tanh(void **state)
{
    (void)state;
    check("tanh in ulp", worst(TANH, -10, 10, 300000).ulps, 1.5);
    for (int e = -120; e < 0; e++)
        check("tanh of small numbers in ulp", worst(TANH, ldexp(-1, e), ldexp(-1.999, e), 200).ulps, 1.5);
    assert_true(evaluate(TANH, 1e30f) == 1 && evaluate(TANH, -INFINITY) == -1 && isnan(evaluate(TANH, NAN)));
    assert_true(evaluate(TANH, 0) == 0 && evaluate(TANH, -0.0f) == 0);
}

static void test_normal_tail(void **state)
{
    (void)state;
    check("Phi(-z)", worst(TAIL, 0, 15, 300000).absolute, 0x1p-22);
    check("Phi(-z), relative", worst(TAIL, 0, 5, 200000).relative, 0x1p-20);
    check("density", worst(DENSITY, 0, 15, 300000).absolute, 0x1p-24);
    check("density, relative", worst(DENSITY, 0, 5, 200000).relative, 0x1p-20);
    assert_true(evaluate(TAIL, 20) == 0 && evaluate(TAIL, 1e30f) == 0 && evaluate(TAIL, INFINITY) == 0 && evaluate(DENSITY, INFINITY) == 0);
    assert_true(isnan(evaluate(TAIL, NAN)) && isnan(evaluate(DENSITY, NAN)));
}

/* Lanes are independent and in place; the sum has all of them. */
static void test_lanes(void **state)
{
    (void)state;
    float x[LANES], y[LANES];
    for (int l = 0; l < LANES; l++)
        x[l] = 0.25f * (float)(l - 7);
    vec_store_f32(y, vec_exp(vec_load_f32(x)));
    for (int l = 0; l < LANES; l++)
        assert_true(y[l] == evaluate(EXP, x[l]));
    assert_true(vec_sum(vec_load_f32(x)) == 2);
    VecF a = vec_load_f32(x), b = vec_set(0.0f);
    for (int l = 0; l < LANES; l++)
        assert_true(vec_max(a, b)[l] == fmaxf(x[l], 0) && vec_min(a, b)[l] == fminf(x[l], 0) && vec_abs(a)[l] == fabsf(x[l]));
    assert_true(isnan(vec_max(vec_set(1), vec_set(NAN))[0]) && isnan(vec_min(vec_set(1), vec_set(NAN))[0]));
}

static void test_dropout_decisions(void **state)
{
    (void)state;
    static const float p[] = { 0, 1e-6f, 0.1f, 0.5f, 0.9f, 0.999999f };
    static const int64_t columns[] = { 1, 7, 8, 63, 64, 65, 100, 127, 768 }, rows[] = { 0, 1, 6, 1000000007, (1LL << 33) + 3 };
    const int32_t rng[4] = { 12345, -7, -99, 0 };
    const uint32_t stream = 0xfffffff3u;
    for (size_t i = 0; i < COUNT_OF(p); i++)
        for (size_t k = 0; k < COUNT_OF(columns); k++) {
            const DropoutVec d = dropout_vec(rng, stream, columns[k], p[i]);
            for (size_t r = 0; r < COUNT_OF(rows); r++)
                for (int64_t j = 0; j < columns[k]; j++) {
                    const uint64_t keep = dropout_keep64(&d, rows[r], j / 64 * 64);
                    const bool want = dropout_keeps(rng, stream, rows[r], columns[k], j, p[i]);
                    assert_int_equal(keep >> j % 64 & 1, want);
                    assert_int_equal(dropout_sixteen(keep, j % 64 / 16 * 16) >> j % 16 & 1, want);
                }
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reciprocal),
        cmocka_unit_test(test_exp),
        cmocka_unit_test(test_log),
        cmocka_unit_test(test_tanh),
        cmocka_unit_test(test_normal_tail),
        cmocka_unit_test(test_lanes),
        cmocka_unit_test(test_dropout_decisions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
