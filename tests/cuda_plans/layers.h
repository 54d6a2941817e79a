/* layers.h - the layers of the three nets that cuDNN does, each different one once. */
#ifndef BATCHMARK_TESTS_CUDA_PLANS_LAYERS_H
#define BATCHMARK_TESTS_CUDA_PLANS_LAYERS_H

#include "nets/nets.h"

typedef struct Layers { OpDesc *op; int count, room; } Layers;

/* Adds the convolutions of a net in its standard form, forward and backward, that are not there yet. */
Status layers_add(Layers *l, const char *net, int64_t batch, Amp amp);
void   layers_free(Layers *l);

#endif
