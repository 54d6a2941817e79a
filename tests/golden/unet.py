"""unet.py - the golden UNet (Ronneberger et al. 2015, with batch norm and "same" convolutions): depth 2, a quarter of the
width, with both of its losses."""
import numpy as np
import torch
import torch.nn.functional as F

import philox
from images import BatchNorm, normalized, scaled
from params import Params

CONFIG = dict(width=0.25, depth=2, size=32, batch=4, data_seed=2)
VARIANTS = {"xent": dict(classes=2), "bce_dice": dict(classes=1)}
RECIPES = (dict(optimizer="sgd", accum=1, learning_rate=0.01, weight_decay=0.01, max_norm=0),
           dict(optimizer="sgd", accum=4, learning_rate=0.01, weight_decay=0.01, max_norm=0),
           dict(optimizer="adamw", accum=1, learning_rate=0.001, weight_decay=0.1, max_norm=0),
           dict(optimizer="adamw", accum=4, learning_rate=0.001, weight_decay=0.1, max_norm=0),
           dict(optimizer="sgd", accum=1, learning_rate=0.01, weight_decay=0.01, max_norm=0.5))

IGNORED = 255
SQUARES = 8  # a side of the image


class Level:
    """Twice 3x3 convolution, batch norm, ReLU."""

    def __init__(self, params, name, inputs, outputs):
        self.first = (params.conv(name + ".conv1.w", outputs, 3, inputs), BatchNorm(params, name + ".bn1", outputs))
        self.second = (params.conv(name + ".conv2.w", outputs, 3, outputs), BatchNorm(params, name + ".bn2", outputs))

    def __call__(self, x, train):
        for weights, norm in (self.first, self.second):
            x = F.relu(norm(F.conv2d(x, weights, padding=1), train))
        return x


class Net:
    def __init__(self, variant, dtype):
        self.variant, self.params = variant, Params(dtype)
        p, depth = self.params, CONFIG["depth"]
        channels = [scaled(64 << level, CONFIG["width"]) for level in range(depth + 1)]
        self.down = [Level(p, f"down{level}", channels[level - 1] if level else 3, channels[level]) for level in range(depth + 1)]
        self.up = []
        for level in reversed(range(depth)):
            # Ours (inputs,2,2,outputs), torch's (inputs,outputs,2,2). A pixel of the result has one of the four taps.
            weights = p.matrix(f"up{level}.up.w", (channels[level + 1], 2, 2, channels[level]), channels[level + 1] ** -0.5)
            self.up.append((weights.permute(0, 3, 1, 2), Level(p, f"up{level}", 2 * channels[level], channels[level])))
        classes = VARIANTS[variant]["classes"]
        self.head = (p.conv("head.w", classes, 1, channels[0]), p.vector("head.b", classes))

    def logits(self, x, train):
        skips = []
        for level in self.down:
            x = level(F.max_pool2d(x, 2) if skips else x, train)
            skips.append(x)
        skips.pop()
        for weights, level in self.up:
            x = level(torch.cat([skips.pop(), F.conv_transpose2d(x, weights, stride=2)], 1), train)
        return F.conv2d(x, *self.head)

    def __call__(self, samples, train):
        """Logits (N,H,W,classes), and the sum of the losses of the pixels or images."""
        images, labels = samples
        logits = self.logits(images, train)
        loss = bce_dice(logits[:, 0], labels) if self.variant == "bce_dice" else \
            F.cross_entropy(logits, labels, ignore_index=IGNORED, reduction="sum")
        return logits.permute(0, 2, 3, 1), loss


def bce_dice(logits, mask):
    """As kernels/ops.h: for each image the mean binary cross-entropy of the pixels that count, plus 1 - soft Dice."""
    total = logits.sum() * 0
    for x, t in zip(logits, mask):
        x, t = x[t != IGNORED], t[t != IGNORED].to(logits.dtype)
        if len(t):
            p = torch.sigmoid(x)
            dice = (2 * (p * t).sum() + 1) / (p.sum() + t.sum() + 1)
            total = total + F.binary_cross_entropy_with_logits(x, t) + 1 - dice
    return total


def batch(_variant, step, dtype):
    """Images and labels (batch,size,size) of a step. An image is 8 x 8 squares, each background or object at random; a pixel is
    three quarters the colour of its kind, one quarter noise. One pixel in 16 is ignored, and all of image 2 in step 3."""
    n, size, seed = CONFIG["batch"], CONFIG["size"], CONFIG["data_seed"]
    place = np.arange(size) * SQUARES // size
    kinds = philox.integers(seed, 2 << 32 | step, (n, SQUARES, SQUARES)) & 1
    labels = kinds[:, place][:, :, place]
    colours = philox.integers(seed, 1 << 32, (2, 3)) & 255
    noise = philox.integers(seed, step, (n, size, size, 3)) & 255
    pixels = (3 * colours[labels] + noise) // 4
    labels = np.where(philox.integers(seed, 3 << 32 | step, (n, size, size)) % 16 == 0, IGNORED, labels)
    if step == 3:
        labels[2] = IGNORED
    return normalized(pixels, dtype), torch.tensor(labels)


def counted(samples, variant):
    labels = samples[1]
    return int((labels != IGNORED).any(2).any(1).sum() if variant == "bce_dice" else (labels != IGNORED).sum())
