/* test_claims.c - the table of claims, their entries, points and curves, and A1's analysis on cells made up for the purpose: lines
 * that hold and that do not, too few points, null members, memory that runs out. The other claims: test_claim_numbers.c. */
#include "../bench/claims/a1_memory_line.h"
#include "../bench/claims/claims.h"
#include "claim_cells.h"
#include "fault_alloc.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const double GIB = 1073741824.0;

/* ---- the table ---- */

static void test_table_is_complete(void **state)
{
    (void)state;
    int runnable = 0;
    for (int i = 0; i < CLAIM_COUNT; i++) {
        char id[8];
        snprintf(id, sizeof id, "%c%d", i < 8 ? 'A' : 'B', i < 8 ? i + 1 : i - 7);
        const Claim *c = &claims[i];
        assert_string_equal(c->id, id);
        assert_true(strlen(c->title) > 5);
        assert_true(strlen(c->statement) > 30);
        assert_true((c->run != NULL) != (c->waits_for != NULL)); /* one of the two */
        if (c->waits_for)
            assert_true(strlen(c->waits_for) > 10);
        assert_ptr_equal(claim_find(id), c);
        runnable += c->run != NULL;
    }
    assert_int_equal(runnable, 6);
}

static void test_formulas_stand_exactly(void **state)
{
    (void)state;
    assert_string_equal(claim_find("A1")->formulas[0], "used memory = model + batch x intermediates per sample");
    assert_string_equal(claim_find("A1")->formulas[1], "largest batch = (card memory - model memory) / memory per sample");
    assert_string_equal(claim_find("B2")->formulas[0], "total memory = parameters + batch x activations + optimiser state");
    assert_string_equal(claim_find("B5")->formulas[0], "learning rate = base learning rate x accumulation steps");
    assert_string_equal(claim_find("B14")->formulas[0], "total batch = batch per device x devices x accumulation steps");
}

static void test_find(void **state)
{
    (void)state;
    assert_ptr_equal(claim_find("b16"), claim_find("B16"));
    assert_non_null(claim_find("a1"));
    assert_null(claim_find("A9"));
    assert_null(claim_find("B17"));
    assert_null(claim_find("A"));
    assert_null(claim_find(""));
}

/* ---- entries ---- */

static const char *text_of(const json_t *entry, const char *name) { return json_string_value(json_object_get(entry, name)); }

static void test_entry_of_a_waiting_claim(void **state)
{
    (void)state;
    static const char *const members[] = { "id", "statement", "verdict", "summary", "tolerance", "waits_for", "source_figures",
                                           "tables", "charts", "formulas" };
    json_t *entry;
    assert_ok(claim_entry(claim_find("B14"), NULL, &entry));
    for (size_t i = 0; i < COUNT_OF(members); i++)
        assert_non_null(json_object_get(entry, members[i]));
    assert_string_equal(text_of(entry, "verdict"), "not run");
    assert_string_equal(text_of(entry, "waits_for"), claim_find("B14")->waits_for);
    assert_int_equal(json_array_size(json_object_get(entry, "formulas")), 1);
    json_decref(entry);
}

static Status run_well(const ClaimContext *context, json_t *entry)
{
    (void)context;
    return entry_conclude(entry, VERDICT_REPRODUCED, "none", "%d is %d", 2, 2);
}

static Status run_badly(const ClaimContext *context, json_t *entry)
{
    (void)context;
    (void)entry;
    return status_error(STATUS_UNSUPPORTED, "no such hardware");
}

static Status run_crashing(const ClaimContext *context, json_t *entry)
{
    (void)context;
    (void)entry;
    abort();
}

static Status run_interrupted(const ClaimContext *context, json_t *entry)
{
    (void)context;
    (void)entry;
    return status_error(STATUS_INTERRUPTED, "interrupted");
}

