/* The profile: sums per step, by op and by node; the trace as a viewer reads it; nothing lost without being counted. */
#include "bench/profile.h"

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

/* ---- a graph of three nodes, made by hand: only their op and scope count here ---- */

enum { CONV, ADD, CONV2, NODE_COUNT };

static void set_node(GraphNode *node, OpKind kind, const char *scope, int64_t c)
{
    memset(node, 0, sizeof *node);
    strcpy(node->scope, scope);
    node->segment = SEG_MICRO;
    OpDesc *op = &node->op;
    op->kind = kind;
    op->n_in = 2;
    op->in[0] = tensor_act(DTYPE_F32, 2, 8, 8, c);
    op->in[1] = kind == OP_add ? op->in[0] : tensor_4d(DTYPE_F32, 16, 3, 3, c);
    op->attr = (OpAttr){ .kernel = 3, .stride = 1, .pad = 1 };
    Status s = op_infer(op);
    assert_string_equal(s.text, "");
}

static Graph make_graph(GraphNode nodes[NODE_COUNT])
{
    set_node(&nodes[CONV], OP_conv2d, "stage1.conv", 16);
    set_node(&nodes[ADD], OP_add, "stage1.add", 16);
    set_node(&nodes[CONV2], OP_conv2d, "stage2.conv", 32);
    return (Graph){ .nodes = nodes, .node_count = NODE_COUNT };
}

static Profile *make_profile(const Graph *g, bool trace)
{
    Profile *p = NULL;
    assert_int_equal(profile_create(g, trace, &p).code, STATUS_OK);
    return p;
}

/* One step of 10 s from `at`: wait 1, copy 0.5, conv 4, add 0.25, conv2 twice 1, rest 2.25. */
static void note_step(Profile *p, double at)
{
    profile_note_span(p, PROFILE_WAIT, at, at + 1);
    profile_note_span(p, PROFILE_COPY, at + 1, at + 1.5);
    profile_note_node(p, CONV, at + 2, at + 6);
    profile_note_node(p, ADD, at + 6, at + 6.25);
    profile_note_node(p, CONV2, at + 7, at + 8);
    profile_note_node(p, CONV2, at + 8, at + 9);
    profile_note_step(p, at, at + 10);
}

static json_t *json_of(const Profile *p)
{
    json_t *out = NULL;
    Status  s = profile_json(p, &out);
    assert_string_equal(s.text, "");
    return out;
}

static double real_at(json_t *object, const char *name)
{
    json_t *v = json_object_get(object, name);
    if (!json_is_number(v))
        fail_msg("%s is no number", name);
    return json_number_value(v);
}

static void assert_near(double got, double want)
{
    if (!(fabs(got - want) <= 1e-12 * fabs(want)))
        fail_msg("got %.17g, expected %.17g", got, want);
}

/* ---- sums ---- */

static void times_are_per_step_and_add_up(void **state)
{
    (void)state;
    GraphNode nodes[NODE_COUNT];
    Graph     g = make_graph(nodes);
    Profile  *p = make_profile(&g, false);
    for (int i = 0; i < 3; i++)
        note_step(p, 100 + 20.0 * i);
    json_t *out = json_of(p);
    assert_int_equal(json_integer_value(json_object_get(out, "steps")), 3);
    assert_near(real_at(out, "compute_seconds"), 6.25);
    assert_near(real_at(out, "copy_seconds"), 0.5);
    assert_near(real_at(out, "wait_seconds"), 1);
    assert_near(real_at(out, "other_seconds"), 2.25);
    assert_int_equal(json_integer_value(json_object_get(out, "dropped_events")), 0);
    json_decref(out);
    profile_destroy(p);
}

static void ops_of_one_kind_are_one_row_slowest_first(void **state)
{
    (void)state;
    GraphNode nodes[NODE_COUNT];
    Graph     g = make_graph(nodes);
    Profile  *p = make_profile(&g, false);
    note_step(p, 0);
    note_step(p, 50);
    json_t *out = json_of(p), *ops = json_object_get(out, "ops");
    assert_int_equal(json_array_size(ops), 2);
    json_t *conv = json_array_get(ops, 0), *add = json_array_get(ops, 1);
    assert_string_equal(json_string_value(json_object_get(conv, "op")), "conv2d");
    assert_string_equal(json_string_value(json_object_get(add, "op")), "add");
    assert_int_equal(json_integer_value(json_object_get(conv, "calls")), 3);
    assert_near(real_at(conv, "seconds"), 6);
    /* 2 x 8 x 8 outputs of 16 channels, 3 x 3 windows, 2 FLOPs each: 16 input channels once, 32 twice */
    assert_near(real_at(conv, "flops"), 2.0 * 2 * 8 * 8 * 16 * 9 * (16 + 2 * 32));
    assert_near(real_at(add, "flops"), 2.0 * 8 * 8 * 16);
    assert_near(real_at(add, "bytes"), 3 * 4 * 2.0 * 8 * 8 * 16);
    json_decref(out);
    profile_destroy(p);
}

