/* test_exec_replay.c - the executor on a backend that can record and tune: the reference, with recording and tuning of this file. */
#include "../nets/exec.h"
#include "tiny_net.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* One run of a kernel that was recorded. */
typedef struct Step { const OpDesc *op; void *state, *buf[OP_MAX_IN + OP_MAX_OUT], *scratch; } Step;
typedef struct Recording { Step *steps; int count; } Recording;

/* A kernel's functions have no context of their own: one backend at a time. */
static struct Recorder {
    const BackendVtable *real;
    BackendVtable        vtable;
    Kernel               kernel[OP_COUNT];
    const Kernel        *kernels[OP_COUNT];
    Recording           *capturing; /* NULL = kernels run */
    int     eager, records, replays, live, allocs, tunes, tags, last_tag;
    Status  refusal;                /* what record ends with instead, if not ok */
} recorder;

static Status recorder_run(Backend *be, const OpDesc *op, void *state, void *const *buf, void *scratch)
{
    Recording *r = recorder.capturing;
    if (!r) {
        recorder.eager++;
        return recorder.real->kernels[op->kind]->run(be, op, state, buf, scratch);
    }
    r->steps = realloc(r->steps, (size_t)(r->count + 1) * sizeof *r->steps);
    assert_non_null(r->steps);
    Step *s = &r->steps[r->count++];
    *s = (Step){ .op = op, .state = state, .scratch = scratch };
    memcpy(s->buf, buf, (size_t)(op->n_in + op->n_out) * sizeof *buf);
    return status_ok();
}

static void recorder_free(Backend *be, void *recording)
{
    (void)be;
    Recording *r = recording;
    if (!r)
        return;
    recorder.live--;
    free(r->steps);
    free(r);
}

static Status recorder_record(Backend *be, Status (*enqueue)(void *), void *context, void **recording)
{
    *recording = NULL;
    recorder.records++;
    if (recorder.refusal.code != STATUS_OK)
        return recorder.refusal;
    Recording *r = calloc(1, sizeof *r);
    assert_non_null(r);
    recorder.live++;
    recorder.capturing = r;
    Status s = enqueue(context);
    recorder.capturing = NULL;
    if (s.code == STATUS_OK)
        *recording = r;
    else
        recorder_free(be, r);
    return s;
}

static Status recorder_replay(Backend *be, void *recording)
{
    const Recording *r = recording;
    recorder.replays++;
    for (int i = 0; i < r->count; i++) {
        const Step *s = &r->steps[i];
        TRY(recorder.real->kernels[s->op->kind]->run(be, s->op, s->state, s->buf, s->scratch));
    }
    return status_ok();
}

static Status recorder_alloc(Backend *be, size_t bytes, void **address)
{
    recorder.allocs++;
    return recorder.real->alloc(be, bytes, address);
}

static void recorder_tag(Backend *be, int tag)
{
    (void)be;
    recorder.tags++;
    recorder.last_tag = tag;
}

/* Leaves its outputs full of NaN, as timing an op on values that mean nothing may. */
static Status recorder_tune(Backend *be, const OpDesc *op, void *state, void *const *buf, void *scratch)
{
    (void)be, (void)state, (void)scratch;
    recorder.tunes++;
    for (int i = 0; i < op->n_out; i++)
        memset(buf[op->n_in + i], 0xff, tensor_bytes(&op->out[i]));
    return status_ok();
}

static Backend *recording_backend(void)
{
    Backend *be = tiny_backend("ref");
    memset(&recorder, 0, sizeof recorder);
    recorder.real = be->vtable;
    recorder.vtable = *be->vtable;
    recorder.vtable.alloc = recorder_alloc;
    recorder.vtable.record = recorder_record;
    recorder.vtable.replay = recorder_replay;
    recorder.vtable.recording_free = recorder_free;
    recorder.vtable.trace_tag = recorder_tag;
    for (int i = 0; i < OP_COUNT; i++) {
        recorder.kernel[i] = *be->vtable->kernels[i];
        recorder.kernel[i].run = recorder_run;
        recorder.kernels[i] = &recorder.kernel[i];
    }
    recorder.vtable.kernels = recorder.kernels;
    be->vtable = &recorder.vtable;
    return be;
}

/* A net on the recording backend. */
static void open_net(Tiny *t, const ExecOptions *options, bool tune)
{
    plain_net_build(2, true, &t->net);
    t->be = recording_backend();
    if (tune)
        recorder.kernel[OP_conv2d].tune = recorder.kernel[OP_conv2d_wgrad].tune = recorder.kernel[OP_sgd].tune = recorder_tune;
    t->session = (Session){ .net = &t->net };
    expect_ok(exec_create(t->net.graph, t->be, options, &t->session.exec));
    expect_ok(exec_init(t->session.exec, 1));
}

static void close_net(Tiny *t)
{
    exec_destroy(t->session.exec);
    t->session.exec = NULL;
    t->be->vtable = recorder.real;
    tiny_close(t);
    assert_int_equal(recorder.live, 0);
}

/* Parameters after three updates of two micro-batches. */
static uint64_t trained(const ExecOptions *options, bool tune)
{
    Tiny t;
    open_net(&t, options, tune);
    tiny_train(&t, 3, 2, 1);
    uint64_t hash = tiny_hash(&t);
    close_net(&t);
    return hash;
}

