/* conv.c - convolutions: forward, gradient of the data, gradient of the weights; by oneDNN, or by own kernels where there is AMX
 * and for those to a few channels.
 *
 * Weights are in the layout that the primitive asks for. A gradient that accumulates is computed into scratch and added,
 * because oneDNN's backward convolutions overwrite. A first convolution (image channels in, blocked channels out) gets a copy
 * of x as nchw, because for nhwc oneDNN only has its reference loops there. */
#include "amx_conv.h"
#include "amx_wgrad.h"
#include "conv_narrow.h"
#include "cpu.h"
#include "wgrad_rows.h"

#include <stdlib.h>

typedef struct ConvDescs { MemDesc x, w, bias, y; } ConvDescs;

typedef struct ConvState {
    Prim      prim;
    Relayout *to_nchw;                     /* of x, or NULL */
    size_t    dw_offset, db_offset, x_offset; /* in scratch, if used */
} ConvState;

/* Where the convolution's operands stand in the op: x is also dx, w also dw, y also dy. */
typedef struct ConvSlots { const Tensor *x, *w, *bias, *y; } ConvSlots;

static ConvSlots conv_slots(const OpDesc *op)
{
    switch (op->kind) {
    case OP_conv2d:       return (ConvSlots){ &op->in[0], &op->in[1], op->n_in == 3 ? &op->in[2] : NULL, &op->out[0] };
    case OP_conv2d_dgrad: return (ConvSlots){ &op->out[0], &op->in[1], NULL, &op->in[0] };
    default:              return (ConvSlots){ &op->in[0], &op->out[0], op->n_out == 2 ? &op->out[1] : NULL, &op->in[1] };
    }
}

/* Whether x has to be copied to nchw. */
static bool needs_nchw(const CpuBackend *be, const OpDesc *op)
{
    ConvSlots s = conv_slots(op);
    return op->kind != OP_conv2d_dgrad && s.x->dim[3] < 16 && cpu_is_blocked(be, s.y);
}

static Status nchw_desc(const Tensor *x, MemDesc *out)
{
    dnnl_dims_t dims = { x->dim[0], x->dim[3], x->dim[1], x->dim[2] };
    DNNL_TRY(compat_md_create(out, 4, dims, cpu_dnnl_type(x->dtype), dnnl_abcd));
    return status_ok();
}

static Status nchw_copy_create(CpuBackend *be, const Tensor *x, Relayout **out)
{
    MemDesc md;
    Tensor  to = *x;
    TRY(nchw_desc(x, &md));
    Status status = cpu_layout_id(be, x, md, &to.layout);
    compat_md_destroy(md);
    TRY(status);
    return relayout_create(be, x, &to, out);
}

static void descs_destroy(ConvDescs *d)
{
    compat_md_destroy(d->x);
    compat_md_destroy(d->w);
    compat_md_destroy(d->bias);
    compat_md_destroy(d->y);
}

/* Descriptors; the weights' layout is left to oneDNN. */
static Status descs_create(CpuBackend *be, const OpDesc *op, const ConvSlots *s, ConvDescs *d)
{
    *d = (ConvDescs){ 0 };
    dnnl_dims_t dims = { s->w->dim[0], s->w->dim[3], s->w->dim[1], s->w->dim[2] };
    TRY(needs_nchw(be, op) ? nchw_desc(s->x, &d->x) : cpu_desc_create(be, s->x, &d->x));
    TRY(cpu_desc_create(be, s->y, &d->y));
    if (s->bias)
        TRY(cpu_desc_create(be, s->bias, &d->bias));
    DNNL_TRY(compat_md_create(&d->w, 4, dims, cpu_dnnl_type(s->w->dtype), dnnl_format_tag_any));
    return status_ok();
}

