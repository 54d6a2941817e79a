/* test_base.c - Status, the counter-based generator, tensors and bf16: what all else stands on. */
#include "../kernels/base.h"
#include "../kernels/tensor.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void test_status_text(void **state)
{
    (void)state;
    Status s = status_error(STATUS_INPUT, "%s: %d images, %d labels", "train.gz", 10, 9);
    assert_int_equal(s.code, STATUS_INPUT);
    assert_string_equal(s.text, "train.gz: 10 images, 9 labels");
    s = status_context(s, "data set '%s'", "mine");
    assert_int_equal(s.code, STATUS_INPUT);
    assert_string_equal(s.text, "data set 'mine': train.gz: 10 images, 9 labels");
    s = status_context(status_ok(), "never seen");
    assert_int_equal(s.code, STATUS_OK);
    assert_string_equal(s.text, "");
}

static void test_status_is_cut_to_fit(void **state)
{
    (void)state;
    char longer[2 * STATUS_TEXT_BYTES];
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    Status s = status_error(STATUS_IO, "%s", longer);
    assert_int_equal(strlen(s.text), STATUS_TEXT_BYTES - 1);
    s = status_context(s, "%s", longer); /* a context takes half at most, so the cause stays visible */
    assert_int_equal(strlen(s.text), STATUS_TEXT_BYTES - 1);
    assert_non_null(strstr(s.text, ": x"));
    s = status_context(status_error(STATUS_IO, "the cause"), "%s", longer);
    assert_non_null(strstr(s.text, ": the cause"));
}

static void test_status_names(void **state)
{
    (void)state;
    static const char *const names[] = { "ok", "usage", "input", "io", "oom", "unsupported", "backend", "numeric", "interrupted" };
    assert_int_equal(COUNT_OF(names), STATUS_CODE_COUNT);
    for (int i = 0; i < STATUS_CODE_COUNT; i++)
        assert_string_equal(status_code_name((StatusCode)i), names[i]);
    assert_string_equal(status_code_name(STATUS_CODE_COUNT), "unknown");
}

static Status fails_second(int *reached)
{
    TRY(status_ok());
    *reached = 1;
    TRY(status_error(STATUS_OOM, "here"));
    *reached = 2;
    return status_ok();
}

static Status cleans_up(bool fail, int *cleaned)
{
    Status s;
    TRY_GOTO(s, fail ? status_error(STATUS_IO, "no") : status_ok(), out);
    *cleaned += 10;
out:
    *cleaned += 1;
    return s;
}

static void test_try(void **state)
{
    (void)state;
    int reached = 0, cleaned = 0;
    assert_string_equal(fails_second(&reached).text, "here");
    assert_int_equal(reached, 1);
    assert_int_equal(cleans_up(true, &cleaned).code, STATUS_IO);
    assert_int_equal(cleaned, 1);
    assert_int_equal(cleans_up(false, &cleaned).code, STATUS_OK);
    assert_int_equal(cleaned, 12);
}

static void test_clock_goes_forward(void **state)
{
    (void)state;
    double before = clock_seconds();
    for (int i = 0; i < 1000; i++) {
        double now = clock_seconds();
        assert_true(now >= before && now - before < 60);
        before = now;
    }
}

/* Known answers for philox4x32-10 published with Random123 (kat_vectors). Counter words are (counter low, high,
 * stream low, high), key words (seed low, high). */
static void test_philox_known_answers(void **state)
{
    (void)state;
    static const struct { uint64_t seed, stream, counter; uint32_t word[4]; } known[] = {
        { 0, 0, 0, { 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 } },
        { UINT64_MAX, UINT64_MAX, UINT64_MAX, { 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd } },
        { 0x299f31d0a4093822, 0x0370734413198a2e, 0x85a308d3243f6a88, { 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1 } },
    };
    for (size_t i = 0; i < COUNT_OF(known); i++) {
        RngBlock b = rng_block(known[i].seed, known[i].stream, known[i].counter);
        for (int w = 0; w < 4; w++)
            assert_int_equal(b.word[w], known[i].word[w]);
    }
}