static void test_entry_of_a_run(void **state)
{
    (void)state;
    Claim claim = { .id = "T1", .title = "t", .statement = "s", .run = run_well };
    json_t *entry;
    assert_ok(claim_entry(&claim, NULL, &entry));
    assert_string_equal(text_of(entry, "verdict"), "reproduced");
    assert_string_equal(text_of(entry, "summary"), "2 is 2");
    json_decref(entry);

    claim.run = run_badly;
    assert_ok(claim_entry(&claim, NULL, &entry));
    assert_string_equal(text_of(entry, "verdict"), "not run");
    assert_string_equal(text_of(entry, "summary"), "no such hardware");
    json_decref(entry);

    claim.run = run_crashing;
    assert_ok(claim_entry(&claim, NULL, &entry));
    assert_string_equal(text_of(entry, "verdict"), "not run");
    assert_non_null(strstr(text_of(entry, "summary"), "crashed"));
    json_decref(entry);

    claim.run = run_interrupted;
    assert_int_equal(claim_entry(&claim, NULL, &entry).code, STATUS_INTERRUPTED);
    assert_null(entry);
}

/* ---- points and curves ---- */

static void test_null_members_are_missing(void **state)
{
    (void)state;
    CellPoints p = { 0 };
    add(&p, fixture_cell("off", 224, 8, 1, -1, -1));
    assert_int_equal(p.count, 1);
    assert_true(p.list[0].ok);
    assert_true(isnan(p.list[0].measured_peak) && isnan(p.list[0].process_peak) && isnan(p.list[0].throughput));
    assert_true(isnan(p.list[0].step_seconds)); /* not there at all */
    json_t *flagged = fixture_cell("off", 224, 4, 1, 5, 6);
    json_object_set_new(flagged, "flags", json_pack("[n,s]", "disturbed: other processes kept 1.0 cores busy"));
    add(&p, flagged);
    assert_true(p.list[1].disturbed && !p.list[0].disturbed);
    add(&p, json_pack("{s:s,s:s}", "name", "FIXTURE without axes", "status", "ok"));
    add(&p, json_pack("{s:s,s:s,s:{s:s}}", "name", "FIXTURE", "status", "ok", "axes", "net", "resnet50"));
    add(&p, json_null());
    assert_int_equal(p.count, 2);
    points_free(&p);
}

static void test_a_good_cell_replaces_a_failed_one(void **state)
{
    (void)state;
    CellPoints p = { 0 };
    json_t *failed = fixture_cell("off", 224, 8, 1, -1, -1);
    json_object_set_new(failed, "status", json_string("oom"));
    json_object_set_new(failed, "reason", json_string("needs 9 GiB"));
    add(&p, failed);
    assert_false(p.list[0].ok);
    assert_string_equal(p.list[0].reason, "needs 9 GiB");
    add(&p, fixture_cell("off", 224, 8, 1, 5, 6));
    add(&p, fixture_cell("off", 224, 8, 1, 7, 8));
    assert_int_equal(p.count, 1);
    assert_true(p.list[0].ok && p.list[0].measured_peak == 5);
    points_free(&p);
}

static void test_curves(void **state)
{
    (void)state;
    CellPoints p = { 0 };
    Curves *c;
    json_t *failed = fixture_cell("off", 64, 16, 1, -1, -1);
    json_object_set_new(failed, "status", json_string("failed"));
    add(&p, fixture_cell("off", 64, 8, 1, 3, 3));
    add(&p, failed);
    add(&p, fixture_cell("off", 64, 2, 1, 1, 1));
    add(&p, fixture_cell("off", 64, 4, 1, 2, 2));
    add(&p, fixture_cell("off", 64, 4, 2, 2, 2)); /* accumulated: on no curve */
    add(&p, fixture_cell("bf16", 64, 4, 1, 2, 2));
    add(&p, fixture_cell("off", 224, 1, 1, 2, 2));
    assert_ok(curves_collect(&p, &c));
    assert_int_equal(c->count, 3);
    assert_int_equal(c->list[0].axes.size, 224);
    assert_int_equal(c->list[1].count, 3);
    assert_int_equal(c->list[1].not_ok, 1);
    for (int i = 0; i < 3; i++)
        assert_int_equal(c->list[1].points[i].batch, 2 << i);
    assert_string_equal(c->list[2].axes.amp, "bf16");
    free(c);
    points_free(&p);
}