/* The forward pd that oneDNN wants as a hint for the backward ones: same shapes, weights in the activations' type. */
static Status hint_create(CpuBackend *be, const ConvDescs *d, const ConvSlots *s, const ConvShape *shape, dnnl_primitive_desc_t *pd)
{
    dnnl_dims_t dims = { s->w->dim[0], s->w->dim[3], s->w->dim[1], s->w->dim[2] };
    MemDesc     w;
    DNNL_TRY(compat_md_create(&w, 4, dims, cpu_dnnl_type(s->x->dtype), dnnl_format_tag_any));
    Status status = cpu_dnnl_status(compat_conv_forward(pd, be->engine, d->x, w, NULL, d->y, shape, NULL), "convolution_forward");
    compat_md_destroy(w);
    return status;
}

static Status conv_pd_create(CpuBackend *be, const OpDesc *op, dnnl_primitive_desc_t *pd)
{
    const OpAttr *a = &op->attr;
    ConvSlots     s = conv_slots(op);
    ConvShape     shape = { .stride = { a->stride, a->stride }, .pad = { a->pad, a->pad } };
    ConvDescs     d;
    Status        status;
    dnnl_primitive_desc_t hint = NULL;
    dnnl_primitive_attr_t attr = NULL;
    *pd = NULL;
    TRY_GOTO(status, descs_create(be, op, &s, &d), done);
    TRY_GOTO(status, prim_attr_create(op->kind == OP_conv2d && a->relu, false, &attr), done);
    if (op->kind == OP_conv2d) {
        DNNL_TRY_GOTO(status, compat_conv_forward(pd, be->engine, d.x, d.w, d.bias, d.y, &shape, attr), done);
        goto done;
    }
    TRY_GOTO(status, hint_create(be, &d, &s, &shape, &hint), done);
    if (op->kind == OP_conv2d_dgrad)
        DNNL_TRY_GOTO(status, compat_conv_backward_data(pd, be->engine, d.x, d.w, d.y, &shape, hint, attr), done);
    else
        DNNL_TRY_GOTO(status, compat_conv_backward_weights(pd, be->engine, d.x, d.w, d.bias, d.y, &shape, hint, attr), done);
done:
    if (hint)
        dnnl_primitive_desc_destroy(hint);
    if (attr)
        dnnl_primitive_attr_destroy(attr);
    descs_destroy(&d);
    return status;
}

static ConstMemDesc weights_desc(const OpDesc *op, const_dnnl_primitive_desc_t pd)
{
    return dnnl_primitive_desc_query_md(pd, op->kind == OP_conv2d_wgrad ? dnnl_query_diff_weights_md : dnnl_query_weights_md, 0);
}

static size_t round_64(size_t bytes) { return (bytes + 63) / 64 * 64; }

static size_t bias_bytes(const OpDesc *op) { return op->n_out == 2 ? round_64(tensor_bytes(&op->out[1])) : 0; }

/* The same on AMX tiles, by own kernels; the one for the weights' gradient adds to dw by itself. */
static bool is_amx(const CpuBackend *be, const OpDesc *op)
{
    return op->kind == OP_conv2d_wgrad ? amx_wgrad_fits(be, op) : amx_conv_fits(be, op);
}

/* The weights' gradient of large fp32 images; it adds to dw by itself, too. */
static bool is_rows(const CpuBackend *be, const OpDesc *op)
{
    return op->kind == OP_conv2d_wgrad && wgrad_rows_fits(be, op);
}

static Status amx_query(CpuBackend *be, const OpDesc *op, OpNeeds *needs)
{
    const bool wgrad = op->kind == OP_conv2d_wgrad;
    MemDesc    md;
    TRY(wgrad ? amx_wgrad_desc(op, &md) : amx_conv_desc(op, &md));
    Status status = wgrad ? cpu_layout_id(be, &op->out[0], md, &needs->out_layout[0])
                          : cpu_layout_id(be, &op->in[1], md, &needs->in_layout[1]);
    compat_md_destroy(md);
    needs->scratch = is_rows(be, op) ? 0 : wgrad ? amx_wgrad_scratch(be, op) : amx_conv_scratch(be, op);
    return status;
}

static Status narrow_query(const CpuBackend *be, const OpDesc *op, OpNeeds *needs)
{
    *(op->kind == OP_conv2d_wgrad ? &needs->out_layout[0] : &needs->in_layout[1]) = LAYOUT_PLAIN;
    needs->scratch = narrow_conv_scratch(be, op);
    return status_ok();
}

