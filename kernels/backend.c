/* backend.c - finds a backend by name; the only file that knows which ones there are. */
#include "backend.h"

#include <stdlib.h>
#include <string.h>

extern const BackendVtable cpu_backend, cuda_backend; /* without the toolkit cuda_backend is that of cuda_absent.c */

/* "cuda" or "cuda:<ordinal>" into the ordinal; false if it is neither. */
static bool parse_cuda(const char *name, int *ordinal)
{
    *ordinal = 0;
    if (strncmp(name, "cuda", 4))
        return false;
    if (!name[4])
        return true;
    char *end;
    long  n = strtol(name + 5, &end, 10);
    if (name[4] != ':' || name[5] < '0' || name[5] > '9' || *end || n > 1023)
        return false;
    *ordinal = (int)n;
    return true;
}

Status backend_open(const char *name, const BackendOptions *options, Backend **out)
{
    *out = NULL;
    BackendOptions chosen = options ? *options : (BackendOptions){ 0 };
    if (!strcmp(name, "cpu") && !chosen.gpu)
        return cpu_backend.open(&chosen, out);
    if (parse_cuda(name, &chosen.ordinal) || (chosen.gpu && !strcmp(name, "auto")))
        return cuda_backend.open(&chosen, out);
    if (chosen.gpu)
        return status_error(STATUS_USAGE, "a plan for '%s' is made for device auto or cuda, not '%s'", chosen.gpu, name);
    if (strcmp(name, "auto"))
        return status_error(STATUS_USAGE, "device '%s' is not known: use auto, cpu, cuda or cuda:<number>", name);
    Status s = cuda_backend.open(&chosen, out);
    if (s.code == STATUS_OK)
        return s;
    if (s.code != STATUS_UNSUPPORTED) /* there is a GPU, and it does not work */
        log_warn("no GPU is used: %s", s.text);
    return cpu_backend.open(&chosen, out);
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

void device_trace_free(DeviceTrace *trace)
{
    free(trace->events);
    free(trace->names);
    *trace = (DeviceTrace){ 0 };
}
