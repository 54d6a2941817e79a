/* op_list.c - the list of op_list.h. */
#include "op_list.h"

#include <string.h>

#define A(...) tensor_act(t, __VA_ARGS__)
#define P(...) tensor_4d(t, __VA_ARGS__)
#define M(...) tensor_2d(t, __VA_ARGS__)
#define V(n) tensor_1d(DTYPE_F32, n)
#define IDS(n) tensor_1d(DTYPE_I32, n)
#define OP_IN(name, count, ...) .op.kind = OP_##name, .op.n_in = count, .op.in = { __VA_ARGS__ }
#define BITS(n, h, w, c) { .dtype = DTYPE_BIT, .layout = LAYOUT_ACT, .rank = 4, .dim = { n, h, w, c } }
#define BYTES(n, h, w, c) { .dtype = DTYPE_U8, .layout = LAYOUT_ACT, .rank = 4, .dim = { n, h, w, c } }
#define MASK(n, h, w) { .dtype = DTYPE_U8, .rank = 3, .dim = { n, h, w } }
#define TO(type) .op.out = { { .dtype = type } }
#define EXACT .exact = true
#define TRIVIAL .trivial = true
#define CONV(k, s, p) .op.attr = { .kernel = k, .stride = s, .pad = p }

static void take(ListedOp *list, int *count, const ListedOp *more, size_t n)
{
    CHECK((size_t)*count + n <= OP_LIST_MAX);
    memcpy(list + *count, more, n * sizeof *more);
    *count += (int)n;
}
#define TAKE(...) do { const ListedOp more_[] = { __VA_ARGS__ }; take(list, count, more_, COUNT_OF(more_)); } while (0)

/* 3x3, 1x1 with stride, the stem of three channels, odd channels, UNet's up-convolution seen from both sides, its head. */
static void take_convolutions(Dtype t, ListedOp *list, int *count)
{
    TAKE({ OP_IN(conv2d, 2, A(2, 14, 14, 64), P(64, 3, 3, 64)), CONV(3, 1, 1), EXACT },
         { OP_IN(conv2d, 3, A(2, 8, 8, 32), P(48, 3, 3, 32), V(48)), .op.attr = { .kernel = 3, .stride = 1, .pad = 1, .relu = true }, EXACT },
         { OP_IN(conv2d, 2, A(2, 14, 14, 64), P(128, 1, 1, 64)), CONV(1, 2, 0), EXACT },
         { OP_IN(conv2d, 2, A(2, 32, 32, 3), P(64, 7, 7, 3)), CONV(7, 2, 3), EXACT },
         { OP_IN(conv2d, 2, A(3, 7, 5, 5), P(3, 3, 3, 5)), CONV(3, 2, 1), EXACT },
         { OP_IN(conv2d, 3, A(2, 9, 7, 64), P(2, 1, 1, 64), V(2)), CONV(1, 1, 0), EXACT },
         { OP_IN(conv2d_dgrad, 2, A(2, 14, 14, 64), P(64, 3, 3, 64)),
           .op.attr = { .kernel = 3, .stride = 1, .pad = 1, .in_h = 14, .in_w = 14 }, EXACT },
         { OP_IN(conv2d_dgrad, 2, A(2, 4, 4, 32), P(32, 3, 3, 16)), .op.attr = { .kernel = 3, .stride = 2, .pad = 1, .in_h = 8, .in_w = 8 }, EXACT },
         { OP_IN(conv2d_dgrad, 2, A(2, 5, 5, 64), P(64, 2, 2, 32)), .op.attr = { .kernel = 2, .stride = 2, .in_h = 10, .in_w = 10 }, EXACT },
         { OP_IN(conv2d_wgrad, 2, A(2, 14, 14, 64), A(2, 14, 14, 64)), .op.n_out = 1, CONV(3, 1, 1), EXACT },
         { OP_IN(conv2d_wgrad, 2, A(2, 8, 8, 16), A(2, 8, 8, 32)), .op.n_out = 2,
           .op.attr = { .kernel = 3, .stride = 1, .pad = 1, .accumulate = true }, EXACT },
         { OP_IN(conv2d_wgrad, 2, A(2, 32, 32, 3), A(2, 16, 16, 64)), .op.n_out = 1, CONV(7, 2, 3), EXACT },
         { OP_IN(conv2d_wgrad, 2, A(2, 9, 7, 64), A(2, 9, 7, 1)), .op.n_out = 2, CONV(1, 1, 0), EXACT });
}