/* The ops without a oneDNN primitive. */
static bool is_own(const CpuBackend *be, const OpDesc *op)
{
    return narrow_conv_fits(be, op) || is_amx(be, op) || is_rows(be, op);
}

static void own_run(const CpuBackend *be, const OpDesc *op, void *const *buf, void *scratch)
{
    if (narrow_conv_fits(be, op))
        narrow_conv_run(be, op, buf, scratch);
    else if (is_rows(be, op))
        wgrad_rows_run(be, op, buf[0], buf[1], buf[2]);
    else if (op->kind == OP_conv2d_wgrad)
        amx_wgrad_run(be, op, buf[0], buf[1], buf[2], scratch);
    else
        amx_conv_run(be, op, buf, scratch);
}

static Status conv_query(Backend *base, const OpDesc *op, OpNeeds *needs)
{
    CpuBackend *be = cpu_of(base);
    if (narrow_conv_fits(be, op))
        return narrow_query(be, op, needs);
    if (is_amx(be, op) || is_rows(be, op))
        return amx_query(be, op, needs);
    dnnl_primitive_desc_t pd;
    TRY(conv_pd_create(be, op, &pd));
    ConstMemDesc w = weights_desc(op, pd);
    bool   wgrad = op->kind == OP_conv2d_wgrad;
    int    id;
    Status status = cpu_layout_id(be, wgrad ? &op->out[0] : &op->in[1], w, &id);
    if (wgrad)
        needs->out_layout[0] = id;
    else
        needs->in_layout[1] = id;
    needs->scratch = prim_scratch_bytes(pd);
    if (wgrad && op->attr.accumulate)
        needs->scratch += round_64(dnnl_memory_desc_get_size(w)) + bias_bytes(op);
    if (needs_nchw(be, op))
        needs->scratch += tensor_bytes(&op->in[0]);
    dnnl_primitive_desc_destroy(pd);
    return status;
}

static void conv_release(void *state)
{
    ConvState *s = state;
    if (!s)
        return;
    prim_release(&s->prim);
    relayout_destroy(s->to_nchw);
    free(s);
}

/* Binds operand `arg`, described by the pd, to a slot of the op or to scratch. */
static Status bind_query(CpuBackend *be, ConvState *s, const_dnnl_primitive_desc_t pd, int arg, dnnl_query_t what, int index,
                         int slot, size_t offset)
{
    return prim_bind(be, &s->prim, arg, dnnl_primitive_desc_query_md(pd, what, index), slot, offset);
}

static Status bind_all(CpuBackend *be, const OpDesc *op, const_dnnl_primitive_desc_t pd, ConvState *s)
{
    const int out = op->n_in, x = s->to_nchw ? PRIM_SCRATCH : 0;
    switch (op->kind) {
    case OP_conv2d:
        TRY(bind_query(be, s, pd, DNNL_ARG_SRC, dnnl_query_src_md, 0, x, s->x_offset));
        TRY(bind_query(be, s, pd, DNNL_ARG_WEIGHTS, dnnl_query_weights_md, 0, 1, 0));
        if (op->n_in == 3)
            TRY(bind_query(be, s, pd, DNNL_ARG_BIAS, dnnl_query_weights_md, 1, 2, 0));
        return bind_query(be, s, pd, DNNL_ARG_DST, dnnl_query_dst_md, 0, out, 0);
    case OP_conv2d_dgrad:
        TRY(bind_query(be, s, pd, DNNL_ARG_DIFF_DST, dnnl_query_diff_dst_md, 0, 0, 0));
        TRY(bind_query(be, s, pd, DNNL_ARG_WEIGHTS, dnnl_query_weights_md, 0, 1, 0));
        return bind_query(be, s, pd, DNNL_ARG_DIFF_SRC, dnnl_query_diff_src_md, 0, out, 0);
    default:
        break;
    }
    const bool add = op->attr.accumulate;
    TRY(bind_query(be, s, pd, DNNL_ARG_SRC, dnnl_query_src_md, 0, x, s->x_offset));
    TRY(bind_query(be, s, pd, DNNL_ARG_DIFF_DST, dnnl_query_diff_dst_md, 0, 1, 0));
    TRY(bind_query(be, s, pd, DNNL_ARG_DIFF_WEIGHTS, dnnl_query_diff_weights_md, 0, add ? PRIM_SCRATCH : out, s->dw_offset));
    if (op->n_out == 2)
        TRY(bind_query(be, s, pd, DNNL_ARG_DIFF_BIAS, dnnl_query_diff_weights_md, 1, add ? PRIM_SCRATCH : out + 1, s->db_offset));
    return status_ok();
}

