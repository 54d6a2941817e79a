/* nets.h - the nets of the suite by name, ready to train: what bench/ uses of this layer. */
#ifndef BATCHMARK_NETS_NETS_H
#define BATCHMARK_NETS_NETS_H

#include "exec.h"
#include "graph.h"
#include "optim.h"

/* off = fp32 throughout; fp16 comes with a loss scale; tf32 is the graph of off, on a backend that was opened with tf32. */
typedef enum Amp { AMP_OFF, AMP_BF16, AMP_FP16, AMP_TF32, AMP_COUNT } Amp;
extern const char *const amp_names[AMP_COUNT]; /* "off", "bf16", "fp16", "tf32" */

typedef enum Stem { STEM_STANDARD, STEM_SMALL, STEM_COUNT } Stem; /* of resnet50 */
extern const char *const stem_names[STEM_COUNT];       /* "standard": 7x7/2 + max pool; "small": 3x3/1, no pool */

typedef enum Head { HEAD_MASKED, HEAD_ALL, HEAD_CLASSIFY, HEAD_COUNT } Head; /* of bert */
extern const char *const head_names[HEAD_COUNT];       /* "masked": masked LM, target rows only; "all": every row; "classify" */

typedef struct NetConfig {
    const char *net;         /* one of net_names() */
    int64_t     batch;       /* micro-batch: images or sequences, >= 1 */
    int64_t     size;        /* images: height = width in pixels; bert: longest sequence in tokens */
    int64_t     classes;     /* >= 2; unet also 1: one logit a pixel, trained with BCE + soft Dice */
    /* images */
    int64_t     channels;    /* input channels, 1 to 3 */
    double      width;       /* multiplier of every layer's channels, 1.0 = the paper's; rounded to multiples of 16 */
    float       mean[3], deviation[3]; /* input normalisation */
    Stem        stem;
    bool        zero_init_gamma; /* resnet50: last batch norm of a block starts at 0 (Goyal et al. 2017, 5.1) */
    int64_t     depth;       /* unet: levels of pooling */
    int         stem_stride; /* unet: 1, or 2 to halve all feature maps (claim A8) */
    /* bert */
    int64_t     layers, hidden, heads, vocab, positions;
    int64_t     rows;        /* of tokens in a micro-batch; 0 = batch x size, less or more where sequences are packed */
    Head        head;
    float       dropout;
    /* training */
    Amp         amp;
    bool        accumulate;  /* gradients of several micro-batches are added up before an update */
    bool        train;       /* backward and update */
    bool        eval;        /* EVAL segment */
    OptimConfig optim;       /* accumulate and loss_scale in it follow from the members above */
} NetConfig;

/* The standard form of a net, by name (NULL = resnet50): batch 8, fp32, train only; resnet50 224 pixels and unet 256 with
 * ImageNet's mean and deviation and SGD of momentum 0.9; bert-base with sequences of 128, masked LM, dropout 0.1 and AdamW.
 * An unknown name gives the form of resnet50 under that name, which net_check refuses. */
NetConfig net_config_default(const char *net);

/* STATUS_USAGE with what is wrong and what is right; net_build checks the same. */
Status net_check(const NetConfig *config);

/* True for bert: its inputs are tokens, its size is the length of a sequence. */
bool net_is_text(const NetConfig *config);

/* What the loss is a mean over. */
typedef enum LossKind {
    LOSS_CLASSES, /* labelled rows: images, sequences, or target tokens */
    LOSS_PIXELS,  /* labelled pixels */
    LOSS_DICE     /* images: BCE + soft Dice */
} LossKind;
LossKind net_loss(const NetConfig *config);

/* Rows of text in a micro-batch, and rows that the head of bert sees: target tokens (15 % of each sequence, rounded up;
 * where sequences are packed, of all rows and one a sequence), every row, or one a sequence. */
int64_t net_text_rows(const NetConfig *config);
int64_t net_head_rows(const NetConfig *config);

