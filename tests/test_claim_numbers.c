/* test_claim_numbers.c - the analyses of the claims from A4 on, on cells made up for the purpose, and their comparisons of gradients
 * and statistics on the reference backend. */
#include "../bench/claims/a4_accumulation.h"
#include "../bench/claims/a5_mixed_precision.h"
#include "../bench/claims/b16_rules_of_thumb.h"
#include "../bench/claims/b2_memory_kinds.h"
#include "../bench/claims/b5_accumulation_details.h"
#include "claim_cells.h"
#include "ref/ref.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const int64_t four[] = { 1, 2, 4, 8, 0 }, one_to_64[] = { 1, 8, 32, 64, 0 }, up_to_16[] = { 1, 2, 4, 8, 16, 0 },
                     up_to_512[] = { 1, 32, 64, 256, 512, 0 };

/* ---- A4 ---- */

static Backend *open_reference(void)
{
    Backend *be;
    BackendOptions options = { .threads = 1 };
    assert_ok(ref_backend.open(&options, &be));
    return be;
}

/* A few seconds of reference: the smallest of every net. */
static void test_accumulation_equals_without_norm_only(void **state)
{
    (void)state;
    Backend *be = open_reference();
    double distance;
    for (int n = 0; n < CHECK_NETS; n++) {
        NetConfig c = check_net_config((CheckNet)n, 4);
        const bool norm = n == CHECK_RESNET || n == CHECK_UNET;
        if (!net_is_text(&c))
            c.size = 8;
        c.stem = n == CHECK_RESNET ? STEM_SMALL : c.stem;
        const double bound = accumulation_bound(&c);
        assert_ok(accumulation_distance(be, &c, n == CHECK_PLAIN, 1, 1, &distance));
        assert_true(distance == 0);
        for (int64_t k = 2; k <= (norm ? 2 : 4); k *= 2) {
            assert_ok(accumulation_distance(be, &c, n == CHECK_PLAIN, k, 1, &distance));
            assert_true(norm ? distance > 100 * bound : distance <= bound); /* each micro-batch has statistics of its own */
        }
    }
    /* dropout draws anew for each micro-batch: the comparison would see it */
    NetConfig dropped = check_net_config(CHECK_BERT, 4);
    dropped.dropout = 0.1f;
    assert_ok(accumulation_distance(be, &dropped, false, 2, 1, &distance));
    assert_true(distance > 0.01);
    backend_close(be);
}

static void test_accumulation_verdicts(void **state)
{
    (void)state;
    GradientCheck same = { .k = 2, .batch = 16 };
    for (int n = 0; n < CHECK_NETS; n++) {
        same.distance[n] = 1e-7;
        same.bound[n] = 1e-5;
    }
    GradientCheck norm = same, off = same, text_off = same;
    norm.distance[CHECK_UNET] = 0.5;
    off.distance[CHECK_PLAIN] = 0.5;
    text_off.distance[CHECK_BERT] = 0.5;
    text_off.distance[CHECK_RESNET] = (double)NAN;
    AccumulationPair saves = { .small = { .measured_peak = 100 }, .accumulated = { .measured_peak = 105 }, .large = { .measured_peak = 200 } };
    AccumulationPair grows = saves, wastes = saves, unknown = saves;
    grows.accumulated.measured_peak = 150;
    wastes.accumulated.measured_peak = 210;
    unknown.large.measured_peak = (double)NAN;
    assert_int_equal(accumulation_judge(&same, 1, &saves, 1), VERDICT_REPRODUCED);
    assert_int_equal(accumulation_judge(&norm, 1, &saves, 1), VERDICT_PARTLY);
    assert_int_equal(accumulation_judge(&same, 1, &grows, 1), VERDICT_PARTLY);
    assert_int_equal(accumulation_judge(&same, 1, &unknown, 1), VERDICT_PARTLY);
    assert_int_equal(accumulation_judge(&same, 1, NULL, 0), VERDICT_PARTLY);
    assert_int_equal(accumulation_judge(&off, 1, &saves, 1), VERDICT_CONTRADICTED);
    assert_int_equal(accumulation_judge(&text_off, 1, &saves, 1), VERDICT_CONTRADICTED);
    assert_int_equal(accumulation_judge(&same, 1, &wastes, 1), VERDICT_CONTRADICTED);
    assert_int_equal(accumulation_judge(NULL, 0, &unknown, 1), VERDICT_NOT_RUN);
}