/* Scratch: oneDNN's scratchpad, dw and dbias where they are added later, x as nchw. */
static void place_scratch(const OpDesc *op, const_dnnl_primitive_desc_t pd, ConvState *s)
{
    const bool add = op->kind == OP_conv2d_wgrad && op->attr.accumulate;
    s->dw_offset = prim_scratch_bytes(pd);
    s->db_offset = s->dw_offset + (add ? round_64(dnnl_memory_desc_get_size(weights_desc(op, pd))) : 0);
    s->x_offset = s->db_offset + (add ? bias_bytes(op) : 0);
}

static Status conv_prepare(Backend *base, const OpDesc *op, void **state)
{
    CpuBackend *be = cpu_of(base);
    Status      status;
    dnnl_primitive_desc_t pd = NULL;
    *state = NULL; /* stays so for own kernels */
    if (is_own(be, op))
        return status_ok();
    ConvState *s = calloc(1, sizeof *s);
    if (!s)
        return status_error(STATUS_OOM, "no memory for a convolution");
    TRY_GOTO(status, conv_pd_create(be, op, &pd), done);
    place_scratch(op, pd, s);
    if (needs_nchw(be, op))
        TRY_GOTO(status, nchw_copy_create(be, &op->in[0], &s->to_nchw), done);
    TRY_GOTO(status, prim_create(be, &s->prim, pd, 0), done);
    status = bind_all(be, op, pd, s);
done:
    if (pd)
        dnnl_primitive_desc_destroy(pd);
    if (status.code == STATUS_OK)
        *state = s;
    else
        conv_release(s);
    return status;
}

static Status conv_run(Backend *be, const OpDesc *op, void *state, void *const *buf, void *scratch)
{
    ConvState *s = state;
    if (!s) {
        own_run(cpu_of(be), op, buf, scratch);
        return status_ok();
    }
    if (s->to_nchw)
        relayout_run(s->to_nchw, buf[0], (char *)scratch + s->x_offset);
    return prim_run(cpu_of(be), &s->prim, buf, scratch);
}

static void add_to(int threads, float *restrict sum, const float *restrict x, int64_t n)
{
#pragma omp parallel for simd num_threads(threads) schedule(static)
    for (int64_t i = 0; i < n; i++)
        sum[i] += x[i];
}

static Status wgrad_run(Backend *base, const OpDesc *op, void *state, void *const *buf, void *scratch)
{
    CpuBackend *be = cpu_of(base);
    ConvState  *s = state;
    TRY(conv_run(base, op, state, buf, scratch));
    if (!s || !op->attr.accumulate)
        return status_ok();
    void *const *out = buf + op->n_in;
    add_to(be->threads, out[0], (const float *)((char *)scratch + s->dw_offset), cpu_physical_count(be, &op->out[0]));
    if (op->n_out == 2)
        add_to(be->threads, out[1], (const float *)((char *)scratch + s->db_offset), tensor_count(&op->out[1]));
    return status_ok();
}

const Kernel cpu_conv2d = { conv_query, conv_prepare, conv_run, conv_release, NULL };
const Kernel cpu_conv2d_dgrad = { conv_query, conv_prepare, conv_run, conv_release, NULL };
const Kernel cpu_conv2d_wgrad = { conv_query, conv_prepare, wgrad_run, conv_release, NULL };
