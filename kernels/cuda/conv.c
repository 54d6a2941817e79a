/* conv.c - convolutions: forward with bias and ReLU, gradient of the data, gradient of the weights; by cuDNN, or by own kernels for
 * 1x1 convolutions to a few channels.
 *
 * With cuDNN 9.19, as asked of the library itself (tests/cuda_plans):
 *   - A gradient of weights in f32 from 16-bit inputs is not a convolution that cuDNN knows, but one to a virtual f32 tensor with a
 *     pointwise operation behind it is: it runs on tensor cores and nothing is rounded to 16 bits on the way. A product with 1 is
 *     taken, since it finds more engines than the identity does.
 *   - That graph cannot add to what its output holds: the library makes no promise for an output that lies over an input. So where
 *     dw accumulates it is made in scratch and added, 12 bytes of traffic for each weight. In f32 the convolution adds by itself.
 *   - bias is f32 in every graph; for 16-bit images that means engines compiled at run time.
 *   - Images of 1 to 4 channels of 16 bits: x and w wish LAYOUT_PADDED, else cuDNN has no tensor cores, or pads them itself in every
 *     call. In f32 and TF32 w is the parameter itself and stays plain. */
#include "conv.h"

#include "columns.h"
#include "conv_fold.h"
#include "conv_narrow.h"

#include <stdlib.h>

enum { FEW_CHANNELS = 4 };

typedef struct ConvState {
    DnnPlan *plan;     /* NULL: own kernels */
} ConvState;

/* Parts of scratch, in bytes: dw in f32 with its padding, if it is folded into the output; what the bias gradient needs. cuDNN's
 * workspace is behind them. */
typedef struct ConvScratch { size_t dw, sums, sums_at, total; } ConvScratch;

/* Where the convolution's operands stand in the op: x is also dx, w also dw, y also dy. */
typedef struct ConvSlots { int x, w, y; } ConvSlots; /* numbers of buffers */

static ConvSlots conv_slots(const OpDesc *op)
{
    switch (op->kind) {
    case OP_conv2d:       return (ConvSlots){ 0, 1, op->n_in };
    case OP_conv2d_dgrad: return (ConvSlots){ 2, 1, 0 };
    default:              return (ConvSlots){ 0, 2, 1 };
    }
}

static Tensor *slot_tensor(OpDesc *op, int slot) { return slot < op->n_in ? &op->in[slot] : &op->out[slot - op->n_in]; }

/* ---- layouts */

/* Forward and weight gradient of an image's few channels. */
static bool is_padded(const OpDesc *op)
{
    return op->kind != OP_conv2d_dgrad && op->in[0].dim[3] <= FEW_CHANNELS && dtype_bits(op->in[0].dtype) == 16;
}

static void wish_layouts(const OpDesc *op, OpNeeds *needs)
{
    if (!is_padded(op))
        return;
    needs->in_layout[0] = LAYOUT_PADDED;
    if (op->kind == OP_conv2d)
        needs->in_layout[1] = LAYOUT_PADDED;
}

/* The op with what it wishes for; other private layouts are refused. dw is never padded in memory. */
static Status settle(const OpDesc *op, OpDesc *settled)
{
    OpNeeds needs;
    *settled = *op;
    for (int i = 0; i < OP_MAX_IN; i++)
        needs.in_layout[i] = LAYOUT_ANY;
    wish_layouts(op, &needs);
    for (int i = 0; i < op->n_in; i++) {
        if (op->in[i].layout >= LAYOUT_PADDED && needs.in_layout[i] != LAYOUT_PADDED)
            return status_error(STATUS_UNSUPPORTED, "the CUDA backend does not read padded rows in input %d of %s", i, op_names[op->kind]);
        if (needs.in_layout[i] != LAYOUT_ANY)
            settled->in[i].layout = needs.in_layout[i];
    }
    for (int i = 0; i < op->n_out; i++)
        if (op->out[i].layout >= LAYOUT_PADDED)
            return status_error(STATUS_UNSUPPORTED, "the CUDA backend does not write padded rows in output %d of %s", i, op_names[op->kind]);
    return status_ok();
}

/* ---- scratch */

static size_t round_up(size_t bytes) { return (bytes + CUDA_ALIGN - 1) / CUDA_ALIGN * CUDA_ALIGN; }