static void test_accumulation_pairs(void **state)
{
    (void)state;
    CellPoints p = { 0 };
    AccumulationPair pairs[PAIRS_MAX];
    add(&p, fixture_cell("off", 224, 2, 4, 110, 3));
    add(&p, fixture_cell("off", 224, 2, 1, 100, 3));
    add(&p, fixture_cell("bf16", 224, 8, 1, 200, 3));
    assert_int_equal(accumulation_pairs(&p, pairs), 0); /* the large batch is of another type */
    add(&p, fixture_cell("off", 224, 8, 1, 300, 3));
    assert_int_equal(accumulation_pairs(&p, pairs), 1);
    assert_true(pairs[0].small.measured_peak == 100 && pairs[0].accumulated.measured_peak == 110 && pairs[0].large.measured_peak == 300);
    points_free(&p);
}

/* ---- A5 ---- */

static void test_mixed_precision(void **state)
{
    (void)state;
    CellPoints p = { 0 };
    Curves *curves;
    PrecisionPair pairs[PRECISION_PAIRS_MAX];
    add(&p, fixture_cell("off", 224, 4, 1, 200, 10));
    add(&p, fixture_cell("off", 224, 8, 1, 300, 10));
    add(&p, fixture_cell("bf16", 224, 4, 1, 150, 20));
    add(&p, fixture_cell("bf16", 224, 16, 1, 400, 20)); /* no fp32 beside it */
    add(&p, fixture_cell("bf16", 64, 4, 1, 150, 20));
    add(&p, fixture_text_cell("off", 128, 4, 100, 5));
    add(&p, fixture_text_cell("bf16", 128, 4, 120, 4));
    assert_ok(curves_collect(&p, &curves));
    assert_int_equal(precision_pairs(curves, pairs), 2);
    assert_true(pairs[0].full.measured_peak == 200 && pairs[0].half.measured_peak == 150 && pairs[1].half.throughput == 4);
    const PrecisionRun good[3] = { { 1, 100, 0 }, { 1.05, 100, 0 }, { 0.98, 100, 2 } }, drifted[3] = { { 1, 100, 0 }, { 1.05, 100, 0 }, { 1.3, 100, 2 } };
    const PrecisionRun stuck[3] = { { 1, 100, 0 }, { 1.05, 100, 0 }, { 1, 100, 50 } }, absent[3] = { { 1, 100, 0 }, { (double)NAN, 0, 0 }, { 1, 100, 0 } };
    assert_int_equal(mixed_precision_judge(pairs, 1, good), VERDICT_REPRODUCED);
    assert_int_equal(mixed_precision_judge(pairs, 2, good), VERDICT_PARTLY);
    assert_int_equal(mixed_precision_judge(pairs, 1, drifted), VERDICT_PARTLY);
    assert_int_equal(mixed_precision_judge(pairs, 1, stuck), VERDICT_PARTLY);
    assert_int_equal(mixed_precision_judge(pairs, 1, absent), VERDICT_PARTLY);
    assert_int_equal(mixed_precision_judge(pairs + 1, 1, good), VERDICT_CONTRADICTED);
    assert_int_equal(mixed_precision_judge(pairs, 0, good), VERDICT_NOT_RUN);
    free(curves);
    points_free(&p);
}

/* ---- B2 ---- */

static void test_formula_of_three_terms(void **state)
{
    (void)state;
    Curve c = fixture_curve(four, straight, rising); /* 400 MiB + 80 a sample; weights and optimiser are 100 each */
    FormulaRow rows[FORMULA_ROWS_MAX];
    size_t n = 0;
    formula_rows(&c, rows, &n);
    assert_int_equal(n, 4);
    assert_close(rows[0].per_sample, 80 * MIB, 1e-9);
    assert_close(rows[0].formula, 280 * MIB, 1e-9);
    assert_close(rows[0].error, -200.0 / 480, 1e-9);
    assert_close(rows[3].error, -200.0 / 1040, 1e-9);
    assert_int_equal(memory_kinds_judge(rows, n, 2), VERDICT_PARTLY); /* off by 19 % */
    assert_int_equal(memory_kinds_judge(rows, 1, 2), VERDICT_PARTLY);
    assert_int_equal(memory_kinds_judge(rows, 0, 2), VERDICT_NOT_RUN);
    rows[3].error = -0.05;
    assert_int_equal(memory_kinds_judge(rows, n, 2), VERDICT_REPRODUCED);
    assert_int_equal(memory_kinds_judge(rows, n, 1), VERDICT_PARTLY);
    assert_int_equal(memory_kinds_judge(rows, n, (double)NAN), VERDICT_PARTLY);
    rows[3].error = -0.6;
    assert_int_equal(memory_kinds_judge(rows, n, 2), VERDICT_CONTRADICTED);
    rows[3].error = -0.3;
    rows[2].error = -0.2;
    assert_int_equal(memory_kinds_judge(rows, n, 2), VERDICT_CONTRADICTED); /* worse as the batch grows */
    c.points[0].measured_peak = (double)NAN;
    n = 0;
    formula_rows(&c, rows, &n);
    assert_int_equal(n, 3);
}

