/* The profile of a device: hand-made traces whose sums are known, the table of kernels, steps and what lies outside them. */
#include "bench/device_profile.h"

#include "fault_alloc.h"
#include "scratch.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void *counted_malloc(size_t bytes) { return malloc(bytes); }
static void  counted_free(void *block) { free(block); }

static int use_counted_allocator(void **state)
{
    (void)state;
    json_set_alloc_funcs(counted_malloc, counted_free);
    return 0;
}

enum { CONV, UPDATE, NODE_COUNT };

static Graph make_graph(GraphNode nodes[NODE_COUNT])
{
    memset(nodes, 0, NODE_COUNT * sizeof *nodes);
    for (int i = 0; i < NODE_COUNT; i++) {
        OpDesc *op = &nodes[i].op;
        op->kind = i == CONV ? OP_conv2d : OP_add;
        op->n_in = 2;
        op->in[0] = tensor_act(DTYPE_F32, 2, 8, 8, 16);
        op->in[1] = i == CONV ? tensor_4d(DTYPE_F32, 16, 3, 3, 16) : op->in[0];
        op->attr = (OpAttr){ .kernel = 3, .stride = 1, .pad = 1 };
        assert_int_equal(op_infer(op).code, STATUS_OK);
        nodes[i].segment = i == CONV ? SEG_MICRO : SEG_UPDATE;
    }
    strcpy(nodes[CONV].scope, "conv1");
    strcpy(nodes[UPDATE].scope, "update");
    return (Graph){ .nodes = nodes, .node_count = NODE_COUNT };
}

#define KERNEL(tag, stream, start, end, tensor, name) { TRACE_KERNEL, tag, stream, start, end, 0, tensor, name }
#define MOVE(kind, stream, start, end, bytes) { kind, -1, stream, start, end, bytes, false, "move" }

/* One step from 10 to 20 of two micro-batches: kernels 11-13, 14-16 and 15-17 at once, 18-18.5; copy in 10.5-11.5 half under a
 * kernel; a set 17.5-18; before it a warm-up. */
static TraceEvent one_step[] = {
    KERNEL(CONV, 7, 5, 9, true, "gemm"),
    MOVE(TRACE_COPY_IN, 8, 10.5, 11.5, 1000),
    KERNEL(CONV, 7, 11, 13, true, "gemm"),
    KERNEL(CONV, 7, 14, 16, true, "gemm"),
    KERNEL(CONV, 9, 15, 17, false, "bias"),
    MOVE(TRACE_SET, 7, 17.5, 18, 64),
    KERNEL(UPDATE, 7, 18, 18.5, false, "sgd"),
};
static const StepWindow one_window = { 10, 20 };

typedef struct Fixture { GraphNode nodes[NODE_COUNT]; Graph graph; DeviceTrace trace; DeviceProfile profile; } Fixture;

static void set_up(Fixture *f, TraceEvent *events, size_t count, const StepWindow *steps, int step_count)
{
    f->graph = make_graph(f->nodes);
    f->trace = (DeviceTrace){ .events = events, .count = count, .dropped = 3 };
    f->profile = (DeviceProfile){ &f->graph, &f->trace, steps, step_count, 2, 8 };
}

static void assert_near(double got, double want)
{
    if (!(fabs(got - want) <= 1e-12 * fmax(1, fabs(want))))
        fail_msg("got %.17g, expected %.17g", got, want);
}

static double number(const json_t *object, const char *name)
{
    const json_t *v = json_object_get(object, name);
    if (!json_is_number(v))
        fail_msg("%s is no number", name);
    return json_number_value(v);
}

/* ---- sums ---- */

static void overlapping_intervals_count_once(void **state)
{
    (void)state;
    Fixture f;
    set_up(&f, one_step, COUNT_OF(one_step), &one_window, 1);
    DeviceTotals d = device_profile_totals(&f.profile);
    assert_near(d.window, 10);
    assert_near(d.kind[TRACE_KERNEL], 2 + 2 + 2 + 0.5);
    assert_near(d.busy, 2 + 3 + 0.5);
    assert_near(d.moving, 1 + 0.5);
    assert_near(d.overlap, 0.5);
    assert_near(d.active, 5.5 + 1.5 - 0.5);
    assert_near(d.idle, 10 - 6.5);
    assert_near(d.tensor, 4);
    assert_near(d.bytes[TRACE_COPY_IN], 1000);
    assert_near(d.untagged, 1.5);
    assert_int_equal(d.launches, 4);
}