static void a_replay_gives_the_bits_of_an_eager_run(void **state)
{
    (void)state;
    const ExecOptions eager = { .eager = true };
    const uint64_t    want = trained(&eager, false);
    assert_int_equal(recorder.records + recorder.replays, 0);
    assert_true(trained(NULL, false) == want);
    assert_int_equal(recorder.records, SEG_COUNT - 1); /* begin, micro, update */
    assert_int_equal(recorder.replays, (3 - 1) + (6 - 1) + (3 - 1));
}

static void only_the_first_run_goes_node_by_node(void **state)
{
    (void)state;
    Tiny t;
    open_net(&t, NULL, false);
    tiny_train(&t, 1, 1, 1);
    const int eager = recorder.eager, allocs = recorder.allocs;
    assert_true(eager > 10);
    assert_int_equal(recorder.records, 0);
    tiny_train(&t, 3, 2, 1);
    assert_int_equal(recorder.eager, eager);
    assert_int_equal(recorder.records, 3);
    assert_int_equal(recorder.allocs, allocs); /* nothing is allocated after exec_create */
    close_net(&t);
}

static void looking_closely_means_node_by_node(void **state)
{
    (void)state;
    const ExecOptions options[] = { { .poison = true }, { .check_nan = true } };
    for (size_t i = 0; i < COUNT_OF(options); i++) {
        trained(&options[i], false);
        assert_int_equal(recorder.records, 0);
    }
}

static void note_nothing(void *context, int node, double start, double end)
{
    (void)node;
    ++*(int *)context;
    assert_true(end >= start);
}

static void a_clock_and_checks_leave_recordings_alone(void **state)
{
    (void)state;
    Tiny t;
    int  noted = 0;
    open_net(&t, NULL, false);
    tiny_train(&t, 2, 1, 1);
    const int records = recorder.records, replays = recorder.replays;
    exec_set_clock(t.session.exec, note_nothing, &noted);
    tiny_train(&t, 1, 1, 1);
    assert_true(noted > 10);
    exec_set_clock(t.session.exec, NULL, NULL);
    expect_ok(exec_run_checked(t.session.exec, SEG_MICRO));
    assert_int_equal(recorder.replays, replays);
    tiny_train(&t, 1, 1, 1);
    assert_int_equal(recorder.replays, replays + 3);
    assert_int_equal(recorder.records, records);
    close_net(&t);
}

static void tags_are_in_the_recording(void **state)
{
    (void)state;
    Tiny t;
    open_net(&t, NULL, false);
    tiny_train(&t, 2, 1, 1);
    assert_int_equal(recorder.tags, 0);
    exec_set_tags(t.session.exec, true);
    tiny_train(&t, 1, 1, 1);
    assert_int_equal(recorder.records, 6); /* made anew, with a tag for each node */
    const int tags = recorder.tags;
    assert_true(tags > 10);
    assert_int_equal(recorder.last_tag, -1);
    tiny_train(&t, 1, 1, 1);
    assert_int_equal(recorder.tags, tags);
    exec_set_tags(t.session.exec, false);
    tiny_train(&t, 1, 1, 1);
    assert_int_equal(recorder.tags, tags);
    assert_int_equal(recorder.records, 9);
    close_net(&t);
}

static void what_cannot_be_recorded_still_runs(void **state)
{
    (void)state;
    const ExecOptions eager = { .eager = true };
    const uint64_t    want = trained(&eager, false);
    Tiny t;
    open_net(&t, NULL, false);
    recorder.refusal = status_error(STATUS_UNSUPPORTED, "no recordings today");
    tiny_train(&t, 3, 2, 1);
    assert_true(tiny_hash(&t) == want);
    assert_int_equal(recorder.records, 3); /* asked once a segment */
    assert_int_equal(recorder.replays, 0);
    close_net(&t);
}

static void other_errors_of_recording_are_errors(void **state)
{
    (void)state;
    Tiny t;
    open_net(&t, NULL, false);
    tiny_train(&t, 1, 1, 1);
    recorder.refusal = status_error(STATUS_BACKEND, "the device is lost");
    expect_error(exec_run(t.session.exec, SEG_BEGIN), STATUS_BACKEND, "the device is lost");
    recorder.refusal = status_ok();
    expect_ok(exec_run(t.session.exec, SEG_BEGIN));
    assert_int_equal(recorder.replays, 1);
    close_net(&t);
}

static void tuning_spoils_nothing(void **state)
{
    (void)state;
    const ExecOptions eager = { .eager = true };
    const uint64_t    want = trained(&eager, false);
    Tiny t;
    assert_true(trained(NULL, true) == want);
    assert_true(recorder.tunes >= 3);
    open_net(&t, NULL, true);
    for (int i = 0; i < t.net.graph->value_count; i++) { /* what has no start of its own starts at zero */
        const GraphValue *v = &t.net.graph->values[i];
        if (v->kind != MEM_OPTIM)
            continue;
        float *x = tiny_read(&t, (Value){ i });
        for (int64_t k = 0; k < tensor_count(&v->tensor); k++)
            assert_true(x[k] == 0);
        free(x);
    }
    close_net(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_replay_gives_the_bits_of_an_eager_run),
        cmocka_unit_test(only_the_first_run_goes_node_by_node),
        cmocka_unit_test(looking_closely_means_node_by_node),
        cmocka_unit_test(a_clock_and_checks_leave_recordings_alone),
        cmocka_unit_test(tags_are_in_the_recording),
        cmocka_unit_test(what_cannot_be_recorded_still_runs),
        cmocka_unit_test(other_errors_of_recording_are_errors),
        cmocka_unit_test(tuning_spoils_nothing),
    };
    return cmocka_run_group_tests_name("exec_replay", tests, NULL, NULL);
}
