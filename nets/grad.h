/* grad.h - the backward pass as nodes. */
#ifndef BATCHMARK_NETS_GRAD_H
#define BATCHMARK_NETS_GRAD_H

#include "graph.h"

/* Appends to MICRO the gradients of every loss there that makes one, with respect to every parameter. Each
 * parameter gets a persistent f32 gradient "<name>.grad" that is overwritten by each micro-batch, or added to if
 * `accumulate` (BEGIN must zero it then). A parameter may be used several times: its gradients add up. Errors: an op without
 * a gradient rule on the way, a parameter that does not reach the loss. */
void grad_append(Graph *g, bool accumulate);

/* The gradient that grad_append made for a parameter, or NO_VALUE. */
Value grad_of_param(const Graph *g, Value param);

#endif