static void slowest_nodes_say_what_and_where(void **state)
{
    (void)state;
    GraphNode nodes[NODE_COUNT];
    Graph     g = make_graph(nodes);
    Profile  *p = make_profile(&g, false);
    note_step(p, 0);
    json_t *out = json_of(p), *list = json_object_get(out, "nodes");
    assert_int_equal(json_array_size(list), 3);
    json_t *first = json_array_get(list, 0), *second = json_array_get(list, 1);
    assert_string_equal(json_string_value(json_object_get(first, "scope")), "stage1.conv");
    assert_string_equal(json_string_value(json_object_get(second, "scope")), "stage2.conv");
    assert_non_null(strstr(json_string_value(json_object_get(first, "op")), "conv2d f32[2,8,8,16]"));
    assert_near(real_at(first, "seconds"), 4);
    assert_near(real_at(first, "gflop_per_s"), 1e-9 * 2.0 * 2 * 8 * 8 * 16 * 9 * 16 / 4);
    json_decref(out);
    profile_destroy(p);
}

static void only_twenty_nodes_are_listed(void **state)
{
    (void)state;
    enum { MANY = 50 };
    static GraphNode nodes[MANY];
    for (int i = 0; i < MANY; i++)
        set_node(&nodes[i], OP_add, "s", 16);
    Graph    g = { .nodes = nodes, .node_count = MANY };
    Profile *p = make_profile(&g, false);
    for (int i = 0; i < MANY; i++)
        profile_note_node(p, i, 0, i);
    profile_note_step(p, 0, 2000);
    json_t *out = json_of(p), *list = json_object_get(out, "nodes");
    assert_int_equal(json_array_size(list), 20);
    assert_near(real_at(json_array_get(list, 0), "seconds"), 49);
    assert_near(real_at(json_array_get(list, 19), "seconds"), 30);
    json_decref(out);
    profile_destroy(p);
}

static void without_a_step_times_are_null(void **state)
{
    (void)state;
    GraphNode nodes[NODE_COUNT];
    Graph     g = make_graph(nodes);
    Profile  *p = make_profile(&g, true);
    json_t   *out = json_of(p);
    assert_int_equal(json_integer_value(json_object_get(out, "steps")), 0);
    assert_true(json_is_null(json_object_get(out, "compute_seconds")));
    assert_true(json_is_null(json_object_get(out, "other_seconds")));
    assert_int_equal(json_array_size(json_object_get(out, "ops")), 0);
    json_decref(out);
    profile_destroy(p);
}

static void impossible_times_are_counted_not_summed(void **state)
{
    (void)state;
    GraphNode nodes[NODE_COUNT];
    Graph     g = make_graph(nodes);
    Profile  *p = make_profile(&g, true);
    note_step(p, 0);
    profile_note_node(p, CONV, 5, 4);
    profile_note_node(p, CONV, (double)NAN, 4);
    profile_note_span(p, PROFILE_COPY, 0, (double)INFINITY);
    profile_note_step(p, 9, 1);
    json_t *out = json_of(p);
    assert_int_equal(json_integer_value(json_object_get(out, "dropped_events")), 4);
    assert_near(real_at(out, "compute_seconds"), 6.25);
    assert_near(real_at(out, "copy_seconds"), 0.5);
    json_decref(out);
    profile_destroy(p);
}

/* ---- trace ---- */

static json_t *read_trace(const char *path)
{
    json_error_t at;
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &at);
    if (!root)
        fail_msg("%s:%d:%d: %s", path, at.line, at.column, at.text);
    return root;
}

static void a_trace_holds_every_event_in_microseconds(void **state)
{
    const char *path = scratch_path(*state, "trace.json");
    GraphNode   nodes[NODE_COUNT];
    Graph       g = make_graph(nodes);
    strcpy(nodes[ADD].scope, "odd \"\\\n name");
    Profile *p = make_profile(&g, true);
    note_step(p, 1000);
    assert_int_equal(profile_write_trace(p, path).code, STATUS_OK);
    assert_int_equal(scratch_entries(*state), 1);
    json_t *root = read_trace(path), *events = json_object_get(root, "traceEvents"), *event;
    size_t  i, spans = 0;
    json_array_foreach(events, i, event)
    {
        const char *ph = json_string_value(json_object_get(event, "ph"));
        assert_non_null(ph);
        assert_true(json_is_integer(json_object_get(event, "pid")) && json_is_integer(json_object_get(event, "tid")));
        assert_true(json_is_string(json_object_get(event, "name")));
        if (strcmp(ph, "X") != 0)
            continue;
        spans++;
        assert_true(real_at(event, "ts") >= 0 && real_at(event, "ts") + real_at(event, "dur") <= 10e6 + 1e-3);
        assert_true(json_is_string(json_object_get(event, "cat")) && json_is_object(json_object_get(event, "args")));
    }
    assert_int_equal(spans, 7);
    json_t *add = json_array_get(events, 4 + 3), *args = json_object_get(add, "args");
    assert_string_equal(json_string_value(json_object_get(add, "name")), "add");
    assert_near(real_at(add, "ts"), 6e6);
    assert_near(real_at(add, "dur"), 0.25e6);
    assert_string_equal(json_string_value(json_object_get(args, "scope")), "odd \"\\\n name");
    assert_non_null(strstr(json_string_value(json_object_get(args, "op")), "add f32[2,8,8,16]"));
    json_decref(root);
    profile_destroy(p);
}

