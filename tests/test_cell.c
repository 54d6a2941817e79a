/* test_cell.c - cells and trainings from the inside: names, limits, what does not fit, failing allocations, the learning
 * rate's way. Nets here are as small as they get; what they compute is tested elsewhere. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fault_alloc.h"

#include "../bench/cell.h"
#include "../bench/presets.h"
#include "../bench/train.h"

static CellConfig small_cell(void)
{
    CellConfig cell = { net_config_default(NULL), 1 };
    cell.net.width = 0.01;
    cell.net.size = 8;
    cell.net.stem = STEM_SMALL;
    cell.net.batch = 2;
    cell.net.classes = 10;
    return cell;
}

static MeasureOptions quick_options(void)
{
    return (MeasureOptions){ .device = "cpu", .backend = { .threads = 1 }, .seconds = 0.05, .precision = 0.5, .steps = 2, .seed = 1 };
}

static void test_names(void **state)
{
    (void)state;
    char name[CELL_NAME_BYTES];
    CellConfig cell = { net_config_default(NULL), 4 };
    cell.net.batch = 32;
    cell.net.amp = AMP_BF16;
    assert_string_equal(cell_name(&cell, name, sizeof name), "resnet50/size:224/batch:32/amp:bf16/accum:4");
    cell = small_cell();
    assert_string_equal(cell_name(&cell, name, sizeof name), "resnet50/size:8/batch:2/amp:off/accum:1/width:0.01/stem:small");
    TrainConfig train = { .net = cell.net, .feed = { .data = "shapes" }, .accum = 2, .seed = 7 };
    assert_string_equal(train_name(&train, name, sizeof name),
                        "resnet50/data:shapes/size:8/batch:2/accum:2/amp:off/seed:7/width:0.01/stem:small");
}

/* What makes a net another shows in its name, and the axes of a record give it back. */
static void test_names_of_bert(void **state)
{
    (void)state;
    char name[CELL_NAME_BYTES];
    CellConfig cell = { net_config_default("bert"), 1 }, back;
    assert_string_equal(cell_name(&cell, name, sizeof name), "bert/seq:128/batch:8/amp:off/accum:1");
    cell.net.layers = 2;
    cell.net.vocab = 1000;
    cell.net.rows = 512;
    cell.net.head = HEAD_ALL;
    assert_string_equal(cell_name(&cell, name, sizeof name),
                        "bert/seq:128/batch:8/amp:off/accum:1/layers:2/vocab:1000/tokens:512/head:all");
    for (int i = 0; i < 2; i++, cell.net.rows = 0) {
        json_t *axes = cell_axes(&cell);
        assert_true(cell_from_record(axes, &back));
        assert_true(back.net.rows == cell.net.rows && back.net.vocab == 1000 && back.net.layers == 2 && back.net.head == HEAD_ALL);
        json_decref(axes);
    }
}

static Work planned(const char *words, StatusCode code)
{
    char *argv[8] = { "batchmark", "bench" }, buffer[128];
    int argc = 2;
    Options o;
    Work work;
    snprintf(buffer, sizeof buffer, "%s", words);
    for (char *word = strtok(buffer, " "); word; word = strtok(NULL, " "))
        argv[argc++] = word;
    assert_int_equal(options_parse(argc, argv, &o).code, STATUS_OK);
    assert_int_equal(work_plan(&o, &work).code, code);
    return work;
}

static void test_presets(void **state)
{
    (void)state;
    Work all = planned("--preset smoke", STATUS_OK), one = planned("--preset smoke --net bert", STATUS_OK);
    assert_true(one.cell_count > 0 && one.cell_count < all.cell_count && all.training_count == 3 && one.training_count == 1);
    assert_true(all.claims[0] && !one.claims[0]);
    for (int i = 0; i < one.cell_count; i++)
        assert_string_equal(one.cells[i].net.net, "bert");
    work_free(&all);
    work_free(&one);
    planned("--preset smoke --width 0.5", STATUS_USAGE); /* it would not be heeded */
    planned("--net bert --hidden 64", STATUS_USAGE);
    one = planned("--preset smoke --width 0.5 --batch 2", STATUS_OK);
    assert_true(one.cell_count == 1 && one.cells[0].net.width == 0.5 && !strcmp(one.cells[0].net.net, "resnet50"));
    work_free(&one);
}

