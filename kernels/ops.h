/* ops.h - what an operation is: a kind, attributes, input and output tensors; shape, FLOP and byte rules.
 *
 * The slots of each op. "float" is f32, bf16 or f16. "act" is a rank-4 activation (LAYOUT_ACT) of a float type; a matrix
 * (M,K) is plain and of a float type; everything else is f32 unless it says otherwise. (+) marks a slot that is read and
 * written: it keeps what it held. [x] marks an optional trailing slot. (= x) marks an output that may lie in the memory of
 * that input (of the same slot size), which then dies with this op.
 *
 * Images
 *   op               inputs                                          outputs                       attributes
 *   normalize_u8     image u8 (N,H,W,C) plain                        y act                         mean[c], deviation[c]
 *                    y = (image / 255 - mean[c]) / deviation[c],  C <= 4
 *   conv2d           x act, w (K,R,R,C) [, bias (K)]                 y act (N,P,Q,K)               kernel, stride, pad, relu
 *   conv2d_dgrad     dy act, w                                       dx act                        kernel, stride, pad; in_h, in_w of x
 *                    also the up-convolution: dy is its input, dx its output, w (inputs,R,R,outputs)
 *   conv2d_wgrad     x act, dy act                                   dw f32 [, dbias]              kernel, stride, pad, accumulate
 *   relu_grad        dy, y (any shape, same type)                    dx = y > 0 ? dy : 0  (= dy)
 *   batchnorm        x act, gamma, beta, run_mean(+), run_var(+)     y act, mean, invstd           relu, residual, eps, momentum
 *                    [, residual act if attr.residual]               [, mask bit if attr.relu]
 *                    y = relu?(gamma (x - mean) invstd + beta + residual?), statistics over N,H,W of this call,
 *                    biased variance for y, unbiased for run_var; run = (1 - momentum) run + momentum new, left
 *                    unchanged if the new statistics are not finite (tests/CASES.md D9). Ioffe & Szegedy 2015.
 *   batchnorm_grad   x act, dy act, gamma, mean, invstd              dx act, dgamma, dbeta         relu, residual, accumulate
 *                    [, mask bit if attr.relu]                       [, dresidual act if attr.residual]
 *   batchnorm_infer  x act, gamma, beta, run_mean, run_var           y act                         relu, residual, eps
 *                    [, residual act if attr.residual]
 *   maxpool          x act                                           y act, index u8 (shape of y)  kernel, stride, pad
 *                    index: place of the maximum in its window, meaning is the backend's; first one wins
 *   maxpool_grad     dy act, index u8                                dx act                        kernel, stride, pad; in_h, in_w
 *   avgpool          x act                                           y (N,C) same type             mean over H,W
 *   avgpool_grad     dy (N,C)                                        dx act                        in_h, in_w
 *   concat           a act (N,H,W,A), b act (N,H,W,B), same type     y act (N,H,W,A+B)             a's channels first
 *   concat_grad      dy act (N,H,W,C)                                da (N,H,W,A), db (N,H,W,C-A)  channels = A
 *
 * Matrices and text. T = rows (tokens), W = features. A row that is padding may hold anything finite.
 *   linear           x (M,K), w (O,K) [, bias (O)]                   y (M,O) type of x
 *                    the bias may be rounded to y's type before it is added
 *   linear_dgrad     dy (M,O), w (O,K)                               dx (M,K)
 *   linear_wgrad     x (M,K), dy (M,O)                               dw f32 (O,K) [, dbias (O)]    accumulate
 *   embedding        table (V,W), ids i32 (T), up to 3 such pairs    y (T,W) of out[0].dtype
 *                    y[t] = sum of table_k[ids_k[t]]; an id of -1 adds nothing, any other outside 0..V-1 is STATUS_NUMERIC
 *   embedding_grad   dy (T,W), ids i32 (T)                           dtable f32 (V,W)              rows = V, accumulate
 *                    rows of one id add up in the order of t, so the bits do not depend on the number of threads
 *   gather_rows      x (T,W), rows i32 (P)                           y (P,W) type of x; row -1 gives zeros
 *   gather_rows_grad dy (P,W), rows i32 (P)                          dx (T,W)                      rows = T
 *                    dx[rows[p]] += dy[p] in order of p, 0 elsewhere; a row outside -1..T-1 is STATUS_NUMERIC in both
 *   layernorm        x (M,K), gamma (K), beta (K)                    y (M,K), mean (M), invstd (M) residual, dropout, stream, eps
 *                    [, residual (M,K) if attr.residual]             [, sum (M,K) (= x) if attr.residual]
 *                    [, rng i32 (4) if attr.dropout > 0]
 *                    sum = dropout(x) + residual, product and sum each rounded to f32 and then to its type;
 *                    y = gamma (sum - mean) invstd + beta over each row of sum (without a residual: of x), biased variance.
 *                    dropout only with a residual. Ba et al. 2016.
 *   layernorm_grad   sum (M,K) (or x), dy (M,K), gamma, mean, invstd dx (M,K) (= dy), dgamma, dbeta residual, dropout, stream,
 *                    [, rng i32 (4) if attr.dropout > 0]             [, dresidual (M,K) if attr.dropout > 0]   accumulate
 *                    d = gradient at sum; dx = dropout mask of d, dresidual = d; without dropout dx = d serves for both
 *   gelu             x (M,K)                                         y = x Phi(x), by erf. Hendrycks & Gimpel 2016
 *   gelu_grad        dy (M,K), x (M,K)                               dx (= dy)
 *   tanh             x (M,K)                                         y
 *   tanh_grad        dy (M,K), y (M,K)                               dx (= dy)
 *   dropout          x (M,K), rng i32 (4)                            y (= x)                       dropout, stream
 *                    y = keep ? x / (1 - p) : 0, see kernels/dropout.h; its gradient is the same op on dy
 *   attention        qkv (T,3W), spans i32 (B,2)                     y (T,W), lse f32 (T,heads)    heads, seq, dropout, stream
 *                    [, rng i32 (4) if attr.dropout > 0]
 *                    A row of qkv is q, k, v of W features each, head h has features h D .. h D + D - 1, D = W / heads.
 *                    spans[b] = {first row, rows}: sequence b; rows 0 = no sequence. Within a span and a head
 *                    y = dropout(softmax(q k^T / sqrt(D))) v; lse = log sum exp of the scaled scores. Rows in no span: 0 in both.
 *                    A span outside 0..T, longer than attr.seq or over another is STATUS_NUMERIC. Dropout's row is
 *                    (b heads + h) seq + i, its column j. Vaswani et al. 2017; recomputed as in Dao et al. 2022.
 *   attention_grad   qkv, y, dy, lse, spans [, rng]                  dqkv (T,3W); 0 for rows in no span
 *
 * Losses: scale (1) is 1 / (what is counted in the whole accumulation window), times the loss scale under fp16. dlogits has
 * the type of the logits. metrics (+) adds up: {loss sum, hits, counted, Dice sum, images, then for each class c of pixel_xent
 * and for class 1 of bce_dice {pixels in both, predicted, true}}.
 *   softmax_xent     logits float (M,C), labels i32 (M), scale (1)   metrics(+) (4) [, dlogits (= logits)]
 *                    loss = -log p[label], hits: largest logit is the label's (first wins), counted: rows with a label;
 *                    dlogits = scale (softmax - onehot); label -1 is ignored, any other outside 0..C-1 is STATUS_NUMERIC.
 *   pixel_xent       logits act (N,H,W,C), labels u8 (N,H,W) plain,  metrics(+) (5+3C) [, dlogits (= logits)]
 *                    scale (1)
 *                    the same for each pixel; label 255 is ignored, any other >= C is STATUS_NUMERIC. C <= 64. Dice sum: of the
 *                    foreground (any class above 0) of each image; images: those with a pixel that counts.
 *   bce_dice         logits act (N,H,W,1), mask u8 (N,H,W) plain,    metrics(+) (8) [, dlogits (= logits)]
 *                    scale (1)
 *                    one loss an image: mean over its pixels of binary cross-entropy + 1 - (2 sum p t + 1) / (sum p + sum t + 1)
 *                    with p = sigmoid(logit); mask 255 = pixel ignored, 0 and 1 count, else STATUS_NUMERIC; an image of 255 only
 *                    does not count. hits: sum over images of the share of right pixels (logit >= 0); counted = images. Dice of
 *                    an image 2 |P n T| / (|P| + |T|), 1 where both are empty. Sums in double (tests/CASES.md D10).
 *
 * Weights and the update. hyper (8) = {learning rate, largest gradient norm (0 = no clipping), growth interval (0 = no loss
 * scale), growth factor, backoff factor, least scale, largest scale, 0}, written by the host. control (8) = {1 / loss scale of
 * this window, clip coefficient, skip (1 = this update does nothing), loss scale, finite updates in a row, updates skipped,
 * updates done, skipped in a row}, kept by step_control; it starts as {1 / scale, 1, 0, scale, 0, 0, 0, 0}. From one
 * step_control to the next control[3] is the scale of the window that is running, so what comes before step_control divides
 * by it; the optimisers, which come after, read g' = g control[0] control[1] and do nothing at all if control[2] is not 0.
 *   add              a, b (same shape and type)                      y = a + b  (= a or b)
 *   cast             x                                               y = x in out's type
 *   repack           w f32, any layout                               same values, other type and/or layout
 *   zero             -                                               y = 0 (all bytes, padding too)
 *   sqnorm           x f32 [, control (8)]                           sum(+) (1) += sum of (x / control[3])^2 (double inside)
 *   window_scale     scale (1), control (8)                          y (1) = scale control[3]
 *   step_control     hyper (8), sum (1)                              control(+) (8)
 *                    the scaler of torch.amp.GradScaler and torch.nn.utils.clip_grad_norm_: control[0] = 1 / control[3];
 *                    with a loss scale, skip = sum is not finite; clip = max_norm > 0 and no skip ?
 *                    min(1, max_norm / (sqrt(sum) + 1e-6)) : 1; then the scale for the next window: x backoff after a skip
 *                    (not below the least), x growth after `interval` finite updates in a row (not above the largest), which
 *                    are then counted anew; control[6] counts the updates that are not skipped.
 *   sgd              g, hyper (8), control (8)                       w(+), m(+)                    momentum, weight_decay, nesterov
 *                    d = g' + weight_decay w; m = momentum m + d; w -= lr (nesterov ? d + momentum m : m)
 *                    (torch.optim.SGD with dampening 0; m starts at 0)
 *   adamw            g, hyper, control                               w(+), m(+), v(+)              beta1, beta2, eps, weight_decay
 *                    w -= lr weight_decay w; m, v: averages of g' and g'^2; t = control[6];
 *                    w -= lr (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps). Loshchilov & Hutter 2019, torch.optim.AdamW
 *   lamb             g, hyper, control, table i32 (n+1)              w(+), m(+), v(+)              beta1, beta2, eps, weight_decay, adapt
 *                    u = m^ / (sqrt(v^) + eps) + weight_decay w; w -= lr r u with r = |w| / |u| of each tensor (1 if either is
 *                    0, or without adapt); tensor i has the elements table[i]..table[i+1]-1 in physical order; a table that
 *                    falls or leaves g is STATUS_NUMERIC. You et al. 2020, algorithm 2
 *   lars             g, hyper, control, table i32 (n+1)              w(+), m(+)                    momentum, trust, weight_decay, adapt
 *                    r = trust |w| / (|g'| + weight_decay |w|) of each tensor (1 if either norm is 0, or without adapt);
 *                    m = momentum m + lr r (g' + weight_decay w); w -= m. You et al. 2017, arXiv 1708.03888
 *   restore          saved f32, control (8)                          x(+) = control[2] ? saved : x
 *
 * accumulate: outputs dw/dbias/dgamma/dbeta/dtable are added to instead of overwritten. */
