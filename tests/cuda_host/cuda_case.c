/* cuda_case.c - the bodies of cuda_case.h. */
#include "cuda_case.h"

#include "../ref/ref.h"
#include "fake.h"
#include "fake_cudnn.h"
#include "idle_libs.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SEED = 20 };

static const int schedules[] = { 0, 1, 3, 4 };

static void expect_ok(Status s)
{
    if (s.code != STATUS_OK)
        fail_msg("%s", s.text);
}

Backend *cuda_case_open(void)
{
    Backend *be;
    idle_libs_use();
    fake_set_library(FAKE_CUDNN, fake_cudnn_api(), NULL);
    fake_set_schedule(0);
    expect_ok(backend_open("cuda", &(BackendOptions){ .no_tune = true }, &be));
    return be;
}

CudaLadder cuda_ladder_start(void)
{
    CudaLadder l = { .start = clock_seconds() };
    expect_ok(ref_backend.open(&(BackendOptions){ .threads = 2 }, &l.ref));
    l.be = cuda_case_open();
    return l;
}

void cuda_ladder_end(CudaLadder *l)
{
    backend_close(l->ref);
    backend_close(l->be);
    fake_set_schedule(0);
    print_message("%d cases, %d failed, %.1f s\n", l->cases, l->failures, clock_seconds() - l->start);
    assert_int_equal(l->failures, 0);
    assert_true(l->cases > 0);
}

static void note(CudaLadder *l, int schedule, Status s)
{
    l->cases++;
    if (s.code == STATUS_OK)
        return;
    l->failures++;
    print_error("schedule %d: %s\n", schedule, s.text);
}

static Status same_bits(const OpDesc *op, const OpResult *a, const OpResult *b, const char *than)
{
    char text[224];
    for (int i = 0; i < op->n_in; i++)
        if (a->in[i] && memcmp(a->in[i], b->in[i], tensor_bytes(&op->in[i])))
            return status_error(STATUS_NUMERIC, "%s: input %d has other bits than %s", op_format(op, text, sizeof text), i, than);
    for (int i = 0; i < op->n_out; i++)
        if (a->out[i] && memcmp(a->out[i], b->out[i], tensor_bytes(&op->out[i])))
            return status_error(STATUS_NUMERIC, "%s: output %d has other bits than %s", op_format(op, text, sizeof text), i, than);
    return status_ok();
}

/* ---- against the reference, and every schedule against the first */

static void climb_case(CudaLadder *l, const OpCase *c, const OpNeeds *layouts, CompareMode mode)
{
    OpResult want, first = { 0 };
    expect_ok(op_case_run(c, l->ref, NULL, &want));
    for (size_t i = 0; i < COUNT_OF(schedules); i++) {
        OpResult got;
        fake_set_schedule(schedules[i]);
        Status s = op_case_run(c, l->be, layouts, &got);
        const bool ran = s.code == STATUS_OK;
        if (ran && i == 0)
            s = op_case_compare(c, mode, &want, &got);
        else if (ran && first.out[0])
            s = same_bits(&c->op, &first, &got, "under schedule 0");
        note(l, schedules[i], s);
        if (i == 0)
            first = got;
        else
            op_result_release(&got);
    }
    op_result_release(&first);
    op_result_release(&want);
}

void cuda_climb_case(CudaLadder *l, const OpCase *c, CompareMode mode)
{
    climb_case(l, c, NULL, mode);
}

void cuda_climb_layouts(CudaLadder *l, OpDesc op, const OpNeeds *layouts, int rungs)
{
    for (int rung = CUDA_EXACT; rung <= CUDA_RANDOM; rung *= 2) {
        OpCase *c;
        if (!(rungs & rung))
            continue;
        expect_ok(op_case_create(&op, rung == CUDA_EXACT ? FILL_INTEGER : FILL_RANDOM, SEED, &c));
        c->trivial = rungs & CUDA_TRIVIAL;
        climb_case(l, c, layouts, rung == CUDA_EXACT ? COMPARE_EXACT : COMPARE_TOLERANCE);
        op_case_destroy(c);
    }
}

void cuda_climb(CudaLadder *l, OpDesc op, int rungs)
{
    cuda_climb_layouts(l, op, NULL, rungs);
}

/* ---- outputs in the memory of an input */

/* An op's memory, output `slot` in that of input `input`. */
typedef struct Shared {
    void *state, *scratch;
    void *buf[OP_MAX_IN + OP_MAX_OUT];
} Shared;