/* dw as cuDNN writes it: as many channels as x has in memory. */
static Tensor padded_dw(const OpDesc *op)
{
    Tensor dw = op->out[0];
    dw.layout = op->in[0].layout == LAYOUT_PADDED ? LAYOUT_PADDED : LAYOUT_PLAIN;
    return dw;
}

/* Whether dw is made in scratch first. */
static bool is_folded(const OpDesc *op)
{
    return op->kind == OP_conv2d_wgrad && dtype_bits(op->in[0].dtype) == 16 && (op->attr.accumulate || op->in[0].layout == LAYOUT_PADDED);
}

static ConvScratch scratch_of(const OpDesc *op)
{
    ConvScratch s = { 0 };
    if (conv_narrow_fits(op)) {
        s.dw = conv_narrow_scratch(op);
    } else if (is_folded(op)) {
        const Tensor dw = padded_dw(op);
        s.dw = cuda_tensor_bytes(&dw);
    }
    if (op->kind == OP_conv2d_wgrad && op->n_out == 2) {
        const Columns dy = columns_of(&op->in[1]);
        s.sums = columns_scratch(&dy);
    }
    s.sums_at = round_up(s.dw);
    s.total = s.sums ? s.sums_at + s.sums : s.dw;
    return s;
}

/* ---- graphs. One is built from an op with settled layouts. */

/* y = relu?(conv(x, w) + bias?) with f32 between the operations. */
static void build_forward(DnnGraph *g, const OpDesc *op, DnnTensor x, DnnTensor w, DnnTensor y)
{
    const Tensor *out = &op->out[0];
    const bool    bias = op->n_in == 3, relu = op->attr.relu;
    DnnTensor     at[3]; /* after the convolution, the bias, the ReLU: the last step of these writes y */
    for (int i = 0; i < 2; i++)
        at[i] = (i == 0 ? bias || relu : relu) ? dnn_tensor_nhwc(g, CUDNN_DATA_FLOAT, out->dim[0], out->dim[3], out->dim[1], out->dim[2], dnn_virtual())
                                               : y;
    at[2] = y;
    dnn_conv(g, DNN_CONV_FORWARD, x, w, at[0], op->attr.pad, op->attr.stride);
    if (bias)
        dnn_pointwise(g, CUDNN_POINTWISE_ADD, at[0], dnn_tensor_channel(g, CUDNN_DATA_FLOAT, out->dim[3], dnn_slot(2)), at[1]);
    if (relu)
        dnn_pointwise(g, CUDNN_POINTWISE_RELU_FWD, bias ? at[1] : at[0], DNN_NONE, at[2]);
}

/* f32: straight into dw. 16 bits: to a virtual f32 tensor, then to dw or to scratch. */
static void build_wgrad(DnnGraph *g, const OpDesc *op, DnnTensor x, DnnTensor dy)
{
    const Tensor   t = padded_dw(op);
    const DnnPlace place = is_folded(op) ? dnn_scratch(0) : dnn_slot(2);
    DnnTensor      dw = dnn_tensor_of(g, &t, place);
    if (op->in[0].dtype != DTYPE_F32) {
        DnnTensor sum = dnn_tensor_of(g, &t, dnn_virtual());
        dnn_conv(g, DNN_CONV_WGRAD, x, sum, dy, op->attr.pad, op->attr.stride);
        dnn_pointwise(g, CUDNN_POINTWISE_MUL, sum, dnn_scalar(g, 1.0f), dw);
    } else if (op->attr.accumulate) {
        dnn_conv_accumulate(g, DNN_CONV_WGRAD, x, dw, dy, op->attr.pad, op->attr.stride);
    } else {
        dnn_conv(g, DNN_CONV_WGRAD, x, dw, dy, op->attr.pad, op->attr.stride);
    }
}