static void take_norms(Dtype t, ListedOp *list, int *count)
{
    const OpAttr full = { .relu = true, .residual = true, .eps = 1e-5f, .momentum = 0.1f };
    const OpAttr plain = { .eps = 1e-5f, .momentum = 0.1f }, relu = { .relu = true, .eps = 1e-5f, .momentum = 0.1f };
    OpAttr more = full;
    more.accumulate = true;
    TAKE({ OP_IN(batchnorm, 6, A(2, 14, 14, 64), V(64), V(64), V(64), V(64), A(2, 14, 14, 64)), .op.attr = full },
         { OP_IN(batchnorm, 5, A(4, 7, 7, 128), V(128), V(128), V(128), V(128)), .op.attr = relu },
         { OP_IN(batchnorm, 5, A(2, 5, 5, 7), V(7), V(7), V(7), V(7)), .op.attr = plain },
         { OP_IN(batchnorm_grad, 6, A(2, 14, 14, 64), A(2, 14, 14, 64), V(64), V(64), V(64), BITS(2, 14, 14, 64)), .op.attr = full },
         { OP_IN(batchnorm_grad, 6, A(2, 5, 5, 16), A(2, 5, 5, 16), V(16), V(16), V(16), BITS(2, 5, 5, 16)), .op.attr = more },
         { OP_IN(batchnorm_grad, 6, A(2, 5, 5, 32), A(2, 5, 5, 32), V(32), V(32), V(32), BITS(2, 5, 5, 32)), .op.attr = relu },
         { OP_IN(batchnorm_grad, 5, A(2, 5, 5, 7), A(2, 5, 5, 7), V(7), V(7), V(7)), .op.attr = plain },
         { OP_IN(batchnorm_infer, 5, A(2, 5, 5, 7), V(7), V(7), V(7), V(7)), .op.attr = relu },
         { OP_IN(batchnorm_infer, 6, A(2, 5, 5, 64), V(64), V(64), V(64), V(64), A(2, 5, 5, 64)), .op.attr = full },
         { OP_IN(layernorm, 3, M(70, 768), V(768), V(768)), .op.attr = { .eps = 1e-5f } },
         { OP_IN(layernorm, 5, M(70, 768), V(768), V(768), M(70, 768), IDS(4)),
           .op.attr = { .residual = true, .dropout = 0.1f, .stream = 3, .eps = 1e-5f } },
         { OP_IN(layernorm, 4, M(5, 70), V(70), V(70), M(5, 70)), .op.attr = { .residual = true, .eps = 1e-5f } },
         { OP_IN(layernorm_grad, 6, M(70, 768), M(70, 768), V(768), V(70), V(70), IDS(4)),
           .op.attr = { .residual = true, .dropout = 0.1f, .stream = 3, .eps = 1e-5f } },
         { OP_IN(layernorm_grad, 5, M(5, 70), M(5, 70), V(70), V(5), V(5)), .op.attr = { .accumulate = true, .eps = 1e-5f } });
}