static void what_lies_outside_the_steps_does_not_count(void **state)
{
    (void)state;
    TraceEvent events[] = { KERNEL(0, 7, 9, 10.5, true, "early"), KERNEL(0, 7, 19, 21, true, "late"), KERNEL(0, 7, 20, 22, true, "after") };
    Fixture f;
    set_up(&f, events, COUNT_OF(events), &one_window, 1);
    DeviceTotals d = device_profile_totals(&f.profile);
    assert_near(d.kind[TRACE_KERNEL], 2); /* "late" began inside */
    assert_near(d.busy, 0.5 + 1);         /* and of each only what is inside keeps the step busy */
    assert_int_equal(d.launches, 1);
}

static void each_direction_has_its_own_sum(void **state)
{
    (void)state;
    TraceEvent events[] = { MOVE(TRACE_COPY_IN, 1, 10, 11, 10), MOVE(TRACE_COPY_OUT, 1, 11, 13, 20), MOVE(TRACE_COPY_WITHIN, 1, 13, 16, 30),
                            MOVE(TRACE_SET, 1, 16, 20, 40) };
    Fixture f;
    json_t *out = NULL;
    set_up(&f, events, COUNT_OF(events), &one_window, 1);
    assert_int_equal(device_profile_json(&f.profile, &out).code, STATUS_OK);
    assert_near(number(out, "copy_in_seconds"), 1);
    assert_near(number(out, "copy_out_seconds"), 2);
    assert_near(number(out, "copy_within_seconds"), 3);
    assert_near(number(out, "set_seconds"), 4);
    assert_near(number(out, "copy_out_bytes"), 20);
    assert_near(number(out, "idle_seconds"), 0);
    assert_true(json_is_null(json_object_get(out, "tensor_core_share"))); /* of no kernels: not 0 */
    json_decref(out);
}

/* ---- the record ---- */

static void parts_of_the_step_add_up(void **state)
{
    (void)state;
    Fixture f;
    json_t *out = NULL;
    set_up(&f, one_step, COUNT_OF(one_step), &one_window, 1);
    assert_int_equal(device_profile_json(&f.profile, &out).code, STATUS_OK);
    assert_string_equal(json_string_value(json_object_get(out, "source")), "cupti");
    assert_near(number(out, "compute_seconds") + number(out, "copy_seconds") + number(out, "other_seconds"), 10);
    assert_true(json_is_null(json_object_get(out, "wait_seconds")));
    assert_near(number(out, "busy_share"), 0.55);
    assert_near(number(out, "tensor_core_share"), 4 / 6.5);
    assert_near(number(out, "dropped_events"), 3);
    assert_near(number(json_object_get(out, "overhead"), "ratio"), 10.0 / 8);
    json_decref(out);
}

static void kernels_are_summed_by_name_and_ops_by_tag(void **state)
{
    (void)state;
    Fixture f;
    json_t *out = NULL;
    set_up(&f, one_step, COUNT_OF(one_step), &one_window, 1);
    assert_int_equal(device_profile_json(&f.profile, &out).code, STATUS_OK);
    const json_t *kernels = json_object_get(out, "kernels"), *ops = json_object_get(out, "ops");
    assert_int_equal(json_array_size(kernels), 3);
    const json_t *gemm = json_array_get(kernels, 0), *conv = json_array_get(ops, 0), *add = json_array_get(ops, 1);
    assert_string_equal(json_string_value(json_object_get(gemm, "name")), "gemm");
    assert_true(json_is_true(json_object_get(gemm, "tensor_cores")));
    assert_near(number(gemm, "calls"), 2);
    assert_near(number(gemm, "seconds"), 4);
    assert_near(number(gemm, "share"), 4 / 6.5);
    assert_string_equal(json_string_value(json_object_get(conv, "op")), "conv2d");
    assert_near(number(conv, "seconds"), 6);
    assert_near(number(conv, "calls"), 2); /* micro-batches */
    assert_near(number(conv, "flops"), 2 * op_cost(&f.nodes[CONV].op).flops);
    assert_near(number(add, "calls"), 1);
    assert_near(number(add, "seconds"), 0.5);
    json_decref(out);
}

