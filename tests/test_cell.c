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
#include "../bench/plan.h"
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

static Work planned_for(const char *words, bool gpu, StatusCode code)
{
    char *argv[8] = { "batchmark", "bench" }, buffer[128];
    int argc = 2;
    Options o;
    Work work;
    snprintf(buffer, sizeof buffer, "%s", words);
    for (char *word = strtok(buffer, " "); word; word = strtok(NULL, " "))
        argv[argc++] = word;
    assert_int_equal(options_parse(argc, argv, &o).code, STATUS_OK);
    assert_int_equal(work_plan(&o, gpu, &work).code, code);
    return work;
}

static Work planned(const char *words, StatusCode code) { return planned_for(words, false, code); }

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

static bool has_cell(const Work *w, const char *name)
{
    char text[CELL_NAME_BYTES];
    for (int i = 0; i < w->cell_count; i++)
        if (!strcmp(cell_name(&w->cells[i], text, sizeof text), name))
            return true;
    return false;
}

/* On a GPU everything is run that it was bought for; a sweep given by hand is what was given. */
static void test_presets_of_a_gpu(void **state)
{
    (void)state;
    assert_string_equal(preset_default(false), "quick");
    assert_string_equal(preset_default(true), "full");
    Work cpu = planned_for("", false, STATUS_OK), gpu = planned_for("", true, STATUS_OK);
    assert_string_equal(cpu.preset, "quick");
    assert_string_equal(gpu.preset, "full");
    assert_false(has_cell(&cpu, "resnet50/size:224/batch:512/amp:tf32/accum:1"));
    assert_true(has_cell(&gpu, "resnet50/size:224/batch:512/amp:tf32/accum:1"));
    assert_true(has_cell(&gpu, "resnet50/size:224/batch:1/amp:fp16/accum:1"));
    assert_true(has_cell(&gpu, "bert/seq:128/batch:512/amp:bf16/accum:1"));
    assert_true(has_cell(&gpu, "unet/size:512/batch:64/amp:off/accum:1"));
    for (int i = 0; i < gpu.cell_count; i++)
        assert_int_equal(net_check(&gpu.cells[i].net).code, STATUS_OK);
    work_free(&cpu);
    work_free(&gpu);
    cpu = planned_for("--preset smoke", false, STATUS_OK), gpu = planned_for("--preset smoke", true, STATUS_OK);
    assert_int_equal(cpu.cell_count, gpu.cell_count);
    work_free(&cpu);
    work_free(&gpu);
    gpu = planned_for("--batch 2,4 --amp tf32", true, STATUS_OK);
    assert_true(gpu.cell_count == 2 && gpu.cells[0].net.amp == AMP_TF32);
    work_free(&gpu);
}

/* TF32 is fp32's graph; a CPU has none, and says so whether the time counts or not. */
static void test_tf32_on_a_cpu(void **state)
{
    (void)state;
    CellConfig cell = small_cell();
    MeasureOptions options = quick_options();
    json_t *entry = NULL;
    char name[CELL_NAME_BYTES];
    cell.net.amp = AMP_TF32;
    assert_string_equal(cell_name(&cell, name, sizeof name), "resnet50/size:8/batch:2/amp:tf32/accum:1/width:0.01/stem:small");
    assert_true(backend_options_for(&options, AMP_TF32).tf32 && !backend_options_for(&options, AMP_OFF).tf32);
    for (int timed = 0; timed < 2; timed++) {
        options.timed = timed;
        Status s = cell_measure(&cell, &options, &entry);
        assert_int_equal(s.code, STATUS_UNSUPPORTED);
        assert_string_equal(s.text, "this CPU has no TF32");
    }
    Status s = verify_net(&cell.net, &options, &entry);
    assert_string_equal(s.text, "this CPU has no TF32");
    assert_int_equal(s.code, STATUS_UNSUPPORTED);
}

/* The peak that a net's or an op's rate is held against: its own type's, else f32's. */
static void test_peaks_by_precision(void **state)
{
    (void)state;
    const Peaks all = { .f32_flops = 1, .tf32_flops = 2, .bf16_flops = 3, .f16_flops = 4, .copy_bytes = 5 }, cpu = { .f32_flops = 1, .copy_bytes = 5 };
    assert_true(peak_of_net(&all, AMP_OFF) == 1 && peak_of_net(&all, AMP_TF32) == 2 && peak_of_net(&all, AMP_BF16) == 3 && peak_of_net(&all, AMP_FP16) == 4);
    assert_true(peak_of_op(&all, AMP_BF16, DTYPE_F32) == 1 && peak_of_op(&all, AMP_TF32, DTYPE_F32) == 2);
    for (int a = 0; a < AMP_COUNT; a++)
        assert_true(peak_of_net(&cpu, (Amp)a) == 1);
    json_t *object = peaks_json(&cpu);
    assert_true(json_is_null(json_object_get(object, "tf32_flops")) && json_real_value(json_object_get(object, "copy_bytes_per_s")) == 5);
    Peaks back = peaks_from_json(object);
    assert_memory_equal(&back, &cpu, sizeof cpu);
    json_decref(object);
    object = peaks_json(&all);
    back = peaks_from_json(object);
    assert_memory_equal(&back, &all, sizeof all);
    json_decref(object);
}

