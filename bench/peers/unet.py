"""unet.py - UNet in PyTorch, for torch_server.py: Ronneberger et al. 2015 with padded convolutions and batch norm; 64 channels
that double with each of 4 levels, 2 classes."""
import torch
import torch.nn.functional as F
from torch import nn

import images

CLASSES, WIDTH, DEPTH = 2, 64, 4


class Level(nn.Module):
    """Twice 3x3 convolution, batch norm, ReLU."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs)
        self.conv2, self.norm2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs)

    def forward(self, x):
        x = F.relu(self.norm1(self.conv1(x)), inplace=True)
        return F.relu(self.norm2(self.conv2(x)), inplace=True)


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        channels = [WIDTH << level for level in range(DEPTH + 1)]
        self.down = nn.ModuleList(Level(inputs, outputs) for inputs, outputs in zip([3] + channels, channels))
        self.up, self.merge = nn.ModuleList(), nn.ModuleList()
        for outputs in reversed(channels[:-1]):
            self.up.append(nn.ConvTranspose2d(2 * outputs, outputs, 2, 2, bias=False))
            self.merge.append(Level(2 * outputs, outputs))
        self.head = nn.Conv2d(WIDTH, CLASSES, 1)

    def forward(self, x):
        skips = []
        for level in self.down:
            x = level(F.max_pool2d(x, 2) if skips else x)
            skips.append(x)
        skips.pop()
        for up, merge in zip(self.up, self.merge):
            x = merge(torch.cat([skips.pop(), up(x)], 1))
        return self.head(x)


class Workload:
    parameters = 31_036_738

    def __init__(self, args):
        self.normalize, self.net = images.Normalize().to(args.device), images.prepared(UNet(), args.device)
        self.optimizer = images.sgd(self.net)
        labels = torch.randint(0, CLASSES, (args.batch, args.size, args.size))
        self.inputs = images.random_pixels(args.size, args.batch), labels
        if args.compile:
            self.forward = torch.compile(self.forward)

    def forward(self, pixels, labels):
        return F.cross_entropy(self.net(self.normalize(pixels)).float(), labels)