static void take_images(Dtype t, ListedOp *list, int *count)
{
    const OpAttr pixels = { .mean = { 0.485f, 0.456f, 0.406f, 0.5f }, .deviation = { 0.229f, 0.224f, 0.225f, 0.25f } };
    TAKE({ OP_IN(normalize_u8, 1, tensor_4d(DTYPE_U8, 2, 32, 32, 3)), TO(t), .op.attr = pixels },
         { OP_IN(normalize_u8, 1, tensor_4d(DTYPE_U8, 3, 5, 7, 1)), TO(t), .op.attr = pixels },
         { OP_IN(maxpool, 1, A(2, 16, 16, 64)), CONV(3, 2, 1), EXACT },
         { OP_IN(maxpool, 1, A(2, 8, 6, 16)), CONV(2, 2, 0), EXACT },
         { OP_IN(maxpool_grad, 2, A(2, 8, 8, 64), BYTES(2, 8, 8, 64)), .op.attr = { .kernel = 3, .stride = 2, .pad = 1, .in_h = 16, .in_w = 16 }, EXACT },
         { OP_IN(maxpool_grad, 2, A(2, 4, 3, 16), BYTES(2, 4, 3, 16)), .op.attr = { .kernel = 2, .stride = 2, .in_h = 8, .in_w = 6 }, EXACT },
         { OP_IN(avgpool, 1, A(3, 8, 8, 64)), EXACT }, { OP_IN(avgpool, 1, A(3, 7, 7, 48)) },
         { OP_IN(avgpool_grad, 1, M(3, 64)), .op.attr = { .in_h = 8, .in_w = 8 }, EXACT },
         { OP_IN(concat, 2, A(2, 7, 5, 64), A(2, 7, 5, 64)), EXACT }, { OP_IN(concat, 2, A(2, 3, 5, 7), A(2, 3, 5, 10)), EXACT },
         { OP_IN(concat_grad, 1, A(2, 7, 5, 128)), .op.attr = { .channels = 64 }, EXACT },
         { OP_IN(concat_grad, 1, A(2, 3, 5, 17)), .op.attr = { .channels = 7 }, EXACT },
         { OP_IN(pixel_xent, 3, A(2, 20, 33, 2), MASK(2, 20, 33), V(1)), .op.n_out = 2 },
         { OP_IN(pixel_xent, 3, A(2, 6, 6, 21), MASK(2, 6, 6), V(1)), .op.n_out = 1 },
         { OP_IN(bce_dice, 3, A(2, 20, 33, 1), MASK(2, 20, 33), V(1)), .op.n_out = 2 });
}

static void take_matrices(Dtype t, ListedOp *list, int *count)
{
    TAKE({ OP_IN(linear, 3, M(64, 256), M(128, 256), V(128)), EXACT }, { OP_IN(linear, 2, M(33, 48), M(32, 48)), EXACT },
         { OP_IN(linear, 3, M(5, 71), M(11, 71), V(11)), EXACT }, { OP_IN(linear_dgrad, 2, M(64, 128), M(128, 256)), EXACT },
         { OP_IN(linear_dgrad, 2, M(5, 11), M(11, 71)), EXACT },
         { OP_IN(linear_wgrad, 2, M(64, 256), M(64, 128)), .op.n_out = 2, EXACT },
         { OP_IN(linear_wgrad, 2, M(5, 71), M(5, 11)), .op.n_out = 2, .op.attr = { .accumulate = true }, EXACT },
         { OP_IN(linear_wgrad, 2, M(40, 64), M(40, 32)), .op.n_out = 1, .op.attr = { .accumulate = true }, EXACT },
         { OP_IN(embedding, 6, tensor_2d(DTYPE_F32, 100, 768), IDS(64), tensor_2d(DTYPE_F32, 64, 768), IDS(64), tensor_2d(DTYPE_F32, 2, 768), IDS(64)), TO(t) },
         { OP_IN(embedding, 2, tensor_2d(DTYPE_F32, 9, 33), IDS(6)), TO(t) },
         { OP_IN(embedding_grad, 2, M(64, 768), IDS(64)), .op.attr = { .rows = 100 }, EXACT },
         { OP_IN(embedding_grad, 2, M(200, 17), IDS(200)), .op.attr = { .rows = 3, .accumulate = true }, EXACT },
         { OP_IN(gather_rows, 2, M(64, 768), IDS(10)), EXACT }, { OP_IN(gather_rows_grad, 2, M(10, 768), IDS(10)), .op.attr = { .rows = 64 }, EXACT, TRIVIAL },
         { OP_IN(gelu, 1, M(33, 3072)) }, { OP_IN(gelu_grad, 2, M(33, 129), M(33, 129)) }, { OP_IN(tanh, 1, M(4, 768)) },
         { OP_IN(tanh_grad, 2, M(3, 37), M(3, 37)) }, { OP_IN(dropout, 2, M(33, 768), IDS(4)), .op.attr = { .dropout = 0.1f, .stream = 3 } },
         { OP_IN(dropout, 2, M(5, 67), IDS(4)), .op.attr = { .dropout = 0.5f, .stream = 3 }, EXACT, TRIVIAL },
         { OP_IN(softmax_xent, 3, M(64, 1000), IDS(64), V(1)), .op.n_out = 2 }, { OP_IN(softmax_xent, 3, M(7, 10), IDS(7), V(1)), .op.n_out = 1 });
}