static Status shared_open(Backend *be, const OpCase *c, int slot, int input, Shared *m)
{
    const Kernel *kernel = be->vtable->kernels[c->op.kind];
    void        **out = m->buf + c->op.n_in;
    OpNeeds       needs;
    TRY(backend_query(be, &c->op, &needs));
    if (needs.scratch)
        TRY(backend_alloc(be, needs.scratch, &m->scratch));
    for (int i = 0; i < c->op.n_in; i++) {
        TRY(backend_alloc(be, backend_bytes(be, &c->op.in[i]), &m->buf[i]));
        TRY(backend_upload(be, &c->op.in[i], m->buf[i], c->in[i]));
    }
    for (int i = 0; i < c->op.n_out; i++) {
        if (i == slot) {
            out[i] = m->buf[input];
            continue;
        }
        TRY(backend_alloc(be, backend_bytes(be, &c->op.out[i]), &out[i]));
        if (c->out[i])
            TRY(backend_upload(be, &c->op.out[i], out[i], c->out[i]));
    }
    return kernel->prepare ? kernel->prepare(be, &c->op, &m->state) : status_ok();
}

static void shared_close(Backend *be, const OpCase *c, int slot, Shared *m)
{
    const Kernel *kernel = be->vtable->kernels[c->op.kind];
    if (m->state && kernel->release)
        kernel->release(m->state);
    for (int i = 0; i < c->op.n_in + c->op.n_out; i++)
        if (i != c->op.n_in + slot)
            backend_free(be, m->buf[i]);
    backend_free(be, m->scratch);
}

static Status run_shared(Backend *be, const OpCase *c, int slot, int input, const OpResult *apart)
{
    Shared   m = { 0 };
    OpResult got = { 0 };
    char     than[64];
    Status   s;
    TRY_GOTO(s, shared_open(be, c, slot, input, &m), out);
    TRY_GOTO(s, be->vtable->kernels[c->op.kind]->run(be, &c->op, m.state, m.buf, m.scratch), out);
    TRY_GOTO(s, backend_sync(be), out);
    for (int i = 0; i < c->op.n_out; i++) {
        if (!apart->out[i])
            continue;
        got.out[i] = malloc(tensor_bytes(&c->op.out[i]));
        assert_non_null(got.out[i]);
        TRY_GOTO(s, backend_download(be, &c->op.out[i], m.buf[c->op.n_in + i], got.out[i]), out);
    }
    snprintf(than, sizeof than, "where output %d does not lie on input %d", slot, input);
    OpDesc outputs = c->op;
    outputs.n_in = 0;
    s = same_bits(&outputs, apart, &got, than);
out:
    op_result_release(&got);
    shared_close(be, c, slot, &m);
    return s;
}

void cuda_climb_in_place(CudaLadder *l, OpDesc op)
{
    OpCase  *c;
    OpResult apart;
    int      found = 0;
    expect_ok(op_case_create(&op, FILL_RANDOM, SEED, &c));
    fake_set_schedule(0);
    expect_ok(op_case_run(c, l->be, NULL, &apart));
    for (int slot = 0; slot < c->op.n_out; slot++)
        for (int turn = 0, input; (input = op_in_place_input(&c->op, slot, turn)) >= 0; turn++, found++)
            for (size_t i = 0; i < COUNT_OF(schedules); i++) {
                fake_set_schedule(schedules[i]);
                note(l, schedules[i], run_shared(l->be, c, slot, input, &apart));
            }
    assert_true(found > 0);
    op_result_release(&apart);
    op_case_destroy(c);
}

/* ---- numbers out of range */

void cuda_climb_refused(CudaLadder *l, OpDesc op, int slot, int64_t at, int bad, const char *text)
{
    OpCase  *c;
    OpResult got;
    expect_ok(op_case_create(&op, FILL_RANDOM, SEED, &c));
    c->trivial = true;
    if (op.in[slot].dtype == DTYPE_I32)
        ((int32_t *)c->in[slot])[at] = bad;
    else
        ((uint8_t *)c->in[slot])[at] = (uint8_t)bad;
    for (size_t i = 0; i < COUNT_OF(schedules); i++) {
        fake_set_schedule(schedules[i]);
        Status s = op_case_run(c, l->be, NULL, &got);
        if (s.code == STATUS_NUMERIC && strstr(s.text, text))
            s = status_ok();
        else
            s = status_error(STATUS_NUMERIC, "'%s' is not in '%s' (%s)", text, s.text, status_code_name(s.code));
        note(l, schedules[i], s);
        op_result_release(&got);
    }
    op_case_destroy(c);
    cuda_climb(l, op, CUDA_RANDOM | CUDA_TRIVIAL);
}
