/* ops.h - what an operation is: a kind, attributes, input and output tensors; shape, FLOP and byte rules.
 *
 * The slots of each op. "act" is a rank-4 activation (LAYOUT_ACT) of f32 or bf16; everything else is f32 unless it
 * says otherwise. (+) marks a slot that is read and written: it keeps what it held. [x] marks an optional trailing slot.
 *
 *   op               inputs                                          outputs                       attributes
 *   normalize_u8     image u8 (N,H,W,C) plain                        y act                         mean[c], deviation[c]
 *                    y = (image / 255 - mean[c]) / deviation[c],  C <= 4
 *   conv2d           x act, w (K,R,R,C) [, bias (K)]                 y act (N,P,Q,K)               kernel, stride, pad, relu
 *   conv2d_dgrad     dy act, w                                       dx act                        kernel, stride, pad; in_h, in_w of x
 *   conv2d_wgrad     x act, dy act                                   dw f32 [, dbias]              kernel, stride, pad, accumulate
 *   relu_grad        dy, y (any shape, same type)                    dx = y > 0 ? dy : 0
 *   batchnorm        x act, gamma, beta, run_mean(+), run_var(+)     y act, mean, invstd           relu, residual, eps, momentum
 *                    [, residual act if attr.residual]               [, mask bit if attr.relu]
 *                    y = relu?(gamma (x - mean) invstd + beta + residual?), statistics over N,H,W of this call,
 *                    biased variance for y, unbiased for run_var; run = (1 - momentum) run + momentum new, left
 *                    unchanged if the new statistics are not finite (cases.md D9). Ioffe & Szegedy 2015.
 *   batchnorm_grad   x act, dy act, gamma, mean, invstd              dx act, dgamma, dbeta         relu, residual, accumulate
 *                    [, mask bit if attr.relu]                       [, dresidual act if attr.residual]
 *   batchnorm_infer  x act, gamma, beta, run_mean, run_var           y act                         relu, residual, eps
 *                    [, residual act if attr.residual]
 *   maxpool          x act                                           y act, index u8 (shape of y)  kernel, stride, pad
 *                    index: place of the maximum in its window, meaning is the backend's; first one wins
 *   maxpool_grad     dy act, index u8                                dx act                        kernel, stride, pad; in_h, in_w
 *   avgpool          x act                                           y (N,C) same type             mean over H,W
 *   avgpool_grad     dy (N,C)                                        dx act                        in_h, in_w
 *   linear           x (M,K), w (O,K) [, bias (O)]                   y (M,O) type of x
 *   linear_dgrad     dy (M,O), w (O,K)                               dx (M,K)
 *   linear_wgrad     x (M,K), dy (M,O)                               dw f32 (O,K) [, dbias (O)]    accumulate
 *   softmax_xent     logits f32 (M,C), labels i32 (M), scale (1)     metrics(+) (4) [, dlogits]
 *                    metrics += {sum of -log p[label], samples whose largest logit is the label's (first wins), samples
 *                    counted, 0}; dlogits = scale (softmax - onehot); label -1 is ignored, any other outside 0..C-1 is
 *                    STATUS_NUMERIC. With scale = 1 / (labels in the whole accumulation window) gradients are of the mean.
 *   add              a, b (same shape and type)                      y = a + b
 *   cast             x                                               y = x in out's type
 *   repack           w f32, any layout                               same values, other type and/or layout
 *   zero             -                                               y = 0 (all bytes, padding too)
 *   sqnorm           x f32                                           sum(+) (1) += sum of squares  (double inside)
 *   sgd              g f32, hyper (4) = {lr, 0, 0, 0}                w(+), m(+)                    momentum, weight_decay, nesterov
 *                    g' = g + weight_decay w; m = momentum m + g'; w -= lr (nesterov ? g' + momentum m : m)
 *                    (torch.optim.SGD with dampening 0; m starts at 0)
 *
 * accumulate: outputs dw/dbias/dgamma/dbeta are added to instead of overwritten. */
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
    bool    relu, residual, accumulate, nesterov;
    float   eps, momentum, weight_decay;
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
 * conv2d_wgrad/linear_wgrad give dbias only if asked with 2 and softmax_xent gives dlogits only with 2), and for cast
 * and repack out[0].dtype says the type. STATUS_USAGE with the op, the slot and both shapes otherwise. */
Status op_infer(OpDesc *op);

/* Work of one call: floating point operations as the field counts them (2 per multiply-add; only convolutions, matrix
 * products, normalisations and elementwise arithmetic count) and bytes that have to move at least once (each input
 * read once, each output written once; read-and-written slots count twice). */
typedef struct OpCost { double flops, bytes; } OpCost;
OpCost op_cost(const OpDesc *op);

/* True for outputs (slot) that the op reads as well as writes, given its attributes: marked (+), or accumulating. */
bool op_out_is_inout(const OpDesc *op, int slot);

/* True for inputs (slot) that the op updates in place: the running statistics of batchnorm. */
bool op_in_is_inout(const OpDesc *op, int slot);

/* One line for messages and --print-graph: "conv2d f32[8,56,56,64] f32[64,3,3,64] -> f32[8,56,56,64] k3 s1 p1". */
const char *op_format(const OpDesc *op, char *text, size_t size);

#ifdef __cplusplus
}
#endif
#endif
