/* grad.h - the backward pass as nodes. */
#ifndef BATCHMARK_NETS_GRAD_H
#define BATCHMARK_NETS_GRAD_H

#include "graph.h"

/* Appends to MICRO the gradients of every softmax_xent there that makes one, with respect to every parameter. Each
 * parameter gets a persistent f32 gradient "<name>.grad" that is overwritten by each micro-batch, or added to if
 * `accumulate` (BEGIN must zero it then). Errors: an op without a gradient rule on the way, a parameter that is used twice
 * or does not reach the loss. */
void grad_append(Graph *g, bool accumulate);

/* The gradient that grad_append made for a parameter, or NO_VALUE. */
Value grad_of_param(const Graph *g, Value param);

#endif