static void numbers_are_per_step(void **state)
{
    (void)state;
    TraceEvent events[] = { KERNEL(0, 7, 11, 12, false, "a"), KERNEL(0, 7, 21, 24, false, "a"), KERNEL(-1, 7, 25, 26, false, "b") };
    const StepWindow steps[] = { { 10, 14 }, { 20, 30 } };
    Fixture f;
    json_t *out = NULL;
    set_up(&f, events, COUNT_OF(events), steps, 2);
    assert_int_equal(device_profile_json(&f.profile, &out).code, STATUS_OK);
    assert_near(number(out, "window_seconds"), 7);
    assert_near(number(out, "kernel_seconds"), 2.5);
    assert_near(number(out, "idle_seconds"), 4.5);
    assert_near(number(out, "launches"), 1.5);
    assert_near(number(out, "untagged_seconds"), 0.5);
    assert_near(number(json_array_get(json_object_get(out, "kernels"), 0), "calls"), 1);
    assert_near(number(json_array_get(json_object_get(out, "ops"), 0), "seconds"), 2);
    json_decref(out);
}

static void an_empty_trace_is_idle(void **state)
{
    (void)state;
    Fixture f;
    json_t *out = NULL;
    set_up(&f, NULL, 0, &one_window, 1);
    assert_int_equal(device_profile_json(&f.profile, &out).code, STATUS_OK);
    assert_near(number(out, "idle_seconds"), 10);
    assert_near(number(out, "busy_share"), 0);
    assert_int_equal(json_array_size(json_object_get(out, "kernels")), 0);
    json_decref(out);
}

/* ---- the trace ---- */

static void every_stream_has_a_lane(void **state)
{
    const char *path = scratch_path(*state, "trace.json");
    Fixture f;
    set_up(&f, one_step, COUNT_OF(one_step), &one_window, 1);
    assert_int_equal(device_profile_write_trace(&f.profile, path).code, STATUS_OK);
    json_error_t at;
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &at), *event;
    if (!root)
        fail_msg("%s:%d: %s", path, at.line, at.text);
    size_t i, spans = 0;
    int lanes = 0;
    json_array_foreach(json_object_get(root, "traceEvents"), i, event)
    {
        const char *ph = json_string_value(json_object_get(event, "ph"));
        lanes += !strcmp(ph, "M");
        if (!strcmp(ph, "X")) {
            spans++;
            assert_true(number(event, "ts") >= 0 && number(event, "ts") + number(event, "dur") <= 10e6 + 1e-3);
        }
    }
    assert_int_equal(spans, 1 + 6); /* the step, and what is of it */
    assert_int_equal(lanes, 2 + 3); /* process, steps, streams 7, 8, 9 */
    assert_string_equal(json_string_value(json_object_get(json_object_get(root, "otherData"), "dropped_events")), "3");
    json_decref(root);
}

static Status both(void *context)
{
    Fixture f;
    json_t *out = NULL;
    set_up(&f, one_step, COUNT_OF(one_step), &one_window, 1);
    Status s = device_profile_json(&f.profile, &out);
    json_decref(out);
    return s.code == STATUS_OK ? device_profile_write_trace(&f.profile, context) : s;
}

static void memory_may_run_out_anywhere(void **state)
{
    assert_true(fault_alloc_sweep(both, (void *)(uintptr_t)scratch_path(*state, "trace.json")) > 100);
    assert_int_equal(scratch_entries(*state), 1);
}

#define IN_SCRATCH(test) cmocka_unit_test_setup_teardown(test, scratch_setup, scratch_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(overlapping_intervals_count_once),
        cmocka_unit_test(what_lies_outside_the_steps_does_not_count),
        cmocka_unit_test(each_direction_has_its_own_sum),
        cmocka_unit_test(parts_of_the_step_add_up),
        cmocka_unit_test(kernels_are_summed_by_name_and_ops_by_tag),
        cmocka_unit_test(numbers_are_per_step),
        cmocka_unit_test(an_empty_trace_is_idle),
        IN_SCRATCH(every_stream_has_a_lane),
        IN_SCRATCH(memory_may_run_out_anywhere),
    };
    return cmocka_run_group_tests(tests, use_counted_allocator, NULL);
}
