"""resnet50.py - ResNet-50 in PyTorch, for torch_server.py: He et al. 2015, table 1, with the stride on the 3x3 (v1.5)."""
import torch
import torch.nn.functional as F
from torch import nn

import images

CLASSES = 1000
STAGES = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))  # width of the 3x3, blocks, stride of the first block


def convolution(inputs, outputs, kernel, stride=1):
    return nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)


class Bottleneck(nn.Module):
    """1x1, 3x3, 1x1 with a shortcut."""

    def __init__(self, inputs, width, stride):
        super().__init__()
        outputs = 4 * width
        self.conv1, self.norm1 = convolution(inputs, width, 1), nn.BatchNorm2d(width)
        self.conv2, self.norm2 = convolution(width, width, 3, stride), nn.BatchNorm2d(width)
        self.conv3, self.norm3 = convolution(width, outputs, 1), nn.BatchNorm2d(outputs)
        self.shortcut = None
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(convolution(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))

    def forward(self, x):
        shortcut = x if self.shortcut is None else self.shortcut(x)
        y = F.relu(self.norm1(self.conv1(x)), inplace=True)
        y = F.relu(self.norm2(self.conv2(y)), inplace=True)
        y = self.norm3(self.conv3(y))
        y += shortcut
        return F.relu(y, inplace=True)


class ResNet50(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = convolution(3, 64, 7, 2), nn.BatchNorm2d(64)
        blocks, inputs = [], 64
        for width, count, stride in STAGES:
            for i in range(count):
                blocks.append(Bottleneck(inputs, width, stride if i == 0 else 1))
                inputs = 4 * width
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(inputs, CLASSES)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm(self.conv(x)), inplace=True), 3, 2, 1)
        return self.head(torch.flatten(F.adaptive_avg_pool2d(self.blocks(x), 1), 1))


class Workload:
    parameters = 25_557_032

    def __init__(self, args):
        self.normalize, self.net = images.Normalize().to(args.device), images.prepared(ResNet50(), args.device)
        self.optimizer = images.sgd(self.net)
        self.inputs = images.random_pixels(args.size, args.batch), torch.randint(0, CLASSES, (args.batch,))
        if args.compile:
            self.forward = torch.compile(self.forward)

    def forward(self, pixels, labels):
        return F.cross_entropy(self.net(self.normalize(pixels)).float(), labels)