typedef struct Net {
    NetConfig config;
    Graph    *graph;
    /* What the host writes before each micro-batch; NO_VALUE where this net has none. */
    Value     image;     /* u8 (N,H,W,C) */
    Value     labels;    /* i32 (N), bert (net_head_rows); -1 = nothing in this slot */
    Value     mask;      /* u8 (N,H,W): class of each pixel, 255 = none */
    Value     tokens, positions, types; /* i32 (net_text_rows); -1 = no token */
    Value     spans;     /* i32 (N,2): first row and rows of each sequence */
    Value     rows;      /* i32 (net_head_rows): rows of the targets, or of the first tokens; -1 = none */
    Value     rng;       /* i32 (4): seed, draw; see kernels/dropout.h */
    /* What the host writes once an update. */
    Value     scale;     /* f32 (1): 1 / what the loss counts in the whole window */
    Value     hyper;     /* f32 (8): learning rate and the rest, see ops.h */
    /* What the device keeps. */
    Value     metrics;   /* f32, zeroed by BEGIN: {loss sum, hits, counted, ...}, see ops.h */
    Value     norm2;     /* f32 (1), zeroed by BEGIN: squared global gradient norm after UPDATE, unscaled, before clipping */
    Value     control;   /* f32 (8): loss scale and its history */
    Value     eval_metrics; /* as metrics, host zeroes, over EVAL runs */
    Value     logits;    /* of MICRO */
} Net;

/* A net without a graph, every value NO_VALUE: where building starts. */
Net net_blank(const NetConfig *config);

/* Builds the graph and all passes. STATUS_USAGE with what is wrong and what is right; STATUS_OOM. */
Status net_build(const NetConfig *config, Net *out);
void   net_destroy(Net *net);

/* Comma-separated names net_build takes; and such a name as it stands for the whole run, NULL if it is none. */
const char *net_names(void);
const char *net_known_name(const char *name);

/* One micro-batch's host data: what the net has values for, NULL for the rest. */
typedef struct MicroBatch {
    const uint8_t *pixels;
    const int32_t *labels;
    const uint8_t *mask;
    const int32_t *tokens, *positions, *types, *spans, *rows;
    int64_t        counted; /* what the loss counts in it: labelled images, pixels, tokens */
} MicroBatch;

/* Means over what the loss counted. dice: 2 |P n T| / (|P| + |T|) over all pixels together, its mean over classes 1 and up;
 * image_dice: mean of the images' own; both NaN where the net has no masks. */
typedef struct StepResult {
    double  loss, accuracy, dice, image_dice, grad_norm;
    int64_t counted;
    bool    skipped;       /* gradients were not finite under fp16: nothing was changed */
    double  loss_scale;    /* of the next window; 1 without fp16 */
    int64_t skips, skips_in_row;
} StepResult;

/* How an update is made, fixed for a run. Start with session_rules(). */
typedef struct UpdateRules { float max_norm; int growth_interval; } UpdateRules;

/* A training session: a net bound to a backend. */
typedef struct Session {
    Net        *net;
    Exec       *exec;
    UpdateRules rules;
    uint64_t    seed;          /* of dropout */
    uint32_t    draws;         /* micro-batches so far */
    double      copy_seconds;
} Session;

/* No clipping; the loss scale doubles after 2,000 finite updates (torch.amp.GradScaler). */
UpdateRules session_rules(void);

/* One whole update as its parts, so that the caller can interleave loading: begin; micro for each micro-batch;
 * update. window = what the loss counts in the whole window (for the mean). Values are read back only in step_result. */
Status step_begin(Session *s, int64_t window);
Status step_write(Session *s, const MicroBatch *batch); /* the first part of step_micro: host data to the device */
Status step_micro(Session *s, const MicroBatch *batch);
Status step_update(Session *s, float learning_rate);

/* Waits; reads metrics, norm and control. STATUS_NUMERIC with the first number that is not finite if the loss is not, except
 * under fp16 while the loss scale can still fall; there, after 20 skipped updates in a row that have
 * brought it to the least. */
Status step_result(Session *s, StepResult *out);

/* Forward of one evaluation batch, added to the running totals; eval_begin zeroes, eval_result reads: STATUS_NUMERIC if the
 * loss is not finite. */
Status eval_begin(Session *s);
Status eval_batch(Session *s, const MicroBatch *batch);
Status eval_result(Session *s, StepResult *out);

#endif
