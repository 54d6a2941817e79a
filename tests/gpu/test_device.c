/* test_device.c - what only a real device shows: records of CUPTI for every launch, tags under replay, memory by each of its names,
 * nothing allocated while training, a failed allocation that harms nothing after it, replay with the bits of plain runs, and fp32 that is
 * fp32. On the device of ../test_device.h; shapes and numbers of single ops are test_op_list.c's. */
#include "../test_device.h"
#include "../tiny_net.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MIB 0x1p20

static Backend *open_device(bool tf32)
{
    Backend *be;
    expect_ok(backend_open(test_device(), &(BackendOptions){ .no_tune = true, .tf32 = tf32 }, &be));
    return be;
}

/* ---- one op on buffers of its own */

typedef struct OneOp { Backend *be; OpDesc op; void *state, *scratch, *buf[OP_MAX_IN + OP_MAX_OUT]; } OneOp;

static const Kernel *kernel_of(const OneOp *o) { return o->be->vtable->kernels[o->op.kind]; }

static void one_op_create(Backend *be, OpDesc op, OneOp *o)
{
    OpNeeds needs;
    memset(o, 0, sizeof *o);
    expect_ok(op_infer(&op));
    expect_ok(backend_query(be, &op, &needs));
    o->be = be;
    o->op = op;
    for (int i = 0; i < op.n_in + op.n_out; i++)
        expect_ok(backend_alloc(be, backend_bytes(be, i < op.n_in ? &op.in[i] : &op.out[i - op.n_in]), &o->buf[i]));
    if (needs.scratch)
        expect_ok(backend_alloc(be, needs.scratch, &o->scratch));
    if (kernel_of(o)->prepare)
        expect_ok(kernel_of(o)->prepare(be, &o->op, &o->state));
}

static Status one_op_run(const OneOp *o)
{
    return kernel_of(o)->run(o->be, &o->op, o->state, o->buf, o->scratch);
}

static void one_op_destroy(OneOp *o)
{
    expect_ok(backend_sync(o->be));
    if (kernel_of(o)->release && o->state)
        kernel_of(o)->release(o->state);
    for (int i = 0; i < o->op.n_in + o->op.n_out; i++)
        backend_free(o->be, o->buf[i]);
    backend_free(o->be, o->scratch);
}

static OpDesc add_op(int64_t n)
{
    const Tensor x = tensor_1d(DTYPE_F32, n);
    return (OpDesc){ .kind = OP_add, .n_in = 2, .in = { x, x } };
}

/* ---- profiles */

/* No profiler here is a reason to skip, and must come with words. */
static void start_trace(Backend *be)
{
    Status s = be->vtable->trace_start(be);
    if (s.code == STATUS_UNSUPPORTED) {
        assert_true(s.text[0] != '\0');
        print_message("no profile: %s\n", s.text);
        backend_close(be);
        skip();
    }
    expect_ok(s);
}

static size_t kernels_in(const DeviceTrace *t)
{
    size_t n = 0;
    for (size_t i = 0; i < t->count; i++)
        n += t->events[i].kind == TRACE_KERNEL;
    return n;
}

static size_t traced_runs(const OneOp *o, int runs)
{
    DeviceTrace t;
    start_trace(o->be);
    const double begin = clock_seconds();
    o->be->vtable->trace_tag(o->be, 7);
    for (int i = 0; i < runs; i++)
        expect_ok(one_op_run(o));
    expect_ok(o->be->vtable->trace_stop(o->be, &t));
    const double end = clock_seconds();
    const size_t kernels = kernels_in(&t);
    assert_int_equal(t.dropped, 0);
    for (size_t i = 0; i < t.count; i++) {
        const TraceEvent *e = &t.events[i];
        assert_int_equal(e->tag, 7);
        assert_true(e->end > e->start && e->start > begin - 1e-3 && e->end < end + 1e-3);
        assert_true(e->kind != TRACE_KERNEL || strlen(e->name) > 0);
    }
    device_trace_free(&t);
    return kernels;
}

static void a_thousand_launches_are_a_thousand_records(void **state)
{
    (void)state;
    OneOp o;
    one_op_create(open_device(false), add_op(1 << 16), &o);
    for (int i = 0; i < 100; i++)
        expect_ok(one_op_run(&o)); /* warm-up, which must not be counted */
    const size_t one = traced_runs(&o, 1);
    assert_true(one >= 1);
    assert_int_equal(traced_runs(&o, 1000), 1000 * one);
    one_op_destroy(&o);
    backend_close(o.be);
}