/* Each number under its own name; what is not known is null. */
static void test_memory_of_a_device(void **state)
{
    (void)state;
    const MemPlan plan = { .total = 7 };
    const BackendMemory memory = { .allocated = 8, .device_used = 9, .process_used = 10 };
    json_t *m = memory_json(&plan, 1, 2, &memory);
    assert_int_equal(json_integer_value(json_object_get(m, "allocated")), 8);
    assert_int_equal(json_integer_value(json_object_get(m, "device_used")), 9);
    assert_int_equal(json_integer_value(json_object_get(m, "process_used")), 10);
    json_decref(m);
    m = memory_json(&plan, 1, 2, NULL);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(m, "planned"), "total")), 7);
    assert_true(json_is_null(json_object_get(m, "allocated")) && json_is_null(json_object_get(m, "device_used")));
    assert_true(json_is_null(json_object_get(m, "process_used")));
    json_decref(m);
}

/* ---- the largest batch ---- */

typedef struct Line { size_t fixed, each, step; int tries; int64_t most_tried; } Line;

static Status total_of(void *context, int64_t batch, size_t *bytes)
{
    Line *l = context;
    l->tries++;
    l->most_tried = batch > l->most_tried ? batch : l->most_tried;
    *bytes = l->fixed + l->each * (size_t)batch + (batch % 3 ? l->step : 0);
    return status_ok();
}

/* For every capacity the answer is the largest batch that fits, which was tried, as was the next one; a line takes few tries. */
static void test_largest_batch(void **state)
{
    (void)state;
    for (size_t limit = 0; limit < 3000; limit += 7) {
        Line    line = { 100, 13, 0, 0, 0 };
        int64_t batch;
        size_t  bytes;
        assert_int_equal(plan_largest_batch(total_of, &line, limit, 1000, &batch, &bytes).code, STATUS_OK);
        assert_int_equal(batch, limit < 113 ? 0 : (limit - 100) / 13);
        assert_int_equal(bytes, 100 + 13 * (batch ? batch : 1));
        assert_true(line.tries <= 5);
    }
    Line    uneven = { 1000, 50, 20, 0, 0 };
    int64_t batch;
    size_t  bytes;
    assert_int_equal(plan_largest_batch(total_of, &uneven, 1000 + 50 * 777 + 30, 65536, &batch, &bytes).code, STATUS_OK);
    assert_int_equal(batch, 777);
    assert_true(uneven.tries < 14);
    Line small = { 10, 1, 0, 0, 0 };
    assert_int_equal(plan_largest_batch(total_of, &small, 1 << 30, 65536, &batch, &bytes).code, STATUS_OK);
    assert_int_equal(batch, 65536);
    assert_int_equal(small.most_tried, 65536);
    Line flat = { 10, 0, 0, 0, 0 };
    assert_int_equal(plan_largest_batch(total_of, &flat, 10, 64, &batch, &bytes).code, STATUS_OK);
    assert_int_equal(batch, 64);
}

static Status total_fails(void *context, int64_t batch, size_t *bytes)
{
    (void)context, (void)bytes;
    return batch < 2 ? total_of(&(Line){ 1, 1, 0, 0, 0 }, batch, bytes) : status_error(STATUS_UNSUPPORTED, "no such op");
}

static void test_a_plan_that_fails_ends_the_search(void **state)
{
    (void)state;
    int64_t batch;
    size_t  bytes;
    Status  s = plan_largest_batch(total_fails, NULL, 1000, 64, &batch, &bytes);
    assert_int_equal(s.code, STATUS_UNSUPPORTED);
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
    assert_true(json_is_null(json_object_get(memory, "device_used"))); /* a CPU has no such number */
    assert_true(json_is_null(json_object_get(entry, "choices")));
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
        cmocka_unit_test(test_presets_of_a_gpu),
        cmocka_unit_test(test_tf32_on_a_cpu),
        cmocka_unit_test(test_peaks_by_precision),
        cmocka_unit_test(test_memory_of_a_device),
        cmocka_unit_test(test_largest_batch),
        cmocka_unit_test(test_a_plan_that_fails_ends_the_search),
        cmocka_unit_test(test_entry_of_a_cell),
        cmocka_unit_test(test_what_cannot_run),
        cmocka_unit_test(test_verification_passes_and_catches),
        cmocka_unit_test(test_measuring_without_memory),
        cmocka_unit_test(test_training_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