static void take_elementwise(Dtype t, ListedOp *list, int *count)
{
    const Dtype other = t == DTYPE_F32 ? DTYPE_BF16 : DTYPE_F32;
    TAKE({ OP_IN(add, 2, A(2, 7, 5, 64), A(2, 7, 5, 64)), EXACT }, { OP_IN(add, 2, M(3, 37), M(3, 37)), EXACT },
         { OP_IN(relu_grad, 2, A(2, 7, 5, 64), A(2, 7, 5, 64)), EXACT }, { OP_IN(relu_grad, 2, M(3, 37), M(3, 37)), EXACT },
         { OP_IN(cast, 1, A(2, 3, 5, 16)), TO(other), EXACT }, { OP_IN(cast, 1, M(3, 37)), TO(other) },
         { OP_IN(repack, 1, tensor_4d(DTYPE_F32, 64, 3, 3, 32)), TO(t), EXACT }, { OP_IN(repack, 1, tensor_2d(DTYPE_F32, 33, 70)), TO(t), EXACT },
         { .op.kind = OP_zero, .op.out = { A(2, 3, 5, 17) }, EXACT, TRIVIAL });
}

/* Head sizes of BERT; short of the longest sequence, with gaps, one empty, with and without dropout. */
static void take_attention(Dtype t, ListedOp *list, int *count)
{
    static const struct { int64_t tokens, width, seq; int heads; int64_t spans; int32_t at[OP_LIST_SPANS][2]; float dropout; } shapes[] = {
        { 160, 768, 128, 12, 2, { { 0, 128 }, { 130, 30 } }, 0.1f },
        { 128, 128, 64, 2, 2, { { 0, 64 }, { 64, 64 } }, 0 },
        { 70, 128, 40, 2, 4, { { 40, 9 }, { 3, 17 }, { 21, 0 }, { 22, 13 } }, 0.1f },
    };
    for (size_t i = 0; i < COUNT_OF(shapes); i++) {
        const int64_t tokens = shapes[i].tokens, width = shapes[i].width, spans = shapes[i].spans;
        const bool    drop = shapes[i].dropout > 0;
        const OpAttr  attr = { .heads = shapes[i].heads, .seq = shapes[i].seq, .dropout = shapes[i].dropout, .stream = 7 };
        ListedOp both[] = {
            { OP_IN(attention, 2 + drop, M(tokens, 3 * width), tensor_2d(DTYPE_I32, spans, 2), IDS(4)), .op.attr = attr },
            { OP_IN(attention_grad, 5 + drop, M(tokens, 3 * width), M(tokens, width), M(tokens, width), tensor_2d(DTYPE_F32, tokens, shapes[i].heads),
                    tensor_2d(DTYPE_I32, spans, 2), IDS(4)), .op.attr = attr },
        };
        for (size_t k = 0; k < COUNT_OF(both); k++)
            memcpy(both[k].spans, shapes[i].at, sizeof both[k].spans);
        take(list, count, both, COUNT_OF(both));
    }
}