static void copies_have_directions(void **state)
{
    (void)state;
    enum { N = 1 << 20 };
    Backend    *be = open_device(false);
    Tensor      t = tensor_1d(DTYPE_F32, N);
    float      *host = calloc(N, sizeof *host);
    void       *device;
    DeviceTrace trace;
    size_t      in = 0, out = 0;
    assert_non_null(host);
    expect_ok(backend_alloc(be, N * sizeof *host, &device));
    start_trace(be);
    expect_ok(backend_upload(be, &t, device, host));
    expect_ok(backend_download(be, &t, device, host));
    expect_ok(be->vtable->trace_stop(be, &trace));
    for (size_t i = 0; i < trace.count; i++) {
        in += trace.events[i].kind == TRACE_COPY_IN ? trace.events[i].bytes : 0;
        out += trace.events[i].kind == TRACE_COPY_OUT ? trace.events[i].bytes : 0;
    }
    assert_true(in == N * sizeof *host && out >= N * sizeof *host); /* a sync also reads the fault */
    device_trace_free(&trace);
    free(host);
    backend_free(be, device);
    backend_close(be);
}

/* Replayed kernels belong to the nodes that enqueued them: none without a tag, and as many nodes as in a plain run. */
static void replayed_kernels_have_tags(void **state)
{
    (void)state;
    NetConfig   config = tiny_config(2);
    size_t      tagged[2] = { 0 };
    for (int eager = 0; eager < 2; eager++) {
        Tiny        t;
        DeviceTrace trace;
        bool       *seen;
        tiny_open(&config, test_device(), &(ExecOptions){ .eager = eager }, &t);
        tiny_train(&t, 2, 1, 5);
        Status s = t.be->vtable->trace_start(t.be);
        if (s.code == STATUS_UNSUPPORTED) {
            print_message("no profile: %s\n", s.text);
            tiny_close(&t);
            skip();
        }
        expect_ok(s);
        exec_set_tags(t.session.exec, true);
        tiny_train(&t, 2, 1, 5);
        expect_ok(t.be->vtable->trace_stop(t.be, &trace));
        exec_set_tags(t.session.exec, false);
        seen = calloc((size_t)t.net.graph->node_count, sizeof *seen);
        assert_non_null(seen);
        for (size_t i = 0; i < trace.count; i++) {
            const TraceEvent *e = &trace.events[i];
            if (e->kind == TRACE_KERNEL && (e->tag < 0 || e->tag >= t.net.graph->node_count))
                fail_msg("%s belongs to node %d", e->name, e->tag);
            if (e->tag >= 0 && !seen[e->tag]) {
                seen[e->tag] = true;
                tagged[eager]++;
            }
        }
        free(seen);
        device_trace_free(&trace);
        tiny_close(&t);
    }
    assert_true(tagged[0] > 100);
    assert_int_equal(tagged[0], tagged[1]);
}

/* ---- memory */

static BackendMemory memory_of(Backend *be)
{
    BackendMemory m;
    expect_ok(be->vtable->memory(be, &m));
    return m;
}

/* A gibibyte, or an eighth of a device that has little. */
static void a_block_moves_each_number_by_its_size(void **state)
{
    (void)state;
    Backend      *be = open_device(false);
    void         *block;
    BackendMemory before = memory_of(be);
    const size_t  bytes = before.device_total / 8 < 1u << 30 ? before.device_total / 8 : 1u << 30;
    expect_ok(backend_alloc(be, bytes, &block));
    BackendMemory with = memory_of(be);
    backend_free(be, block);
    BackendMemory after = memory_of(be);
    assert_int_equal(with.allocated - before.allocated, bytes);
    assert_int_equal(after.allocated, before.allocated);
    assert_true(fabs((double)with.device_used - (double)before.device_used - (double)bytes) < 64 * MIB);
    assert_true(with.allocated <= with.device_used && with.device_used <= with.device_total);
    if (with.process_used && before.process_used)
        assert_true(fabs((double)with.process_used - (double)before.process_used - (double)bytes) < 64 * MIB);
    else
        print_message("the driver does not tell this process's memory\n");
    backend_close(be);
}

static void training_allocates_nothing(void **state)
{
    (void)state;
    NetConfig config = tiny_config(4);
    Tiny      t;
    tiny_open(&config, test_device(), NULL, &t);
    const size_t allocated = memory_of(t.be).allocated;
    assert_true(allocated >= exec_memory(t.session.exec)->total);
    tiny_train(&t, 3, 2, 5); /* libraries load their kernels, segments are recorded */
    BackendMemory before = memory_of(t.be);
    tiny_train(&t, 10, 2, 5);
    BackendMemory after = memory_of(t.be);
    assert_int_equal(after.allocated, allocated);
    assert_int_equal(after.device_used, before.device_used);
    tiny_close(&t);
}

