/* amp.h - mixed precision as a pass: activations in bf16, everything that sums up over a batch in f32. */
#ifndef BATCHMARK_NETS_AMP_H
#define BATCHMARK_NETS_AMP_H

#include "graph.h"

/* Makes every float activation from node `first` on bf16 and casts the logits to f32 before the loss. To be called on a
 * forward graph, before grad_append: the gradient of a cast is a cast. Master weights, batch-norm scale, shift and
 * statistics, biases, the loss and every parameter gradient stay f32 (Micikevicius et al. 2018, arXiv 1710.03740; bf16
 * has the exponent of f32, so the loss needs no scale). */
void amp_apply(Graph *g, int first);

#endif
