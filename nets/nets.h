/* nets.h - the nets of the suite by name, ready to train: what bench/ uses of this layer. */
#ifndef BATCHMARK_NETS_NETS_H
#define BATCHMARK_NETS_NETS_H

#include "exec.h"
#include "graph.h"

typedef enum Amp { AMP_OFF, AMP_BF16, AMP_COUNT } Amp; /* off = fp32 throughout */
extern const char *const amp_names[AMP_COUNT];         /* "off", "bf16" */

typedef enum Stem { STEM_STANDARD, STEM_SMALL, STEM_COUNT } Stem;
extern const char *const stem_names[STEM_COUNT];       /* "standard": 7x7/2 + max pool; "small": 3x3/1, no pool */

typedef struct NetConfig {
    const char *net;         /* "resnet50" */
    int64_t     batch;       /* micro-batch, >= 1 */
    int64_t     size;        /* input height = width, pixels */
    int64_t     channels;    /* input channels, 3 */
    int64_t     classes;     /* >= 2 */
    double      width;       /* multiplier of every layer's channels, 1.0 = the paper's; rounded to multiples of 16 */
    Stem        stem;
    bool        zero_init_gamma; /* last batch norm of a block starts at 0 (Goyal et al. 2017, 5.1) */
    Amp         amp;
    bool        accumulate;  /* gradients of several micro-batches are added up before an update */
    bool        train;       /* backward and update */
    bool        eval;        /* EVAL segment */
    float       momentum, weight_decay;
    float       mean[3], deviation[3]; /* input normalisation */
} NetConfig;

/* resnet50, batch 8, 224, 3 channels, 1000 classes, width 1, fp32, momentum 0.9, weight decay 1e-4, train only,
 * ImageNet's mean and deviation. */
NetConfig net_config_default(void);

/* STATUS_USAGE with what is wrong and what is right; net_build checks the same. */
Status net_check(const NetConfig *config);

typedef struct Net {
    NetConfig config;
    Graph    *graph;
    Value     image;    /* u8 (N,H,W,C), host writes */
    Value     labels;   /* i32 (N), host writes; -1 = no sample in this slot */
    Value     scale;    /* f32 (1), host writes: 1 / samples of the whole window */
    Value     hyper;    /* f32 (8), host writes: {learning rate, 0 ...}, see kernels/ops.h */
    Value     control;  /* f32 (8), kept by UPDATE, see kernels/ops.h */
    Value     metrics;  /* f32 (4), zeroed by BEGIN: {loss sum, correct, counted, 0} */
    Value     norm2;    /* f32 (1), zeroed by BEGIN: squared global gradient norm after UPDATE */
    Value     eval_metrics; /* f32 (4), host zeroes: the same over EVAL runs */
    Value     logits;   /* f32 (N,classes) of MICRO */
} Net;

/* Builds the graph and all passes. STATUS_USAGE with what is wrong and what is right; STATUS_OOM. */
Status net_build(const NetConfig *config, Net *out);
void   net_destroy(Net *net);

/* Comma-separated names net_build takes. */
const char *net_names(void);

/* One micro-batch's host data. */
typedef struct MicroBatch { const uint8_t *pixels; const int32_t *labels; } MicroBatch;

typedef struct StepResult { double loss, accuracy, grad_norm; int64_t samples; } StepResult;

/* A training session: a net bound to a backend. */
typedef struct Session { Net *net; Exec *exec; double copy_seconds; } Session;

/* One whole update as its parts, so that the caller can interleave loading: begin; micro for each micro-batch;
 * update. window = labelled samples in the whole window (for the mean). Values read back only in step_end. */
Status step_begin(Session *s, int64_t window);
Status step_micro(Session *s, const MicroBatch *batch);
Status step_update(Session *s, float learning_rate);
Status step_result(Session *s, StepResult *out); /* waits; reads metrics and norm. STATUS_NUMERIC if the loss is not finite */

/* Forward of one evaluation batch, added to the running totals; eval_begin zeroes, eval_result reads. */
Status eval_begin(Session *s);
Status eval_batch(Session *s, const MicroBatch *batch);
Status eval_result(Session *s, StepResult *out);

#endif