static void test_entry_of_a_cell(void **state)
{
    (void)state;
    CellConfig cell = small_cell();
    MeasureOptions options = quick_options();
    options.profile = options.primitives = true;
    json_t *entry = NULL;
    Status s = cell_measure(&cell, &options, &entry);
    assert_string_equal(s.text, "");
    assert_string_equal(json_string_value(json_object_get(entry, "status")), "ok");
    assert_int_equal(json_array_size(json_object_get(entry, "samples")), 2);
    const json_t *memory = json_object_get(entry, "memory");
    assert_int_equal(json_integer_value(json_object_get(memory, "measured_peak")),
                     json_integer_value(json_object_get(json_object_get(memory, "planned"), "total")));
    assert_true(json_real_value(json_object_get(json_object_get(entry, "profile"), "compute_seconds")) > 0);
    assert_true(json_real_value(json_object_get(json_object_get(entry, "primitives"), "sum_seconds")) > 0);
    assert_true(json_is_null(json_object_get(entry, "floor_seconds"))); /* no peaks were given: not 0 */
    json_decref(entry);
}

static void test_what_cannot_run(void **state)
{
    (void)state;
    CellConfig cell = small_cell();
    MeasureOptions options = quick_options();
    json_t *entry = NULL;
    options.mem_limit = 1 << 16;
    Status s = cell_measure(&cell, &options, &entry);
    assert_int_equal(s.code, STATUS_OOM);
    assert_non_null(strstr(s.text, "the limit is 64.00 KiB"));
    assert_null(entry);
    json_t *failed = cell_failed(&cell, &s);
    assert_string_equal(json_string_value(json_object_get(failed, "status")), "oom");
    assert_string_equal(json_string_value(json_object_get(failed, "reason")), s.text);
    assert_true(json_is_null(json_object_get(failed, "throughput")));
    json_decref(failed);
    s = status_error(STATUS_UNSUPPORTED, "no");
    failed = cell_failed(&cell, &s);
    assert_string_equal(json_string_value(json_object_get(failed, "status")), "skipped");
    json_decref(failed);
}

static void test_verification_passes_and_catches(void **state)
{
    (void)state;
    CellConfig cell = small_cell();
    MeasureOptions options = quick_options();
    json_t *result = NULL;
    Status s = verify_net(&cell.net, &options, &result);
    assert_string_equal(s.text, "");
    assert_true(json_integer_value(json_object_get(result, "outputs")) > 500);
    assert_true(json_real_value(json_object_get(result, "max_error")) > 0); /* two different computations */
    json_decref(result);
}

/* ---- failing allocations, jansson's included ---- */

static void *json_malloc_here(size_t n) { return malloc(n); }
static void json_free_here(void *p) { free(p); }

static Status measure_small(void)
{
    CellConfig cell = small_cell();
    MeasureOptions options = quick_options();
    options.profile = true;
    json_t *entry = NULL;
    Status s = cell_measure(&cell, &options, &entry);
    json_decref(entry);
    return s;
}

static Status train_small(void)
{
    TrainConfig t = { .net = small_cell().net, .accum = 3, .epochs = 2, .schedule = SCHEDULE_LINEAR, .rules = session_rules(), .seed = 1,
                      .feed = { .data = "shapes", .limit = 8, .loaders = 1, .augment = true, .seed = 1 } };
    MeasureOptions options = quick_options();
    json_t *entry = NULL;
    Status s = train_run(&t, &options, false, &entry);
    json_decref(entry);
    return s;
}

/* Lets allocations fail one at a time, about `points` of them spread over the run: out of memory or, where the library has
 * another way, success; never a crash, never a leak. */
static void sweep(Status (*attempt)(void), int points)
{
    assert_int_equal(attempt().code, STATUS_OK); /* what libraries keep for ever is allocated now */
    fault_alloc_arm(0);
    assert_int_equal(attempt().code, STATUS_OK);
    const int64_t count = fault_alloc_count(), live = fault_alloc_live();
    assert_true(count > points);
    int failed = 0;
    for (int i = 0; i < points; i++) {
        const int64_t n = 1 + (count - 1) * i / (points - 1);
        fault_alloc_arm(n);
        Status s = attempt();
        fault_alloc_disarm();
        if (s.code != STATUS_OOM && s.code != STATUS_OK)
            fail_msg("allocation %lld of %lld failing gave %s: %s", (long long)n, (long long)count, status_code_name(s.code), s.text);
        failed += s.code == STATUS_OOM;
        assert_int_equal(fault_alloc_live(), live);
    }
    assert_true(failed > points / 2);
}

static void test_measuring_without_memory(void **state)
{
    (void)state;
    sweep(measure_small, 200);
}

static void test_training_without_memory(void **state)
{
    (void)state;
    sweep(train_small, 200);
}

int main(void)
{
    json_set_alloc_funcs(json_malloc_here, json_free_here);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_names_of_bert),
        cmocka_unit_test(test_presets),
        cmocka_unit_test(test_entry_of_a_cell),
        cmocka_unit_test(test_what_cannot_run),
        cmocka_unit_test(test_verification_passes_and_catches),
        cmocka_unit_test(test_measuring_without_memory),
        cmocka_unit_test(test_training_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
