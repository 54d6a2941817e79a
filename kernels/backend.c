/* backend.c - finds a backend by name; the only file that knows which ones this build has. */
#include "backend.h"

#include <string.h>

extern const BackendVtable cpu_backend;

static const BackendVtable *const backends[] = { &cpu_backend };

Status backend_open(const char *name, const BackendOptions *options, Backend **out)
{
    *out = NULL;
    if (!strcmp(name, "auto"))
        return backends[0]->open(options, out);
    for (size_t i = 0; i < COUNT_OF(backends); i++)
        if (!strcmp(name, backends[i]->name))
            return backends[i]->open(options, out);
    return status_error(STATUS_USAGE, "device '%s' is not in this build: use auto or cpu", name);
}

Status backend_query(Backend *be, const OpDesc *op, OpNeeds *needs)
{
    needs->scratch = 0;
    for (int i = 0; i < OP_MAX_IN; i++)
        needs->in_layout[i] = LAYOUT_ANY;
    for (int i = 0; i < OP_MAX_OUT; i++)
        needs->out_layout[i] = LAYOUT_ANY;
    const Kernel *kernel = be->vtable->kernels[op->kind];
    if (!kernel->query)
        return status_ok();
    return status_context(kernel->query(be, op, needs), "%s", op_names[op->kind]);
}
