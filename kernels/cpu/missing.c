/* missing.c - kernels that are not written yet: each says so when it is asked. Empties as they come. */
#include "cpu.h"

static Status missing_query(Backend *be, const OpDesc *op, OpNeeds *needs)
{
    (void)be, (void)needs;
    return status_error(STATUS_UNSUPPORTED, "the CPU backend has no %s yet", op_names[op->kind]);
}

const Kernel cpu_attention = { .query = missing_query };
const Kernel cpu_attention_grad = { .query = missing_query };
