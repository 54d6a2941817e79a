/* test_compare.c - the comparator must say no when it should: a comparator that lets things pass makes every other
 * test worthless. */
#include "compare.h"

#include "ref/ref.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum { ROWS = 4, COLUMNS = 6, COUNT = ROWS * COLUMNS };

typedef struct Fixture {
    OpDesc   op;
    double   want[COUNT];
    float    got[COUNT];
    uint16_t got_bf16[COUNT];
} Fixture;

/* A linear layer with K = 9 terms an output, a right answer, and that answer in both types. */
static Fixture fixture(Dtype dtype)
{
    Fixture f = { .op = { .kind = OP_linear, .n_in = 2, .in = { tensor_2d(dtype, ROWS, 9), tensor_2d(dtype, COLUMNS, 9) } } };
    assert_int_equal(op_infer(&f.op).code, STATUS_OK);
    for (int i = 0; i < COUNT; i++)
        f.want[i] = rng_normal(3, 0, (uint64_t)i);
    f.want[COUNT - 1] = 2; /* neither end of the range is left to chance */
    ref_store(&(Tensor){ .dtype = DTYPE_F32, .rank = 1, .dim = { COUNT } }, f.want, f.got);
    ref_store(&(Tensor){ .dtype = DTYPE_BF16, .rank = 1, .dim = { COUNT } }, f.want, f.got_bf16);
    return f;
}

static Status compare(const Fixture *f, CompareMode mode, bool trivial)
{
    CompareSlot what = { &f->op, false, 0, 42, trivial };
    return compare_slot(&what, mode, f->want, f->op.out[0].dtype == DTYPE_BF16 ? (const void *)f->got_bf16 : f->got);
}

static void assert_wrong(const Fixture *f, CompareMode mode, const char *text)
{
    Status s = compare(f, mode, false);
    assert_int_equal(s.code, STATUS_NUMERIC);
    if (!strstr(s.text, text))
        fail_msg("'%s' is not in '%s'", text, s.text);
}

static void test_right_answers_pass(void **state)
{
    (void)state;
    for (Dtype dtype = DTYPE_F32; dtype <= DTYPE_BF16; dtype++) {
        Fixture f = fixture(dtype);
        assert_int_equal(compare(&f, COMPARE_EXACT, false).code, STATUS_OK);
        assert_int_equal(compare(&f, COMPARE_TOLERANCE, false).code, STATUS_OK);
    }
}

static void test_report_names_everything(void **state)
{
    (void)state;
    Fixture f = fixture(DTYPE_F32);
    f.want[8] = 1, f.got[8] = 1.5f;    /* [1,2] */
    f.want[21] = 1, f.got[21] = -3.0f; /* [3,3] */
    Status s = compare(&f, COMPARE_EXACT, false);
    assert_string_equal(s.text, "linear output 0: 2 of 24 elements differ, first [1,2]: got 1.5, want 1; worst [3,3]: got -3, want 1; "
                                "repro: linear f32[4,9] f32[6,9] -> f32[4,6] seed 42");
}

static void test_one_ulp(void **state)
{
    (void)state;
    Fixture f = fixture(DTYPE_F32);
    f.got[5] = nextafterf(f.got[5], 10);
    assert_wrong(&f, COMPARE_EXACT, "1 of 24 elements differ, first [0,5]");
    assert_int_equal(compare(&f, COMPARE_TOLERANCE, false).code, STATUS_OK);
    Fixture b = fixture(DTYPE_BF16);
    b.got_bf16[5]++;
    assert_wrong(&b, COMPARE_EXACT, "1 of 24 elements differ, first [0,5]");
    assert_int_equal(compare(&b, COMPARE_TOLERANCE, false).code, STATUS_OK);
    b.got_bf16[5] = (uint16_t)(b.got_bf16[5] + 2); /* three units: more than a rounding */
    assert_wrong(&b, COMPARE_TOLERANCE, "1 of 24 elements are out of tolerance");
}

/* Just inside and just outside of c eps sqrt(K) scale + r eps |want|, with c = 1, K = 9, scale 4, r = 1. */
static void test_tolerance_edge(void **state)
{
    (void)state;
    Fixture f = fixture(DTYPE_F32);
    f.want[0] = 4, f.got[0] = 4;
    f.want[1] = 1;
    double allowed = 0x1p-23 * 3 * 4 + 0x1p-23;
    assert_true(compare_tolerance(&f.op, DTYPE_F32, 4, 1) == allowed);
    f.got[1] = (float)(1 + allowed);
    assert_int_equal(compare(&f, COMPARE_TOLERANCE, false).code, STATUS_OK);
    f.got[1] = nextafterf(f.got[1], 2);
    assert_wrong(&f, COMPARE_TOLERANCE, "first [0,1]");
}

static void test_flipped_sign_and_swapped_elements(void **state)
{
    (void)state;
    Fixture f = fixture(DTYPE_F32);
    f.got[7] = -f.got[7];
    assert_wrong(&f, COMPARE_TOLERANCE, "first [1,1]");
    f = fixture(DTYPE_F32);
    float kept = f.got[2];
    f.got[2] = f.got[3];
    f.got[3] = kept;
    assert_wrong(&f, COMPARE_TOLERANCE, "2 of 24");
}

