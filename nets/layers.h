/* layers.h - the building blocks of nets: each appends one or two nodes and makes its parameters.
 *
 * `name` becomes part of the scope while the layer is appended: in scope "conv3.0" the layer "conv2" has the nodes
 * "conv3.0.conv2" and the parameter "conv3.0.conv2.w". In the segment EVAL a layer takes the parameters of that name that
 * are there already instead of making new ones, and batch norm uses its running statistics: so the same function builds
 * a net for training and for evaluation.
 *
 * Images are (N,H,W,C) activations, matrices (rows, features). Errors go to the graph's sticky status. */
#ifndef BATCHMARK_NETS_LAYERS_H
#define BATCHMARK_NETS_LAYERS_H

#include "graph.h"

/* u8 (N,H,W,C) in 0..255 -> activation (image / 255 - mean[c]) / deviation[c]; C <= 4. */
Value layer_normalize(Graph *g, const char *name, Value image, const float *mean, const float *deviation);

/* Square convolution with padding kernel / 2 ("same" at stride 1), no bias: batch norm follows. Weights start normal with
 * deviation sqrt(2 / (channels kernel^2)): He et al. 2015, arXiv 1502.01852, eq. 14, "fan out" as in torchvision. */
Value layer_conv(Graph *g, const char *name, Value x, int kernel, int64_t channels, int stride);

/* The same with a bias, which starts at 0, and ReLU: for nets without batch norm. */
Value layer_conv_bias_relu(Graph *g, const char *name, Value x, int kernel, int64_t channels, int stride);

/* The same with a bias that starts at 0 and nothing after it: the last layer of a net that keeps its pixels. */
Value layer_conv_bias(Graph *g, const char *name, Value x, int kernel, int64_t channels, int stride);

/* Up-convolution: 2x2 transposed convolution of stride 2, (N,H,W,C) -> (N,2H,2W,channels), no bias: batch norm follows. Each
 * output pixel sees one input pixel through one of four matrices. Weights (C,2,2,channels) start normal with deviation
 * sqrt(2 / channels): the fan-out of layer_conv, over the one tap that an output sees. */
Value layer_upconv(Graph *g, const char *name, Value x, int64_t channels);

/* Channels of a, then those of b. */
Value layer_concat(Graph *g, const char *name, Value a, Value b);

/* Batch norm over N,H,W (Ioffe & Szegedy 2015) with eps 1e-5 and running averages of momentum 0.1 in PyTorch's sense,
 * updated once per micro-batch. gamma starts at 1, beta at 0; neither decays. */
Value layer_batchnorm(Graph *g, const char *name, Value x);
Value layer_batchnorm_relu(Graph *g, const char *name, Value x);

/* relu(batchnorm(x) + residual): the end of a residual block. gamma starts at 1, or at 0 if zero_gamma. */
Value layer_batchnorm_add_relu(Graph *g, const char *name, Value x, Value residual, bool zero_gamma);

Value layer_maxpool(Graph *g, const char *name, Value x, int kernel, int stride); /* padding (kernel - 1) / 2 */
Value layer_global_avgpool(Graph *g, const char *name, Value x);                  /* (N,H,W,C) -> (N,C) */

/* (M,K) -> (M,outputs). Weights and bias start uniform in +-1/sqrt(K), as torch.nn.Linear's. */
Value layer_linear(Graph *g, const char *name, Value x, int64_t outputs);

/* Softmax cross-entropy of f32 logits (M,C): adds {loss sum, correct, counted, 0} to metrics (4). In MICRO it also makes
 * the gradient of scale (1) times the loss sum, from which grad_append starts. Labels of -1 do not count. */
void layer_loss(Graph *g, const char *name, Value logits, Value labels, Value scale, Value metrics);

/* The same for masks u8 (N,H,W), 255 = does not count: cross-entropy of each pixel with logits (N,H,W,C), or one BCE + soft Dice
 * an image with logits (N,H,W,1). What they add to metrics (5 + 3 C), (8): ops.h. */
void layer_pixel_loss(Graph *g, const char *name, Value logits, Value mask, Value scale, Value metrics);
void layer_bce_dice(Graph *g, const char *name, Value logits, Value mask, Value scale, Value metrics);

/* A paper's number of channels times a width, to the nearest multiple of 16, at least 16: what vector units like. */
int64_t layer_scaled_channels(int channels, double width);

/* C of an activation (N,H,W,C). */
int64_t layer_channels(const Graph *g, Value x);

#endif
