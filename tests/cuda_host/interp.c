/* interp.c - jobs: load, compute op by op, store. See interp.h. */
#include "interp.h"

#include <stdlib.h>
#include <string.h>

const int interp_inputs[INTERP_KINDS] = {
    [INTERP_CONV] = 2,      [INTERP_CONV_DGRAD] = 2, [INTERP_CONV_WGRAD] = 2, [INTERP_POINTWISE] = 4,
    [INTERP_REDUCE] = 1,    [INTERP_MATMUL] = 5,     [INTERP_RESHAPE] = 1,    [INTERP_NORM] = 9,
    [INTERP_NORM_GRAD] = 5, [INTERP_POOL] = 1,       [INTERP_POOL_GRAD] = 2,  [INTERP_GENSTATS] = 1,
};

static void (*const run[INTERP_KINDS])(const InterpJob *job, const InterpOp *op) = {
    [INTERP_CONV] = interp_conv, [INTERP_CONV_DGRAD] = interp_conv, [INTERP_CONV_WGRAD] = interp_conv,
    [INTERP_POINTWISE] = interp_pointwise, [INTERP_REDUCE] = interp_reduce, [INTERP_MATMUL] = interp_matmul,
    [INTERP_RESHAPE] = interp_reshape, [INTERP_NORM] = interp_norm, [INTERP_NORM_GRAD] = interp_norm_grad,
    [INTERP_POOL] = interp_pool, [INTERP_POOL_GRAD] = interp_pool_grad, [INTERP_GENSTATS] = interp_genstats,
};

/* Doubles that an op wants besides its tensors. */
static int64_t scratch_of(const InterpGraph *g, const InterpOp *op)
{
    switch (op->kind) {
    case INTERP_CONV: case INTERP_CONV_DGRAD: case INTERP_CONV_WGRAD:
        return g->tensor[op->slot[0]].count + g->tensor[op->slot[1]].count + 2 * g->tensor[op->slot[2]].count;
    case INTERP_NORM_GRAD:
        return g->tensor[op->slot[GRAD_X]].count + 2 * g->tensor[op->slot[GRAD_MEAN]].count;
    case INTERP_RESHAPE:
        return interp_extent(&g->tensor[op->slot[0]]) * (g->tensor[op->slot[0]].ragged >= 0 ? g->tensor[op->slot[0]].dim[0] : 1);
    default:
        return 0;
    }
}

static const double *offsets_of(const InterpJob *job, const InterpTensor *t)
{
    return t->ragged < 0 ? NULL : job->value[t->ragged];
}

InterpJob *interp_job_create(const InterpGraph *graph, void *const *memory)
{
    int64_t scratch = 1;
    InterpJob *job = calloc(1, sizeof *job);
    if (!job)
        return NULL;
    job->graph = graph;
    job->memory = calloc((size_t)graph->tensors, sizeof *job->memory);
    job->value = calloc((size_t)graph->tensors, sizeof *job->value);
    for (int i = 0; i < graph->ops; i++)
        if (scratch_of(graph, &graph->op[i]) > scratch)
            scratch = scratch_of(graph, &graph->op[i]);
    job->scratch = malloc((size_t)scratch * sizeof *job->scratch);
    bool whole = job->memory && job->value && job->scratch;
    for (int i = 0; whole && i < graph->tensors; i++) {
        job->memory[i] = memory[i];
        job->value[i] = malloc((size_t)graph->tensor[i].count * sizeof **job->value);
        whole = job->value[i] != NULL;
        if (whole && graph->tensor[i].by_value)
            interp_load(&graph->tensor[i], memory[i], NULL, job->value[i]);
    }
    if (!whole) {
        interp_job_destroy(job);
        return NULL;
    }
    return job;
}

void interp_job_destroy(InterpJob *job)
{
    if (!job)
        return;
    for (int i = 0; job->value && i < job->graph->tensors; i++)
        free(job->value[i]);
    free(job->value);
    free(job->memory);
    free(job->scratch);
    free(job);
}

static void load(InterpJob *job, bool ragged)
{
    for (int i = 0; i < job->graph->tensors; i++) {
        const InterpTensor *t = &job->graph->tensor[i];
        if (t->read && !t->is_virtual && !t->by_value && (t->ragged >= 0) == ragged)
            interp_load(t, job->memory[i], offsets_of(job, t), job->value[i]);
    }
}

void interp_job_run(InterpJob *job)
{
    const InterpGraph *g = job->graph;
    load(job, false); /* the offsets too */
    load(job, true);
    if (job->workspace_bytes > 0)
        memset(job->workspace, 0xff, job->workspace_bytes);
    for (int i = 0; i < g->ops; i++)
        run[g->op[i].kind](job, &g->op[i]);
    for (int i = 0; i < g->tensors; i++)
        if (g->tensor[i].written && !g->tensor[i].is_virtual)
            interp_store(&g->tensor[i], job->memory[i], offsets_of(job, &g->tensor[i]), job->value[i]);
}
