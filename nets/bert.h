/* bert.h - BERT; see bert.c. Used by nets.c alone. */
#ifndef BATCHMARK_NETS_BERT_H
#define BATCHMARK_NETS_BERT_H

#include "nets.h"

/* What the net cannot be built with: STATUS_USAGE. */
Status bert_check(const NetConfig *config);

/* From the net's inputs (tokens, positions, types, spans, rows, rng) to the logits of its head. */
Value bert_logits(Graph *g, const Net *net);

#endif