static void test_not_finite(void **state)
{
    (void)state;
    static const float bad[] = { NAN, INFINITY, -INFINITY };
    for (size_t i = 0; i < COUNT_OF(bad); i++)
        for (CompareMode mode = COMPARE_EXACT; mode <= COMPARE_TOLERANCE; mode++) {
            Fixture f = fixture(DTYPE_F32);
            f.got[23] = bad[i];
            assert_wrong(&f, mode, "1 of 24");
            f.want[23] = (double)bad[i]; /* agreeing on it does not make it right */
            assert_wrong(&f, mode, "[3,5]");
        }
    Fixture f = fixture(DTYPE_F32);
    memset(f.got, 0xFF, sizeof f.got);
    assert_wrong(&f, COMPARE_TOLERANCE, "24 of 24");
}

/* A kernel that never ran leaves zeros; a reference that is wrong the same way must not make them right. */
static void test_zeros_and_constants_are_mistrusted(void **state)
{
    (void)state;
    Fixture f = fixture(DTYPE_F32);
    memset(f.want, 0, sizeof f.want);
    memset(f.got, 0, sizeof f.got);
    assert_wrong(&f, COMPARE_EXACT, "mistrusted: 24 of 24 elements are zero");
    assert_int_equal(compare(&f, COMPARE_EXACT, true).code, STATUS_OK);
    f.want[3] = f.got[3] = 1;
    f.want[4] = f.got[4] = 2;
    assert_wrong(&f, COMPARE_EXACT, "mistrusted: 22 of 24");
    f.want[5] = f.got[5] = 3;
    assert_int_equal(compare(&f, COMPARE_EXACT, false).code, STATUS_OK);
    for (int i = 0; i < COUNT; i++)
        f.want[i] = f.got[i] = 3;
    assert_wrong(&f, COMPARE_TOLERANCE, "mistrusted: all 24 elements are equal");
    assert_int_equal(compare(&f, COMPARE_TOLERANCE, true).code, STATUS_OK);
}

/* Zeros instead of the answer are wrong even where trivial results are allowed. */
static void test_trivial_is_no_excuse(void **state)
{
    (void)state;
    Fixture f = fixture(DTYPE_F32);
    memset(f.got, 0, sizeof f.got);
    assert_int_equal(compare(&f, COMPARE_TOLERANCE, true).code, STATUS_NUMERIC);
}

static void test_expected_is_rounded_first(void **state)
{
    (void)state;
    Fixture f = fixture(DTYPE_BF16);
    f.want[0] = 1 + 0x1.8p-8; /* rounds up to 1 + 2^-7 */
    f.got_bf16[0] = bf16_from_f32(1 + 0x1p-7f);
    assert_int_equal(compare(&f, COMPARE_EXACT, false).code, STATUS_OK);
    f.got_bf16[0] = bf16_from_f32(1);
    assert_wrong(&f, COMPARE_EXACT, "got 1, want 1.0078125");
}

static void test_minus_zero_is_zero(void **state)
{
    (void)state;
    Fixture f = fixture(DTYPE_F32);
    f.want[0] = 0;
    f.got[0] = -0.0f;
    assert_int_equal(compare(&f, COMPARE_EXACT, false).code, STATUS_OK);
}

/* Summing in bf16 instead of f32 must not pass: sums of 512 terms. */
static void test_bf16_accumulation_is_caught(void **state)
{
    (void)state;
    enum { TERMS = 512 };
    Fixture f = { .op = { .kind = OP_linear, .n_in = 2, .in = { tensor_2d(DTYPE_BF16, ROWS, TERMS), tensor_2d(DTYPE_BF16, COLUMNS, TERMS) } } };
    assert_int_equal(op_infer(&f.op).code, STATUS_OK);
    for (int i = 0; i < COUNT; i++) {
        float sum = 0;
        f.want[i] = 0;
        for (uint64_t k = 0; k < TERMS; k++) {
            double term = rng_normal(5, (uint64_t)i, k);
            f.want[i] += term;
            sum = bf16_to_f32(bf16_from_f32(sum + (float)term));
        }
        f.got_bf16[i] = bf16_from_f32(sum);
    }
    assert_wrong(&f, COMPARE_TOLERANCE, "out of tolerance");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_right_answers_pass),
        cmocka_unit_test(test_report_names_everything),
        cmocka_unit_test(test_one_ulp),
        cmocka_unit_test(test_tolerance_edge),
        cmocka_unit_test(test_flipped_sign_and_swapped_elements),
        cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_zeros_and_constants_are_mistrusted),
        cmocka_unit_test(test_trivial_is_no_excuse),
        cmocka_unit_test(test_expected_is_rounded_first),
        cmocka_unit_test(test_minus_zero_is_zero),
        cmocka_unit_test(test_bf16_accumulation_is_caught),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
