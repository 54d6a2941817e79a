/* resnet50.h - the 50-layer residual net of He et al. 2015, arXiv 1512.03385. */
#ifndef BATCHMARK_NETS_RESNET50_H
#define BATCHMARK_NETS_RESNET50_H

#include "nets.h"

/* What the paper leaves to the user; refuses sizes that the stem cannot take. */
Status resnet50_check(const NetConfig *config);

/* Appends the net in the graph's segment: normalised image (N,size,size,channels) -> logits (N,classes). */
Value resnet50_logits(Graph *g, const NetConfig *config, Value x);

#endif