/* Those that only know f32; one element, several blocks, tensors of a table. */
static void take_update(ListedOp *list, int *count)
{
    const OpAttr adam = { .beta1 = 0.9f, .beta2 = 0.999f, .eps = 1e-6f, .weight_decay = 0.01f };
    OpAttr lamb = adam, lars = { .momentum = 0.9f, .trust = 0.02f, .weight_decay = 1e-3f };
    lamb.adapt = lars.adapt = true;
    TAKE({ OP_IN(sqnorm, 2, V(70001), V(8)), EXACT }, { OP_IN(sqnorm, 1, V(17)), EXACT },
         { OP_IN(window_scale, 2, V(1), V(8)), EXACT }, { OP_IN(step_control, 2, V(8), V(1)), EXACT },
         { OP_IN(restore, 2, V(1000), V(8)), EXACT },
         { OP_IN(sgd, 3, V(70001), V(8), V(8)), .op.attr = { .momentum = 0.5f, .weight_decay = 0.25f }, EXACT },
         { OP_IN(sgd, 3, V(17), V(8), V(8)), .op.attr = { .momentum = 0.9f, .weight_decay = 1e-4f, .nesterov = true } },
         { OP_IN(adamw, 3, V(70001), V(8), V(8)), .op.attr = adam }, { OP_IN(adamw, 3, V(1), V(8), V(8)), .op.attr = adam, TRIVIAL },
         { OP_IN(lamb, 4, V(70001), V(8), V(8), IDS(18)), .op.attr = lamb }, { OP_IN(lamb, 4, V(1000), V(8), V(8), IDS(4)), .op.attr = adam },
         { OP_IN(lars, 4, V(70001), V(8), V(8), IDS(18)), .op.attr = lars });
}

int op_list_make(Dtype type, ListedOp list[OP_LIST_MAX])
{
    int count = 0;
    take_elementwise(type, list, &count);
    take_images(type, list, &count);
    take_matrices(type, list, &count);
    take_norms(type, list, &count);
    take_convolutions(type, list, &count);
    take_attention(type, list, &count);
    if (type == DTYPE_F32)
        take_update(list, &count);
    return count;
}

/* ---- cases */

static void set_attention(const ListedOp *listed, OpCase *c)
{
    static const int32_t rng[4] = { 12345, -6, 3, 0 };
    const int spans = listed->op.kind == OP_attention ? 1 : 4;
    memcpy(c->in[spans], listed->spans, tensor_bytes(&c->op.in[spans]));
    if (listed->op.attr.dropout > 0)
        memcpy(c->in[spans + 1], rng, sizeof rng);
}

/* y and lse of the gradient's own qkv. */
static Status make_forward(const ListedOp *listed, Backend *ref, OpCase *c)
{
    ListedOp forward = *listed;
    OpCase  *f;
    OpResult result = { 0 };
    forward.op = (OpDesc){ .kind = OP_attention, .n_in = listed->op.n_in - 3, .attr = listed->op.attr,
                           .in = { listed->op.in[0], listed->op.in[4], listed->op.in[5] } };
    TRY(op_case_create(&forward.op, FILL_RANDOM, 1, &f));
    set_attention(&forward, f);
    memcpy(f->in[0], c->in[0], tensor_bytes(&c->op.in[0]));
    Status s = op_case_run(f, ref, NULL, &result);
    if (s.code == STATUS_OK) {
        memcpy(c->in[1], result.out[0], tensor_bytes(&c->op.in[1]));
        memcpy(c->in[3], result.out[1], tensor_bytes(&c->op.in[3]));
    }
    op_result_release(&result);
    op_case_destroy(f);
    return s;
}

Status op_list_case(const ListedOp *listed, CompareMode mode, uint64_t seed, Backend *ref, OpCase **out)
{
    TRY(op_case_create(&listed->op, mode == COMPARE_EXACT ? FILL_INTEGER : FILL_RANDOM, seed, out));
    (*out)->trivial = listed->trivial;
    if (listed->op.kind == OP_attention || listed->op.kind == OP_attention_grad)
        set_attention(listed, *out);
    Status s = listed->op.kind == OP_attention_grad ? make_forward(listed, ref, *out) : status_ok();
    if (s.code != STATUS_OK) {
        op_case_destroy(*out);
        *out = NULL;
    }
    return s;
}
