/* optim.h - what happens around the micro-batches: BEGIN, UPDATE, and the compute copies of weights. */
#ifndef BATCHMARK_NETS_OPTIM_H
#define BATCHMARK_NETS_OPTIM_H

#include "graph.h"

typedef enum OptimKind { OPTIM_SGD, OPTIM_ADAMW, OPTIM_LAMB, OPTIM_LARS, OPTIM_COUNT } OptimKind;
extern const char *const optim_names[OPTIM_COUNT]; /* "sgd", "adamw", "lamb", "lars" */

typedef struct OptimConfig {
    OptimKind kind;
    float     momentum;               /* sgd, lars */
    float     beta1, beta2, eps;      /* adamw, lamb */
    float     trust;                  /* lars */
    float     weight_decay;
    bool      accumulate, loss_scale;
} OptimConfig;

typedef struct OptimInputs { Value hyper, norm2, control; } OptimInputs;

void optim_append(Graph *g, const OptimConfig *config, const OptimInputs *in);

/* Appends to BEGIN: v = 0. */
void optim_append_zero(Graph *g, Value v);

/* Appends, as the last pass, to UPDATE one `repack` for every pair of parameter and kind of op in MICRO or EVAL that
 * multiplies by it, and makes those nodes read the copy: in the op's own type and, on the backend, its own layout. */
void copies_append(Graph *g);

#endif
