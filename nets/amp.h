/* amp.h - mixed precision as a pass: activations in 16 bits, everything that sums up over a batch in f32. */
#ifndef BATCHMARK_NETS_AMP_H
#define BATCHMARK_NETS_AMP_H

#include "graph.h"

/* Makes every float activation from node `first` on of a type, bf16 or f16. To be called on a forward graph, before
 * grad_append. Master weights, scale, shift and statistics of normalisations, biases, the loss and every parameter gradient
 * stay f32 (Micikevicius et al. 2018, arXiv 1710.03740). bf16 has the exponent of f32; f16 has not, so there the loss needs a
 * scale (optim.h). */
void amp_apply(Graph *g, int first, Dtype type);

#endif
