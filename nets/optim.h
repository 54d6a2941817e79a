/* optim.h - what happens around the micro-batches: BEGIN, UPDATE, and the compute copies of weights. */
#ifndef BATCHMARK_NETS_OPTIM_H
#define BATCHMARK_NETS_OPTIM_H

#include "graph.h"

typedef struct SgdConfig {
    float momentum, weight_decay;
    bool  accumulate; /* as in grad_append: BEGIN zeroes the gradients */
} SgdConfig;

/* Appends, after grad_append, SGD with momentum as in torch.optim.SGD with dampening 0:
 *   BEGIN   norm2 = 0; with `accumulate` every gradient = 0
 *   UPDATE  norm2 += |g|^2 over all gradients; then the step, with hyper = {learning rate, 0, 0, 0}
 * Weight decay acts on the parameters marked so; not on batch norm and biases (Goyal et al. 2017, arXiv 1706.02677, 5.3).
 * Each of the two kinds lies side by side in memory, so each is one call. */
void optim_append_sgd(Graph *g, const SgdConfig *config, Value hyper, Value norm2);

/* Appends to BEGIN: v = 0. */
void optim_append_zero(Graph *g, Value v);

/* Appends, as the last pass, to UPDATE one `repack` for every pair of parameter and kind of op in MICRO or EVAL that
 * multiplies by it, and makes those nodes read the copy: in the op's own type and, on the backend, its own layout. */
void copies_append(Graph *g);

#endif