#ifndef BATCHMARK_KERNELS_OPS_H
#define BATCHMARK_KERNELS_OPS_H

#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum OpKind {
#define OP(name) OP_##name,
#include "ops.def"
#undef OP
    OP_COUNT
} OpKind;

extern const char *const op_names[OP_COUNT];

enum { OP_MAX_IN = 8, OP_MAX_OUT = 4 };

typedef struct OpAttr {
    int     kernel, stride, pad;   /* square windows */
    int64_t in_h, in_w;            /* of the forward op's input, where the gradient's inputs do not tell */
    int64_t rows, channels;        /* of an output, where the inputs do not tell */
    int64_t seq;                   /* longest sequence of attention */
    int     heads;
    uint32_t stream;               /* of dropout: one number a place in the net */
    bool    relu, residual, accumulate, nesterov, adapt;
    float   dropout;               /* probability of a zero, 0 <= p < 1 */
    float   eps, momentum, weight_decay, beta1, beta2, trust;
    float   mean[4], deviation[4]; /* per channel, in units of 0..1 */
} OpAttr;

typedef struct OpDesc {
    OpKind kind;
    int    n_in, n_out;
    Tensor in[OP_MAX_IN];
    Tensor out[OP_MAX_OUT];
    OpAttr attr;
} OpDesc;

