"""resnet50.py - the golden ResNet-50 v1.5: a quarter of the width, and the small stem (3x3, stride 1, no pool)."""
import numpy as np
import torch
import torch.nn.functional as F

import philox
from images import BatchNorm, normalized, scaled
from params import Params

CONFIG = dict(width=0.25, size=32, batch=8, classes=10, data_seed=2)
VARIANTS = {"xent": {}}
RECIPES = (dict(optimizer="sgd", accum=1, learning_rate=0.02, weight_decay=1e-4, max_norm=0),
           dict(optimizer="sgd", accum=2, learning_rate=0.02, weight_decay=1e-4, max_norm=0),
           dict(optimizer="adamw", accum=1, learning_rate=0.0003, weight_decay=0.1, max_norm=0),
           dict(optimizer="adamw", accum=4, learning_rate=0.0003, weight_decay=0.1, max_norm=0),
           dict(optimizer="sgd", accum=1, learning_rate=0.02, weight_decay=1e-4, max_norm=2),
           dict(optimizer="sgd", accum=4, learning_rate=0.002, weight_decay=1e-4, max_norm=0))

STAGES = ((64, 256, 3, 1), (128, 512, 4, 2), (256, 1024, 6, 2), (512, 2048, 3, 2))  # mid, out, blocks, stride


class Net:
    """The last gamma of each block starts near 0: without that, float32 and float64 part after two steps, and nothing could
    be compared."""

    def __init__(self, _variant, dtype):
        self.params = p = Params(dtype)
        inp = scaled(64, CONFIG["width"])
        self.stem = (p.conv("conv1.conv.w", inp, 3, 3), BatchNorm(p, "conv1.bn", inp))
        self.blocks = []
        for stage, (mid, out, blocks, stride) in enumerate(STAGES, 2):
            mid, out = scaled(mid, CONFIG["width"]), scaled(out, CONFIG["width"])
            for b in range(blocks):
                name, s = f"conv{stage}.{b}.", 1 if b else stride
                project = None
                if s != 1 or inp != out:
                    project = (p.conv(name + "project.w", out, 1, inp), BatchNorm(p, name + "project_bn", out))
                self.blocks.append((project, s, p.conv(name + "conv1.w", mid, 1, inp), BatchNorm(p, name + "bn1", mid),
                                    p.conv(name + "conv2.w", mid, 3, mid), BatchNorm(p, name + "bn2", mid),
                                    p.conv(name + "conv3.w", out, 1, mid), BatchNorm(p, name + "bn3", out, 0)))
                inp = out
        self.fc = (p.uniform("fc.w", (CONFIG["classes"], inp), inp, True), p.uniform("fc.b", (CONFIG["classes"],), inp, False))

    def logits(self, x, train):
        y = F.relu(self.stem[1](F.conv2d(x, self.stem[0], padding=1), train))
        for project, stride, c1, b1, c2, b2, c3, b3 in self.blocks:
            shortcut = project[1](F.conv2d(y, project[0], stride=stride), train) if project else y
            y = F.relu(b1(F.conv2d(y, c1), train))
            y = F.relu(b2(F.conv2d(y, c2, padding=1, stride=stride), train))
            y = F.relu(b3(F.conv2d(y, c3), train) + shortcut)
        return F.linear(y.mean(dim=(2, 3)), *self.fc)

    def __call__(self, samples, train):
        """Logits, and the sum of the losses of the samples."""
        images, labels = samples
        logits = self.logits(images, train)
        return logits, F.cross_entropy(logits, labels, reduction="sum")


def batch(_variant, step, dtype):
    """Images (batch,3,size,size) and labels of a step. Sample n has label n mod classes; its pixels are three quarters a
    pattern of 4 x 4 coloured squares that belongs to the label, one quarter noise of its own."""
    n, size, classes, seed = CONFIG["batch"], CONFIG["size"], CONFIG["classes"], CONFIG["data_seed"]
    labels = np.arange(n) % classes
    squares = philox.integers(seed, 1 << 32, (classes, 4, 4, 3)) & 255
    noise = philox.integers(seed, step, (n, size, size, 3)) & 255
    place = np.arange(size) * 4 // size
    pixels = (3 * squares[labels][:, place][:, :, place] + noise) // 4
    return normalized(pixels, dtype), torch.tensor(labels)


def counted(samples, _variant):
    """How many samples have a label: the mean is over these."""
    return len(samples[1])
