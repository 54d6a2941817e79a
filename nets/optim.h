/* optim.h - what happens around the micro-batches: BEGIN, UPDATE, and the compute copies of weights. */
#ifndef BATCHMARK_NETS_OPTIM_H
#define BATCHMARK_NETS_OPTIM_H

#include "graph.h"

typedef enum OptimKind { OPTIM_SGD, OPTIM_ADAMW, OPTIM_LAMB, OPTIM_LARS, OPTIM_COUNT } OptimKind;
extern const char *const optim_names[OPTIM_COUNT]; /* "sgd", "adamw", "lamb", "lars" */

typedef struct OptimConfig {
    OptimKind kind;
    float     momentum;     /* SGD, LARS */
    float     beta1, beta2; /* AdamW, LAMB */
    float     eps;          /* AdamW, LAMB; above 0 */
    float     weight_decay;
    float     trust;        /* LARS */
    bool      accumulate;   /* as in grad_append: BEGIN zeroes the gradients */
    bool      loss_scale;   /* of fp16: the loss was scaled with optim_window_scale, an update may be skipped */
} OptimConfig;

typedef struct OptimInputs {
    Value hyper;   /* f32 (8), host writes, see ops.h */
    Value norm2;   /* f32 (1): squared norm of the unscaled gradient after UPDATE, before clipping */
    Value control; /* f32 (8), persistent, see ops.h; gets its start here: scale 1, with `loss_scale` 65536 */
} OptimInputs;

/* Appends, after grad_append, one optimiser as it is in kernels/ops.h:
 *   BEGIN   norm2 = 0; with `accumulate` every gradient = 0; with `loss_scale` a copy of the running statistics of batch norm
 *   UPDATE  norm2 += |g|^2 over all gradients; control; the step; with `loss_scale` the statistics back if it was skipped, so
 *           that a skipped update leaves nothing behind
 * Weight decay acts on the parameters marked so, not on normalisations and biases (Goyal et al. 2017, arXiv 1706.02677, 5.3);
 * these are also the ones whose learning rate LAMB and LARS adapt. Each of the two sorts lies side by side in memory, so each
 * is one call. */
void optim_append(Graph *g, const OptimConfig *config, const OptimInputs *in);

/* Appends to the current segment: scale times the loss scale of this window, for the loss to take as its scale. */
Value optim_window_scale(Graph *g, Value scale, Value control);

/* Appends to BEGIN: v = 0. */
void optim_append_zero(Graph *g, Value v);

/* Appends, as the last pass, to UPDATE one `repack` for every pair of parameter and kind of op in MICRO or EVAL that
 * multiplies by it, and makes those nodes read the copy: in the op's own type and, on the backend, its own layout. */
void copies_append(Graph *g);

#endif
