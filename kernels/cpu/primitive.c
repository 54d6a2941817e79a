/* primitive.c - a oneDNN primitive bound to the slots of a kernel; see cpu.h. */
#include "cpu.h"

Status cpu_dnnl_status(dnnl_status_t s, const char *what)
{
    static const char *const names[] = { "success", "out_of_memory", "invalid_arguments", "unimplemented", "iterator_ends",
                                         "runtime_error", "not_required" };
    if (s == dnnl_success)
        return status_ok();
    StatusCode code = s == dnnl_out_of_memory ? STATUS_OOM : s == dnnl_unimplemented ? STATUS_UNSUPPORTED : STATUS_BACKEND;
    int length = 0;
    while (what[length] && what[length] != '(')
        length++;
    return status_error(code, "oneDNN: %.*s: %s", length, what, (unsigned)s < COUNT_OF(names) ? names[s] : "unknown status");
}

Status cpu_unsupported(const char *what, Dtype dtype)
{
    return status_error(STATUS_UNSUPPORTED, "the CPU backend does not %s for %s", what, dtype_name(dtype));
}

Status cpu_query_plain(const OpDesc *op, OpNeeds *needs)
{
    for (int i = 0; i < op->n_in; i++) {
        if (op->in[i].dtype == DTYPE_F16)
            return cpu_unsupported(op_names[op->kind], DTYPE_F16);
        needs->in_layout[i] = LAYOUT_PLAIN;
    }
    for (int i = 0; i < op->n_out; i++) {
        if (op->out[i].dtype == DTYPE_F16)
            return cpu_unsupported(op_names[op->kind], DTYPE_F16);
        needs->out_layout[i] = LAYOUT_PLAIN;
    }
    return status_ok();
}

dnnl_data_type_t cpu_dnnl_type(Dtype t)
{
    static const dnnl_data_type_t types[DTYPE_COUNT] = {
        [DTYPE_F32] = dnnl_f32, [DTYPE_BF16] = dnnl_bf16, [DTYPE_F16] = dnnl_f16, [DTYPE_I32] = dnnl_s32, [DTYPE_U8] = dnnl_u8,
        [DTYPE_BIT] = dnnl_data_type_undef,
    };
    return types[t];
}

Status prim_attr_create(bool relu, bool sum, dnnl_primitive_attr_t *out)
{
    Status status = status_ok();
    dnnl_primitive_attr_t attr = NULL;
    dnnl_post_ops_t ops = NULL;
    DNNL_TRY_GOTO(status, dnnl_primitive_attr_create(&attr), done);
    DNNL_TRY_GOTO(status, dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user), done);
    if (relu || sum) {
        DNNL_TRY_GOTO(status, dnnl_post_ops_create(&ops), done);
        if (sum)
            DNNL_TRY_GOTO(status, compat_append_sum(ops), done);
        if (relu)
            DNNL_TRY_GOTO(status, compat_append_relu(ops), done);
        DNNL_TRY_GOTO(status, dnnl_primitive_attr_set_post_ops(attr, ops), done);
    }
done:
    if (ops)
        dnnl_post_ops_destroy(ops);
    if (status.code != STATUS_OK && attr) {
        dnnl_primitive_attr_destroy(attr);
        attr = NULL;
    }
    *out = attr;
    return status;
}

size_t prim_scratch_bytes(const_dnnl_primitive_desc_t pd)
{
    ConstMemDesc md = dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    return md ? (dnnl_memory_desc_get_size(md) + 63) / 64 * 64 : 0;
}

Status prim_create(CpuBackend *be, Prim *p, const_dnnl_primitive_desc_t pd, size_t scratch_offset)
{
    *p = (Prim){ 0 };
    DNNL_TRY(dnnl_primitive_create(&p->primitive, pd));
    if (prim_scratch_bytes(pd) == 0)
        return status_ok();
    return prim_bind(be, p, DNNL_ARG_SCRATCHPAD, dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0), PRIM_SCRATCH,
                     scratch_offset);
}

Status prim_bind(CpuBackend *be, Prim *p, int arg, ConstMemDesc md, int slot, size_t offset)
{
    CHECK(p->count < PRIM_MAX_ARGS);
    DNNL_TRY(dnnl_memory_create(&p->args[p->count].memory, md, be->engine, DNNL_MEMORY_NONE));
    p->args[p->count].arg = arg;
    p->args[p->count].slot = slot;
    p->args[p->count].offset = offset;
    p->count++;
    return status_ok();
}

Status prim_run(CpuBackend *be, Prim *p, void *const *buf, void *scratch)
{
    dnnl_exec_arg_t args[PRIM_MAX_ARGS];
    for (int i = 0; i < p->count; i++) {
        void *address = p->args[i].slot == PRIM_SCRATCH ? (char *)scratch + p->args[i].offset : buf[p->args[i].slot];
        DNNL_TRY(dnnl_memory_set_data_handle(p->args[i].memory, address));
        args[i].arg = p->args[i].arg;
        args[i].memory = p->args[i].memory;
    }
    DNNL_TRY(dnnl_primitive_execute(p->primitive, be->stream, p->count, args));
    return status_ok();
}

void prim_release(Prim *p)
{
    for (int i = 0; i < p->count; i++)
        dnnl_memory_destroy(p->args[i].memory);
    if (p->primitive)
        dnnl_primitive_destroy(p->primitive);
    *p = (Prim){ 0 };
}
