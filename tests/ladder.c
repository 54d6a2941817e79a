/* ladder.c - the bodies of ladder.h. */
#include "ladder.h"

#include "ref/ref.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

static const struct { const char *layout; int threads; } variants[LADDER_VARIANTS] = {
    { "blocked", 1 }, { "blocked", 2 }, { "nhwc", 1 }, { "nhwc", 2 },
};

static const char *variant_name(int v, char text[32])
{
    snprintf(text, 32, "%s, %d thread%s", variants[v].layout, variants[v].threads, variants[v].threads > 1 ? "s" : "");
    return text;
}

bool ladder_may_skip(Backend *be, const OpDesc *op, Status s)
{
    BackendInfo info;
    backend_describe(be, &info);
    bool bf16 = false;
    for (int i = 0; i < op->n_in; i++)
        bf16 |= op->in[i].dtype == DTYPE_BF16;
    return s.code == STATUS_UNSUPPORTED && bf16 && !info.fast_bf16;
}

Backend *ladder_open_variant(int v)
{
    Backend *be;
    Status s = backend_open("cpu", &(BackendOptions){ .threads = variants[v].threads, .layout = variants[v].layout }, &be);
    if (s.code != STATUS_OK)
        fail_msg("%s", s.text);
    return be;
}

static void run_variant(Ladder *l, int v, const OpCase *c, CompareMode mode, const OpResult *want)
{
    Backend *be = ladder_open_variant(v);
    OpResult got;
    char name[32];
    Status s = op_case_run(c, be, NULL, &got);
    if (s.code == STATUS_OK)
        s = op_case_compare(c, mode, want, &got);
    l->cases++;
    if (ladder_may_skip(be, &c->op, s)) {
        l->skips++;
        print_message("skipped: %s\n", s.text);
    } else if (s.code != STATUS_OK) {
        l->failures++;
        print_error("%s: %s\n", variant_name(v, name), s.text);
    }
    op_result_release(&got);
    backend_close(be);
}

static void run_mode(Ladder *l, const OpDesc *op, CompareMode mode, bool trivial)
{
    static const uint64_t seed = 20;
    OpCase  *c;
    OpResult want;
    Status s = op_case_create(op, mode == COMPARE_EXACT ? FILL_INTEGER : FILL_RANDOM, seed, &c);
    if (s.code != STATUS_OK)
        fail_msg("%s", s.text);
    c->trivial = trivial;
    s = op_case_run(c, l->ref, NULL, &want);
    if (s.code != STATUS_OK)
        fail_msg("%s", s.text);
    for (int v = 0; v < LADDER_VARIANTS; v++)
        run_variant(l, v, c, mode, &want);
    op_result_release(&want);
    op_case_destroy(c);
}

void climb(Ladder *l, OpDesc op, int rungs)
{
    if (rungs & EXACT)
        run_mode(l, &op, COMPARE_EXACT, rungs & TRIVIAL);
    if (rungs & RANDOM)
        run_mode(l, &op, COMPARE_TOLERANCE, rungs & TRIVIAL);
}

Ladder ladder_start(void)
{
    Ladder l = { .start = clock_seconds() };
    if (ref_backend.open(&(BackendOptions){ .threads = 2 }, &l.ref).code != STATUS_OK)
        fail_msg("no reference backend");
    return l;
}

void ladder_end(Ladder *l)
{
    backend_close(l->ref);
    print_message("%d cases, %d failed, %d skipped, %.1f s\n", l->cases, l->failures, l->skips, clock_seconds() - l->start);
    assert_int_equal(l->failures, 0);
    assert_true(l->cases > l->skips);
}
