/* test_conv_cpu.c - convolutions of the CPU backend against the reference on the ladder (ladder.h), and the way of their weights
 * through the layouts that the primitives ask for. */
#include "ladder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

typedef struct ConvShape { int64_t n, h, w, c, k; int kernel, stride, pad; } ConvShape;

static const ConvShape conv_shapes[] = {
    /* ResNet-50's kinds, images made small */
    { 1, 38, 38, 3, 64, 7, 2, 3 },   /* stem */
    { 2, 9, 9, 3, 16, 3, 1, 1 },     /* small-input stem */
    { 2, 8, 8, 64, 64, 1, 1, 0 },    /* 1x1 reduce */
    { 2, 7, 7, 64, 256, 1, 1, 0 },   /* 1x1 expand */
    { 2, 8, 8, 64, 64, 3, 1, 1 },    /* 3x3 */
    { 2, 14, 14, 32, 48, 3, 2, 1 },  /* 3x3 with stride: first of a stage */
    { 2, 8, 8, 64, 128, 1, 2, 0 },   /* shortcut with stride */
    { 1, 2, 2, 128, 128, 3, 1, 1 },  /* last stage at 64 px */
    { 2, 1, 1, 256, 64, 1, 1, 0 },   /* last stage at 32 px */
    /* corners */
    { 1, 5, 7, 24, 40, 3, 1, 1 },    /* nothing a multiple of 16, not square */
    { 3, 7, 5, 5, 3, 3, 2, 1 },
    { 1, 1, 1, 16, 32, 1, 1, 0 },
    { 1, 1, 1, 3, 5, 3, 1, 1 },      /* one pixel under a 3x3 window */
    { 2, 9, 9, 1, 1, 3, 1, 1 },      /* one channel */
    { 1, 11, 6, 16, 20, 5, 3, 2 },   /* blocked in, not out; rows left over by the stride */
    { 2, 6, 6, 10, 32, 2, 2, 0 },    /* not blocked in, blocked out; even window */
    /* UNet: up-convolutions, seen from their gradient, and heads */
    { 2, 8, 8, 32, 64, 2, 2, 0 },
    { 1, 10, 6, 48, 96, 2, 2, 0 },
    { 3, 22, 14, 16, 32, 2, 2, 0 },  /* pixels of three images, no multiple of 32 */
    { 2, 9, 7, 32, 64, 2, 2, 0 },    /* a row and a column that no output sees */
    { 2, 9, 7, 64, 1, 1, 1, 0 },
    { 1, 8, 15, 32, 2, 1, 1, 0 },
    { 3, 6, 7, 48, 21, 1, 1, 0 },
    /* long rows, in and past one run of the fp32 weights' gradient */
    { 2, 5, 96, 32, 16, 3, 1, 1 },
    { 1, 3, 131, 16, 48, 3, 1, 1 },
    { 2, 1, 100, 16, 16, 3, 1, 1 },
    /* several parts of a chunk in the bf16 weights' gradient, the last one shorter; blocks without a second one */
    { 1, 13, 67, 48, 48, 3, 1, 1 },
    { 2, 21, 30, 32, 16, 3, 1, 1 },
    { 1, 40, 34, 16, 32, 3, 2, 1 },
};

static OpDesc conv_op(const ConvShape *s, Dtype t)
{
    return (OpDesc){ .kind = OP_conv2d, .n_in = 2,
        .in = { tensor_act(t, s->n, s->h, s->w, s->c), tensor_4d(t, s->k, s->kernel, s->kernel, s->c), tensor_1d(DTYPE_F32, s->k) },
        .attr = { .kernel = s->kernel, .stride = s->stride, .pad = s->pad } };
}

static Tensor conv_output(const ConvShape *s, Dtype t)
{
    OpDesc op = conv_op(s, t);
    Status status = op_infer(&op);
    if (status.code != STATUS_OK)
        fail_msg("%s", status.text);
    return op.out[0];
}

static void test_conv2d(void **state)
{
    (void)state;
    Ladder l = ladder_start();
    for (size_t i = 0; i < COUNT_OF(conv_shapes); i++)
        for (Dtype t = DTYPE_F32; t <= DTYPE_BF16; t++) {
            OpDesc op = conv_op(&conv_shapes[i], t);
            climb(&l, op, BOTH);
            op.n_in = 3;
            op.attr.relu = i % 2;
            climb(&l, op, EXACT);
            op.n_in = 2 + (i / 2) % 2;
            op.attr.relu = true;
            climb(&l, op, EXACT);
        }
    ladder_end(&l);
}

static void test_conv2d_dgrad(void **state)
{
    (void)state;
    Ladder l = ladder_start();
    for (size_t i = 0; i < COUNT_OF(conv_shapes); i++)
        for (Dtype t = DTYPE_F32; t <= DTYPE_BF16; t++) {
            const ConvShape *s = &conv_shapes[i];
            OpDesc op = conv_op(s, t);
            op.kind = OP_conv2d_dgrad;
            op.in[0] = conv_output(s, t);
            op.attr.in_h = s->h;
            op.attr.in_w = s->w;
            climb(&l, op, BOTH);
        }
    ladder_end(&l);
}