Status conv_graph_create(CudaBackend *be, const OpDesc *op, DnnGraph **out)
{
    static const char *const names[] = { "forward", "dgrad", "wgrad" };
    OpDesc    settled;
    DnnGraph *g;
    *out = NULL;
    if (conv_narrow_fits(op))
        return status_ok();
    TRY(settle(op, &settled));
    op = &settled;
    const DnnConv   kind = op->kind == OP_conv2d ? DNN_CONV_FORWARD : op->kind == OP_conv2d_dgrad ? DNN_CONV_DGRAD : DNN_CONV_WGRAD;
    const ConvSlots s = conv_slots(op);
    TRY(dnn_graph_create(be, op, names[kind], scratch_of(op).total, &g));
    DnnTensor x = dnn_tensor_of(g, slot_tensor(&settled, s.x), dnn_slot(s.x)), y = dnn_tensor_of(g, slot_tensor(&settled, s.y), dnn_slot(s.y));
    if (kind == DNN_CONV_WGRAD) {
        build_wgrad(g, op, x, y);
    } else {
        DnnTensor w = dnn_tensor_of(g, slot_tensor(&settled, s.w), dnn_slot(s.w));
        if (kind == DNN_CONV_FORWARD)
            build_forward(g, op, x, w, y);
        else
            dnn_conv(g, DNN_CONV_DGRAD, x, w, y, op->attr.pad, op->attr.stride);
    }
    *out = g;
    return status_ok();
}

/* ---- the kernels */

static Status conv_query(Backend *base, const OpDesc *op, OpNeeds *needs)
{
    CudaBackend *be = cuda_of(base);
    DnnGraph    *g;
    bool         counted; /* dnn_query tells the reader if not */
    if (conv_narrow_fits(op)) {
        TRY(cuda_query_rows(op));
        needs->scratch = scratch_of(op).total;
        return status_ok();
    }
    wish_layouts(op, needs);
    TRY(conv_graph_create(be, op, &g));
    Status status = dnn_query(be, g, &needs->scratch, &counted);
    dnn_graph_destroy(g);
    return status;
}

static void conv_release(void *state)
{
    ConvState *s = state;
    if (s)
        dnn_plan_destroy(s->plan);
    free(s);
}

static Status conv_prepare(Backend *base, const OpDesc *op, void **state)
{
    DnnGraph *g;
    *state = NULL;
    TRY(cuda_need_device(cuda_of(base)));
    ConvState *s = calloc(1, sizeof *s);
    if (!s)
        return status_error(STATUS_OOM, "no memory for a convolution");
    Status status = conv_graph_create(cuda_of(base), op, &g);
    if (status.code == STATUS_OK && g)
        status = dnn_prepare(cuda_of(base), g, &s->plan);
    if (status.code == STATUS_OK)
        *state = s;
    else
        conv_release(s);
    return status;
}

static Status conv_tune(Backend *be, const OpDesc *op, void *state, void *const *buf, void *scratch)
{
    const ConvState *s = state;
    (void)op;
    return s->plan ? dnn_tune(cuda_of(be), s->plan, buf, scratch) : status_ok();
}

static Status conv_run(Backend *be, const OpDesc *op, void *state, void *const *buf, void *scratch)
{
    const ConvState *s = state;
    return s->plan ? dnn_run(cuda_of(be), s->plan, buf, scratch) : conv_narrow_run(be, op, buf, scratch);
}

static Status wgrad_run(Backend *be, const OpDesc *op, void *state, void *const *buf, void *scratch)
{
    const ConvScratch parts = scratch_of(op);
    TRY(conv_run(be, op, state, buf, scratch));
    if (is_folded(op) && !conv_narrow_fits(op)) {
        const Tensor  dw = padded_dw(op);
        const int64_t rows = dw.dim[0] * dw.dim[1] * dw.dim[2];
        TRY(conv_fold(be, scratch, rows, dw.dim[3], cuda_pitch(&dw), buf[2], op->attr.accumulate));
    }
    if (op->n_out == 1)
        return status_ok();
    const Columns dy = columns_of(&op->in[1]);
    return columns_sum(be, &dy, buf[1], buf[3], op->attr.accumulate, (char *)scratch + parts.sums_at);
}

const Kernel cuda_conv2d = { .query = conv_query, .prepare = conv_prepare, .run = conv_run, .release = conv_release, .tune = conv_tune };
const Kernel cuda_conv2d_dgrad = { .query = conv_query, .prepare = conv_prepare, .run = conv_run, .release = conv_release, .tune = conv_tune };
const Kernel cuda_conv2d_wgrad = { .query = conv_query, .prepare = conv_prepare, .run = wgrad_run, .release = conv_release, .tune = conv_tune };
