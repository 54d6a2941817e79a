/* resnet50.c - He et al. 2015, "Deep residual learning for image recognition", arXiv 1512.03385, Table 1, column
 * "50-layer", with the stride on the 3x3 convolution ("v1.5", as torchvision has it): 25,557,032 parameters.
 *
 * Convolutions start normal with fan-out scaling, the last layer as torch.nn.Linear does, both as in torchvision.
 * The small stem, for images of 32 pixels or so, is the paper's own for CIFAR-10 (section 4.2): 3x3, stride 1, no pool. */
#include "resnet50.h"

#include "layers.h"

#include <inttypes.h>

static const struct { const char *name; int mid, out, blocks, stride; } stages[] = {
    { "conv2",  64,  256, 3, 1 },
    { "conv3", 128,  512, 4, 2 },
    { "conv4", 256, 1024, 6, 2 },
    { "conv5", 512, 2048, 3, 2 },
};

static int64_t scaled(const NetConfig *config, int channels)
{
    return layer_scaled_channels(channels, config->width);
}

/* x -> 1x1 mid -> 3x3 mid (stride) -> 1x1 out, plus x itself or, where the shape changes, its 1x1 projection. */
static Value bottleneck(Graph *g, Value x, int64_t mid, int64_t out, int stride, bool zero_gamma)
{
    Value shortcut = x;
    if (stride != 1 || layer_channels(g, x) != out)
        shortcut = layer_batchnorm(g, "project_bn", layer_conv(g, "project", x, 1, out, stride));

    Value y = layer_batchnorm_relu(g, "bn1", layer_conv(g, "conv1", x, 1, mid, 1));
    y = layer_batchnorm_relu(g, "bn2", layer_conv(g, "conv2", y, 3, mid, stride));
    y = layer_conv(g, "conv3", y, 1, out, 1);
    return layer_batchnorm_add_relu(g, "bn3", y, shortcut, zero_gamma);
}

Value resnet50_logits(Graph *g, const NetConfig *config, Value x)
{
    const bool standard = config->stem == STEM_STANDARD;

    graph_scope(g, "conv1");
    x = layer_conv(g, "conv", x, standard ? 7 : 3, scaled(config, 64), standard ? 2 : 1);
    x = layer_batchnorm_relu(g, "bn", x);
    if (standard)
        x = layer_maxpool(g, "pool", x, 3, 2);

    for (size_t s = 0; s < COUNT_OF(stages); s++)
        for (int b = 0; b < stages[s].blocks; b++) {
            graph_scope(g, "%s.%d", stages[s].name, b);
            x = bottleneck(g, x, scaled(config, stages[s].mid), scaled(config, stages[s].out),
                           b ? 1 : stages[s].stride, config->zero_init_gamma);
        }

    graph_scope(g, "%s", "");
    return layer_linear(g, "fc", layer_global_avgpool(g, "pool", x), config->classes);
}

Status resnet50_check(const NetConfig *config)
{
    /* conv1, its pool, and conv3 to conv5 halve; the small stem leaves only the last three. */
    const int64_t least = config->stem == STEM_STANDARD ? 32 : 8;
    if (config->size < least)
        return status_error(STATUS_USAGE, "resnet50 with the %s stem needs images of at least %" PRId64 " pixels, not %"
                            PRId64 "%s", stem_names[config->stem], least, config->size,
                            least == 32 && config->size >= 8 ? " (the small stem takes 8 and more)" : "");
    return status_ok();
}