static void test_optimizer_state_by_difference(void **state)
{
    (void)state;
    Curve with = fixture_curve(four, straight, rising), without = with;
    for (size_t i = 0; i < without.count; i++)
        without.points[i].measured_peak -= 100 * MIB;
    assert_close(optimizer_state_ratio(&with, &without), 1, 1e-9);
    without.points[3].measured_peak = (double)NAN;
    assert_close(optimizer_state_ratio(&with, &without), 1, 1e-9);
    without.count = 0;
    assert_true(isnan(optimizer_state_ratio(&with, &without)));
}

/* ---- B5 ---- */

/* FIXTURE: the entry of an epoch of `updates` updates under the linear schedule for `planned` of them. */
static json_t *fixture_epoch(int64_t updates, int64_t planned, int64_t samples, double last_norm)
{
    json_t *curve = json_array();
    for (int64_t u = 0; u < updates; u++)
        json_array_append_new(curve, json_pack("{s:f,s:f}", "lr", 0.1 * (1 - (double)u / (double)planned), "grad_norm", u + 1 < updates ? 9.0 : last_norm));
    return json_pack("{s:{s:f},s:o,s:[{s:I}]}", "axes", "lr", 0.1, "curve", curve, "epochs", "samples", (json_int_t)samples);
}

static WindowRow window_of(int64_t k, json_t *entry)
{
    json_t *alone = fixture_epoch(10, 10, 40, 3);
    WindowRow w = window_read(entry, k > 1 ? alone : NULL, 10, k, 40);
    json_decref(alone);
    json_decref(entry);
    return w;
}

static void test_windows(void **state)
{
    (void)state;
    WindowRow one = window_of(1, fixture_epoch(10, 10, 40, 3)), three = window_of(3, fixture_epoch(4, 4, 40, 3)), all = window_of(16, fixture_epoch(1, 1, 40, 3));
    assert_true(window_is_whole(&one) && window_is_whole(&three) && window_is_whole(&all));
    assert_close(three.last_weight, 1, 1e-12);
    assert_true(isnan(one.last_weight) && isnan(all.last_weight));
    WindowRow dropped = window_of(3, fixture_epoch(3, 4, 36, 9)), diluted = window_of(3, fixture_epoch(4, 4, 40, 1));
    WindowRow lost = window_of(3, fixture_epoch(4, 4, 36, 3)), hurried = window_of(3, fixture_epoch(4, 2, 40, 3)), none = window_of(16, fixture_epoch(0, 1, 0, 3));
    assert_close(diluted.last_weight, 1.0 / 3, 1e-12);
    assert_false(window_is_whole(&dropped) || window_is_whole(&diluted) || window_is_whole(&lost) || window_is_whole(&hurried) || window_is_whole(&none));
}

static void test_details_verdicts(void **state)
{
    (void)state;
    WindowRow whole = window_of(3, fixture_epoch(4, 4, 40, 3)), dropped = window_of(3, fixture_epoch(3, 4, 36, 9));
    RateRow helps = { 4, 0.1, 1.0, 2.0, 1.2 }, hurts = { 4, 0.1, 1.0, 1.1, 0.5 }, missing = { 4, 0.1, 1.0, 1.1, (double)NAN };
    NormRow apart = { 2, 0.5, 0.7 }, same = { 2, 1e-7, 1e-7 };
    assert_true(rate_scaling_helps(&helps));
    assert_false(rate_scaling_helps(&hurts) || rate_scaling_helps(&missing));
    assert_int_equal(accumulation_details_judge(&dropped, 1, &helps, 1, &apart, 1), VERDICT_REPRODUCED);
    assert_int_equal(accumulation_details_judge(&whole, 1, &helps, 1, &apart, 1), VERDICT_PARTLY);
    assert_int_equal(accumulation_details_judge(&whole, 1, &hurts, 1, &apart, 1), VERDICT_PARTLY);
    assert_int_equal(accumulation_details_judge(&whole, 1, &hurts, 1, &same, 1), VERDICT_CONTRADICTED);
    assert_int_equal(accumulation_details_judge(NULL, 0, NULL, 0, NULL, 0), VERDICT_NOT_RUN);
}