/* Nets are not mixed: each has its curves side by side, its largest size first, whatever the order of the record. */
static void test_curves_of_several_nets(void **state)
{
    (void)state;
    CellPoints p = { 0 };
    Curves *c;
    char label[LABEL_BYTES];
    add(&p, fixture_cell("off", 64, 1, 1, 1, 1));
    add(&p, fixture_text_cell("off", 128, 1, 1, 1));
    add(&p, fixture_cell("off", 224, 1, 1, 1, 1));
    add(&p, fixture_text_cell("bf16", 128, 4, 1, 1));
    add(&p, fixture_text_cell("off", 128, 4, 1, 1));
    add(&p, fixture_cell("bf16", 64, 1, 1, 1, 1));
    assert_ok(curves_collect(&p, &c));
    assert_int_equal(c->count, 5);
    static const int64_t sizes[] = { 224, 64, 64, 128, 128 };
    for (size_t i = 0; i < c->count; i++) {
        assert_int_equal(c->list[i].axes.size, sizes[i]);
        assert_string_equal(c->list[i].axes.net, i < 3 ? "resnet50" : "bert");
        assert_true(curves_net_begins(c, i) == (i == 0 || i == 3));
        assert_true(curves_main_size(c, i) == (i != 1 && i != 2));
    }
    assert_int_equal(c->list[3].count, 2);
    assert_string_equal(curve_label(&c->list[0].axes, label, sizeof label), "resnet50 224 px fp32");
    assert_string_equal(curve_label(&c->list[4].axes, label, sizeof label), "bert 128 tokens bf16 (layers 2, hidden 128, heads 2, vocab 1000)");
    assert_string_equal(curve_net_label(&c->list[4].axes, label, sizeof label), "bert 128 tokens (layers 2, hidden 128, heads 2, vocab 1000)");
    CellPoint axes = c->list[4].axes;
    assert_ptr_equal(curves_find(c, &axes), &c->list[4]);
    strcpy(axes.extra, "/optim:sgd");
    assert_null(curves_find(c, &axes));
    free(c);
    points_free(&p);
}

/* ---- A1 ---- */

static const int64_t four[] = { 1, 2, 4, 8, 0 }, two[] = { 1, 2, 0 };

static void test_line_is_found(void **state)
{
    (void)state;
    Curve c = fixture_curve(four, straight, rising);
    MemoryLine m = memory_line_fit(&c);
    assert_true(m.fitted && m.points == 4);
    assert_close(m.model, 400 * MIB, 1e-9);
    assert_close(m.per_sample, 80 * MIB, 1e-9);
    assert_close(m.r2, 1, 1e-9);
    assert_close(m.outside, 100 * MIB, 1e-9);
    assert_true(m.max_residual < 1e-9 && m.max_plan_error < 1e-9);
    assert_int_equal(memory_line_judge(&m, 1, NULL, 0), VERDICT_PARTLY); /* a line, but nothing about cards */
}

static void test_line_verdicts(void **state)
{
    (void)state;
    Curve straight_curve = fixture_curve(four, straight, rising), bent_curve = fixture_curve(four, bent, rising);
    Curve level_curve = fixture_curve(four, level, rising), short_curve = fixture_curve(two, straight, rising);
    MemoryLine lines[2] = { memory_line_fit(&straight_curve), memory_line_fit(&short_curve) };
    CardFit card = { .by_formula = 100, .largest = 80, .reserve_needed = 0.19 };
    assert_int_equal(memory_line_judge(lines, 2, &card, 1), VERDICT_REPRODUCED); /* the short one does not count */
    card.reserve_needed = 0.02;
    assert_int_equal(memory_line_judge(lines, 2, &card, 1), VERDICT_PARTLY);
    card = (CardFit){ .by_formula = 100, .largest = 100, .reserve_needed = 0 };
    assert_int_equal(memory_line_judge(lines, 2, &card, 1), VERDICT_PARTLY);
    assert_false(lines[1].fitted);
    assert_int_equal(memory_line_judge(&lines[1], 1, &card, 1), VERDICT_NOT_RUN);
    assert_int_equal(memory_line_judge(NULL, 0, NULL, 0), VERDICT_NOT_RUN);
    MemoryLine wrong[] = { memory_line_fit(&bent_curve), memory_line_fit(&level_curve) };
    assert_int_equal(memory_line_judge(&wrong[0], 1, &card, 1), VERDICT_CONTRADICTED);
    assert_int_equal(memory_line_judge(&wrong[1], 1, &card, 1), VERDICT_CONTRADICTED); /* memory that ignores the batch */
}