/* tests/CASES.md D5: the runtime's last error must not be taken for that of the next launch. */
static void a_failed_allocation_harms_nothing(void **state)
{
    (void)state;
    Backend *be = open_device(false);
    void    *block = NULL;
    OneOp    o;
    Status   s = backend_alloc(be, 2 * memory_of(be).device_total, &block);
    assert_int_equal(s.code, STATUS_OOM);
    assert_null(block);
    assert_non_null(strstr(s.text, "MiB"));
    one_op_create(be, add_op(1000), &o);
    expect_ok(one_op_run(&o));
    expect_ok(backend_sync(be));
    one_op_destroy(&o);
    backend_close(be);
}

/* ---- numbers */

static uint64_t trained(Amp amp, bool eager)
{
    NetConfig config = tiny_config(4);
    Tiny      t;
    config.amp = amp;
    tiny_open(&config, test_device(), &(ExecOptions){ .eager = eager }, &t);
    StepResult r = tiny_train(&t, 3, 2, 5); /* plain, recorded, replayed */
    assert_true(isfinite(r.loss));
    const uint64_t hash = tiny_hash(&t);
    tiny_close(&t);
    return hash;
}

static void replay_gives_the_bits_of_plain_runs(void **state)
{
    (void)state;
    const Amp amps[] = { AMP_OFF, AMP_FP16, AMP_BF16 };
    for (size_t i = 0; i < COUNT_OF(amps); i++)
        if (trained(amps[i], false) != trained(amps[i], true))
            fail_msg("%s: other bits under replay", amp_names[amps[i]]);
}

static void runs_repeat_bit_by_bit(void **state)
{
    (void)state;
    assert_true(trained(AMP_BF16, false) == trained(AMP_BF16, false));
}

/* Every product is (1 + 2^-12) / 64: 64 of them are 1 + 2^-12 in f32, and 1 where inputs are rounded to TF32's ten bits. */
static double largest_of_ones(OpDesc op, bool tf32, float *host, int64_t most)
{
    Backend *be = open_device(tf32);
    OneOp    o;
    one_op_create(be, op, &o);
    for (int i = 0; i < 2; i++) {
        for (int64_t k = 0; k < most; k++)
            host[k] = i == 0 ? 1 + 0x1p-12f : 0x1p-6f;
        assert_true(tensor_count(&o.op.in[i]) <= most);
        expect_ok(backend_upload(be, &o.op.in[i], o.buf[i], host));
    }
    expect_ok(one_op_run(&o));
    expect_ok(backend_download(be, &o.op.out[0], o.buf[2], host));
    double worst = 0;
    for (int64_t k = 0; k < tensor_count(&o.op.out[0]); k++)
        worst = fmax(worst, fabs((double)host[k] - (1 + 0x1p-12)));
    one_op_destroy(&o);
    backend_close(be);
    return worst;
}

static void f32_is_f32(void **state)
{
    (void)state;
    enum { MOST = 2 * 16 * 16 * 64 };
    static float host[MOST];
    const OpDesc ops[] = {
        { .kind = OP_linear, .n_in = 2, .in = { tensor_2d(DTYPE_F32, 256, 64), tensor_2d(DTYPE_F32, 64, 64) } },
        { .kind = OP_conv2d, .n_in = 2, .in = { tensor_act(DTYPE_F32, 2, 16, 16, 64), tensor_4d(DTYPE_F32, 64, 1, 1, 64) },
          .attr = { .kernel = 1, .stride = 1 } },
    };
    for (size_t i = 0; i < COUNT_OF(ops); i++) {
        const double plain = largest_of_ones(ops[i], false, host, MOST), tf32 = largest_of_ones(ops[i], true, host, MOST);
        print_message("%s: f32 is off by %.1e, tf32 by %.1e\n", op_names[ops[i].kind], plain, tf32);
        assert_true(plain == 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_thousand_launches_are_a_thousand_records),
        cmocka_unit_test(copies_have_directions),
        cmocka_unit_test(replayed_kernels_have_tags),
        cmocka_unit_test(a_block_moves_each_number_by_its_size),
        cmocka_unit_test(training_allocates_nothing),
        cmocka_unit_test(a_failed_allocation_harms_nothing),
        cmocka_unit_test(f32_is_f32),
        cmocka_unit_test(replay_gives_the_bits_of_plain_runs),
        cmocka_unit_test(runs_repeat_bit_by_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