/* Checks kind, number, types and shapes of the inputs against the attributes, then sets n_out and out[]. Before the
 * call, n_out says how many outputs are wanted where some are optional (0 = all the op can give, except that
 * conv2d_wgrad/linear_wgrad give dbias only if asked with 2 and losses give dlogits only with 2), and for cast, repack,
 * normalize_u8 and embedding out[0].dtype says the type. STATUS_USAGE with the op, the slot and both shapes otherwise. */
Status op_infer(OpDesc *op);

/* Work of one call: floating point operations as the field counts them (2 per multiply-add; only convolutions, matrix
 * products, normalisations and elementwise arithmetic count) and bytes that have to move at least once (each input
 * read once, each output written once; read-and-written slots count twice; of a table from which rows are picked by number
 * only so many rows). */
typedef struct OpCost { double flops, bytes; } OpCost;
OpCost op_cost(const OpDesc *op);

/* True for outputs (slot) that the op reads as well as writes, given its attributes: marked (+), or accumulating. */
bool op_out_is_inout(const OpDesc *op, int slot);

/* True for inputs (slot) that the op updates in place: the running statistics of batchnorm. */
bool op_in_is_inout(const OpDesc *op, int slot);

/* The input whose memory output `slot` may take over, marked (= x); `turn` = 0, 1, ... goes through the choices; -1 if there
 * are no more. */
int op_in_place_input(const OpDesc *op, int slot, int turn);

/* One line for messages and --print-graph: "conv2d f32[8,56,56,64] f32[64,3,3,64] -> f32[8,56,56,64] k3 s1 p1". */
const char *op_format(const OpDesc *op, char *text, size_t size);

#ifdef __cplusplus
}
#endif
#endif