static void test_uniform(void **state)
{
    (void)state;
    assert_true(rng_uniform(0) == 0.0f);
    assert_true(rng_uniform(UINT32_MAX) == 1 - 0x1p-24f); /* below 1, whatever the word */
    enum { N = 20000 };
    int64_t bins[10] = { 0 };
    for (uint64_t i = 0; i < N; i++)
        bins[(int)(10 * rng_uniform(rng_block(1, 2, i).word[0]))]++;
    for (int b = 0; b < 10; b++) /* deviation of a bin: sqrt(N 0.1 0.9) = 42; five of them */
        assert_true(llabs(bins[b] - N / 10) < 212);
}

/* Mean 0, variance 1, skewness 0, kurtosis 3 within five standard errors: 1, sqrt 2, sqrt 6, sqrt 24 over sqrt N. */
static void test_normal_moments(void **state)
{
    (void)state;
    enum { N = 100000 };
    double m[4] = { 0 };
    for (uint64_t i = 0; i < N; i++) {
        double x = rng_normal(11, 5, i), power = 1;
        for (int k = 0; k < 4; k++)
            m[k] += (power *= x) / N;
    }
    const double error = 5 / sqrt((double)N);
    assert_true(fabs(m[0]) < error);
    assert_true(fabs(m[1] - 1) < error * sqrt(2));
    assert_true(fabs(m[2]) < error * sqrt(15)); /* raw third moment: variance 15 */
    assert_true(fabs(m[3] - 3) < error * sqrt(96));
}

static void test_below(void **state)
{
    (void)state;
    int64_t seen[7] = { 0 };
    for (uint64_t i = 0; i < 7000; i++) {
        int64_t v = rng_below(3, 0, i, 7);
        assert_in_range(v, 0, 6);
        seen[v]++;
    }
    for (int v = 0; v < 7; v++)
        assert_in_range(seen[v], 1000 - 150, 1000 + 150);
    assert_int_equal(rng_below(3, 0, 9, 1), 0);
    assert_in_range(rng_below(3, 0, 9, INT32_MAX), 0, INT32_MAX - 1);
}

static void test_streams_and_seeds_differ(void **state)
{
    (void)state;
    uint32_t base = rng_block(1, 1, 1).word[0];
    assert_int_equal(rng_block(1, 1, 1).word[0], base);
    assert_int_not_equal(rng_block(2, 1, 1).word[0], base);
    assert_int_not_equal(rng_block(1, 2, 1).word[0], base);
    assert_int_not_equal(rng_block(1, 1, 2).word[0], base);
    assert_int_not_equal(rng_block(1, 1, 1 + (UINT64_C(1) << 32)).word[0], base);
}

