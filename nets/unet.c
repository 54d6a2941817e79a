/* unet.c - Ronneberger et al. 2015, "U-Net: convolutional networks for biomedical image segmentation", arXiv 1505.04597,
 * Figure 1, with padded convolutions (so that an image and its mask have one size) and batch norm after each of them, as is
 * usual today: 31,036,738 parameters for 3 channels in and 2 classes. (The up-convolutions need no bias: the batch norm behind
 * the next convolution takes a constant out again.)
 *
 * `depth` times down (two 3x3 convolutions, 2x2 max pool) with twice the channels each time, two convolutions at the bottom,
 * as often up again (2x2 up-convolution, the level's own features in front of it, two convolutions), 1x1 to the classes. Stem
 * stride 2 makes the first convolution skip every other pixel: all of the net works at half the resolution, and one more
 * up-convolution brings it back before the head (claim A8). */
#include "unet.h"

#include "layers.h"

#include <inttypes.h>

enum { BASE_CHANNELS = 64, MAX_DEPTH = 6 };

static int64_t level_channels(const NetConfig *config, int64_t level)
{
    return layer_scaled_channels(BASE_CHANNELS << level, config->width);
}

static Value conv_bn_relu(Graph *g, int number, Value x, int64_t channels, int stride)
{
    const char *conv = number == 1 ? "conv1" : "conv2", *bn = number == 1 ? "bn1" : "bn2";
    return layer_batchnorm_relu(g, bn, layer_conv(g, conv, x, 3, channels, stride));
}

static Value double_conv(Graph *g, Value x, int64_t channels, int stride)
{
    return conv_bn_relu(g, 2, conv_bn_relu(g, 1, x, channels, stride), channels, 1);
}

Value unet_logits(Graph *g, const NetConfig *config, Value x)
{
    Value skip[MAX_DEPTH];
    for (int64_t level = 0; level < config->depth; level++) {
        graph_scope(g, "down%" PRId64, level);
        skip[level] = double_conv(g, x, level_channels(config, level), level ? 1 : config->stem_stride);
        x = layer_maxpool(g, "pool", skip[level], 2, 2);
    }
    graph_scope(g, "down%" PRId64, config->depth);
    x = double_conv(g, x, level_channels(config, config->depth), 1);

    for (int64_t level = config->depth - 1; level >= 0; level--) {
        graph_scope(g, "up%" PRId64, level);
        x = layer_upconv(g, "up", x, level_channels(config, level));
        x = double_conv(g, layer_concat(g, "skip", skip[level], x), level_channels(config, level), 1);
    }

    graph_scope(g, "%s", "");
    if (config->stem_stride == 2)
        x = layer_batchnorm_relu(g, "upstem_bn", layer_upconv(g, "upstem", x, level_channels(config, 0)));
    return layer_conv_bias(g, "head", x, 1, config->classes, 1);
}

Status unet_check(const NetConfig *config)
{
    if (config->depth < 1 || config->depth > MAX_DEPTH)
        return status_error(STATUS_USAGE, "unet takes a depth of 1 to %d levels, not %" PRId64, MAX_DEPTH, config->depth);
    if (config->stem_stride != 1 && config->stem_stride != 2)
        return status_error(STATUS_USAGE, "unet takes a stem stride of 1 or 2, not %d", config->stem_stride);
    if (config->classes < 1 || config->classes > 64)
        return status_error(STATUS_USAGE, "unet takes 1 to 64 classes, not %" PRId64, config->classes);
    const int64_t unit = (INT64_C(1) << config->depth) * config->stem_stride;
    if (config->size < unit || config->size % unit)
        return status_error(STATUS_USAGE, "unet of depth %" PRId64 "%s needs images of a multiple of %" PRId64 " pixels, not %"
                            PRId64, config->depth, config->stem_stride == 2 ? " with stem stride 2" : "", unit, config->size);
    return status_ok();
}
