/* test_claims.c - the table of claims, and every claim's analysis on cells made up for the purpose (FIXTURE: no
 * measurement): lines that hold and that do not, too few points, null members, memory that runs out. */
#include "../bench/claims/a1_memory_line.h"
#include "../bench/claims/a4_accumulation.h"
#include "../bench/claims/a5_mixed_precision.h"
#include "../bench/claims/b16_rules_of_thumb.h"
#include "../bench/claims/b2_memory_kinds.h"
#include "../bench/claims/b5_accumulation_details.h"
#include "../bench/claims/claims.h"
#include "fault_alloc.h"
#include "ref/ref.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const double MIB = 1048576.0, GIB = 1073741824.0;

static void assert_ok(Status s)
{
    if (s.code != STATUS_OK)
        fail_msg("%s: %s", status_code_name(s.code), s.text);
}

static void assert_close(double a, double b, double relative)
{
    if (!(fabs(a - b) <= relative * fabs(b)))
        fail_msg("%.17g is not %.17g", a, b);
}

/* ---- fixtures ---- */

/* FIXTURE: a cell as the schema has it. Negative numbers become null. */
static json_t *fixture_cell(const char *amp, int64_t size, int64_t batch, int64_t accum, double peak, double throughput)
{
    return json_pack("{s:s,s:s,s:n,s:{s:s,s:I,s:I,s:s,s:I,s:f,s:I,s:s},s:o,s:{s:o,s:o,s:{s:f,s:f,s:f,s:f,s:f}}}", "name", "FIXTURE",
                     "status", "ok", "reason", "axes", "net", "resnet50", "size", (json_int_t)size, "batch", (json_int_t)batch, "amp", amp,
                     "accum", (json_int_t)accum, "width", 1.0, "classes", (json_int_t)1000, "stem", "standard", "throughput",
                     throughput < 0 ? json_null() : json_real(throughput), "memory", "measured_peak", peak < 0 ? json_null() : json_real(peak),
                     "process_peak", peak < 0 ? json_null() : json_real(peak + 100 * MIB), "planned", "weights", 100 * MIB, "gradients", 100 * MIB,
                     "optimizer", 100 * MIB, "copies", 100 * MIB, "total", peak);
}

/* FIXTURE: the same for a net of text, with the axes it has. */
static json_t *fixture_text_cell(const char *amp, int64_t size, int64_t batch, double peak, double throughput)
{
    json_t *cell = fixture_cell(amp, size, batch, 1, peak, throughput), *axes = json_object_get(cell, "axes");
    json_t *own = json_pack("{s:s,s:I,s:I,s:I,s:I,s:s,s:s,s:f,s:f}", "net", "bert", "classes", (json_int_t)2, "layers", (json_int_t)2, "hidden",
                            (json_int_t)128, "vocab", (json_int_t)1000, "head", "masked", "optimizer", "adamw", "dropout", 0.1, "momentum", 0.9);
    assert_true(own && json_object_update(axes, own) == 0);
    json_object_set_new(axes, "heads", json_integer(2));
    json_decref(own);
    return cell;
}

static void add(CellPoints *p, json_t *cell)
{
    assert_ok(points_add(p, cell, 0.9));
    json_decref(cell);
}

typedef double Shape(int64_t batch);
static double straight(int64_t b) { return 400 * MIB + 80 * MIB * (double)b; }
static double bent(int64_t b) { return 400 * MIB + 8 * MIB * (double)(b * b); }
static double level(int64_t b) { (void)b; return 400 * MIB; }
static double rising(int64_t b) { return 10 * (double)b; }               /* throughput still growing at 512 */
static double saturating(int64_t b) { return 100 * (double)b / (1 + (double)b); }
static double falling(int64_t b) { return 100 / (double)b; }

/* FIXTURE: the curve over these batches (0 ends). */
static Curve fixture_curve(const int64_t *batches, Shape *peak, Shape *throughput)
{
    CellPoints p = { 0 };
    Curves *curves;
    for (; *batches; batches++)
        add(&p, fixture_cell("off", 224, *batches, 1, peak(*batches), throughput(*batches)));
    assert_ok(curves_collect(&p, &curves));
    assert_int_equal(curves->count, 1);
    Curve c = curves->list[0];
    free(curves);
    points_free(&p);
    return c;
}

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

static const int64_t four[] = { 1, 2, 4, 8, 0 }, two[] = { 1, 2, 0 }, one_to_64[] = { 1, 8, 32, 64, 0 },
                     up_to_16[] = { 1, 2, 4, 8, 16, 0 }, up_to_512[] = { 1, 32, 64, 256, 512, 0 };

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
        cmocka_unit_test(test_memory_runs_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