static void test_conv2d_wgrad(void **state)
{
    (void)state;
    Ladder l = ladder_start();
    for (size_t i = 0; i < COUNT_OF(conv_shapes); i++)
        for (Dtype t = DTYPE_F32; t <= DTYPE_BF16; t++) {
            OpDesc op = conv_op(&conv_shapes[i], t);
            op.kind = OP_conv2d_wgrad;
            op.in[1] = conv_output(&conv_shapes[i], t);
            op.n_out = 1;
            /* one pixel under a padded 3x3: eight of nine taps only ever see padding */
            const int trivial = conv_shapes[i].h == 1 && conv_shapes[i].kernel > 1 ? TRIVIAL : 0;
            climb(&l, op, BOTH | trivial);
            op.attr.accumulate = true;
            climb(&l, op, (i % 2 ? BOTH : EXACT) | trivial);
            op.n_out = 2;
            climb(&l, op, (i % 2 ? EXACT : BOTH) | trivial);
            op.attr.accumulate = false;
            if (i % 2)
                climb(&l, op, EXACT | trivial);
        }
    ladder_end(&l);
}

/* ---- weights in the layouts that the primitives ask for ---- */

static void climb_forced(Ladder *l, Backend *be, OpDesc op, const OpNeeds *layouts, CompareMode mode)
{
    OpCase  *c;
    OpResult want, got;
    memset(&got, 0, sizeof got);
    if (op_case_create(&op, mode == COMPARE_EXACT ? FILL_INTEGER : FILL_RANDOM, 5, &c).code != STATUS_OK
        || op_case_run(c, l->ref, NULL, &want).code != STATUS_OK)
        fail_msg("%s on the reference", op_names[op.kind]);
    c->trivial = op.kind == OP_zero;
    Status s = op_case_run(c, be, layouts, &got);
    if (s.code == STATUS_OK)
        s = op_case_compare(c, mode, &want, &got);
    l->cases++;
    if (s.code != STATUS_OK) {
        l->failures++;
        print_error("in layouts %d, %d -> %d, %d: %s\n", layouts->in_layout[0], layouts->in_layout[1], layouts->out_layout[0],
                    layouts->out_layout[1], s.text);
    }
    op_result_release(&want);
    op_result_release(&got);
    op_case_destroy(c);
}

static OpNeeds query(Backend *be, OpDesc op)
{
    OpNeeds needs = { 0 };
    Status s = op_infer(&op);
    if (s.code == STATUS_OK)
        s = backend_query(be, &op, &needs);
    if (s.code != STATUS_OK)
        fail_msg("%s", s.text);
    return needs;
}

static int or_plain(int layout) { return layout == LAYOUT_ANY ? LAYOUT_PLAIN : layout; }

/* The way of a weight in training: wgrad's layout -> sqnorm, sgd in it -> repack to what conv2d and conv2d_dgrad read. */
static void check_weight_chain(Ladder *l, Backend *be, const ConvShape *s, Dtype t)
{
    OpDesc forward = conv_op(s, t), dgrad = forward, wgrad = forward;
    dgrad.kind = OP_conv2d_dgrad;
    dgrad.in[0] = conv_output(s, t);
    dgrad.attr.in_h = s->h;
    dgrad.attr.in_w = s->w;
    wgrad.kind = OP_conv2d_wgrad;
    wgrad.in[1] = conv_output(s, t);
    const int from = or_plain(query(be, wgrad).out_layout[0]);
    const int targets[] = { or_plain(query(be, forward).in_layout[1]), or_plain(query(be, dgrad).in_layout[1]), LAYOUT_PLAIN };
    Tensor dw = tensor_4d(DTYPE_F32, s->k, s->kernel, s->kernel, s->c);

    OpNeeds layouts = { 0 };
    for (int i = 0; i < OP_MAX_IN; i++)
        layouts.in_layout[i] = LAYOUT_ANY;
    for (int i = 0; i < OP_MAX_OUT; i++)
        layouts.out_layout[i] = LAYOUT_ANY;
    layouts.in_layout[0] = from;
    climb_forced(l, be, (OpDesc){ .kind = OP_sqnorm, .n_in = 1, .in = { dw } }, &layouts, COMPARE_EXACT);
    for (size_t i = 0; i < COUNT_OF(targets); i++) {
        layouts.out_layout[0] = targets[i];
        climb_forced(l, be, (OpDesc){ .kind = OP_repack, .n_in = 1, .in = { dw }, .out = { { .dtype = t } } }, &layouts,
                     COMPARE_TOLERANCE);
    }
    layouts.out_layout[0] = layouts.out_layout[1] = from;
    climb_forced(l, be, (OpDesc){ .kind = OP_sgd, .n_in = 3, .in = { dw, tensor_1d(DTYPE_F32, 8), tensor_1d(DTYPE_F32, 8) },
                                  .attr = { .momentum = 0.9f, .weight_decay = 1e-4f } }, &layouts, COMPARE_TOLERANCE);
    layouts.in_layout[0] = LAYOUT_ANY;
    layouts.out_layout[1] = LAYOUT_ANY;
    climb_forced(l, be, (OpDesc){ .kind = OP_zero, .out = { dw } }, &layouts, COMPARE_EXACT);
}

static void test_weight_layouts(void **state)
{
    (void)state;
    Ladder l = ladder_start();
    for (int v = 0; v < LADDER_VARIANTS; v++) {
        Backend *be = ladder_open_variant(v);
        BackendInfo info;
        backend_describe(be, &info);
        for (size_t i = 0; i < COUNT_OF(conv_shapes); i++)
            for (Dtype t = DTYPE_F32; t <= (info.fast_bf16 ? DTYPE_BF16 : DTYPE_F32); t++)
                check_weight_chain(&l, be, &conv_shapes[i], t);
        backend_close(be);
    }
    ladder_end(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_conv2d),
        cmocka_unit_test(test_conv2d_dgrad),
        cmocka_unit_test(test_conv2d_wgrad),
        cmocka_unit_test(test_weight_layouts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