static uint32_t bits_of(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static float float_of(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static void test_bf16_rounding(void **state)
{
    (void)state;
    static const struct { uint32_t f32; uint16_t bf16; const char *why; } cases[] = {
        { 0x3f800000, 0x3f80, "1 is exact" },
        { 0x3f808000, 0x3f80, "a tie goes down to even" },
        { 0x3f818000, 0x3f82, "a tie goes up to even" },
        { 0x3f808001, 0x3f81, "just above a tie goes up" },
        { 0x3f817fff, 0x3f81, "just below a tie goes down" },
        { 0xbf808001, 0xbf81, "the sign does not matter" },
        { 0x80000000, 0x8000, "-0 keeps its sign" },
        { 0x00000001, 0x0000, "the smallest f32 denormal rounds to zero" },
        { 0x00008000, 0x0000, "half of the smallest bf16 denormal: tie to even" },
        { 0x00008001, 0x0001, "just above that" },
        { 0x00018000, 0x0002, "denormal tie" },
        { 0x007fffff, 0x0080, "the largest denormal becomes the smallest normal" },
        { 0x7f7f7fff, 0x7f7f, "largest finite bf16 and a bit" },
        { 0x7f7fffff, 0x7f80, "largest f32 overflows to infinity" },
        { 0x7f800000, 0x7f80, "infinity" },
        { 0xff800000, 0xff80, "-infinity" },
        { 0x7fc00000, 0x7fc0, "quiet NaN" },
        { 0x7f800001, 0x7fc0, "a signalling NaN whose upper half is infinity's stays NaN" },
        { 0xffffffff, 0xffff, "a NaN of all ones does not carry over to zero" },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        uint16_t got = bf16_from_f32(float_of(cases[i].f32));
        if (got != cases[i].bf16)
            fail_msg("%s: 0x%08x gave 0x%04x", cases[i].why, cases[i].f32, got);
    }
}

static void test_bf16_round_trip(void **state)
{
    (void)state;
    for (uint32_t b = 0; b <= 0xffff; b++) {
        float f = bf16_to_f32((uint16_t)b);
        assert_int_equal(bits_of(f), b << 16);
        if (isnan(f))
            assert_true(isnan(bf16_to_f32(bf16_from_f32(f))));
        else
            assert_int_equal(bf16_from_f32(f), b);
    }
}

static void test_tensors(void **state)
{
    (void)state;
    Tensor a = tensor_act(DTYPE_BF16, 8, 56, 57, 64), p = tensor_4d(DTYPE_F32, 8, 56, 57, 64);
    Tensor m = tensor_2d(DTYPE_U8, 3, 5), v = tensor_1d(DTYPE_I32, 7);
    assert_int_equal(a.layout, LAYOUT_ACT);
    assert_int_equal(p.layout, LAYOUT_PLAIN);
    assert_int_equal(tensor_count(&a), 8 * 56 * 57 * 64);
    assert_int_equal(tensor_bytes(&a), 8 * 56 * 57 * 64 * 2);
    assert_int_equal(tensor_bytes(&m), 15);
    assert_int_equal(tensor_bytes(&v), 28);
    assert_true(tensor_same_shape(&a, &p)); /* type and layout do not count */
    assert_false(tensor_same_shape(&m, &v));
    p.dim[2] = 56;
    assert_false(tensor_same_shape(&a, &p));
    Tensor large = tensor_4d(DTYPE_F32, 1024, 1024, 1024, 8); /* more than 32 bits hold */
    assert_true(tensor_bytes(&large) == (size_t)1 << 35);
}

static void test_bits_are_rounded_up_to_bytes(void **state)
{
    (void)state;
    for (int64_t n = 1; n <= 17; n++) {
        Tensor t = tensor_1d(DTYPE_BIT, n);
        assert_int_equal(tensor_bytes(&t), n <= 8 ? 1 : n <= 16 ? 2 : 3);
    }
}

static void test_names(void **state)
{
    (void)state;
    static const struct { Dtype dtype; const char *name; int bits; } types[] = {
        { DTYPE_F32, "f32", 32 }, { DTYPE_BF16, "bf16", 16 }, { DTYPE_F16, "f16", 16 },
        { DTYPE_I32, "i32", 32 }, { DTYPE_U8, "u8", 8 }, { DTYPE_BIT, "bit", 1 },
    };
    assert_int_equal(COUNT_OF(types), DTYPE_COUNT);
    for (size_t i = 0; i < COUNT_OF(types); i++) {
        assert_string_equal(dtype_name(types[i].dtype), types[i].name);
        assert_int_equal(dtype_bits(types[i].dtype), types[i].bits);
    }
    char text[64], small[8], one[1];
    Tensor a = tensor_act(DTYPE_F32, 8, 56, 56, 64), v = tensor_1d(DTYPE_BIT, 9);
    assert_string_equal(tensor_format(&a, text, sizeof text), "f32[8,56,56,64]");
    assert_string_equal(tensor_format(&v, text, sizeof text), "bit[9]");
    assert_string_equal(tensor_format(&a, small, sizeof small), "f32[8,5"); /* cut, never past the end */
    assert_string_equal(tensor_format(&a, one, sizeof one), "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_status_text),
        cmocka_unit_test(test_status_is_cut_to_fit),
        cmocka_unit_test(test_status_names),
        cmocka_unit_test(test_try),
        cmocka_unit_test(test_clock_goes_forward),
        cmocka_unit_test(test_philox_known_answers),
        cmocka_unit_test(test_uniform),
        cmocka_unit_test(test_normal_moments),
        cmocka_unit_test(test_below),
        cmocka_unit_test(test_streams_and_seeds_differ),
        cmocka_unit_test(test_bf16_rounding),
        cmocka_unit_test(test_bf16_round_trip),
        cmocka_unit_test(test_tensors),
        cmocka_unit_test(test_bits_are_rounded_up_to_bytes),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
