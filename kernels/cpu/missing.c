/* missing.c - kernels that are not written yet: each says so when it is asked. Empties as they come. */
#include "cpu.h"

static Status missing_query(Backend *be, const OpDesc *op, OpNeeds *needs)
{
    (void)be, (void)needs;
    return status_error(STATUS_UNSUPPORTED, "the CPU backend has no %s yet", op_names[op->kind]);
}

const Kernel cpu_concat = { .query = missing_query };
const Kernel cpu_concat_grad = { .query = missing_query };
const Kernel cpu_pixel_xent = { .query = missing_query };
const Kernel cpu_bce_dice = { .query = missing_query };
const Kernel cpu_embedding = { .query = missing_query };
const Kernel cpu_embedding_grad = { .query = missing_query };
const Kernel cpu_gather_rows = { .query = missing_query };
const Kernel cpu_gather_rows_grad = { .query = missing_query };
const Kernel cpu_layernorm = { .query = missing_query };
const Kernel cpu_layernorm_grad = { .query = missing_query };
const Kernel cpu_gelu = { .query = missing_query };
const Kernel cpu_gelu_grad = { .query = missing_query };
const Kernel cpu_tanh = { .query = missing_query };
const Kernel cpu_tanh_grad = { .query = missing_query };
const Kernel cpu_dropout = { .query = missing_query };
const Kernel cpu_attention = { .query = missing_query };
const Kernel cpu_attention_grad = { .query = missing_query };