static void test_line_passes_over_null(void **state)
{
    (void)state;
    Curve c = fixture_curve(four, straight, rising);
    c.points[1].measured_peak = (double)NAN;
    c.points[2].process_peak = (double)NAN;
    c.points[3].planned = (double)NAN;
    MemoryLine m = memory_line_fit(&c);
    assert_int_equal(m.points, 3);
    assert_close(m.per_sample, 80 * MIB, 1e-9);
    assert_close(m.outside, 100 * MIB, 1e-9);
    c.points[0].measured_peak = (double)NAN;
    assert_false(memory_line_fit(&c).fitted);
}

static void test_article_arithmetic(void **state)
{
    (void)state;
    assert_int_equal(memory_line_batch(24, 4, 0.2), 100);
    assert_int_equal(memory_line_batch(3, 4, 0.2), 0);
    assert_int_equal(memory_line_batch(5, 4, 0.3), 3);
}

typedef struct FakePlanner { double model, per_sample; int64_t step; int calls; bool broken; } FakePlanner;

/* FIXTURE: memory in steps of `step` samples. */
static Status fake_bytes(void *context, int64_t batch, double *bytes)
{
    FakePlanner *f = context;
    f->calls++;
    assert_in_range(batch, 1, BATCH_MAX);
    if (f->broken)
        return status_error(STATUS_BACKEND, "no plan");
    *bytes = f->model + f->per_sample * (double)((batch + f->step - 1) / f->step * f->step);
    return status_ok();
}

static void test_largest_batch_is_exact(void **state)
{
    (void)state;
    for (int64_t step = 1; step <= 8; step *= 2)
        for (int64_t truth = 0; truth <= 1100; truth = truth < 20 ? truth + 1 : truth + 37) {
            static const int64_t guesses[] = { 0, 1, 30, 1000, 70000 };
            for (size_t g = 0; g < COUNT_OF(guesses); g++) {
                FakePlanner f = { .model = 1000, .per_sample = 10, .step = step };
                int64_t batch;
                assert_ok(largest_batch(fake_bytes, &f, 1000 + 10 * (double)truth, guesses[g], &batch));
                assert_int_equal(batch, truth / step * step);
                assert_true(f.calls < 60);
            }
        }
    FakePlanner near = { .model = 1000, .per_sample = 10, .step = 1 };
    int64_t batch;
    assert_ok(largest_batch(fake_bytes, &near, 6005, 505, &batch));
    assert_int_equal(batch, 500);
    assert_true(near.calls <= 8); /* a good guess is what makes planning 20 cards cheap */
    assert_ok(largest_batch(fake_bytes, &near, 1e12, 10, &batch));
    assert_int_equal(batch, BATCH_MAX);
    near.broken = true;
    assert_int_equal(largest_batch(fake_bytes, &near, 6005, 505, &batch).code, STATUS_BACKEND);
}