static void test_norm_statistics(void **state)
{
    (void)state;
    Backend *be = open_reference();
    NetConfig c = net_config_default("unet");
    NormRow row;
    c.batch = 4;
    c.size = 8;
    c.width = 0.25;
    c.depth = 1;
    assert_ok(norm_statistics_distance(be, &c, 1, 1, &row));
    assert_true(row.mean == 0 && row.variance == 0);
    assert_ok(norm_statistics_distance(be, &c, 2, 1, &row));
    assert_true(row.mean > 0.1 && row.variance > 0.1 && row.k == 2);
    backend_close(be);
}

/* ---- B16 ---- */

static void test_rules_of_thumb(void **state)
{
    (void)state;
    Curve c = fixture_curve(one_to_64, straight, saturating);
    ThumbRule holds = rules_of_thumb_read(&c);
    assert_true(holds.decided && holds.points == 4 && holds.peak_batch == 64);
    assert_int_equal(holds.first, 32);
    assert_int_equal(holds.last, 64);
    assert_true(holds.inside == 2 && holds.inside_good == 2);
    assert_int_equal(rules_of_thumb_judge(&holds, 1), VERDICT_PARTLY); /* vision alone */

    c = fixture_curve(one_to_64, straight, falling);
    ThumbRule small_best = rules_of_thumb_read(&c);
    assert_true(small_best.decided && small_best.peak_batch == 1 && small_best.inside_good == 0);
    assert_int_equal(rules_of_thumb_judge(&small_best, 1), VERDICT_CONTRADICTED);
    c = fixture_curve(up_to_512, straight, rising);
    ThumbRule large_best = rules_of_thumb_read(&c);
    assert_int_equal(rules_of_thumb_judge(&large_best, 1), VERDICT_CONTRADICTED);

    c = fixture_curve(up_to_16, straight, saturating);
    ThumbRule undecided = rules_of_thumb_read(&c);
    assert_false(undecided.decided); /* says nothing about 32 and above */
    assert_int_equal(rules_of_thumb_judge(&undecided, 1), VERDICT_NOT_RUN);
    assert_int_equal(rules_of_thumb_judge(NULL, 0), VERDICT_NOT_RUN);
    ThumbRule both[] = { undecided, holds };
    assert_int_equal(rules_of_thumb_judge(both, 2), VERDICT_PARTLY);

    CellPoints p = { 0 };
    Curves *curves;
    for (const int64_t *b = one_to_64; *b; b++)
        add(&p, fixture_text_cell("off", 128, *b, 1, saturating(*b)));
    assert_ok(curves_collect(&p, &curves));
    ThumbRule text = rules_of_thumb_read(&curves->list[0]);
    assert_true(text.text && text.tokens == 128 && text.decided && text.first == 32);
    assert_int_equal(rules_of_thumb_judge(&text, 1), VERDICT_NOT_RUN); /* the rule is one of vision */
    free(curves);
    points_free(&p);
}

static void test_rules_pass_over_null(void **state)
{
    (void)state;
    Curve c = fixture_curve(one_to_64, straight, saturating);
    c.points[3].throughput = (double)NAN;
    ThumbRule r = rules_of_thumb_read(&c);
    assert_true(r.decided && r.points == 3 && r.peak_batch == 32 && r.inside == 1);
    for (size_t i = 0; i < c.count; i++)
        c.points[i].throughput = (double)NAN;
    r = rules_of_thumb_read(&c);
    assert_false(r.decided);
    assert_true(r.points == 0 && isnan(r.peak));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_accumulation_equals_without_norm_only),
        cmocka_unit_test(test_accumulation_verdicts),
        cmocka_unit_test(test_accumulation_pairs),
        cmocka_unit_test(test_mixed_precision),
        cmocka_unit_test(test_formula_of_three_terms),
        cmocka_unit_test(test_optimizer_state_by_difference),
        cmocka_unit_test(test_windows),
        cmocka_unit_test(test_details_verdicts),
        cmocka_unit_test(test_norm_statistics),
        cmocka_unit_test(test_rules_of_thumb),
        cmocka_unit_test(test_rules_pass_over_null),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