static void too_many_events_are_dropped_and_counted(void **state)
{
    enum { LIMIT = 1 << 20, MORE = 1000 };
    GraphNode nodes[NODE_COUNT];
    Graph     g = make_graph(nodes);
    Profile  *p = make_profile(&g, true), *few = make_profile(&g, true);
    (void)state;
    for (int i = 0; i < LIMIT + MORE; i++)
        profile_note_node(p, CONV, i, i + 0.5);
    profile_note_step(p, 0, LIMIT + MORE);
    json_t *out = json_of(p);
    assert_int_equal(json_integer_value(json_object_get(out, "dropped_events")), MORE + 1);
    assert_int_equal(json_integer_value(json_object_get(json_array_get(json_object_get(out, "ops"), 0), "calls")), LIMIT + MORE);
    json_decref(out);
    profile_destroy(p);
    /* no memory for the first events at all: the sums stay right */
    fault_alloc_arm(1);
    profile_note_node(few, CONV, 0, 2);
    fault_alloc_disarm();
    profile_note_step(few, 0, 3);
    out = json_of(few);
    assert_int_equal(json_integer_value(json_object_get(out, "dropped_events")), 1);
    assert_near(real_at(out, "compute_seconds"), 2);
    json_decref(out);
    profile_destroy(few);
}

static void dropped_events_are_told_in_the_trace(void **state)
{
    const char *path = scratch_path(*state, "trace.json");
    GraphNode   nodes[NODE_COUNT];
    Graph       g = make_graph(nodes);
    Profile    *p = make_profile(&g, true);
    profile_note_node(p, CONV, 5, 4);
    assert_int_equal(profile_write_trace(p, path).code, STATUS_OK);
    json_t *root = read_trace(path);
    assert_string_equal(json_string_value(json_object_get(json_object_get(root, "otherData"), "dropped_events")), "1");
    json_decref(root);
    profile_destroy(p);
}

static void a_trace_that_cannot_be_written_says_so(void **state)
{
    GraphNode nodes[NODE_COUNT];
    Graph     g = make_graph(nodes);
    Profile  *p = make_profile(&g, true);
    Status    s = profile_write_trace(p, scratch_path(*state, "no/such/trace.json"));
    assert_int_equal(s.code, STATUS_IO);
    assert_non_null(strstr(s.text, "no/such/trace.json"));
    assert_non_null(strstr(s.text, "No such file"));
    profile_destroy(p);
}

/* ---- out of memory ---- */

static Status make_and_print(void *context)
{
    Profile *p = NULL;
    json_t  *out = NULL;
    Status   s = profile_create(context, false, &p);
    if (s.code == STATUS_OK) {
        note_step(p, 0);
        s = profile_json(p, &out);
    }
    json_decref(out);
    profile_destroy(p);
    return s;
}

/* Events that cannot be kept are dropped, not an error: they are noted before the sweep. */
typedef struct TraceAttempt { const Profile *profile; const char *path; } TraceAttempt;

static Status write_a_trace(void *context)
{
    const TraceAttempt *a = context;
    return profile_write_trace(a->profile, a->path);
}

static void memory_may_run_out_anywhere(void **state)
{
    GraphNode nodes[NODE_COUNT];
    Graph     g = make_graph(nodes);
    assert_true(fault_alloc_sweep(make_and_print, &g) > 50);
    Profile *p = make_profile(&g, true);
    note_step(p, 0);
    TraceAttempt trace = { p, scratch_path(*state, "trace.json") };
    assert_true(fault_alloc_sweep(write_a_trace, &trace) > 100);
    json_decref(read_trace(trace.path));
    assert_int_equal(scratch_entries(*state), 1);
    profile_destroy(p);
    profile_destroy(NULL);
}

#define IN_SCRATCH(test) cmocka_unit_test_setup_teardown(test, scratch_setup, scratch_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(times_are_per_step_and_add_up),
        cmocka_unit_test(ops_of_one_kind_are_one_row_slowest_first),
        cmocka_unit_test(slowest_nodes_say_what_and_where),
        cmocka_unit_test(only_twenty_nodes_are_listed),
        cmocka_unit_test(without_a_step_times_are_null),
        cmocka_unit_test(impossible_times_are_counted_not_summed),
        IN_SCRATCH(a_trace_holds_every_event_in_microseconds),
        cmocka_unit_test(too_many_events_are_dropped_and_counted),
        IN_SCRATCH(dropped_events_are_told_in_the_trace),
        IN_SCRATCH(a_trace_that_cannot_be_written_says_so),
        IN_SCRATCH(memory_may_run_out_anywhere),
    };
    return cmocka_run_group_tests(tests, use_counted_allocator, NULL);
}