static void test_card(void **state)
{
    (void)state;
    /* 24 GiB, 4 GiB model, 0.2 GiB a sample, and 2 GiB that the process needs besides: the formula says 100, 90 fit. */
    FakePlanner f = { .model = 4 * GIB, .per_sample = 0.2 * GIB, .step = 1 };
    MemoryLine line = { .fitted = true, .model = 4 * GIB, .per_sample = 0.2 * GIB, .outside = 2 * GIB };
    CardFit row = { .card = 24 * GIB };
    assert_ok(card_fit(fake_bytes, &f, &line, &row));
    assert_int_equal(row.by_formula, 100);
    assert_in_range(row.largest, 89, 90); /* 4 + 90 x 0.2 is 22 but for the last bit */
    assert_int_equal(row.with_reserve, 76);
    assert_close(row.left, -2.0 / 24, 1e-6);
    assert_in_range((int64_t)(1000 * row.reserve_needed), 74, 84); /* with 7.5 % held back the formula gives 91: just too many */
    /* nothing besides: the formula is right and no reserve is needed */
    line.outside = (double)NAN;
    line.model = 3.9 * GIB;
    f.model = 3.9 * GIB;
    assert_ok(card_fit(fake_bytes, &f, &line, &row));
    assert_int_equal(row.by_formula, row.largest);
    assert_true(row.reserve_needed == 0);
}

/* ---- memory runs out ---- */

static Status build_entry(void *context)
{
    (void)context;
    static const ColumnHead heads[] = { { "batch", "" }, { "memory", "MiB" } };
    json_t *entry = NULL;
    TRY(claim_entry(claim_find("B14"), NULL, &entry)); /* one that waits: no process is started */
    ClaimTable t;
    ClaimChart c;
    claim_table_begin(&t, "table", heads, COUNT_OF(heads));
    claim_table_row(&t);
    claim_table_integer(&t, 1);
    claim_table_real(&t, (double)NAN);
    claim_table_text(&t, "x");
    claim_table_text(&t, NULL);
    Status status = entry_add_table(entry, &t);
    if (status.code == STATUS_OK) {
        claim_chart_begin(&c, "chart", "batch", "memory (MiB)", true, false);
        claim_chart_series(&c, CHART_BOTH, "series %d", 1);
        claim_chart_point(&c, 1, 2);
        status = entry_add_chart(entry, &c);
    }
    if (status.code == STATUS_OK)
        status = entry_conclude(entry, VERDICT_PARTLY, NULL, "summary");
    json_decref(entry);
    return status;
}

static Status collect_points(void *context)
{
    CellPoints p = { 0 };
    Curves *curves = NULL;
    Status status = points_add_record(&p, context, 0.9);
    if (status.code == STATUS_OK)
        status = curves_collect(&p, &curves);
    free(curves);
    points_free(&p);
    return status;
}

static void test_memory_runs_out(void **state)
{
    (void)state;
    json_t *cells = json_array(), *root = json_pack("{s:o}", "cells", cells);
    for (int64_t b = 1; b <= 40; b++)
        json_array_append_new(cells, fixture_cell("off", 64, b, 1, straight(b), rising(b)));
    assert_true(fault_alloc_sweep(collect_points, root) > 2);
    json_decref(root);
    assert_true(fault_alloc_sweep(build_entry, NULL) > 40);
}

int main(void)
{
    json_set_alloc_funcs(malloc, free); /* this program's, so that faults reach jansson too */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table_is_complete),
        cmocka_unit_test(test_formulas_stand_exactly),
        cmocka_unit_test(test_find),
        cmocka_unit_test(test_entry_of_a_waiting_claim),
        cmocka_unit_test(test_entry_of_a_run),
        cmocka_unit_test(test_null_members_are_missing),
        cmocka_unit_test(test_a_good_cell_replaces_a_failed_one),
        cmocka_unit_test(test_curves),
        cmocka_unit_test(test_curves_of_several_nets),
        cmocka_unit_test(test_line_is_found),
        cmocka_unit_test(test_line_verdicts),
        cmocka_unit_test(test_line_passes_over_null),
        cmocka_unit_test(test_article_arithmetic),
        cmocka_unit_test(test_largest_batch_is_exact),
        cmocka_unit_test(test_card),
        cmocka_unit_test(test_memory_runs_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
